"""A whole fleet on one thread: the real partitions, parameter servers, coordinator and tensor workers, a seeded
postman.

Any message in transit may be delivered next, any running computation may finish next, whatever the order they were sent
or started in: stronger than ZeroMQ, which keeps the order of a link. Only links with the coordinator keep it here too:
a verdict must come before the request for the weights that it is about. Half of the seeds have a slow link or member on
top, whose messages and computations move only when little else can: what a starving link does to the others.

Faults hit what Lambda may do to us: workers die, hang, answer twice, or end before they said a word; their messages are
lost; tasks time out and are relaunched. Time passes when the postman says so: then workers that are idle leave, and
those that wait in vain for an answer give up.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from graph_server import backends
from graph_server.backends import Action, Backend, Compute, Launch
from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.backend import LambdaBackend
from graph_server.partition import Partition
from lambda_funcs.desk import Desk
from lambda_funcs.invocation import Invocation
from param_server.replica import Replica
from run_coordinator.actions import Record, Save
from run_coordinator.coordinator import Coordinator
from run_coordinator.reports import total
from siafu import model_file, models, wire
from siafu.address import COORDINATOR, Address, Send, graph_server, worker
from siafu.config import Config
from siafu.models import ModelSpec
from siafu.shards import Shard, ShardSet
from siafu.sparse import Array
from siafu.tasks import Lane
from siafu.tensor_task import TensorWorker
from siafu.training_state import TrainingState

#: How often a slow link moves although something else could.
SLOW_LINK_MOVES = 0.01


@lru_cache(maxsize=16)
def _shard(prepared: Path, p: int) -> Shard:
    """Shared by fleets: each mapped file costs a descriptor, and a fleet goes only
    when the collector sees its cycles."""
    return ShardSet.open(prepared).partition(p)


@dataclass(frozen=True)
class Faults:
    """Probabilities, per event."""

    kill: float = 0.0  # a worker dies when something is delivered to it
    hang: float = 0.0  # or never says a word again, until its invocation times out
    # an invocation fails at once; its worker's only message may arrive before that is known, or after
    stillborn: float = 0.0
    refuse: float = 0.0  # the service refuses an invocation
    twice: float = 0.0  # a message to or from a worker is delivered twice
    lose: float = 0.0  # or not at all


def ended(request_id: str, error: str | None, reason: str = "", *, billed_ms: int = 1, **more: Any) -> Invocation:
    """What became of an invocation whose environment was warm and wrote nothing."""
    fields = {"payload": b"{}", "init_ms": 0.0, "max_memory_mb": 0, "log_tail": ""} | more
    return Invocation(request_id=request_id, error=error, reason=reason, billed_ms=billed_ms, **fields)


#: What the service says when it refuses: error and reason.
REFUSALS = [
    ("TooManyRequestsException", "ConcurrentInvocationLimitExceeded"),
    ("TooManyRequestsException", "CallerRateLimitExceeded"),
    ("EC2ThrottledException", ""),
    ("ServiceException", "try again"),
]


class Moody(Autotuner):
    """Wants another number now and then, for no reason."""

    def __init__(self, most: int, rng: random.Random):
        super().__init__(most, most, 1, 1, in_layers=False)
        self._rng = rng

    def decide(self, now: float) -> bool:
        self.wanted = self._rng.randint(1, self.most)
        return True


@dataclass
class SimulatedWorker:
    """``lambda_funcs.worker.Worker`` without sockets: its desk, and whether it is at it."""

    name: str
    home: Address
    desk: Desk
    alive: bool = True  # False: it hangs
    heard: bool = False  # whether its graph server has heard of it
    since: float = 0.0  # when it last heard something itself


class Fleet:
    def __init__(
        self,
        config: Config,
        shards: ShardSet,
        seed: int,
        faults: Faults | None = None,
        num_threads: int = 2,
        before: TrainingState | None = None,
    ):
        """``before``: what the run goes on from."""
        self.config, self.faults = config, faults or Faults()
        self._is_faulty = self.faults != Faults()
        self.rng = random.Random(seed)
        self.spec = ModelSpec.of(config, shards.manifest)
        self.keep_bytes = self.rng.choice([0, 300, 1 << 20])  # of constants, by a worker: so some are always missing
        model = models.build(self.spec)
        parts = config.data.parts
        self.coordinator = Coordinator(config, self.spec.target, before)
        self.partitions = [
            Partition(
                config,
                _shard(shards.path, p),
                model,
                self._backend(p),
                num_threads,
                edge_types=shards.manifest.edge_types,
            )
            for p in range(parts)
        ]
        for partition in self.partitions:
            partition.trace = []
        first = model_file.first_weights(model, config.train.warm_start)
        self.replicas = [
            Replica(q, config, model, parts, parts * config.train.intervals, first)
            for q in range(config.servers.param_servers)
        ]
        self.partition_addresses = [graph_server(p) for p in range(parts)]
        self.computing = [0] * parts  # computations that each graph server has begun and not finished
        self.workers: dict[str, SimulatedWorker] = {}
        self.now = 0.0
        self.records: list[dict[str, Any]] = []
        self.saved: TrainingState | None = before  # the newest checkpoint
        self.deliveries = 0
        self.moves = 0  # events
        self.injected = dict.fromkeys(
            ("kill", "hang", "stillborn", "refuse", "twice", "lose", "leave", "give up", "dismiss"), 0
        )
        self.slow = self._choose_slow()
        self._events: list[tuple[Any, ...]] = []  # what may happen next: a function and its arguments
        self._late: list[tuple[Any, ...]] = []  # what may happen next on the slow link
        self._lines: dict[tuple[Address, Address], deque[Any]] = {}  # messages on links that keep their order
        self._may_fail = set(self.coordinator.members)  # whose next invocation may be stillborn

    def _backend(self, index: int) -> Backend:
        if self.config.servers.backend != "lambda":
            return backends.build(self.config, self.spec, index, lambda: 0.0)
        count = self.config.lambdas.count or 3
        tuner = Moody(2 * count, self.rng) if self._is_faulty and self.rng.random() < 0.5 else None
        most = 2 * count if tuner else count
        return LambdaBackend(
            self.config.lambdas,
            models.build(self.spec),
            most,
            f"w{index}",
            tuner,
            self.rng,
            intervals=self.config.train.intervals,
        )

    def _choose_slow(self) -> tuple[Address | None, Address | None]:
        """(from, to) of the slow link, None standing for everybody: also for a server's own computations."""
        if self.rng.random() < 0.5:
            return COORDINATOR, COORDINATOR  # which is no link
        sender, receiver = self.rng.choice(self.coordinator.members), self.rng.choice(self.coordinator.members)
        return self.rng.choice([(sender, None), (None, receiver), (sender, receiver)])

    # --- running ------------------------------------------------------------------------------------------------------

    def train(self) -> dict[str, Any]:
        """Runs until the coordinator has the weights; raises AssertionError on a deadlock."""
        for member in self.coordinator.members:
            hello = wire.Hello(member.role, member.index, self.config.digest, str(member))
            self._post(member, [Send(COORDINATOR, hello)])
        waits, moves = 0.0, -1
        while not self.coordinator.complete:
            if self._step():
                continue
            waits = waits + self.config.lambdas.task_timeout_s / 3 if self.moves == moves else 0.0
            moves = self.moves
            assert waits < 2 * self.config.lambdas.timeout_s, f"deadlock in epoch {self.slowest()}"
            self._pass_time(self.config.lambdas.task_timeout_s / 3)
        return self.coordinator.result()

    def _step(self) -> bool:
        """Lets one thing happen; False if nothing can but the passing of time."""
        if self._is_faulty and self.rng.random() < 0.01:
            self._pass_time(self.config.lambdas.task_timeout_s / 3)
        events = self._events
        if self._late and (not events or self.rng.random() < SLOW_LINK_MOVES):
            events = self._late
        if not events:
            return False
        self.moves += 1
        pick = int(self.rng.random() * len(events))  # randrange takes five times as long
        events[pick], events[-1] = events[-1], events[pick]
        event, *arguments = events.pop()
        event(*arguments)
        return True

    def _happens(self, sender: Address, to: Address, event: Callable[..., None], *arguments: Any) -> None:
        """The event will happen, at any time from now on."""
        slow_from, slow_to = self.slow
        if slow_from in (None, sender) and slow_to in (None, to):
            self._late.append((event, *arguments))
        else:
            self._events.append((event, *arguments))

    def _pass_time(self, seconds: float) -> None:
        self.now += seconds
        for state in list(self.workers.values()):
            self._outlive(state)
        for index, partition in enumerate(self.partitions):
            self._do(index, partition.tick(self.now))

    def _deliver(self, sender: Address, to: Address, message: Any) -> None:
        self.deliveries += 1
        if to.role == "worker":
            self._to_worker(to, message)
        elif to.role == "graph_server":
            partition = self.partitions[to.index]
            if (pulling := self.workers.get(sender.name)) is not None:
                pulling.heard = True
                self._may_fail.add(to)
            actions = partition.greet(self.now) if isinstance(message, wire.Roster) else None
            if actions is None and not isinstance(message, wire.Welcome):
                actions = partition.handle(sender, message, self.now)
            self._do(to.index, actions or [])
        elif to.role == "param_server":
            if isinstance(message, wire.Roster):
                self._post(to, [Send(COORDINATOR, wire.Ready("param_server", to.index))])
            elif not isinstance(message, wire.Welcome | wire.Start):
                self._post(to, self.replicas[to.index].handle(sender, message))
        else:
            for action in self.coordinator.handle(sender, message, self.now):
                if isinstance(action, Record):
                    self.records.append(action.values)
                elif isinstance(action, Save):
                    self.saved = action.state
                else:
                    self._post(to, [action])

    # --- workers ------------------------------------------------------------------------------------------------------

    def _to_worker(self, to: Address, message: Any) -> None:
        state = self.workers.get(to.name)
        if state is None or not state.alive:
            return
        luck = self.rng.random()
        if luck < self.faults.kill:
            self.injected["kill"] += 1
            self._end(to.name, "Runtime.ExitError")
        elif luck < self.faults.kill + self.faults.hang:
            self.injected["hang"] += 1
            state.alive = False
        elif isinstance(message, wire.Leave):
            self.injected["dismiss"] += 1
            self._post(to, [Send(state.home, wire.Bye(state.name))])
            self._end(state.name, None)
        else:
            state.since = self.now
            self._post(to, state.desk.handle(message))

    def _outlive(self, state: SimulatedWorker) -> None:
        """What a worker, or Lambda, does when it has waited too long."""
        waited = self.now - state.since
        if not state.alive:
            if waited >= self.config.lambdas.timeout_s:
                self._end(state.name, "Sandbox.Timedout")
        elif state.desk.idle and state.heard and waited >= self.config.lambdas.idle_s:
            self.injected["leave"] += 1
            self._post(worker(state.name), [Send(state.home, wire.Bye(state.name))])
            self._end(state.name, None)
        elif not state.desk.idle and waited >= self.config.servers.silence_s:
            self.injected["give up"] += 1
            self._end(state.name, "Unhandled")

    def _launch(self, home: Address, name: str, credits: int) -> None:
        if self.rng.random() < self.faults.refuse:
            self.injected["refuse"] += 1
            self._known(home, ended(name, *self.rng.choice(REFUSALS), billed_ms=0))
            return
        tensor = TensorWorker(self.spec, name, lambda: 0.0, self.keep_bytes)
        self.workers[name] = SimulatedWorker(name, home, Desk(home, tensor), since=self.now)
        stillborn = home in self._may_fail and self.rng.random() < self.faults.stillborn
        if not stillborn or self.rng.random() < 0.5:
            self._post(worker(name), [Send(home, wire.Pull(name, credits))])
        if stillborn:
            self.injected["stillborn"] += 1
            self._may_fail.discard(home)  # until another has pulled: three that fail in a row end the run
            self._end(name, "Extension.Crash")

    def _end(self, name: str, error: str | None) -> None:
        """An invocation is over: its launcher will say so, sooner or later than the worker's last messages arrive."""
        state = self.workers.pop(name)
        state.alive = False
        self._known(state.home, ended(name, error))

    def _known(self, home: Address, invocation: Invocation) -> None:
        partition = self.partitions[home.index]
        backend = partition.backend
        assert isinstance(backend, LambdaBackend)

        def known() -> None:
            self._do(home.index, partition.perform(backend.ended(invocation, self.now)))

        self._happens(worker(invocation.request_id), home, known)

    # --- actions ------------------------------------------------------------------------------------------------------

    def _do(self, index: int, actions: list[Action]) -> None:
        me = self.partition_addresses[index]
        for action in actions:
            match action:
                case Send():
                    self._post(me, [action])
                case Compute():
                    self.computing[index] += 1
                    assert self.computing[index] <= self.partitions[index].num_threads, "what waits keeps its priority"
                    self._happens(me, me, self._finish, index, action)
                case Launch(worker=name, credits=credits):
                    self._launch(me, name, credits)

    def _finish(self, index: int, job: Compute[Any]) -> None:
        self.computing[index] -= 1
        self._do(index, self.partitions[index].computed(job, job.work(), self.now))

    def _post(self, sender: Address, sends: list[Send]) -> None:
        for send in sends:
            for _ in range(self._copies(sender, send.to, send.message)):
                self._dispatch(sender, send.to, send.message)

    def _dispatch(self, sender: Address, to: Address, message: Any) -> None:
        if COORDINATOR not in (sender, to):
            self._happens(sender, to, self._deliver, sender, to, message)
            return
        line = self._lines.setdefault((sender, to), deque())
        line.append(message)
        self._happens(sender, to, lambda: self._deliver(sender, to, line.popleft()))

    def _copies(self, sender: Address, to: Address, message: Any) -> int:
        """What servers say to each other arrives once (TCP); what a worker says or hears may be lost or doubled."""
        if "worker" not in (sender.role, to.role) or isinstance(message, wire.Pull):
            return 1
        luck = self.rng.random()
        if luck < self.faults.lose:
            self.injected["lose"] += 1
            return 0
        if luck < self.faults.lose + self.faults.twice:
            self.injected["twice"] += 1
            return 2
        return 1

    # --- what tests ask -----------------------------------------------------------------------------------------------

    def slowest(self) -> int:
        """The lowest training epoch that any interval of any server is in, now."""
        known = [p.schedulers[Lane.TRAIN].slowest for p in self.partitions if Lane.TRAIN in p.schedulers]
        return min(known, default=0)

    @property
    def trace(self) -> list[dict[str, Any]]:
        return [line for partition in self.partitions for line in partition.trace or []]

    def final_weights(self) -> dict[str, Array]:
        return self.weights("final")

    def weights(self, which: str) -> dict[str, Array]:
        """Copies of the "final" or the "best" weights."""
        tensors = self.coordinator.models[which, 0].tensors
        return {name: value.copy() for name, value in tensors.items() if not hasattr(value, "indptr")}

    def usage(self) -> dict[str, float]:
        """Totals of all tensor backends."""
        return total({index: partition.backend.usage for index, partition in enumerate(self.partitions)})
