"""A graph server's simulated Lambdas: as many as are wanted, each with a link and a share of a core of its own."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.plan.parts import Cores, Link, LinkRate, Pool
from graph_server.autotune import Autotuner
from graph_server.waiting import FreeWorkers
from siafu.tasks import TENSOR_KINDS, Lane, TaskId

if TYPE_CHECKING:
    from bench.plan.simulator import Server


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
        server, timeline, kind = lambdas.server, lambdas.timeline, lambdas.kind
        self._lambdas, self._name, self._timeline, self._server = lambdas, name, timeline, server
        self._in, self._out = (Link(timeline, kind.link) for _ in range(2))
        shared = server.cores if server.plan.together else None
        self._cpu = Pool(timeline, 1, shared or Cores(timeline, 1))
        self._speed = 1.0 if shared else kind.core
        # All mutable state:
        self.tasks: set[TaskId] = set()
        self._number = 0
        self._versions: dict[int, int] = {}  # layer -> of the weights that it has

    def take(self, task: TaskId) -> None:
        self.tasks.add(task)
        work = self._server.work(task)
        self._server.io.add((), work.io / 2, lambda: self._travels(task))

    def _travels(self, task: TaskId) -> None:
        server, kind, timeline, work = self._server, self._lambdas.kind, self._timeline, self._server.work(task)
        layer = server.programs[task.lane][task.pc].layer
        version = task.epoch + (task.lane is not Lane.TRAIN)
        weights = (
            work.weights if self._versions.get(layer) != version else 0.0
        )  # from a parameter server, on our link alone
        self._versions[layer] = version
        begin = timeline.now
        here = max(server.out.leave(work.down), self._in.leave(work.down + weights)) + kind.latency_s
        slow = kind.slow_factor if kind.slow_share and timeline.rng.random() < kind.slow_share else 1.0
        seconds = slow * timeline.noisy(work.seconds / self._speed, kind.sigma)
        # Streaming: what has come is computed while the rest comes, so that only half of either waits for the other.
        overlap = min(seconds, here - begin - kind.latency_s) / 2 if server.plan.mode == "async" else 0.0
        self._lambdas.busy_s += seconds
        ask = lambda: server.fleet.ask(task, weights, lambda: self._computes(task, seconds))  # noqa: E731
        timeline.at(here - overlap, lambda: timeline.after(max(0.0, kind.latency_s - server.plan.latency_s), ask))

    def _computes(self, task: TaskId, seconds: float) -> None:
        self._number += 1
        self._cpu.add((self._number,), seconds, lambda: self._computed(task))

    def _computed(self, task: TaskId) -> None:
        server = self._server
        step, work = server.programs[task.lane][task.pc], server.work(task)
        if step.has_gradient:  # acknowledged before the result is sent
            self._out.leave(work.weights)
            server.fleet.ask(task, work.weights, lambda: self._returns(task))
        else:
            self._returns(task)

    def _returns(self, task: TaskId) -> None:
        server, work = self._server, self._server.work(task)
        up = max(self._out.leave(work.up), server.into.leave(work.up)) + self._lambdas.kind.latency_s
        self._timeline.at(up, lambda: server.io.add((), work.io / 2, lambda: self._answer(task)))

    def _answer(self, task: TaskId) -> None:
        self.tasks.discard(task)
        self._lambdas.answered(self._name, task)
