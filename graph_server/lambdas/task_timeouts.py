"""Learns how long each kind of tensor task takes; from that follows the timeout after which a task is given out
again. Pure.

Rules:
1. A task's time is from when it was sent to when its answer came. It includes the wait behind other tasks in its
   worker, which is part of the usual time. Answers that come after the timeout count too: a machine that has become
   slow must raise the limit, or its tasks would be relaunched for ever.
2. Tasks are alike if they run the same step of the same lane on about as many rows (a power of two).
3. The limit is ``factor`` times the ``quantile`` of the last ``WINDOW`` times of such tasks, and never below
   ``FLOOR_S``. Until one of them is answered, it is ``first_s``.
4. Each further attempt of the same task may take twice as long, up to ``first_s`` where that is longer.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

from siafu.tasks import TaskId

#: A busy server, or a machine that swaps, delays all tasks by about this time.
FLOOR_S = 2.0
WINDOW = 128


class Likeness(NamedTuple):
    """The kind of a task: tasks of one kind have comparable times."""

    lane: str
    pc: int
    rows: int  # bit length of the number of rows

    @classmethod
    def of(cls, task: TaskId, num_rows: int) -> Likeness:
        return cls(task.lane.value, task.pc, num_rows.bit_length())


class Quantile:
    """The exact quantile of the last ``WINDOW`` values of a stream; of fewer at first."""

    def __init__(self, quantile: float):
        self.quantile = quantile
        # All mutable state:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def add(self, value: float) -> None:
        if len(self._latest) == WINDOW:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(value)
        insort(self._sorted, value)

    @property
    def value(self) -> float:
        """The smallest value that the share ``quantile`` of the values does not exceed. Needs at least one value."""
        rank = math.ceil(self.quantile * len(self._sorted))
        return self._sorted[max(0, rank - 1)]


class Timing:
    def __init__(self, first_s: float, factor: float, quantile: float):
        self.first_s, self.factor, self.quantile = first_s, factor, quantile
        # All mutable state:
        self._times: dict[Likeness, Quantile] = {}

    def observe(self, kind: Likeness, seconds: float) -> None:
        times = self._times.get(kind)
        if times is None:
            times = self._times[kind] = Quantile(self.quantile)
        times.add(seconds)

    def limit_s(self, kind: Likeness, attempt: int) -> float:
        """Returns the time limit of attempt ``attempt`` (from 0) of a task of this kind, in seconds."""
        times = self._times.get(kind)
        usual = self.first_s if times is None else max(FLOOR_S, self.factor * times.value)
        return float(min(usual * 2.0**attempt, max(usual, self.first_s)))
