"""A graph server's simulated Lambdas: as many as are wanted, each with a link and a share of a core of its own."""

from __future__ import annotations

import heapq
from typing import Protocol

from cost_planner.plan.parts import Cores, Last, Link, Pool, Then, Timeline, Waits
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.prefetch import PREFETCH, Prefetch
from graph_server.lambdas.waiting import FreeWorkers, Priority
from siafu.tasks import TENSOR_KINDS, Lane, Program, TaskId


class Fleet(Protocol):
    """The parameter servers, as a graph server's Lambdas see them."""

    def asked(self, task: TaskId, nbytes: float, then: Then) -> None: ...


class Server(Protocol):
    """A graph server, as its Lambdas see it (``cost_planner.plan.simulator.Server``)."""

    plan: Plan
    timeline: Timeline
    cores: Cores
    pool: Pool
    io: Pool
    out: Link
    into: Link
    programs: dict[Lane, Program]

    @property
    def fleet(self) -> Fleet: ...
    def relay(self, kind: Environments, nbytes: float, then: Then) -> None: ...
    def work(self, task: TaskId) -> StepWork: ...
    def moves(self, work: StepWork) -> Waits | None: ...
    def priority(self, task: TaskId) -> Priority: ...
    def tensor_done(self, task: TaskId) -> None: ...


class Lambdas:
    """A server's environments."""

    def __init__(self, server: Server, kind: Environments):
        self.server, self.kind, self.timeline = server, kind, server.timeline
        plan = server.plan
        rounds = plan.intervals * sum(step.kind in TENSOR_KINDS for step in plan.program.steps)
        self.tuner = (
            None
            if kind.count
            else Autotuner(plan.intervals, kind.most, plan.threads, rounds, in_layers=plan.mode != "async")
        )
        self.prefetch = None if kind.prefetch or plan.mode == "no-pipe" else Prefetch(kind.memory_mb)
        # All mutable state:
        self._most_held = kind.prefetch or (1 if plan.mode == "no-pipe" else PREFETCH)
        self.environment_s = 0.0
        self._counted_at = 0.0
        self._wanted = kind.count or (self.tuner.wanted if self.tuner else 0)
        self._there: dict[str, _Environment] = {}
        self._leaving: set[str] = set()
        self._free = FreeWorkers()
        self._waiting: list[tuple[Priority, TaskId]] = []  # a heap
        self._starting = self._number = self._held = 0
        self._at_work = 0  # environments that hold a task
        self._launch()

    @property
    def num_there(self) -> int:
        return len(self._there) - len(self._leaving)

    def submit(self, task: TaskId) -> None:
        heapq.heappush(self._waiting, (self.server.priority(task), task))
        self._hand_out()

    def watch(self) -> None:
        now = self.timeline.now
        if self.prefetch:
            self.prefetch.watch(now, len(self._waiting), self._at_work)
        if self.tuner is None:
            return
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
            self._there[name].take(heapq.heappop(self._waiting)[1])
            self._note(name)

    def _note(self, name: str) -> None:
        """Updates a free list after an environment's tasks changed, or whether it stays."""
        load = len(self._there[name].tasks)
        if name not in self._leaving and load < self._most_held:
            self._free.put(name, load)
            return
        self._free.drop(name)
        if name in self._leaving and not load:
            self.count()
            self._leaving.discard(name)
            del self._there[name]

    def answered(self, name: str, task: TaskId, compute_s: float) -> None:
        self._held -= 1
        if self.prefetch:
            work = self.server.work(task)
            self.prefetch.answered(compute_s, int(work.down + work.up))
            most = self.prefetch.decide(-(-self.server.plan.intervals // max(1, self._wanted)))
            if most != self._most_held:
                self._most_held = most
                for one in self._there:
                    self._note(one)
        self._at_work -= not self._there[name].tasks
        if self.tuner:
            self.tuner.answered()
        self._note(name)
        self._hand_out()
        self.server.tensor_done(task)

    def count(self) -> None:
        """Adds the seconds of the environments up to now."""
        now = self.timeline.now
        self.environment_s += len(self._there) * (now - self._counted_at)
        self._counted_at = now


class _Environment:
    """One Lambda: fetches, computes and sends. Other tasks travel while one is computed."""

    def __init__(self, lambdas: Lambdas, name: str):
        server, timeline, kind = lambdas.server, lambdas.timeline, lambdas.kind
        self._lambdas, self._name, self._timeline, self._server = lambdas, name, timeline, server
        self._in, self._out = (Link(timeline, kind.link) for _ in range(2))
        # From and to parameter servers.
        self._asked, self._told = (Link(timeline, kind.link) for _ in range(2)) if kind.relay else (self._in, self._out)
        shared = server.cores if server.plan.together else None
        self._cpu, self._io = (Pool(timeline, 1, shared or Cores(timeline, 1)) for _ in range(2))
        # Of a Lambda: its processor is that slow. On this machine it computes on a whole one and sleeps.
        self._speed, self._awake = (1.0, kind.core) if shared else (kind.core, 1.0)
        # All mutable state:
        self.tasks: set[TaskId] = set()
        self._number = 0
        self._computed_at = 0.0  # when it last was through with a task
        self._took: dict[TaskId, float] = {}  # seconds
        self._versions: dict[int, int] = {}  # layer -> of the weights that it has
        self._asked_for: dict[tuple[Lane, int], int] = {}  # interval -> the epoch of which it knows the version

    def take(self, task: TaskId) -> None:
        self.tasks.add(task)
        work = self._server.work(task)
        self._server.io.add((), work.io / 2, lambda: self._travels(task))

    def _travels(self, task: TaskId) -> None:
        """Sends a task's rows in two parts (except in no-pipe). The environment asks for weights with the first, and
        computes while the second arrives."""
        server, kind, timeline = self._server, self._lambdas.kind, self._timeline
        work, begin = server.work(task), timeline.now
        here = max(server.out.leave(work.down), self._in.leave(work.down)) + kind.latency_s
        slow = kind.slow_factor if kind.slow_share and timeline.rng.random() < kind.slow_share else 1.0
        seconds = slow * timeline.noisy(work.seconds / self._speed, kind.sigma)
        travel_s = here - begin - kind.latency_s
        ready = Last(3, lambda: self._computes(task, seconds))
        streams = server.plan.mode != "no-pipe"
        timeline.at(here - streams * travel_s / 2, lambda: self._fetches(task, ready))
        timeline.at(here - streams * min(seconds, travel_s) / 2, ready)
        server.relay(kind, work.down, ready)

    def _fetches(self, task: TaskId, then: Then) -> None:
        """Fetches weights: a round trip, with the weights if this version is not here; none if the environment knows
        that it has them."""
        server, kind = self._server, self._lambdas.kind
        layer, interval = server.programs[task.lane][task.pc].layer, (task.lane, task.interval)
        version = task.epoch + (task.lane is not Lane.TRAIN)
        held = self._versions.get(layer) == version
        if held and self._asked_for.get(interval) == task.epoch:
            return then()
        nbytes = 0.0 if held else server.work(task).weights
        self._versions[layer], self._asked_for[interval] = version, task.epoch

        def answered() -> None:
            both = Last(2, then)
            self._timeline.at(self._asked.leave(nbytes) + kind.latency_s, both)
            server.relay(kind, nbytes, both)

        self._timeline.after(kind.latency_s, lambda: server.fleet.asked(task, nbytes, answered))
        return None

    def _computes(self, task: TaskId, seconds: float) -> None:
        self._io.add((), self._server.work(task).remote_io / self._speed, lambda: self._begins(task, seconds))

    def _begins(self, task: TaskId, seconds: float) -> None:
        self._number += 1
        asked = self._timeline.now
        server = self._server
        moves = server.moves(server.work(task)) if server.plan.together else None  # elsewhere it has its own memory
        self._cpu.add(
            (self._number,),
            seconds,
            lambda: self._computed(task, asked),
            meanwhile=self._slowed(seconds + server.work(task).remote_io, moves),
        )

    def _slowed(self, seconds: float, moves: Waits | None) -> Waits | None:
        """Other work that lasts as long as a computation. ``lambda_funcs.cpu_share`` sleeps after it, also for the time
        of messages."""
        if self._awake == 1:
            return moves

        def both(then: Then) -> None:
            last = Last(1 if moves is None else 2, then)
            self._timeline.after(seconds / self._awake, last)
            if moves is not None:
                moves(last)

        return both

    def _computed(self, task: TaskId, asked: float) -> None:
        now = self._timeline.now
        self._took[task], self._computed_at = now - max(asked, self._computed_at), now
        server, kind = self._server, self._lambdas.kind
        work = server.work(task)
        if not server.programs[task.lane][task.pc].has_gradient:
            return self._returns(task)
        # Gradients are acknowledged before the result is sent.
        there = Last(2, lambda: server.fleet.asked(task, work.weights, acknowledged))

        def acknowledged() -> None:
            self._timeline.after(kind.latency_s, lambda: self._returns(task))

        self._timeline.at(self._told.leave(work.weights) + kind.latency_s, there)
        server.relay(kind, work.weights, there)
        return None

    def _returns(self, task: TaskId) -> None:
        server, kind, work = self._server, self._lambdas.kind, self._server.work(task)
        back = Last(2, lambda: server.io.add((), work.io / 2, lambda: self._answer(task)))
        self._timeline.at(max(self._out.leave(work.up), server.into.leave(work.up)) + kind.latency_s, back)
        server.relay(kind, work.up, back)

    def _answer(self, task: TaskId) -> None:
        self.tasks.discard(task)
        self._lambdas.answered(self._name, task, self._took.pop(task))
