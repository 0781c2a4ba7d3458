"""Chooses how many tasks a worker holds at once, from how much of its time it computes while tasks wait for it. Pure:
the time is an argument.

A task's way to a worker and back has up to six halves of a round trip: its rows, its weights, the
acknowledgement of its gradients, its result. What hides them is other tasks in the worker's hands. How many
those must be follows from a latency that is rarely seen alone; but that they are too few shows: tasks wait, and
workers do not compute.

Rules:
1. Time counts while tasks wait for a worker: only then more of them could be with one. Of that time of all workers that
   have a task, the share in which they computed says how many would fill it (Little's law): ``number / share``.
2. It is decided anew after ``LEAST_S`` of a worker's time and ``ENOUGH`` results, and only upwards: more than is needed
   costs memory alone. A share beyond ``FULL`` is enough.
3. Never more than its share of the intervals, nor than an eighth of its memory holds;
   but two, of which one is on its way.
"""

from __future__ import annotations

import math

PREFETCH, MOST_PREFETCH = 2, 8
LEAST_S, ENOUGH, FULL = 0.25, 8, 0.85


class Prefetch:
    """How many tasks each worker of a graph server holds. ``memory_mb``: of its environment."""

    def __init__(self, memory_mb: int):
        self.memory_mb = memory_mb
        # All mutable state:
        self.number = PREFETCH
        self._at: float | None = None
        self._workers = 0  # that have a task while others wait, from ``_at`` on
        self._worker_s = self._compute_s = 0.0
        self._answers = 0
        self._nbytes = 1  # of the largest task

    def watch(self, now: float, queued: int, busy: int) -> None:
        """What is so from now on: tasks that wait for a worker, workers that have one."""
        if self._at is not None:
            self._worker_s += (now - self._at) * self._workers
        self._at, self._workers = now, busy if queued else 0

    def answered(self, compute_s: float, nbytes: int) -> None:
        """``nbytes``: of the task and its result."""
        self._nbytes = max(self._nbytes, nbytes)
        if self._workers:
            self._compute_s += compute_s
            self._answers += 1

    def decide(self, intervals_per_worker: int) -> int:
        """Tasks for a worker to hold."""
        if self._answers >= ENOUGH and self._worker_s >= LEAST_S:
            share = self._compute_s / self._worker_s
            if share < FULL:
                self.number = min(MOST_PREFETCH, math.ceil(self.number / max(share, 0.1)))
            self._worker_s = self._compute_s = 0.0
            self._answers = 0
        room = (self.memory_mb << 20) // 8 // self._nbytes
        return max(PREFETCH, min(self.number, intervals_per_worker, room))
