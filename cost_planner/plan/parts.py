"""The parts of simulated servers, links and Lambdas: each does one piece of work after the other. Pure: time is
simulated.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

Then = Callable[[], None]
Waits = Callable[[Then], None]


class Timeline:
    """Events in order of time; at the same time, in the order of requests."""

    def __init__(self, rng: Random):
        self.rng = rng
        # All mutable state:
        self.now = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._number = 0

    def at(self, when: float, then: Then) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(when, self.now), self._number, then))

    def after(self, seconds: float, then: Then) -> None:
        self.at(self.now + seconds, then)

    def step(self) -> bool:
        """Runs the next event; False if there is none."""
        if not self._events:
            return False
        self.now, _, then = heapq.heappop(self._events)
        then()
        return True

    def noisy(self, seconds: float, sigma: float) -> float:
        """A log-normal value with this mean; ``sigma``: deviation of the logarithm."""
        return seconds * self.rng.lognormvariate(-sigma * sigma / 2, sigma) if sigma else seconds


@dataclass(frozen=True)
class LinkRate:
    """The rate of one direction of a link."""

    bytes_per_s: float


class Link:
    """One direction of a network link: bytes leave in the order of asking."""

    def __init__(self, timeline: Timeline, rate: LinkRate):
        self._timeline, self._rate = timeline, rate
        # All mutable state:
        self.began = 0.0  # when what was asked for last began, or will
        self._free_at = 0.0

    def leave(self, nbytes: float) -> float:
        """The time at which ``nbytes``, requested now, have left the link."""
        begin = max(self._timeline.now, self._free_at)
        self._free_at = begin + nbytes / self._rate.bytes_per_s
        self.began = begin
        return self._free_at


class Cores:
    """Processors that all running threads share equally, none of them faster than one processor."""

    def __init__(self, timeline: Timeline, count: float):
        self._timeline, self._count = timeline, count
        # All mutable state: work is kept as the value of a clock that runs as fast as each thread does.
        self._clock = self._read_at = 0.0
        self._running: list[tuple[float, int, Then]] = []
        self._number = self._alarm = 0

    @property
    def _rate(self) -> float:
        return min(1.0, self._count / len(self._running)) if self._running else 1.0

    def run(self, seconds: float, then: Then) -> None:
        """Runs for ``seconds`` of processor time."""
        self._read()
        self._number += 1
        heapq.heappush(self._running, (self._clock + seconds, self._number, then))
        self._set_alarm()

    def _read(self) -> None:
        self._clock += (self._timeline.now - self._read_at) * self._rate
        self._read_at = self._timeline.now

    def _set_alarm(self) -> None:
        self._alarm += 1
        if self._running:
            left = (self._running[0][0] - self._clock) / self._rate
            self._timeline.after(max(0.0, left), lambda alarm=self._alarm: self._due(alarm))  # type: ignore[misc]

    def _due(self, alarm: int) -> None:
        if alarm != self._alarm:
            return
        self._read()
        _, _, then = heapq.heappop(self._running)
        self._set_alarm()
        then()


@dataclass
class _Job:
    """A task of a pool."""

    chunk_s: float  # of a core
    chunks: int  # that no thread has begun
    over: Then  # once they are done
    begin: Then | None = None
    running: int = 0  # chunks

    @property
    def is_done(self) -> bool:
        return not self.chunks and not self.running


class Pool:
    """Threads that take the most urgent waiting task, on cores that they share with others. A thread without a task
    helps with one that others have begun, and leaves it when a new task arrives."""

    def __init__(self, timeline: Timeline, threads: int, cores: Cores):
        self._timeline, self._threads, self._cores = timeline, threads, cores
        # All mutable state:
        self.working = 0
        self._waiting: list[tuple[tuple[int, ...], int, _Job]] = []
        self._begun: list[_Job] = []  # with chunks left
        self._number = 0

    @property
    def num_tasks(self) -> int:
        """Number of tasks that run or wait."""
        return self.working + len(self._waiting)

    def add(
        self,
        priority: tuple[int, ...],
        seconds: float,
        then: Then,
        waits: Waits | None = None,
        meanwhile: Waits | None = None,
        chunks: int = 1,
    ) -> None:
        """Adds a task of ``seconds`` of a core; one without any is done at once. ``waits``: work without a core that
        the thread waits for at the end; it is called with what follows. ``meanwhile``: the same, but it begins with the
        core's work. ``chunks``: pieces that several threads may compute at a time."""
        if not seconds and waits is None and meanwhile is None:
            return then()
        self._number += 1
        over: Then = partial(self._done, then)
        begin = None
        if meanwhile is not None:
            over = Last(2, over)
            begin = partial(meanwhile, over)
        job = _Job(seconds / chunks, chunks, over if waits is None else partial(waits, over), begin)
        heapq.heappush(self._waiting, (priority, self._number, job))
        self._start()

    def _start(self) -> None:
        while self.working < self._threads:
            if self._waiting:
                job = heapq.heappop(self._waiting)[2]
                if job.chunks > 1:
                    self._begun.append(job)
                if job.begin is not None:
                    job.begin()
            elif self._begun:
                job = self._begun[0]
            else:
                return
            self.working += 1
            self._compute(job)

    def _compute(self, job: _Job) -> None:
        job.chunks -= 1
        job.running += 1
        if not job.chunks and job in self._begun:
            self._begun.remove(job)
        self._cores.run(job.chunk_s, partial(self._computed, job))

    def _computed(self, job: _Job) -> None:
        job.running -= 1
        if job.is_done:
            job.over()
        elif job.chunks and not (job.running and self._waiting):
            self._compute(job)
        else:
            self.working -= 1
            self._start()

    def _done(self, then: Then) -> None:
        self.working -= 1
        then()
        self._start()


class Last:
    """Runs its action when the last of several events has happened."""

    def __init__(self, count: int, then: Then):
        self._left, self._then = count, then

    def __call__(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()
