"""Shared by all server processes of a run: joining, heartbeats, leaving when told, and reporting failures.

python -m graph_server --coordinator tcp://host:port --run-id HEX --index I --shards DIR --run-dir DIR
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from siafu import config as configs
from siafu.address import COORDINATOR, Address, Role
from siafu.config import Config
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.keys import Ring
from siafu.run_files import CONFIG
from siafu.sockets import Hub
from siafu.wire import Failed, Heartbeat, Hello, Message, Refused, Roster, Start, Stop, Welcome

logger = logging.getLogger(__name__)

#: The most open files of one process. Enough for 2,000 workers; a larger table wastes memory.
MAX_OPEN_FILES = 1 << 16
#: With fewer, a server of the smallest run cannot start its Lambda environments.
LEAST_OPEN_FILES = 128


#: Factor by which a server tolerates another server's silence longer than the coordinator does. The coordinator can
#: name the cause, and starts the next attempt with the state of the others.
PEERS_PATIENCE = 1.5


@dataclass(frozen=True)
class Joined:
    """A member that has joined its run and knows all members."""

    hub: Hub
    config: Config
    index: int
    roster: Roster
    shards: Path
    run_dir: Path


def main(role: Role, serve: Callable[[Joined], None], argv: Sequence[str] | None = None) -> int:
    """Joins the run that the arguments name, and serves. Returns 0 after Stop, 1 on failure (which is reported to the
    coordinator)."""
    args = _parse(role, argv)
    # The coordinator ends a run: a terminal's Ctrl-C reaches it, and it tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {role} {args.index} %(name)s: %(message)s")
    allow_open_files()
    me = Address(role, str(args.index))
    config = configs.load(args.run_dir / CONFIG)
    listen = args.listen or config.listen
    ring = _keys(config, on_stdin=args.keys_on_stdin)
    with Hub(me, bytes.fromhex(args.run_id), listen=listen, ports=config.servers.port_range, ring=ring) as hub:
        hub.dial(COORDINATOR, args.coordinator)
        try:
            joined = _join(hub, config, args)
            serve(joined)
        except Exception as error:  # the edge of the process: the coordinator must learn why
            trace = traceback.format_exc()
            logger.error("%s", trace)
            text = str(error) if isinstance(error, GnnError) else f"{type(error).__name__}: {error}"
            hub.send(COORDINATOR, Failed(role, args.index, type(error).__name__, text[:4000], trace[:20000]))
            hub.flush_and_close()
            return 1
        hub.flush_and_close()
    return 0


def _keys(config: Config, *, on_stdin: bool) -> Ring | None:
    """Reads our keys from stdin if ``on_stdin``; else None. Raises: ConfigError if they are not valid, or are missing
    in a run that must have keys."""
    if on_stdin:
        try:
            return Ring.load(json.load(sys.stdin))
        except ValueError:  # its text would be in the log
            raise ConfigError("no keys came on stdin") from None
    if config.servers.security == "curve":
        raise ConfigError("servers.security = curve, but the process that started this member gave it no keys")
    return None


def allow_open_files() -> None:
    """Raises this process's limit of open files as far as the system allows, up to ``MAX_OPEN_FILES``.

    Processes start with 1,024. A parameter server has a connection to every worker of the run, and a baseline's rank
    maps the files of many partitions (docs/scale.md). Raises: GnnError if the system's limit is too low for any run.
    """
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < LEAST_OPEN_FILES:
        raise GnnError(
            f"this system lets a process open {most} files, must be at least {LEAST_OPEN_FILES}: ulimit -n 4096"
        )
    wanted = MAX_OPEN_FILES if most == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


class Presence:
    """Polls for messages, sends heartbeats, and notices when the coordinator or another server falls silent.

    Heartbeats go over every link between servers and are numbered (``siafu.message_numbers``). So a lost message is
    noticed soon, and so is a dead link whose both ends still reach the coordinator. During a long computation here,
    heartbeats lie unread. So the time between two polls that are further apart than heartbeats does not count as
    silence. Other servers compute for long before training starts; their silence counts only from then on.
    """

    def __init__(
        self, hub: Hub, config: Config, message: Callable[[], Message], clock: Callable[[], float] = time.monotonic
    ):
        self._hub, self._servers, self._message, self._clock = hub, config.servers, message, clock
        # All mutable state:
        self._said = self._polled = clock()
        self._heard = {COORDINATOR: self._polled}  # member that must not be silent -> when it was heard last
        self._training = False

    def poll(self, timeout_s: float) -> list[tuple[Address, Message]]:
        """Polls like ``Hub.poll``. Raises: PeerLost once a member has been silent for too long."""
        now = self._clock()
        if now - self._said >= self._servers.heartbeat_s:
            self._said = now
            self._beat()
        if now - self._polled > self._servers.heartbeat_s:
            self._heard = {member: heard + now - self._polled for member, heard in self._heard.items()}
        arrived = self._hub.poll(timeout_s)
        now = self._polled = self._clock()
        self._training = self._training or any(isinstance(message, Start) for _, message in arrived)
        if self._training:
            self._heard = dict.fromkeys(self._hub.peers, now) | self._heard
        self._heard.update((sender, now) for sender, _ in arrived if sender in self._heard)
        for member, heard in self._heard.items():
            limit_s = self._servers.silence_s * (1 if member == COORDINATOR else PEERS_PATIENCE)
            if now - heard > limit_s:
                self._hub.put_back(arrived)  # a caller that outlasts this still needs them
                raise PeerLost(f"{member}: silent for {now - heard:.0f} s, limit {limit_s:g} s")
        return arrived

    @property
    def orphaned(self) -> bool:
        """Whether the coordinator has been silent for too long."""
        return self._clock() - self._heard[COORDINATOR] > self._servers.silence_s

    def forget_peers(self) -> None:
        """Ignores the silence of other servers from now on."""
        self._training, self._heard = False, {COORDINATOR: self._heard[COORDINATOR]}

    def _beat(self) -> None:
        me = self._hub.me
        self._hub.send(COORDINATOR, self._message())
        for peer in self._hub.peers - {COORDINATOR}:
            self._hub.send(peer, Heartbeat(me.role, me.index))


def answer(me: Address, hello: Hello, config: Config) -> Welcome | Refused:
    """Returns the answer to a Hello: only members with the same config belong to one run."""
    if hello.config_digest != config.digest:
        return Refused(f"{hello.role} {hello.index} has config {hello.config_digest}, the run has {config.digest}")
    return Welcome(me.role, me.index)


def _parse(role: Role, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"python -m {role}", description=f"One {role} of a run; siafu train starts it."
    )
    parser.add_argument("--coordinator", required=True, metavar="tcp://HOST:PORT")
    parser.add_argument("--run-id", required=True, metavar="HEX")
    parser.add_argument("--index", required=True, type=int)
    parser.add_argument("--shards", required=True, metavar="DIR", type=Path)
    parser.add_argument(
        "--run-dir", required=True, metavar="DIR", type=Path, help=f"has the run's {CONFIG}; gets what we write"
    )
    parser.add_argument("--listen", default="", metavar="HOST", help="address to bind; without it, servers.listen")
    parser.add_argument("--keys-on-stdin", action="store_true", help="the process that starts us writes our keys there")
    return parser.parse_args(argv)


def _join(hub: Hub, config: Config, args: argparse.Namespace) -> Joined:
    """Sends Hello and waits for the roster. Messages of members that have the roster already are kept for later."""
    hub.send(COORDINATOR, Hello(hub.me.role, args.index, config.digest, hub.endpoint))
    presence = Presence(hub, config, lambda: Heartbeat(hub.me.role, args.index))
    early: list[tuple[Address, Message]] = []
    roster: Roster | None = None
    while roster is None:
        for sender, message in presence.poll(config.servers.heartbeat_s):
            match message:
                case Roster():
                    roster = message
                case Refused(reason=reason):
                    raise ConfigError(f"refused by the coordinator: {reason}")
                case Stop(reason=reason) if roster is None:
                    raise PeerLost(f"the run stopped before it began: {reason}")
                case _:
                    early.append((sender, message))
    hub.put_back(early)
    return Joined(hub, config, args.index, roster, args.shards, args.run_dir)
