"""How many Lambda environments a graph server should have: Dorylus' autotuner (OSDI'21, §6). Pure: the time is an argument.

What is watched is the graph threads' own task queue. When it stands, tensor tasks come back faster than threads take them:
environments are paid for that nobody needs. When it runs empty while tensor tasks wait, threads starve for want of
environments. The number wanted is the smallest at which they hardly do.

Rules:
1. It starts at ``min(intervals, START)`` and stays between 1 and ``most``.
2. It is decided anew after every round: tensor tasks of about one epoch, at least ``ROUND_S``. After a change the queue is
   given half a round to settle before it is watched again.
3. Starved is the share of the threads' time in which they had nothing to do while so many tensor tasks waited behind others
   in an environment, or for one. More than ``TOO_MUCH`` of it: more environments, as many as the share says, at most twice
   as many. Less than ``HARDLY_ANY``: fewer, down to those that would be busy if threads always were.
4. A number at which threads starved is remembered, and so is one at which they did not: between them it is halved, and when
   they are within ``CLOSE`` of each other nothing changes any more. That is what keeps it from swinging.
5. What is remembered holds while the work does: if threads starve twice in a row at a number that was enough, or if the ratio
   of tensor to graph work has fallen by ``FALLEN`` since, it is forgotten.
"""

from __future__ import annotations

import math

START = 100
ROUND_S = 1.0
TOO_MUCH, HARDLY_ANY, A_LOT = 0.05, 0.02, 0.2
CLOSE = 0.1
FALLEN = 0.3


class Autotuner:
    def __init__(self, intervals: int, most: int, threads: int, round_tasks: int):
        """``round_tasks``: tensor tasks of the server in an epoch."""
        self.most, self.threads, self.round_tasks = max(1, most), threads, max(1, round_tasks)
        # All mutable state:
        self.wanted = max(1, min(intervals, START, self.most))
        self.num_decisions = 0
        self._too_few = 0  # the largest number at which threads starved
        self._enough: int | None = None  # the smallest at which they did not
        self._balance = 0.0  # environments that would be busy if threads always were, when they starved
        self._starved_before = False  # in the round before
        self._settling = True  # environments start cold
        self._open_round(0.0)
        self._at: float | None = None
        self._idle = self._waiting = self._working = 0

    def limit(self, most: int) -> None:
        """No more than that may be had."""
        self.most = max(1, min(self.most, most))
        self.wanted = min(self.wanted, self.most)

    def watch(self, now: float, graph_tasks: int, tensor_tasks: int, environments: int) -> None:
        """What is so from now on: graph tasks that run or are queued, tensor tasks that are not answered, environments that
        have one."""
        if self._at is None:
            self._opened = self._at = now
        passed, self._at = now - self._at, now
        self._idle_s += passed * self._idle
        self._working_s += passed * self._working
        self._starved_s += passed * (self._idle if self._waiting else 0)
        self._idle = max(0, self.threads - graph_tasks)
        self._waiting, self._working = max(0, tensor_tasks - environments), environments

    def answered(self) -> None:
        """A tensor task is done."""
        self._answers += 1

    def decide(self, now: float) -> bool:
        """Whether a round is over and has changed ``wanted``. Rules 2 to 5."""
        elapsed, due = now - self._opened, self.round_tasks / (2 if self._settling else 1)
        if self._answers < due or elapsed < ROUND_S:
            return False
        starved = self._starved_s / (elapsed * self.threads)
        busy = 1 - self._idle_s / (elapsed * self.threads)
        balance = self._working_s / elapsed / max(busy, 0.01)
        self._open_round(now)
        if self._settling:
            self._settling = False
            return False
        self.num_decisions += 1
        before, self.wanted = self.wanted, self._next(starved, balance)
        self._settling = self.wanted != before
        return self._settling

    def _open_round(self, now: float) -> None:
        self._opened = now
        self._answers = 0
        self._idle_s = self._working_s = self._starved_s = 0.0

    def _next(self, starved: float, balance: float) -> int:
        now = self.wanted
        if balance < (1 - FALLEN) * self._balance:
            self._too_few, self._balance = 0, 0.0
        if starved > TOO_MUCH:
            if now == self.most:
                return now
            if starved < A_LOT and not self._starved_before:
                self._starved_before = True
                return now
            if self._enough is not None and now >= self._enough:
                self._enough = None
            self._too_few, self._balance = max(self._too_few, now), balance
            more = min(2 * now, max(now + 1, math.ceil(now / (1 - starved))))
            self._starved_before = False
            return min(more, self._enough or self.most, self.most)
        self._starved_before = False
        if starved > HARDLY_ANY:
            return now
        self._enough = now
        lowest = self._too_few + 1
        if now - lowest <= CLOSE * now:
            return now
        fewer = min(math.ceil(balance), now - math.ceil(CLOSE * now))
        if self._too_few:
            fewer = max(fewer, math.ceil(math.sqrt(self._too_few * now)))
        return min(now, max(lowest, fewer))
