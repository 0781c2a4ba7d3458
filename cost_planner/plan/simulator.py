"""A run in simulated time: the real scheduler and autotuner of every graph server, and a model of all that takes time.

From an interval's point of view it is the run of ``graph_server.partition``: the scheduler says that a step may run;
a graph step waits for a thread of its server; a tensor step goes down the server's link to an environment, is
computed there with weights that a parameter server is asked for, and its result comes up again (or is computed by the
server's own threads); what a Scatter publishes travels to the other servers, and may let their intervals gather. When
all intervals of all servers are through an epoch, the parameter servers publish weights. Evaluation is a second lane,
and training waits for it as it does.

What is modelled: threads that take the shallowest step of the oldest epoch, and help with sums and products while none
waits; a main and an I/O thread of each server, through which every task goes; the bandwidth of a
machine's memory, which its threads share; parameter servers, asked one after the other; processors that all threads of
a machine share, which is one machine for all where a run is ``together``; a GPU of each server; links of servers and
environments, both ways, with bursts; environments that start cold, hold several tasks and compute one after the other;
stragglers. What is not: lost tasks, throttling.

Servers are alike: of many, ``REPRESENTATIVES`` are simulated, and what the others send comes when theirs does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cost_planner.plan.environments import Lambdas
from cost_planner.plan.parts import Cores, Link, LinkRate, Pool, Then, Timeline, Waits
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from graph_server.lambdas.waiting import Priority
from graph_server.scheduler import Crossing, Event, Opened, Published, Scheduler, StepDone
from siafu.tasks import TENSOR_KINDS, Kind, Lane, TaskId

if TYPE_CHECKING:
    from random import Random

#: More servers than these are represented by so many.
REPRESENTATIVES = 4


@dataclass(frozen=True)
class Outcome:
    """The result of a simulated run."""

    epoch_ends: tuple[float, ...]
    environment_s: float  # seconds that all environments of one server were there
    environments: int  # of a server, at the end
    tensor_tasks: int  # of a server

    @cached_property
    def epoch_s(self) -> float:
        """The median epoch, without the first two: environments start and asynchrony warms up in them."""
        spans = np.diff(self.epoch_ends)
        return float(np.median(spans[1:] if len(spans) > 2 else spans)) if len(spans) else self.epoch_ends[0]


def simulated(plan: Plan, epochs: int, rng: Random) -> Outcome:
    """Simulates the first epochs of the run."""
    timeline = Timeline(rng)
    fleet = Fleet(plan, timeline, epochs)
    fleet.begin()
    while not fleet.finished:
        if not timeline.step():
            raise AssertionError("nothing happens any more, and the run is not over")
    return fleet.outcome()


class Fleet:
    """All servers. Each parameter server gets its share of the requests."""

    def __init__(self, plan: Plan, timeline: Timeline, epochs: int):
        assert len(plan.work) == len(plan.program), (len(plan.work), len(plan.program))
        self.plan, self.timeline, self.epochs = plan, timeline, epochs
        self.num_simulated = min(plan.servers, REPRESENTATIVES)
        #: Number of peers of a server that each simulated server stands for.
        self.peers_each = (plan.servers - 1) / max(1, self.num_simulated - 1)
        self.evaluated = [e for e in range(epochs) if plan.eval_every and (e + 1) % plan.eval_every == 0]
        shared = Cores(timeline, plan.cores) if plan.together else None
        self.memory = Link(timeline, LinkRate(plan.memory_bytes_per_s)) if plan.together else None
        #: Requests that are not simulated are assumed to be spread like the simulated ones.
        self.asked_by = plan.servers / self.num_simulated
        self.proxy = Pool(timeline, 1, shared or Cores(timeline, 1))
        self.coordinator = Pool(timeline, 1, shared or Cores(timeline, 1))
        self.param_servers = [Pool(timeline, 1, shared or Cores(timeline, 1)) for _ in range(plan.param_servers)]
        self.servers = [Server(self, index, shared) for index in range(self.num_simulated)]
        # All mutable state:
        self.epoch_ends: list[float] = []
        self._through: dict[tuple[Lane, int], int] = {}  # lane, epoch -> intervals that are

    @property
    def finished(self) -> bool:
        return len(self.epoch_ends) == self.epochs

    def begin(self) -> None:
        for server in self.servers:
            server.open(0)

    def interval_done(self, task: TaskId) -> None:
        """Counts an interval at the end of an epoch's WU, or of an evaluation's last step."""
        key = task.lane, task.epoch
        self._through[key] = self._through.get(key, 0) + 1
        if self._through[key] < self.num_simulated * self.plan.intervals:
            return
        del self._through[key]
        if task.lane is Lane.EVAL:
            told: Then = lambda: self.timeline.after(self.plan.latency_s, lambda: self._judged(task.epoch))  # noqa: E731
            self.timeline.after(self.plan.latency_s, lambda: self.coordinator.add((), self.plan.judge_s, told))
        else:
            then: Then = lambda: self.timeline.after(self.plan.latency_s, lambda: self._weights(task.epoch + 1))  # noqa: E731
            self.timeline.after(self.plan.latency_s, lambda: self.param_servers[0].add((), self.plan.update_s, then))

    def _judged(self, epoch: int) -> None:
        for server in self.servers:
            server.judged(epoch)

    def _weights(self, version: int) -> None:
        self.epoch_ends.append(self.timeline.now)
        for server in self.servers:
            server.open(version)

    def ask(self, task: TaskId, nbytes: float, then: Then) -> None:
        """Sends a server's request for weights, or its gradients, to a parameter server. ``then`` follows the
        answer."""
        latency_s, after = self.plan.latency_s, self.timeline.after
        after(latency_s, lambda: self.asked(task, nbytes, lambda: after(latency_s, then)))

    def asked(self, task: TaskId, nbytes: float, then: Then) -> None:
        """Handles a request at a parameter server."""
        server = self.param_servers[task.interval % len(self.param_servers)]
        seconds = self.plan.exchange_s + nbytes * self.plan.exchange_byte_s
        server.add((), seconds * self.asked_by, then)

    def outcome(self) -> Outcome:
        servers = self.servers
        for server in servers:
            if server.lambdas:
                server.lambdas.count()
        return Outcome(
            tuple(self.epoch_ends),
            environment_s=sum(server.lambdas.environment_s for server in servers if server.lambdas) / len(servers),
            environments=max((one.lambdas.num_there for one in servers if one.lambdas), default=0),
            tensor_tasks=sum(one.num_tensor for one in servers) // len(servers),
        )


class Server:
    def __init__(self, fleet: Fleet, index: int, shared: Cores | None):
        plan, timeline = fleet.plan, fleet.timeline
        self.fleet, self.plan, self.timeline = fleet, plan, timeline
        self.cores = shared or Cores(timeline, plan.cores or plan.threads + 1)
        self.pool, self.main, self.io = (Pool(timeline, n, self.cores) for n in (plan.threads, 1, 1))
        self.card = Pool(timeline, 1, Cores(timeline, 1))
        self.memory = fleet.memory or Link(timeline, LinkRate(plan.memory_bytes_per_s))
        self.out, self.into = Link(timeline, plan.link), Link(timeline, plan.link)
        self.programs = {Lane.TRAIN: plan.program}
        self._work: Mapping[Lane, Sequence[StepWork]] = {Lane.TRAIN: plan.work, Lane.EVAL: plan.eval_work}
        if fleet.evaluated and plan.eval_program is not None:
            self.programs[Lane.EVAL] = plan.eval_program
        mine = range(index * plan.intervals, (index + 1) * plan.intervals)
        crossing = _crossing(mine, fleet.num_simulated * plan.intervals)
        self.schedulers = {
            lane: Scheduler(
                program,
                lane,
                mine,
                range(fleet.epochs) if lane is Lane.TRAIN else fleet.evaluated,
                forward=crossing,
                backward=crossing,
                freshness=plan.freshness if plan.mode == "async" and lane is Lane.TRAIN else 1.0,
                warmup_epochs=plan.warmup_epochs,
                max_ahead=max(1, int(plan.ahead * plan.intervals)),
                in_step=plan.mode == "no-pipe",
            )
            for lane, program in self.programs.items()
        }
        self.lambdas = None if plan.environments is None else Lambdas(self, plan.environments)
        self._rows_due = len(plan.program.publisher) * plan.intervals * (fleet.num_simulated - 1)
        # All mutable state:
        self.num_tensor = 0
        self.version = 0
        self._judged = -1
        self._rows_in: dict[int, int] = {}
        self._epochs_in = 0

    def relay(self, kind: Environments, nbytes: float, then: Then) -> None:
        """Passes bytes through the proxy, if there is one."""
        self.fleet.proxy.add((), kind.relay * nbytes, then)

    def work(self, task: TaskId) -> StepWork:
        return self._work[task.lane][task.pc]

    @staticmethod
    def priority(task: TaskId) -> Priority:
        """The priority of a task, as ``Partition._priority``."""
        evaluates = task.lane is Lane.EVAL
        return task.epoch + evaluates, int(evaluates), task.pc, task.interval

    # --- epochs -----------------------------------------------------------------------------------------------------

    def open(self, version: int) -> None:
        """Opens epochs, as ``Partition._open_epochs``."""
        plan = self.plan
        self.version = max(self.version, version)
        slowest = min(self.version, self._epochs_in) if self._rows_due else self.version
        staleness = plan.staleness if plan.mode == "async" else 0
        due = next((e for e in self.fleet.evaluated if e > self._judged), self.fleet.epochs)
        ahead = 1 + staleness if plan.mode != "no-pipe" else 0
        if Lane.EVAL not in self.programs:
            due, ahead = self.fleet.epochs, 0
        self._handle(Lane.TRAIN, Opened(min(slowest + staleness, due + ahead), slowest))
        if slowest > due:
            self._handle(Lane.EVAL, Opened(due, due))

    def judged(self, epoch: int) -> None:
        self._judged = max(self._judged, epoch)
        self.open(self.version)

    def _handle(self, lane: Lane, event: Event) -> None:
        for task in self.schedulers[lane].handle(event):
            self._run(task)
        if self.lambdas:
            self.lambdas.watch()

    # --- steps ------------------------------------------------------------------------------------------------------

    def _run(self, task: TaskId) -> None:
        step, work = self.programs[task.lane][task.pc], self.work(task)
        if step.kind is Kind.WU:
            self.fleet.interval_done(task)
            self._done(task)
        elif step.kind in TENSOR_KINDS:
            self.num_tensor += 1
            if work.cut:
                seconds = self.timeline.noisy(work.cut, self.plan.sigma)
                cut: Then = lambda: self.timeline.after(self.plan.wake_s, lambda: self._submit(task))  # noqa: E731
                self.pool.add(self.priority(task), seconds, cut)
            else:
                self._submit(task)
        elif (
            not work.seconds + work.held + work.card + work.memory and not step.publishes
        ):  # what is gathered once, before the first epoch
            self._done(task)
        else:
            then: Then = (lambda: self._scattered(task)) if step.publishes else (lambda: self._done(task))
            self._compute(task, lambda: self.main.add((), work.main, then))

    def _submit(self, task: TaskId) -> None:
        work = self.work(task)
        if self.lambdas:
            submit = self.lambdas.submit
            self.main.add((), work.main / 2, lambda: submit(task))
        elif work.asks:
            self.fleet.ask(task, 0.0, lambda: self._computes(task))
        else:
            self._computes(task)

    def _compute(self, task: TaskId, then: Then) -> None:
        work, priority = self.work(task), self.priority(task)
        seconds = self.timeline.noisy(self.plan.thread_s(work), self.plan.sigma)
        waits: Waits | None = (lambda over: self.card.add(priority, work.card, over)) if work.card else None
        told: Then = (lambda: self.timeline.after(self.plan.wake_s, then)) if self.plan.wake_s else then
        chunks = self.plan.chunks if work.shared else 1
        self.main.add((), work.held, lambda: self.pool.add(priority, seconds, told, waits, self.moves(work), chunks))

    def moves(self, work: StepWork) -> Waits | None:
        """The wait for a step's bytes between memory and processors, after earlier requests. None: memory is no
        limit."""
        if not work.memory or self.plan.memory_bytes_per_s == math.inf:
            return None
        return lambda over: self.timeline.at(self.memory.leave(work.memory), over)

    def _computes(self, task: TaskId) -> None:
        """Computes a tensor task on the server's own threads."""
        step, work = self.programs[task.lane][task.pc], self.work(task)

        def computed() -> None:
            if step.has_gradient:
                self.fleet.ask(task, work.weights, lambda: self.tensor_done(task))
            else:
                self.tensor_done(task)

        self.main.add((), work.main / 2, lambda: self._compute(task, computed))

    def tensor_done(self, task: TaskId) -> None:
        def then() -> None:
            if task.lane is Lane.EVAL and task.pc == len(self.programs[Lane.EVAL]) - 1:
                self.fleet.interval_done(task)
            self._done(task)

        self.main.add((), self.work(task).main / 2, then)

    def _done(self, task: TaskId) -> None:
        self._handle(task.lane, StepDone(task))

    def _scattered(self, task: TaskId) -> None:
        work = self.work(task)
        if len(self.fleet.servers) > 1:
            self.io.add((), work.io, lambda: self._leaves(task, work.peers))
        self._handle(task.lane, Published(task.epoch, task.pc, task.interval))
        self._done(task)

    def _leaves(self, task: TaskId, nbytes: float) -> None:
        for peer in self.fleet.servers:
            if peer is not self:
                gone = self.out.leave(nbytes * self.fleet.peers_each)
                self.timeline.at(self.out.began, lambda peer=peer, gone=gone: peer.arriving(task, nbytes, gone))  # type: ignore[misc]

    def arriving(self, task: TaskId, nbytes: float, gone: float) -> None:
        """Takes in the rows of a peer, and of those that it stands for; they left its link at ``gone``."""
        here = max(gone, self.into.leave(nbytes * self.fleet.peers_each)) + self.plan.latency_s
        work = self.work(task)
        each = self.fleet.peers_each
        self.timeline.at(
            here,
            lambda: self.io.add(
                (), work.io * each, lambda: self.main.add((), work.pasted * each, lambda: self._arrived(task))
            ),
        )

    def _arrived(self, task: TaskId) -> None:
        self._handle(task.lane, Published(task.epoch, task.pc, task.interval))
        if task.lane is Lane.EVAL:
            return
        self._rows_in[task.epoch] = self._rows_in.get(task.epoch, 0) + 1
        before = self._epochs_in
        while self._rows_in.get(self._epochs_in) == self._rows_due:
            del self._rows_in[self._epochs_in]
            self._epochs_in += 1
        if self._epochs_in > before:
            self.open(self.version)


def _crossing(mine: range, total: int) -> Crossing:
    """Edges between intervals, as if every interval had the same number to every other."""
    here = np.arange(len(mine))
    one = np.ones(len(mine), np.int64)
    targets, counts = dict.fromkeys(range(total), here), dict.fromkeys(range(total), one)
    for position, interval in enumerate(mine):
        targets[interval], counts[interval] = np.delete(here, position), one[1:]
    return Crossing(targets, counts, np.full(len(mine), total - 1, np.int64))
