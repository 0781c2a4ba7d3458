"""Starts every role of a run on its host, watches them, and leaves none behind."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from bench import hosts, loggers
from bench.coordinator import Action, Coordinator, Record, Save, Status
from bench.hosts import Host
from siafu import checkpoint, models
from siafu.address import COORDINATOR, Address, Send
from siafu.config import Config
from siafu.errors import GnnError, PeerLost
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sockets import Hub
from siafu.sparse import Array
from siafu.wire import RUN_ID_BYTES, Heartbeat, Message

logger = logging.getLogger(__name__)

POLL_S = 0.1
#: How long members may take to say goodbye before they are killed: with the user's Ctrl-C everything ends within 5 s.
FAREWELL_S = 3.5
#: After a success it is worth waiting for what the last workers cost.
BILLING_S = 10.0
#: How far apart a member's end, its own last words and others' complaints about it may be.
LAST_WORDS_S = 1.0
#: How long a run that has come to a limit waits for its weights.
WEIGHTS_S = 20.0


def run(
    config: Config, shards: ShardSet, shards_path: Path, run_dir: Path, on_status: Callable[[Status], None],
    check: Callable[[], None] = lambda: None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Trains as the config says; returns the result (``Coordinator.result``) and the best and final weights.

    metrics.jsonl, checkpoints and logs are left in ``run_dir``. A run that comes to its limit (``run.budget_usd``,
    ``run.max_seconds``) is no failure: the result says so, and "best" is "final" where nothing was evaluated.

    Raises what ``check``, called now and then, raises; the error of the first member that fails, PeerLost naming a member that dies or falls silent. KeyboardInterrupt
    ends the members before it goes on.
    """
    run_id = secrets.token_bytes(RUN_ID_BYTES)
    spec = ModelSpec.of(config, shards.manifest)
    coordinator = Coordinator(config, spec.target)
    config_file = run_dir / "config.toml"
    with (
        open(run_dir / "metrics.jsonl", "a", encoding="utf-8") as metrics,
        loggers.opened(config, run_dir) as tell,
        hosts.build(config, run_dir, shards_path, config_file, run_id) as host,
        Hub(COORDINATOR, run_id, listen=host.listen, ports=config.servers.port_range) as hub,
    ):
        session = _Session(config, spec, coordinator, host, run_dir, hub, metrics, on_status, check, tell)
        try:
            session.train()
            session.farewell("done", BILLING_S)
        except BaseException as error:
            session.farewell(type(error).__name__)
            raise
        finally:
            host.collect()
    if not coordinator.usage_complete:
        logger.warning("what the last workers cost is not known of every graph server: the usage is a lower bound")
    weights = {which: message.tensors for (which, server), message in coordinator.models.items() if server == 0}
    return coordinator.result(), {"best": weights["final"], **weights}


class _Session:
    """The coordinator's loop."""

    def __init__(
        self, config: Config, spec: ModelSpec, coordinator: Coordinator, host: Host, run_dir: Path, hub: Hub,
        metrics: IO[str], on_status: Callable[[Status], None], check: Callable[[], None] = lambda: None,
        tell: loggers.Tell = lambda record: None,
    ):  # fmt: skip
        self.config, self.spec, self.coordinator, self.hub = config, spec, coordinator, hub
        self.host, self.run_dir = host, run_dir
        self.metrics, self.on_status, self._check, self._tell = metrics, on_status, check, tell
        self._beat = 0.0
        self._unread: deque[tuple[Address, Message]] = deque()  # an error leaves the rest for the next turn

    def train(self) -> None:
        """Until the weights are here."""
        try:
            self._train()
        except GnnError as error:
            if not self.coordinator.at_limit:
                if isinstance(error, PeerLost):
                    raise self._cause(error) from None
                raise
            logger.warning("after the run came to its limit: %s", error)
        if ("final", 0) not in self.coordinator.models:
            logger.warning("the final weights did not come: those of the best epoch, or the first ones, are saved")
            self._do(self.coordinator.fall_back(dict(self._first_weights())))

    def _first_weights(self) -> dict[str, Array]:
        return checkpoint.first_weights(models.build(self.spec), self.config.train.warm_start)

    def _train(self) -> None:
        self.coordinator.begin(time.monotonic())
        for member in self.coordinator.members:
            self.host.start(member, self.hub.endpoint)
        begun = time.monotonic()
        limit = self.config.servers.start_timeout_s
        while not self.coordinator.complete:
            self._turn()
            if self.coordinator.at_limit:
                if time.monotonic() - self.coordinator.stopped_at > WEIGHTS_S:
                    return
                continue  # whoever is missing or silent now is not waited for
            self._check()
            if (death := self.host.dead()) is not None:
                raise PeerLost(str(death))
            if (silent := self.coordinator.silent(time.monotonic())) is not None:
                raise PeerLost(f"{silent}: silent for more than {self.coordinator.patience_s:g} s")
            stalled = time.monotonic() - max(begun, self.coordinator.moved_at)
            if stalled > self.config.servers.stall_s:
                raise PeerLost(
                    f"nothing got done for {stalled:.0f} s while {self.coordinator.status.phase}, "
                    f"limit {self.config.servers.stall_s:g} s"
                )
            missing = self.coordinator.missing()
            if missing and time.monotonic() - begun > limit:
                raise PeerLost(f"{', '.join(map(str, missing))}: did not start within {limit:g} s")

    def _cause(self, lost: PeerLost) -> GnnError:
        """What is behind a lost peer: a death that others noticed before us, or last words that are still on their way."""
        deadline = time.monotonic() + LAST_WORDS_S + self.host.lag_s
        while time.monotonic() < deadline:
            if (death := self.host.dead()) is not None and death.code < 0:
                return PeerLost(str(death))
            try:
                self._turn()
            except PeerLost:
                continue  # one more that misses it
            except GnnError as error:
                return error
        return lost

    def farewell(self, reason: str, limit_s: float = FAREWELL_S) -> None:
        """Tells everybody to leave and waits a little."""
        for send in self.coordinator.farewell(reason):
            self.hub.send(send.to, send.message)
        for member in self.coordinator.missing():
            self.host.kill(member)  # it would not hear us, and has nothing to lose yet
        deadline = time.monotonic() + limit_s
        alive = heard = True
        while not self.coordinator.everybody_left and time.monotonic() < deadline and (alive or heard):
            alive = self.host.num_alive > 0  # before we listen: a last word comes before its speaker's end
            heard = True
            with contextlib.suppress(Exception):
                heard = self._turn()
        self.host.wait(max(0.0, deadline - time.monotonic()))

    def _turn(self) -> bool:
        """Takes in what has arrived; whether that was anything. Raises what the coordinator raises."""
        now = time.monotonic()
        if now - self._beat > self.config.servers.heartbeat_s:
            self._beat = now
            for member in self.coordinator.addresses:
                self.hub.send(member, Heartbeat("coordinator", 0))
        self._unread += self.hub.poll(0 if self._unread else POLL_S)
        heard = bool(self._unread)
        while self._unread:
            sender, message = self._unread.popleft()
            self._do(self.coordinator.handle(sender, message, time.monotonic()))
        self._do(self.coordinator.tick(time.monotonic()))
        self.on_status(self.coordinator.status)
        return heard

    def _do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(to=to, message=message) if to in self.coordinator.members:
                    self.hub.deliver(to, message)
                case Send(to=to, message=message):  # a stranger is refused, and may be gone
                    self.hub.send(to, message)
                case Record(values=values):
                    self.metrics.write(json.dumps(values) + "\n")
                    self.metrics.flush()
                    self._tell(values)
                case Save(epoch=epoch, weights=weights):
                    folder = self.run_dir / "checkpoints"
                    folder.mkdir(exist_ok=True)
                    checkpoint.save_model(
                        folder / f"epoch-{epoch:04}.safetensors", weights, self.spec, {"epoch": epoch}
                    )
