"""The fleet on one thread whose servers and links fail too, and which recovers by the code of
``run_coordinator.launch``'s parts.

Servers' messages are numbered by ``siafu.message_numbers`` and keep the order of their link, as TCP does; between links
there is no order at all. A message may be lost, come twice, or have been left over by an earlier attempt. A server that
dies falls silent at once; others may go on for long before the coordinator notices. Then parameter servers that are
left are asked for their state, also those that have told of a loss themselves, and a new attempt begins: with that,
with the newest checkpoint, or from nothing.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from run_coordinator.recovery.supervisor import Supervisor
from siafu import wire
from siafu.address import COORDINATOR, Address, Send
from siafu.config import Config
from siafu.errors import GnnError, PeerLost
from siafu.message_numbers import Links
from siafu.shards import ShardSet
from siafu.training_state import TrainingState
from tests.fleet import Faults, Fleet

#: Events that survivors are given to tell their state.
RESCUE_EVENTS = 300
#: Nothing gets done by those.
IDLE = (wire.Heartbeat, wire.GetState, wire.ParamState)
#: Attempts that faults of servers come to; the next ones are left alone, so that each run ends.
MAX_FAULTY_ATTEMPTS = 4


@dataclass(frozen=True)
class ServerFaults:
    """Probabilities: of ``kill`` and ``kill_launcher`` per event, of the others per message."""

    kill: float = 0.002
    kill_launcher: float = 0.0003
    lose: float = 0.001
    twice: float = 0.01
    late: float = 0.02  # of what an attempt has left undelivered


class LauncherKilled(Exception):
    """The coordinator's process is gone, and everybody with it: a user says ``siafu resume``."""


Parcel = tuple[int, int, Any]  # attempt, number on its link, message


class FailingFleet(Fleet):
    """One attempt."""

    def __init__(
        self,
        config: Config,
        shards: ShardSet,
        seed: int,
        faults: Faults | None,
        troubles: ServerFaults,
        attempt: int = 0,
        before: TrainingState | None = None,
        strays: list[tuple[Address, Address, Parcel]] | None = None,
    ):
        """``strays``: what earlier attempts have left on the way."""
        super().__init__(config, shards, seed, faults, before=before)
        self.troubles, self.attempt = troubles, attempt
        self.injected |= dict.fromkeys(("server", "launcher", "message lost", "message twice", "message late"), 0)
        self.dead: set[Address] = set()
        self.outlasting: set[Address] = set()  # parameter servers that take nothing but the question for their state
        self._joined = False  # whether all members have said hello
        self.links = {member: Links(member) for member in (COORDINATOR, *self.coordinator.members)}
        self.accepted: Counter[tuple[int, int, int]] = Counter()  # (epoch, interval, layer) of gradients
        self._on_way: dict[tuple[Address, Address], deque[Parcel]] = {}
        self._start = len(self.coordinator.ledger.losses)
        for sender, to, parcel in strays or []:
            if self.rng.random() < troubles.late:
                self.injected["message late"] += 1
                self._hand(sender, to, parcel)

    @property
    def strays(self) -> list[tuple[Address, Address, Parcel]]:
        """What is still on the way."""
        return [(*link, parcel) for link, line in self._on_way.items() for parcel in line]

    def slowest(self) -> int:
        """A server that has not heard of the start yet believes itself in the run's first epoch."""
        return max(self._start, super().slowest())

    # --- failing ------------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        if self._joined and self.attempt < MAX_FAULTY_ATTEMPTS:
            luck = self.rng.random()
            if luck < self.troubles.kill:
                self.injected["server"] += 1
                self._fail(self.rng.choice(self.coordinator.members), "died: killed by SIGKILL")
            elif luck < self.troubles.kill + self.troubles.kill_launcher:
                self.injected["launcher"] += 1
                raise LauncherKilled
        self._joined = self._joined or not self.coordinator.missing()
        return super()._step()

    def _fail(self, member: Address, how: str) -> None:
        """It is gone; the coordinator notices at some time from now on."""
        if member in self.dead:
            return
        self.dead.add(member)

        def noticed() -> None:
            raise PeerLost(f"{member} {how}")

        self._happens(COORDINATOR, COORDINATOR, noticed)

    def _give_up(self, member: Address, why: str) -> None:
        """A server has lost a peer or a message, and tells; a parameter server stays."""
        if member.role != "param_server":
            return self._fail(member, f"gave up: {why}")
        if member not in self.outlasting | self.dead:
            self.outlasting.add(member)
            last_words = wire.Failed(member.role, member.index, "PeerLost", why, "")
            self._happens(member, COORDINATOR, self.coordinator.handle, member, last_words, self.now)
        return None

    def rescue(self) -> None:
        """As ``run_coordinator.launch`` does: parameter servers that are left are asked for their state."""
        sends = self.coordinator.ask_for_state([m for m in self.coordinator.members if m not in self.dead])
        self._post(COORDINATOR, list(sends))
        for _ in range(RESCUE_EVENTS):
            if {send.to for send in sends}.issubset(self.coordinator.states.given):
                return
            with contextlib.suppress(GnnError):
                if not self._step():
                    return

    # --- links --------------------------------------------------------------------------------------------------------

    def _post(self, sender: Address, sends: list[Send]) -> None:
        if sender not in self.dead:
            super()._post(sender, sends)

    def _dispatch(self, sender: Address, to: Address, message: Any) -> None:
        if sender.role == "worker" or to.role == "worker":
            return super()._dispatch(sender, to, message)
        if to in self.dead and self.rng.random() < 0.5:  # its connection is gone: whoever must deliver there gives up
            return self._give_up(sender, f"{to}: not connected") if sender != COORDINATOR else None
        links = self.links[sender]
        number = links.number(to)
        links.sent(to)
        luck = self.rng.random() if self.attempt < MAX_FAULTY_ATTEMPTS else 1.0
        if luck < self.troubles.lose:
            self.injected["message lost"] += 1
            return None
        self._hand(sender, to, (self.attempt, number, message))
        if luck < self.troubles.lose + self.troubles.twice:
            self.injected["message twice"] += 1
            self._hand(sender, to, (self.attempt, number, message))
        return None

    def _hand(self, sender: Address, to: Address, parcel: Parcel) -> None:
        line = self._on_way.setdefault((sender, to), deque())
        line.append(parcel)
        self._happens(sender, to, self._take, sender, to, line)

    def _take(self, sender: Address, to: Address, line: deque[Parcel]) -> None:
        """As ``siafu.sockets.Hub`` reads a message."""
        attempt, number, message = line.popleft()
        if isinstance(message, IDLE):
            self.moves -= 1
        links = self.links[to]
        if to in self.dead or attempt != self.attempt or not links.take(sender, number):
            return
        if to in self.outlasting and not isinstance(message, wire.GetState):
            return
        if to != COORDINATOR:
            try:
                links.check()
            except PeerLost as lost:
                return self._give_up(to, str(lost))
        if not isinstance(message, wire.Heartbeat):
            self._deliver(sender, to, message)
        links.check()
        return None

    def _deliver(self, sender: Address, to: Address, message: Any) -> None:
        if to in self.dead:
            return
        if not isinstance(message, wire.Gradient):
            return super()._deliver(sender, to, message)
        replica = self.replicas[to.index]
        ignored = replica.duplicates.get("Gradient", 0)
        stepped = replica.version > message.epoch
        super()._deliver(sender, to, message)
        if replica.duplicates.get("Gradient", 0) == ignored:
            key = message.epoch, message.interval, message.layer
            assert not stepped, f"after its step: gradient of {key}"
            self.accepted[key] += 1
            assert self.accepted[key] == 1, f"twice: gradient of {key}"
        return None

    def _finish(self, index: int, job: Any) -> None:
        if Address("graph_server", str(index)) not in self.dead:
            super()._finish(index, job)

    def _pass_time(self, seconds: float) -> None:
        super()._pass_time(seconds)
        for sender, links in self.links.items():
            for to in self.links:
                if to != sender and links.number(to) > 1:  # whoever has said something also says that it is alive
                    self._post(sender, [Send(to, wire.Heartbeat(sender.role, sender.index))])


@dataclass
class Outcome:
    """A run with all its attempts."""

    fleet: FailingFleet  # the last
    result: dict[str, Any]
    restarts: int = 0
    resumes: int = 0
    restored: int = 0  # restarts and resumes that went on from a state
    lost_epochs: int = 0  # that had to be done again
    deliveries: int = 0
    injected: Counter[str] = field(default_factory=Counter)


def train(
    config: Config,
    shards: ShardSet,
    seed: int,
    faults: Faults | None,
    troubles: ServerFaults,
    watch: Callable[[FailingFleet], None] = lambda fleet: None,
) -> Outcome:
    """Trains until the weights are there, through attempts and resumes. ``watch`` sees
    each attempt's fleet before it starts.

    Raises AssertionError on a deadlock, or on a gradient that is taken twice.
    """
    rng = random.Random(seed)
    supervisor = Supervisor(config.run.restarts)
    before: TrainingState | None = None
    strays: list[tuple[Address, Address, Parcel]] = []
    attempt = restarts = resumes = restored = lost_epochs = deliveries = 0
    injected: Counter[str] = Counter()
    while True:
        fleet = FailingFleet(config, shards, rng.getrandbits(32), faults, troubles, attempt, before, strays)
        watch(fleet)
        try:
            result = fleet.train()
            break
        except LauncherKilled:
            before, supervisor, resumes = fleet.saved, Supervisor(config.run.restarts), resumes + 1
        except PeerLost as error:
            try:
                fleet.rescue()
            except LauncherKilled:
                before, supervisor, resumes = fleet.saved, Supervisor(config.run.restarts), resumes + 1
            else:
                before = fleet.coordinator.states.latest or fleet.saved
                version = before.version if before is not None else 0
                if not supervisor.again(error, version, joined=True):
                    raise supervisor.last_words(error) from None
                restarts += 1
        finally:
            deliveries += fleet.deliveries
            injected.update(fleet.injected)
        restored += before is not None
        # 0 where it failed before it was told what it goes on from
        reached = max(replica.version for replica in fleet.replicas)
        lost_epochs += max(0, reached - (before.version if before is not None else 0))
        strays, attempt = fleet.strays, attempt + 1
    return Outcome(fleet, result, restarts, resumes, restored, lost_epochs, deliveries, injected)
