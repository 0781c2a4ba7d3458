"""Chooses how many tasks a worker holds at once, from how much of its time it computes while tasks wait for it. Pure:
the time is an argument.

A task takes up to six one-way messages between servers and worker: its rows, its weights, the acknowledgement of its
gradients, its result. Other tasks that the worker holds hide this time. The number needed follows from the latency,
which can rarely be measured alone. But too few are easy to see: tasks wait, and workers do not compute.

Rules:
1. Only time while tasks wait for a worker counts: only then could a worker hold more. Of the time of all workers that
   have a task, the share in which they computed gives the number that would fill it (Little's law): ``number / share``.
2. The number is decided anew after ``LEAST_S`` of workers' time and ``ENOUGH`` results, and it only rises: a number too
   high costs only memory. A share of ``FULL`` or more is enough.
3. The number is at most the worker's share of the intervals, and at most what an eighth of its memory holds; but at
   least two, so that one is on its way while the other is computed.
"""

from __future__ import annotations

import math

PREFETCH, MOST_PREFETCH = 2, 8
LEAST_S, ENOUGH, FULL = 0.25, 8, 0.85


class Prefetch:
    """The number of tasks that each worker of a graph server holds. ``memory_mb``: of its environment."""

    def __init__(self, memory_mb: int):
        self.memory_mb = memory_mb
        # All mutable state:
        self.number = PREFETCH
        self._at: float | None = None
        self._workers = 0  # workers with a task while other tasks wait, from ``_at`` on
        self._worker_s = self._compute_s = 0.0
        self._answers = 0
        self._nbytes = 1  # of the largest task

    def watch(self, now: float, queued: int, busy: int) -> None:
        """Records the state from ``now`` on: tasks that wait for a worker, workers that have a task."""
        if self._at is not None:
            self._worker_s += (now - self._at) * self._workers
        self._at, self._workers = now, busy if queued else 0

    def answered(self, compute_s: float, nbytes: int) -> None:
        """Records a result. ``nbytes``: of the task and its result."""
        self._nbytes = max(self._nbytes, nbytes)
        if self._workers:
            self._compute_s += compute_s
            self._answers += 1

    def decide(self, intervals_per_worker: int) -> int:
        """Returns the number of tasks for a worker to hold."""
        if self._answers >= ENOUGH and self._worker_s >= LEAST_S:
            share = self._compute_s / self._worker_s
            if share < FULL:
                self.number = min(MOST_PREFETCH, math.ceil(self.number / max(share, 0.1)))
            self._worker_s = self._compute_s = 0.0
            self._answers = 0
        room = (self.memory_mb << 20) // 8 // self._nbytes
        return max(PREFETCH, min(self.number, intervals_per_worker, room))
