"""Learns how long each kind of tensor task takes; from that follows the timeout after which a task is given out
again. Pure.

Rules:
1. A task's time is from when it was sent to when its answer came: what it waits inside its worker behind others counts,
   for it is part of what is usual. Answers that come after the task was given up count too: a machine that has become
   slow must raise the limit, or it would relaunch all day.
2. Tasks are alike that run the same step of the same lane on about as many rows (a power of two).
3. The limit is ``factor`` times the ``quantile`` of the last ``WINDOW`` times of such tasks, and never below
   ``FLOOR_S``. While none of them was ever answered it is ``first_s``.
4. Each further attempt of the same task may take twice as long, up to ``first_s`` where that is longer.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from typing import NamedTuple

from siafu.tasks import TaskId

#: A server that is busy elsewhere, or a machine that swaps, keeps everybody waiting for about so long.
FLOOR_S = 2.0
WINDOW = 128


class Likeness(NamedTuple):
    """What tasks have in common whose times may be compared."""

    lane: str
    pc: int
    rows: int  # bits of their number

    @classmethod
    def of(cls, task: TaskId, num_rows: int) -> Likeness:
        return cls(task.lane.value, task.pc, num_rows.bit_length())


class Quantile:
    """Of the last ``WINDOW`` values of a stream, exactly; of fewer at first."""

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
        """The smallest of the values that so large a share of them does not exceed; there must be one."""
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
        """How long attempt ``attempt`` (from 0) of such a task may take."""
        times = self._times.get(kind)
        usual = self.first_s if times is None else max(FLOOR_S, self.factor * times.value)
        return float(min(usual * 2.0**attempt, max(usual, self.first_s)))
