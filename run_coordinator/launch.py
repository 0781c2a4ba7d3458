"""Starts all processes of a run on their hosts, watches them, and leaves none behind."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import shlex
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import RawIOBase
from pathlib import Path

from run_coordinator import loggers
from run_coordinator.actions import Action, Record, Save, Status
from run_coordinator.coordinator import Coordinator
from run_coordinator.hosts import HOSTS, Host
from run_coordinator.recovery import guard
from run_coordinator.recovery.history import rewind
from run_coordinator.recovery.supervisor import Supervisor
from siafu import model_file, models, run_files
from siafu.address import COORDINATOR, Address, Send
from siafu.checkpoints import Saver, Store, TrainingState, mirror_of
from siafu.config import Config
from siafu.errors import GnnError, PeerLost
from siafu.keys import SECRET_BYTES, Keys, is_loopback
from siafu.keys import wanted as keys_wanted
from siafu.member import allow_open_files
from siafu.models import ModelSpec
from siafu.places import UNIX
from siafu.run_files import METRICS, Trained
from siafu.shards import ShardSet
from siafu.sockets import Hub, check_loopback, public_key
from siafu.sparse import Array
from siafu.table import loaded
from siafu.training_state import LedgerState
from siafu.wire import RUN_ID_BYTES, Heartbeat, Message, Tensors

logger = logging.getLogger(__name__)

POLL_S = 0.1
#: How long members may take to say goodbye before they are killed: with the user's Ctrl-C everything ends within 5 s.
FAREWELL_S = 3.5
#: After a success it is worth waiting for what the last workers cost.
BILLING_S = 10.0
#: Grace period to collect related failure reports before naming a cause, seconds.
LAST_WORDS_S = 1.0
#: How long parameter servers that are left may take to give their state after a failure.
RESCUE_S = 2.0
#: How long Ctrl-C may wait for a checkpoint.
SAVE_S = 1.5
#: How long a run that has come to a limit waits for its weights.
WEIGHTS_S = 20.0


def run(
    config: Config,
    shards: ShardSet,
    run_dir: Path,
    on_status: Callable[[Status], None],
    check: Callable[[], None] = lambda: None,
    before: TrainingState | None = None,
) -> tuple[Trained, dict[str, Tensors]]:
    """Trains as the config says; returns the result (``Coordinator.result``) and the best and final weights.

    metrics.jsonl, checkpoints and logs are in ``run_dir``. A run that reaches its limit (``run.budget_usd``,
    ``run.max_seconds``) has not failed: the result says so, and "best" is "final" if nothing was evaluated. ``before``:
    the state to continue from. If a member dies, hangs or misses a message, it is named, and the run restarts from the
    newest state that any member has (``run_coordinator.recovery.supervisor``; docs/recovery.md): "restarts" in the
    result.

    Raises: the exceptions of ``check``, which is called regularly; the error of the first failed member, if a restart
    does not help; PeerLost naming a member that dies or falls silent too often. Whatever ends the run, also
    KeyboardInterrupt: first members end and their state is saved, and the error says how to continue.
    """
    allow_open_files()  # or a few thousand strangers would keep members out
    if is_loopback(config.listen) and (config.listen != UNIX or config.servers.backend == "lambda"):
        check_loopback()  # local environments of Lambda have their runtime's API there
    spec = ModelSpec.of(config, shards.manifest)
    store = Store(
        run_dir / "checkpoints",
        spec,
        config.digest,
        shards.manifest.fingerprint,
        config.run.keep,
        mirror_of(config.run.checkpoint_to, run_dir.name),
    )
    guard.tell_run(str(run_dir), config.servers.silence_s)
    supervisor, restarts = Supervisor(config.run.restarts), list[_Restart]()
    spent: LedgerState | None = None
    with loggers.opened(config, run_dir) as tell, Saver(store) as saver:
        while True:
            coordinator = Coordinator(config, spec.target, before, spent)
            if (run_dir / METRICS).exists():
                rewind(run_dir / METRICS, len(coordinator.ledger.losses), coordinator.ledger.judged)
            try:
                attempt = _Attempt(
                    config, spec, coordinator, run_dir, shards.path.resolve(), on_status, check, tell, saver
                )
                attempt.run(restarts)
                break
            except PeerLost as error:
                failed_at = time.monotonic()
                before = coordinator.states.latest or store.newest()
                version = before.version if before is not None else 0
                if not supervisor.again(error, version, joined=bool(restarts) or not coordinator.missing()):
                    raise _kept(saver, run_dir, coordinator, supervisor.last_words(error)) from None
                logger.warning("%s: the run goes on from epoch %d", error, version)
                restarts.append(_Restart(str(error), version, failed_at))
                spent = coordinator.spent(time.monotonic())
                if before is not None:
                    before = coordinator.gone_on(before, time.monotonic())
            except (Exception, KeyboardInterrupt) as error:
                raise _kept(saver, run_dir, coordinator, error)  # noqa: B904 (the same error)
    if not coordinator.usage_complete:
        logger.warning("what the last workers cost is not known of every graph server: the usage is a lower bound")
    kept = coordinator.states.latest
    epoch = 0 if kept is None else kept.version
    if config.run.on != "aws" and epoch < coordinator.models["final", 0].version:
        logger.warning(
            "the last training state did not come: siafu resume %s goes on from epoch %d",
            shlex.quote(str(run_dir)),
            epoch,
        )
    weights = {which: message.tensors for (which, server), message in coordinator.models.items() if server == 0}
    told = [restart.record() for restart in restarts]
    return {**coordinator.result(), "restarts": told}, {"best": weights["final"], **weights}


def _kept(saver: Saver, run_dir: Path, coordinator: Coordinator, error: BaseException) -> BaseException:
    """Saves the newest state of a run that ends early. Returns the error, with advice on how to continue."""
    if (state := coordinator.states.latest) is None or not state.version:
        return error
    saver.put(state)
    saver.close(SAVE_S)
    if (
        coordinator.config.run.on == "aws"
    ):  # this directory is a machine's there, and siafu resume goes on with none of them
        return error
    how = f"siafu resume {shlex.quote(str(run_dir))} goes on from epoch {state.version}"
    if isinstance(error, KeyboardInterrupt):
        error.args = (how,)
    elif isinstance(error, PeerLost):
        error.args = (f"{error}; {how}",)
    elif isinstance(error, GnnError):
        error.args = (f"{error}; with --set SECTION.KEY=VALUE for what is to change, {how}",)
    else:
        logger.warning("%s", how)
    return error


def _keys(config: Config, listen: str) -> Keys | None:
    """New keys that no one else knows; None if the run has none (``servers.security``)."""
    security = config.servers.security
    if keys_wanted(security, listen):
        secret = secrets.token_bytes(SECRET_BYTES)
        return Keys(secret, config.data.parts, config.servers.param_servers, public_key)
    if not is_loopback(listen):
        logger.warning(
            "servers.security = %s: anyone who reaches %s can join this run, read it and spoil it", security, listen
        )
    return None


@dataclass
class _Restart:
    reason: str
    version: int  # that it goes on from
    failed_at: float
    seconds: float | None = None  # until training went on

    def record(self) -> run_files.Restarted:
        found: run_files.Restarted = {"reason": self.reason, "version": self.version}
        if self.seconds is not None:
            found["seconds"] = self.seconds
        return found


@dataclass(repr=False, eq=False)  # nobody prints its keys
class _Attempt:
    """One start of all roles, and the coordinator's loop."""

    config: Config
    spec: ModelSpec
    coordinator: Coordinator
    run_dir: Path
    shards: Path
    on_status: Callable[[Status], None]
    check: Callable[[], None]
    tell: loggers.Tell
    saver: Saver
    # Of ``run``, while it goes on:
    host: Host = field(init=False)
    keys: Keys | None = field(init=False)
    hub: Hub = field(init=False)
    metrics: RawIOBase = field(init=False)
    _beat: float = 0.0
    # an error leaves the rest for the next turn
    _unread: deque[tuple[Address, Message]] = field(default_factory=deque)

    def run(self, restarts: Sequence[_Restart]) -> None:
        """Runs until the weights have arrived. Sets in the last of ``restarts`` how long it took until training went
        on."""
        config = self.config
        run_id = secrets.token_bytes(RUN_ID_BYTES)  # what an earlier attempt still says is another run's
        with (
            open(self.run_dir / METRICS, "ab", buffering=0) as self.metrics,
            loaded(HOSTS[config.run.on]).make(config, self.run_dir, self.shards, run_id) as self.host,
            contextlib.nullcontext(_keys(config, self.host.listen)) as self.keys,
            Hub(
                COORDINATOR,
                run_id,
                listen=self.host.listen,
                ports=config.servers.port_range,
                ring=None if self.keys is None else self.keys.ring(COORDINATOR),
            ) as self.hub,
        ):
            try:
                self.train(restarts[-1] if restarts else None)
                guard.over()
                self.farewell("done", BILLING_S)
            except PeerLost:
                self.rescue(RESCUE_S)
                self.farewell("starting again")
                raise
            except BaseException as error:
                self.rescue(RESCUE_S if isinstance(error, Exception) else RESCUE_S / 2)
                self.farewell(type(error).__name__)
                raise
            finally:
                self.host.collect()

    def train(self, restart: _Restart | None) -> None:
        """Runs the loop until the weights have arrived. ``restart``: the restart before this attempt; notes in it when
        training went on."""
        try:
            self._train(restart)
        except GnnError as error:
            if not self.coordinator.at_limit:
                if isinstance(error, PeerLost):
                    raise self._cause(error) from None
                raise
            logger.warning("after the run came to its limit: %s", error)
        if ("final", 0) not in self.coordinator.models:
            logger.warning("the final weights did not come: those of the best epoch, or the first ones, are saved")
            self._do(self.coordinator.fall_back(dict(self._first_weights())))

    def _first_weights(self) -> Mapping[str, Array]:
        if (before := self.coordinator.before) is not None:
            return before.weights[before.version]
        return model_file.first_weights(models.build(self.spec), self.config.train.warm_start)

    def _train(self, restart: _Restart | None) -> None:
        self.coordinator.begin(time.monotonic())
        for member in self.coordinator.members:
            self.host.start(member, self.hub.endpoint, self.keys)
        begun = time.monotonic()
        limit = self.config.servers.start_timeout_s
        while not self.coordinator.complete:
            self._turn()
            if self.coordinator.went_on_at and restart is not None and restart.seconds is None:
                restart.seconds = round(self.coordinator.went_on_at - restart.failed_at, 3)
                self._do([Record({"event": "restart", **restart.record()})])
            if self.coordinator.at_limit:
                if time.monotonic() - self.coordinator.stopped_at > WEIGHTS_S:
                    return
                continue  # missing or silent members are not awaited
            self.check()
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
        """The cause of a lost peer: a death that others noticed before us, or a failure report still on its way."""
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

    def rescue(self, limit_s: float) -> None:
        """Kills silent members after a failure, and asks the parameter servers that remain for their state. Then
        ``Coordinator.states.latest`` is the newest state that was known or arrived within ``limit_s``."""
        now, heartbeat_s = time.monotonic(), self.config.servers.heartbeat_s
        quiet = self.coordinator.quiet(now, max(3 * heartbeat_s, 1.0))
        for member in quiet:
            self.host.kill(member)
        sends = self.coordinator.ask_for_state(set(self.coordinator.members).difference(quiet))
        due = {send.to for send in sends if self.hub.send(send.to, send.message)}
        while not due.issubset(self.coordinator.states.given) and time.monotonic() < now + limit_s:
            with contextlib.suppress(GnnError):
                self._turn()

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
        """Takes in the messages that have arrived; returns whether there were any. Raises what the coordinator
        raises."""
        now = time.monotonic()
        if now - self._beat > self.config.servers.heartbeat_s:
            self._beat = now
            guard.beat()
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
                    if values["event"] == "skipped":
                        logger.warning(
                            "epoch %d: its step is left out: NaN or infinity in %s", values["epoch"], values["where"]
                        )
                    self._write(json.dumps(values) + "\n")
                    self.tell(values)
                case Save(state=state):
                    self.saver.put(state)

    def _write(self, line: str) -> None:
        """Writes a line to metrics.jsonl. Raises GnnError if it cannot: nobody could follow or resume the run."""
        left = memoryview(line.encode())
        try:
            while left:
                left = left[self.metrics.write(left) or 0 :]
        except OSError as error:
            raise GnnError(f"{self.run_dir / METRICS}: {error.strerror}") from None
