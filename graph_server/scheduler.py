"""Which step of which interval may run next. Pure: no sockets, threads, clock or tensors; events in, runs out.

Rules, for the intervals of one graph server in one lane (training, or evaluation):
1. An interval runs its program in order, one step at a time.
2. It enters an epoch only once that epoch is *opened*. For training the server opens epoch ``slowest + s``, ``slowest``
   being the lowest epoch that any interval of any server is still in, and ``s`` the staleness bound (Dorylus §5.2).
   An epoch after ``slowest`` has no weights of its own yet, so an interval that enters it uses older ones. At most
   ``max_ahead`` intervals of this server may do so (docs/adr/0003: stale weights cost far more epochs than stale rows).
3. A step that gathers published rows waits until at least the share ``freshness`` of the edges that reach its interval
   from other intervals carry rows of this epoch or a later one. ``pipe`` is share 1, the paper's ``async`` share 0.
   In the first ``warmup_epochs`` the share is 1: at the start there are no older rows to read.
4. In ``no-pipe`` no interval starts a step before every interval of this server has finished the step before it.
5. A report that is not of the interval's running task is a late duplicate: ignored.

Rule 3 waits only for a Scatter earlier in the same program, never in an epoch later than the waiting interval's. So the
interval that is furthest behind can always run, and nothing deadlocks.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from siafu.sparse import Array
from siafu.tasks import Lane, Program, TaskId


@dataclass(frozen=True)
class Crossing:
    """The edges from all intervals of the graph to the intervals of one server, counted by pair, in one direction.

    ``targets[j]``, ``counts[j]``: the local intervals (positions, not global numbers) that edges from interval j reach,
    and their numbers of edges. ``totals``: edges into each local interval. Edges inside an interval do not count: its
    own rows are always of this epoch.
    """

    targets: Mapping[int, Array]
    counts: Mapping[int, Array]
    totals: Array  # int64 [local intervals]


@dataclass(frozen=True)
class Opened:
    """Event: intervals may enter every epoch up to ``epoch``; at most ``max_ahead`` may enter one after ``slowest``."""

    epoch: int
    slowest: int


@dataclass(frozen=True)
class Published:
    """Event: the rows that an interval scattered in step ``pc`` of ``epoch`` are in the buffers here."""

    epoch: int
    pc: int
    interval: int


@dataclass(frozen=True)
class StepDone:
    """Event: a task has finished."""

    task: TaskId


@dataclass(frozen=True)
class Begin:
    """Event: a resumed run starts at ``epoch``. It comes before all other events except ``Published``."""

    epoch: int


Event = Begin | Opened | Published | StepDone


class Scheduler:
    def __init__(
        self,
        program: Program,
        lane: Lane,
        intervals: Sequence[int],
        epochs: Sequence[int],
        *,
        forward: Crossing,
        backward: Crossing,
        freshness: float = 1.0,
        warmup_epochs: int = 0,
        max_ahead: int = sys.maxsize,
        in_step: bool = False,
    ):
        """``intervals``: global numbers of the local ones. ``epochs``: those that this lane runs, ascending.

        ``in_step`` is rule 4 (no-pipe).
        """
        self.program, self.lane, self.epochs = program, lane, epochs
        self.freshness, self.warmup_epochs = freshness, warmup_epochs
        self.max_ahead, self.in_step = max_ahead, in_step
        self._crossing = {False: forward, True: backward}
        self._first = intervals[0]
        # All mutable state:
        self._opened = self._slowest_anywhere = -1
        self._ahead: dict[int, int] = {}  # interval -> epoch after the slowest that it has entered
        self._turn = dict.fromkeys(intervals, 0)  # interval -> position in `epochs`
        self._slowest_turn = 0  # the lowest of them
        self._in_turn = {0: len(intervals)}  # position -> intervals in it
        self._pc = dict.fromkeys(intervals, 0)
        self._warm_until = warmup_epochs
        self._running: set[int] = set()
        self._fresh: dict[tuple[int, int], Array] = {}  # (epoch, pc of the Scatter) -> fresh crossing edges by interval
        self._seen: dict[tuple[int, int], set[int]] = {}  # (epoch, pc) -> intervals whose rows are in
        self._at_gate: set[int] = set(intervals)  # waiting for rule 2
        self._at_gather: dict[tuple[int, int], set[int]] = {}  # (epoch, pc of the Scatter) -> waiting for rule 3
        self._at_step: dict[tuple[int, int], set[int]] = {}  # (epoch, pc) -> waiting for rule 4
        self._finished: dict[tuple[int, int], int] = {}  # (epoch, pc) -> intervals through with it (rule 4)

    def handle(self, event: Event) -> list[TaskId]:
        """Returns the tasks that may run now because of the event. The only method that changes the state."""
        match event:
            case Opened(epoch, slowest):
                self._opened = max(self._opened, epoch)
                self._slowest_anywhere = max(self._slowest_anywhere, slowest)
                self._ahead = {i: e for i, e in self._ahead.items() if e > self._slowest_anywhere}
                return self._start_all(sorted(self._at_gate))
            case Published(epoch, pc, interval):
                return self._publish(epoch, pc, interval)
            case StepDone(task):
                return self._advance(task)
            case Begin(epoch):
                return self._begin(epoch)

    # --- what others may ask --------------------------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        return self._slowest_turn == len(self.epochs)

    @property
    def slowest(self) -> int:
        """The lowest epoch that a local interval is in; one past the last when all are through."""
        turn = self._slowest_turn
        return self.epochs[turn] if turn < len(self.epochs) else self.epochs[-1] + 1

    def position(self, interval: int) -> tuple[int, int]:
        """Returns the (epoch, pc) of an interval."""
        turn = self._turn[interval]
        return (self.epochs[turn] if turn < len(self.epochs) else self.epochs[-1] + 1), self._pc[interval]

    def is_running(self, task: TaskId) -> bool:
        i = task.interval  # compared by field: asked for every task, twice
        return (
            i in self._running
            and self._pc[i] == task.pc
            and self.epochs[self._turn[i]] == task.epoch
            and self.lane is task.lane
        )

    # --- the rules ------------------------------------------------------------------------------------------------

    def _begin(self, epoch: int) -> list[TaskId]:
        """Resumes at ``epoch``. The epochs of rule 3's warm-up are counted from here: no older rows are in the
        buffers."""
        turn = bisect_left(self.epochs, epoch)
        self._turn = dict.fromkeys(self._turn, turn)
        self._slowest_turn, self._in_turn = turn, {turn: len(self._turn)}
        self._warm_until = epoch + self.warmup_epochs
        return []

    def _start_all(self, intervals: Iterable[int]) -> list[TaskId]:
        return [task for interval in intervals if (task := self._start(interval))]

    def _start(self, interval: int) -> TaskId | None:
        """Returns the interval's next task if every rule allows it; else None, and the interval waits at the rule."""
        if self._turn[interval] == len(self.epochs):
            self._at_gate.discard(interval)
            return None
        task = self._current(interval)
        at = (task.epoch, task.pc)
        if task.pc == 0 and not self._may_enter(interval, task.epoch):
            self._at_gate.add(interval)
            return None
        self._at_gate.discard(interval)
        if self.in_step and task.pc > 0 and self._finished.get((task.epoch, task.pc - 1), 0) < len(self._turn):
            self._at_step.setdefault(at, set()).add(interval)
            return None
        scatter = self.program.waits_for[task.pc]
        if scatter is not None and not self._fresh_enough(interval, task.epoch, scatter):
            self._at_gather.setdefault((task.epoch, scatter), set()).add(interval)
            return None
        self._running.add(interval)
        return task

    def _may_enter(self, interval: int, epoch: int) -> bool:
        """Whether rule 2 lets the interval enter. If so it counts as ahead: ask only for an interval that then
        enters."""
        if epoch > self._opened:
            return False
        if epoch > self._slowest_anywhere:
            if interval not in self._ahead and len(self._ahead) >= self.max_ahead:
                return False
            self._ahead[interval] = epoch
        return True

    def _fresh_enough(self, interval: int, epoch: int, scatter: int) -> bool:
        position = interval - self._first
        fresh = self._fresh.get((epoch, scatter))
        needed = self._share(epoch) * int(self._crossing_of(scatter).totals[position])
        return (int(fresh[position]) if fresh is not None else 0) >= needed

    def _share(self, epoch: int) -> float:
        return 1.0 if epoch < self._warm_until else self.freshness

    def _publish(self, epoch: int, pc: int, interval: int) -> list[TaskId]:
        seen = self._seen.setdefault((epoch, pc), set())
        if interval in seen or epoch < self.slowest:
            return []
        seen.add(interval)
        crossing = self._crossing_of(pc)
        if interval not in crossing.targets:
            return []
        fresh = self._fresh.setdefault((epoch, pc), np.zeros(len(self._turn), np.int64))
        targets = crossing.targets[interval]
        before, after = fresh[targets], fresh[targets] + crossing.counts[interval]
        fresh[targets] = after
        needed = self._share(epoch) * crossing.totals[targets]
        waiting = self._at_gather.get((epoch, pc), set())
        # Intervals for which these rows are the last needed; each once, however many edges reach it.
        ready = sorted(waiting.intersection((targets[(before < needed) & (needed <= after)] + self._first).tolist()))
        waiting.difference_update(ready)
        return self._start_all(ready)

    def _advance(self, task: TaskId) -> list[TaskId]:
        if not self.is_running(task):
            return []
        interval = task.interval
        self._running.discard(interval)
        if task.pc + 1 < len(self.program):
            self._pc[interval] = task.pc + 1
        else:
            self._pc[interval] = 0
            self._next_epoch(interval)
        ready = [interval]
        if self.in_step:
            done = self._finished[task.epoch, task.pc] = self._finished.get((task.epoch, task.pc), 0) + 1
            if done == len(self._turn):
                ready += sorted(self._at_step.pop((task.epoch, task.pc + 1), ()))
        return self._start_all(ready)

    def _next_epoch(self, interval: int) -> None:
        self._in_turn[self._turn[interval]] -= 1
        self._turn[interval] += 1
        self._in_turn[self._turn[interval]] = self._in_turn.get(self._turn[interval], 0) + 1
        if self._in_turn[self._slowest_turn]:
            return
        while not self._in_turn.get(self._slowest_turn, 0):
            self._in_turn.pop(self._slowest_turn, None)
            self._slowest_turn += 1
        slowest = self.slowest  # entries of earlier epochs are no longer needed
        for table in (self._fresh, self._seen, self._at_gather, self._finished):
            for key in [key for key in table if key[0] < slowest]:
                del table[key]

    def _current(self, interval: int) -> TaskId:
        return TaskId(self.lane, self.epochs[self._turn[interval]], interval, self._pc[interval])

    def _crossing_of(self, scatter: int) -> Crossing:
        return self._crossing[self.program[scatter].backward]
