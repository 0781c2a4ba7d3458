"""A graph server and its Lambdas as a queueing model: threads, environments, and intervals that go round between them.

It computes nothing, and a simulated hour takes seconds: what the autotuner does can be compared with what the best
fixed number of environments would have done. Service times vary as measured ones do (log-normal, some much longer),
environments start cold, and leave when fewer are wanted.

``cost_planner.plan.simulator`` has the real scheduler, and takes ten times as long for an epoch. What is
asked here is whether a rule finds the number at which two sides are balanced: here it is known where that is,
as nothing but those two takes time.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.waiting import FreeWorkers
from siafu.places import COLD_START_S


@dataclass(frozen=True)
class Load:
    """What a server has to do. Times in seconds."""

    threads: int = 8
    intervals: int = 128
    layers: int = 4  # gather, tensor task, scatter: two layers forward and backward
    ratio: float = 1.0  # tensor work / graph work
    gather_s: float = 0.012
    scatter_s: float = 0.003
    sigma: float = 0.25  # of the logarithm of every time
    slow_share: float = 0.01  # of tensor tasks, that take so much longer
    slow_factor: float = 5.0
    latency_s: float = 0.004  # of a tensor task on its way, there and back: keeps no environment busy
    cold_s: float = COLD_START_S  # start of an environment
    in_layers: bool = False  # as pipe: no interval gathers before every one has scattered the layer before
    prefetch: int = 2  # tasks that an environment holds

    @property
    def tensor_s(self) -> float:
        """Of one task."""
        return self.ratio * (self.gather_s + self.scatter_s)


class PipelineModel:
    """``wanted``: environments that are to be there, changed from outside; ``time_s`` goes on in ``run``."""

    def __init__(self, load: Load, wanted: int, seed: int, tuner: Autotuner | None = None):
        self.load, self.tuner, self._rng = load, tuner, random.Random(seed)
        # All mutable state:
        self.wanted = wanted
        self.time_s = 0.0
        self.environment_s = 0.0  # that environments were there
        self.epoch_ends: list[float] = []
        self.queue_means: list[float] = []  # of graph tasks that wait, by epoch
        self.decisions: list[int] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._graph: deque[Callable[[], None]] = deque()  # graph tasks that wait for a thread: what follows each
        self._graph_s: deque[float] = deque()
        self._busy = 0
        self._tensor: deque[int] = deque()  # intervals whose tensor task waits for an environment
        self._held: dict[str, deque[int]] = {}  # environment -> tasks that it has; the newest leave first
        self._leaving: set[str] = set()
        self._free = FreeWorkers()
        self._num_held = 0
        self._starting = 0
        self._num_environments = 0
        self._busy_environments = 0
        self._stage = [0] * load.intervals  # layers that each has scattered, in all epochs
        self._at_gate = 0  # intervals that wait for the others
        self._queue_area = 0.0

    def run(self, epochs: int) -> float:
        """Seconds until so many more epochs are over."""
        begun, until = self.time_s, len(self.epoch_ends) + epochs
        if not self._events:
            self._launch()
            for interval in range(self.load.intervals):
                self._gather(interval)
        while len(self.epoch_ends) < until:
            time_s, _, event = heapq.heappop(self._events)
            self._queue_area += len(self._graph) * (time_s - self.time_s)
            self.environment_s += len(self._held) * (time_s - self.time_s)
            self.time_s = time_s
            event()
            self._watch()
        return self.time_s - begun

    def _watch(self) -> None:
        if self.tuner is not None:
            open_tasks = len(self._tensor) + self._num_held
            self.tuner.watch(self.time_s, len(self._graph) + self._busy, open_tasks, self._busy_environments)
            if 2 * self._starting > self.tuner.wanted:
                self.tuner.start_over(self.time_s)
            elif self.tuner.decide(self.time_s):
                self.decisions.append(self.tuner.wanted)
                self.wanted = self.tuner.wanted
                self._launch()

    # --- graph tasks --------------------------------------------------------------------------------------------------

    def _gather(self, interval: int) -> None:
        def then() -> None:
            self._tensor.append(interval)
            self._hand_out()

        self._queue(self.load.gather_s, then)

    def _scatter(self, interval: int) -> None:
        def then() -> None:
            self._stage[interval] += 1
            gates = 1 if self.load.in_layers else self.load.layers
            if self._stage[interval] % gates:
                self._gather(interval)
                return
            self._at_gate += 1
            if self._at_gate == self.load.intervals:
                self._open_gate()

        self._queue(self.load.scatter_s, then)

    def _open_gate(self) -> None:
        self._at_gate = 0
        if self._stage[0] % self.load.layers == 0:
            last = self.epoch_ends[-1] if self.epoch_ends else 0.0
            self.queue_means.append(self._queue_area / (self.time_s - last))
            self._queue_area = 0.0
            self.epoch_ends.append(self.time_s)
        for interval in range(self.load.intervals):
            self._gather(interval)

    def _queue(self, seconds: float, then: Callable[[], None]) -> None:
        self._graph.append(then)
        self._graph_s.append(self._noisy(seconds))
        self._start_threads()

    def _start_threads(self) -> None:
        while self._graph and self._busy < self.load.threads:
            self._busy += 1
            then = self._graph.popleft()
            self._after(self._graph_s.popleft(), lambda then=then: self._finish(then))  # type: ignore[misc]

    def _finish(self, then: Callable[[], None]) -> None:
        self._busy -= 1
        then()
        self._start_threads()

    # --- tensor tasks -------------------------------------------------------------------------------------------------

    def _launch(self) -> None:
        """Starts environments or lets them go, until there are as many as are wanted."""
        staying = [name for name in self._held if name not in self._leaving]
        for name in staying[self.wanted :]:
            self._leaving.add(name)
            self._note(name)
        for _ in range(self.wanted - len(staying) - self._starting):
            self._starting += 1
            self._after(self._noisy(self.load.cold_s), self._started)

    def _started(self) -> None:
        self._starting -= 1
        self._num_environments += 1
        name = f"{self._num_environments:06d}"
        self._held[name] = deque()
        self._note(name)
        self._hand_out()

    def _note(self, name: str) -> None:
        """Its tasks have changed, or whether it stays."""
        load = len(self._held[name])
        if name not in self._leaving and load < self.load.prefetch:
            self._free.put(name, load)
            return
        self._free.drop(name)
        if name in self._leaving and not load:
            del self._held[name]

    def _hand_out(self) -> None:
        while self._tensor and (least := self._free.least_busy()) is not None:
            load, name = least
            self._held[name].append(self._tensor.popleft())
            self._num_held += 1
            self._note(name)
            if not load:
                self._busy_environments += 1
                self._compute(name, on_its_way_s=self.load.latency_s)

    def _compute(self, name: str, on_its_way_s: float = 0.0) -> None:
        slow = self.load.slow_factor if self._rng.random() < self.load.slow_share else 1.0
        self._after(on_its_way_s + slow * self._noisy(self.load.tensor_s), lambda: self._answer(name))

    def _answer(self, name: str) -> None:
        held = self._held[name]
        interval = held.popleft()
        self._num_held -= 1
        if self.tuner is not None:
            self.tuner.answered()
        if held:
            self._compute(name)
        else:
            self._busy_environments -= 1
        self._note(name)
        self._scatter(interval)
        self._hand_out()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _after(self, seconds: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.time_s + seconds, self._number, event))

    def _noisy(self, seconds: float) -> float:
        """Log-normal with this mean."""
        sigma = self.load.sigma
        return seconds * self._rng.lognormvariate(-sigma * sigma / 2, sigma)
