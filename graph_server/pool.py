"""The computations that wait for a pool thread, and the number of busy threads. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from graph_server.backends import Compute, Job, Priority
from siafu.tasks import TaskId


class Pool:
    """The queue for ``num_threads`` threads, which belong to the shell."""

    def __init__(self, num_threads: int):
        self.num_threads = num_threads
        # All mutable state:
        self._jobs: list[tuple[Priority, int, Job[Any]]] = []  # a heap; of equal priorities the first that came
        self._num_jobs = 0
        self._busy = 0

    def __len__(self) -> int:
        """The number of computations that wait or run."""
        return len(self._jobs) + self._busy

    def add(self, job: Job[Any]) -> None:
        self._num_jobs += 1
        heapq.heappush(self._jobs, (job.priority, self._num_jobs, job))

    def begin(self) -> Iterator[tuple[Compute[Any], TaskId | None]]:
        """Yields computations for all free threads, each with the tensor task that follows it, if any. They come by
        priority; those that may not begin yet are left out. The iterator must be exhausted."""
        held: list[tuple[Priority, int, Job[Any]]] = []
        while self._jobs and self._busy < self.num_threads:
            queued = heapq.heappop(self._jobs)
            job = queued[2]
            if job.may_begin is not None and not job.may_begin():
                held.append(queued)
                continue
            self._busy += 1
            yield Compute(job.begin(), job.then, job.counted_as, job.like), job.leads_to
        for queued in held:
            heapq.heappush(self._jobs, queued)

    def finished(self) -> None:
        """Records that a thread is free again."""
        self._busy -= 1

    def stop(self) -> None:
        """Drops the computations that wait. Computations added later never run either."""
        self._jobs.clear()
        self.num_threads = 0
