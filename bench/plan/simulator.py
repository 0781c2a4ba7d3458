"""A run in simulated time: the real scheduler and autotuner of every graph server, and a model of all that takes time.

From an interval's point of view it is the run of ``graph_server.partition``: the scheduler says that a step may run; a graph
step waits for a thread of its server; a tensor step goes down the server's link to an environment, is computed there, and its
result comes up again (or is computed by the server's own threads); what a Scatter publishes travels to the other servers, and
may let their intervals gather. When all intervals of all servers are through an epoch, the parameter servers publish weights.

What is modelled: threads that take the shallowest step of the oldest epoch; links of servers and environments, both ways, with
bursts; environments that start cold, hold several tasks and compute one after the other; stragglers; the server's loop, which
handles one message after the other. What is not: memory bandwidth that threads share, lost tasks, evaluation, throttling.

Servers are alike: of many, ``representatives`` are simulated, and what the others send comes when theirs does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bench.plan.parts import Link, LinkRate, Pool, Then, Timeline
from graph_server.autotune import Autotuner
from graph_server.scheduler import Crossing, Event, Opened, Published, Scheduler, StepDone
from graph_server.waiting import FreeWorkers
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Program, TaskId

if TYPE_CHECKING:
    from random import Random

#: More servers than these are represented by so many.
REPRESENTATIVES = 4


@dataclass(frozen=True)
class StepWork:
    """What one interval's step takes."""

    seconds: float = 0.0  # of a graph thread; of a whole core, where an environment computes it
    down: float = 0.0  # bytes to the environment
    up: float = 0.0  # bytes back
    peers: float = 0.0  # bytes of what a Scatter publishes, to each other server


@dataclass(frozen=True)
class Environments:
    """A server's Lambdas. ``count`` 0: the autotuner says how many."""

    count: int = 0
    most: int = 1000
    core: float = 1.0  # share of a core
    link: LinkRate = field(default_factory=lambda: LinkRate(75e6))  # each way
    latency_s: float = 0.001  # one way
    cold_s: float = 0.4
    prefetch: int = 2
    sigma: float = 0.1  # of the logarithm of computing times
    slow_share: float = 0.0  # of tasks, that take ``slow_factor`` as long
    slow_factor: float = 5.0


@dataclass(frozen=True)
class Plan:
    """A run."""

    program: Program
    work: Sequence[StepWork]  # by step of the program
    servers: int = 1
    threads: int = 2
    intervals: int = 8  # of each server
    mode: str = "pipe"  # or "no-pipe", "async"
    staleness: int = 0
    freshness: float = 0.9
    ahead: float = 0.125
    warmup_epochs: int = 0
    #: None: the threads compute tensor tasks too.
    environments: Environments | None = field(default_factory=Environments)
    link: LinkRate = field(default_factory=lambda: LinkRate(1e9))  # of a server, each way
    latency_s: float = 0.0002  # between servers, one way
    loop_s: float = 14e-6  # of a server's main thread, for each task
    weights: float = (
        0.0  # bytes of them, that an environment fetches with a new version, and of gradients that it sends
    )
    update_s: float = 0.001  # from the last gradient to new weights
    sigma: float = 0.05  # of the logarithm of graph threads' times


@dataclass(frozen=True)
class Outcome:
    """What a simulated run took. Shares are of the time after the first epoch began, over all servers."""

    epoch_ends: tuple[float, ...]
    threads_busy: float  # share of the threads' time
    link_busy: float  # of the busier direction of the servers' links
    environments_busy: float  # of the environments' time, computing; 0 without
    environment_s: float  # seconds that all environments of one server were there
    environments: int  # of a server, at the end
    tensor_tasks: int  # of a server

    @cached_property
    def epoch_s(self) -> float:
        """Median, without the first one, in which environments start."""
        spans = np.diff(self.epoch_ends)
        return float(np.median(spans)) if len(spans) else self.epoch_ends[0]


def simulated(plan: Plan, epochs: int, rng: Random) -> Outcome:
    """The first epochs of the run."""
    timeline = Timeline(rng)
    fleet = Fleet(plan, timeline, epochs)
    fleet.begin()
    while not fleet.finished:
        assert timeline.step(), "nothing happens any more, and the run is not over"
    return fleet.outcome()


class Fleet:
    """All servers, and the parameter servers as one."""

    def __init__(self, plan: Plan, timeline: Timeline, epochs: int):
        assert len(plan.work) == len(plan.program), (len(plan.work), len(plan.program))
        self.plan, self.timeline, self.epochs = plan, timeline, epochs
        self.num_simulated = min(plan.servers, REPRESENTATIVES)
        #: Each of the simulated ones stands for so many that one server talks with.
        self.peers_each = (plan.servers - 1) / max(1, self.num_simulated - 1)
        self.servers = [Server(self, index) for index in range(self.num_simulated)]
        # All mutable state:
        self.epoch_ends: list[float] = []
        self._through: dict[int, int] = {}  # epoch -> intervals that are

    @property
    def finished(self) -> bool:
        return len(self.epoch_ends) == self.epochs

    def begin(self) -> None:
        for server in self.servers:
            server.open(0)

    def interval_done(self, epoch: int) -> None:
        """WU."""
        self._through[epoch] = self._through.get(epoch, 0) + 1
        if self._through[epoch] == self.num_simulated * self.plan.intervals:
            del self._through[epoch]
            self.timeline.after(self.plan.latency_s + self.plan.update_s, lambda: self._weights(epoch + 1))

    def _weights(self, version: int) -> None:
        self.epoch_ends.append(self.timeline.now)
        for server in self.servers:
            server.open(version)

    def outcome(self) -> Outcome:
        plan, servers = self.plan, self.servers
        whole = self.timeline.now * len(servers)
        for server in servers:
            if server.lambdas:
                server.lambdas.count()
        there = sum(server.lambdas.environment_s for server in servers if server.lambdas)
        return Outcome(
            tuple(self.epoch_ends),
            threads_busy=sum(server.pool.busy_s for server in servers) / (whole * plan.threads),
            link_busy=max(sum(one.out.busy_s for one in servers), sum(one.into.busy_s for one in servers)) / whole,
            environments_busy=sum(one.lambdas.busy_s for one in servers if one.lambdas) / there if there else 0.0,
            environment_s=there / len(servers),
            environments=max((one.lambdas.num_there for one in servers if one.lambdas), default=0),
            tensor_tasks=sum(one.num_tensor for one in servers) // len(servers),
        )  # fmt: skip


class Server:
    def __init__(self, fleet: Fleet, index: int):
        plan, timeline = fleet.plan, fleet.timeline
        self.fleet, self.plan, self.timeline = fleet, plan, timeline
        self.pool = Pool(timeline, plan.threads)
        self.loop = Pool(timeline, 1)
        self.out, self.into = Link(timeline, plan.link), Link(timeline, plan.link)
        mine = range(index * plan.intervals, (index + 1) * plan.intervals)
        crossing = _crossing(mine, fleet.num_simulated * plan.intervals)
        self.scheduler = Scheduler(
            plan.program, Lane.TRAIN, mine, range(fleet.epochs), forward=crossing, backward=crossing,
            freshness=plan.freshness if plan.mode == "async" else 1.0, warmup_epochs=plan.warmup_epochs,
            max_ahead=max(1, int(plan.ahead * plan.intervals)), in_step=plan.mode == "no-pipe",
        )  # fmt: skip
        self.lambdas = None if plan.environments is None else Lambdas(self, plan.environments)
        self._rows_due = len(plan.program.publisher) * plan.intervals * (fleet.num_simulated - 1)
        # All mutable state:
        self.num_tensor = 0
        self.version = 0
        self._rows_in: dict[int, int] = {}
        self._epochs_in = 0

    def open(self, version: int) -> None:
        self.version = max(self.version, version)
        slowest = min(self.version, self._epochs_in) if self._rows_due else self.version
        staleness = self.plan.staleness if self.plan.mode == "async" else 0
        self._handle(Opened(slowest + staleness, slowest))

    def _handle(self, event: Event) -> None:
        for task in self.scheduler.handle(event):
            self._run(task)
        if self.lambdas:
            self.lambdas.watch()

    def _run(self, task: TaskId) -> None:
        step, work = self.plan.program[task.pc], self.plan.work[task.pc]
        if step.kind is Kind.WU:
            self.fleet.interval_done(task.epoch)
            self._done(task)
        elif step.kind in TENSOR_KINDS and self.lambdas:
            self.num_tensor += 1
            self.loop.add((), self.plan.loop_s, lambda: self.lambdas.submit(task))  # type: ignore[union-attr]
        elif not work.seconds and not step.publishes:  # what is gathered once, before the first epoch
            self._done(task)
        else:
            self.num_tensor += step.kind in TENSOR_KINDS
            then: Then = (lambda: self._scattered(task)) if step.publishes else (lambda: self._done(task))
            seconds = self.timeline.noisy(work.seconds, self.plan.sigma)
            self.pool.add((task.epoch, task.pc, task.interval), seconds, then)

    def tensor_done(self, task: TaskId) -> None:
        self.loop.add((), self.plan.loop_s, lambda: self._done(task))

    def _done(self, task: TaskId) -> None:
        self._handle(StepDone(task))

    def _scattered(self, task: TaskId) -> None:
        nbytes = self.plan.work[task.pc].peers
        for peer in self.fleet.servers:
            if peer is not self:
                gone = self.out.leave(nbytes * self.fleet.peers_each)
                self.timeline.at(self.out.began, lambda peer=peer, gone=gone: peer.arriving(task, nbytes, gone))  # type: ignore[misc]
        self._handle(Published(task.epoch, task.pc, task.interval))
        self._done(task)

    def arriving(self, task: TaskId, nbytes: float, gone: float) -> None:
        """Rows of a peer, and of those that it stands for, whose link they have left when it is ``gone``."""
        here = max(gone, self.into.leave(nbytes * self.fleet.peers_each)) + self.plan.latency_s
        self.timeline.at(here, lambda: self._arrived(task))

    def _arrived(self, task: TaskId) -> None:
        self._handle(Published(task.epoch, task.pc, task.interval))
        self._rows_in[task.epoch] = self._rows_in.get(task.epoch, 0) + 1
        before = self._epochs_in
        while self._rows_in.get(self._epochs_in) == self._rows_due:
            del self._rows_in[self._epochs_in]
            self._epochs_in += 1
        if self._epochs_in > before:
            self.open(self.version)


class Lambdas:
    """The environments of a server."""

    def __init__(self, server: Server, kind: Environments):
        self.server, self.kind, self.timeline = server, kind, server.timeline
        plan = server.plan
        rounds = plan.intervals * sum(step.kind in TENSOR_KINDS for step in plan.program.steps)
        self.tuner = (
            None
            if kind.count
            else Autotuner(plan.intervals, kind.most, plan.threads, rounds, in_layers=plan.mode != "async")
        )
        # All mutable state:
        self.busy_s = self.environment_s = 0.0
        self._counted_at = 0.0
        self._wanted = kind.count or (self.tuner.wanted if self.tuner else 0)
        self._there: dict[str, _Environment] = {}
        self._leaving: set[str] = set()
        self._free = FreeWorkers()
        self._waiting: deque[TaskId] = deque()
        self._starting = self._number = self._held = 0
        self._at_work = 0  # environments that hold a task
        self._launch()

    @property
    def num_there(self) -> int:
        return len(self._there) - len(self._leaving)

    def submit(self, task: TaskId) -> None:
        self._waiting.append(task)
        self._hand_out()

    def watch(self) -> None:
        if self.tuner is None:
            return
        now = self.timeline.now
        self.tuner.watch(now, self.server.pool.num_tasks, len(self._waiting) + self._held, self._at_work)
        if 2 * self._starting > self.tuner.wanted:
            self.tuner.start_over(now)
        elif self.tuner.decide(now):
            self._wanted = self.tuner.wanted
            self._launch()

    def _launch(self) -> None:
        staying = [name for name in self._there if name not in self._leaving]
        for name in staying[self._wanted :]:
            self._leaving.add(name)
            self._note(name)
        for _ in range(self._wanted - len(staying) - self._starting):
            self._starting += 1
            self.timeline.after(self.timeline.noisy(self.kind.cold_s, self.kind.sigma), self._started)

    def _started(self) -> None:
        self._starting -= 1
        self._number += 1
        self.count()
        name = f"{self._number:06d}"
        self._there[name] = _Environment(self, name)
        self._note(name)
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and (least := self._free.least_busy()) is not None:
            load, name = least
            self._held += 1
            self._at_work += not load
            self._there[name].take(self._waiting.popleft())
            self._note(name)

    def _note(self, name: str) -> None:
        """Its tasks have changed, or whether it stays."""
        load = len(self._there[name].tasks)
        if name not in self._leaving and load < self.kind.prefetch:
            self._free.put(name, load)
            return
        self._free.drop(name)
        if name in self._leaving and not load:
            self.count()
            self._leaving.discard(name)
            del self._there[name]

    def answered(self, name: str, task: TaskId) -> None:
        self._held -= 1
        self._at_work -= not self._there[name].tasks
        if self.tuner:
            self.tuner.answered()
        self._note(name)
        self._hand_out()
        self.server.tensor_done(task)

    def count(self) -> None:
        """The seconds of the environments up to now."""
        now = self.timeline.now
        self.environment_s += len(self._there) * (now - self._counted_at)
        self._counted_at = now


class _Environment:
    """One Lambda: what it fetches, computes and sends. Fetching the next task goes on while one is computed."""

    def __init__(self, lambdas: Lambdas, name: str):
        self._lambdas, self._name, self._timeline = lambdas, name, lambdas.timeline
        self._in, self._out = (Link(lambdas.timeline, lambdas.kind.link) for _ in range(2))
        # All mutable state:
        self.tasks: set[TaskId] = set()
        self._computes_until = 0.0
        self._version = -1  # of the weights that it has

    def take(self, task: TaskId) -> None:
        self.tasks.add(task)
        server, kind, timeline = self._lambdas.server, self._lambdas.kind, self._timeline
        work = server.plan.work[task.pc]
        weights = (
            server.plan.weights if task.epoch != self._version else 0.0
        )  # from a parameter server, on our link alone
        self._version = task.epoch
        begin = timeline.now
        here = max(server.out.leave(work.down), self._in.leave(work.down + weights)) + kind.latency_s
        slow = kind.slow_factor if kind.slow_share and timeline.rng.random() < kind.slow_share else 1.0
        seconds = slow * timeline.noisy(work.seconds / kind.core, kind.sigma)
        # Streaming: what has come is computed while the rest comes, so that only half of either waits for the other.
        overlap = min(seconds, here - begin - kind.latency_s) / 2 if server.plan.mode != "no-pipe" else 0.0
        self._computes_until = max(self._computes_until, here - overlap) + seconds
        self._lambdas.busy_s += seconds
        timeline.at(self._computes_until, lambda: self._computed(task))

    def _computed(self, task: TaskId) -> None:
        server = self._lambdas.server
        step, work = server.plan.program[task.pc], server.plan.work[task.pc]
        gradient = server.plan.weights if step.has_gradient else 0.0
        out = self._out.leave(work.up + gradient)
        up = max(out, server.into.leave(work.up)) + self._lambdas.kind.latency_s
        self._timeline.at(up, lambda: self._answer(task))

    def _answer(self, task: TaskId) -> None:
        self.tasks.discard(task)
        self._lambdas.answered(self._name, task)


def _crossing(mine: range, total: int) -> Crossing:
    """Every interval hangs on every other alike."""
    here = np.arange(len(mine))
    one = np.ones(len(mine), np.int64)
    targets, counts = dict.fromkeys(range(total), here), dict.fromkeys(range(total), one)
    for position, interval in enumerate(mine):
        targets[interval], counts[interval] = np.delete(here, position), one[1:]
    return Crossing(targets, counts, np.full(len(mine), total - 1, np.int64))
