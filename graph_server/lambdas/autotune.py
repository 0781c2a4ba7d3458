"""Chooses the number of Lambda environments of a graph server: Dorylus' autotuner (OSDI'21, §6). Pure: the time is an
argument.

The autotuner watches the graph threads' task queue. If the queue is long, tensor tasks come back faster than threads
take them, and some environments are paid for but not needed. If it is empty while tensor tasks wait, threads starve for
lack of environments. The autotuner looks for the smallest number of environments at which threads hardly starve.

Rules:
1. The number starts at ``min(intervals, START)`` and stays between 1 and ``most``.
2. It is decided anew after every round: tensor tasks of about one epoch, at least ``ROUND_S``. After a change, and at
   first, when environments start cold, one round passes to let the queue settle. The same holds after a time in which
   the service granted fewer, or most had yet to start (``make_do``, ``start_over``): threads that starve then say
   nothing about the number wanted. But if threads hardly starved with fewer environments, fewer are enough.
3. Threads starve while they are idle and tensor tasks wait for an environment, or behind others in one. If no interval
   gathers before the last has scattered (``in_layers``), one waiting task holds back all idle threads. Otherwise it
   holds back few, and the geometric mean of waiting tasks and idle threads counts. The starved share of the threads'
   time decides. More than ``TOO_MUCH`` in two rounds running, or than ``A_LOT`` in one: more environments, in
   proportion to the share, at most twice as many. Less than ``HARDLY_ANY``: fewer, by at least a tenth, down to the
   number that would be busy if threads always were.
4. The largest number at which threads starved is remembered, and so is the smallest at which they did not. New numbers
   lie between the two; once they are within ``CLOSE`` of each other nothing changes any more. This prevents
   oscillation.
5. Both are forgotten when the work changes: if threads starve three rounds running at a number that was enough, or if
   the ratio of tensor to graph work has fallen by ``FALLEN``.
"""

from __future__ import annotations

import math

START = 100
ROUND_S = 1.0
TOO_MUCH, HARDLY_ANY, A_LOT = 0.05, 0.02, 0.2
CLOSE = 0.1
FALLEN = 0.3


class Autotuner:
    def __init__(self, intervals: int, most: int, threads: int, round_tasks: int, *, in_layers: bool):
        """``round_tasks``: tensor tasks of the server in an epoch."""
        self.most, self.threads, self.round_tasks, self.in_layers = (
            max(1, most),
            threads,
            max(1, round_tasks),
            in_layers,
        )
        # All mutable state:
        self.wanted = max(1, min(intervals, START, self.most))
        self.num_decisions = 0
        self._too_few = 0  # the largest number at which threads starved
        self._enough: int | None = None  # the smallest at which they did not
        self._balance = 0.0  # environments that would be busy if threads always were, when they starved
        self._rounds_starved = 0  # running, at this number
        self._settling = True  # environments start cold
        self._made_do = False  # the round is one with fewer than are wanted
        self._open_round(0.0)
        self._at: float | None = None
        self._idle = self._working = 0
        self._starved = 0.0  # threads

    def limit(self, most: int) -> None:
        """Lowers the largest number of environments to ``most``."""
        self.most = max(1, min(self.most, most))
        self.wanted = min(self.wanted, self.most)

    def watch(self, now: float, graph_tasks: int, tensor_tasks: int, environments: int) -> None:
        """Records the state from ``now`` on: graph tasks that run or are queued, tensor tasks without an answer,
        environments that have a task."""
        if self._at is None:
            self._opened = self._at = now
        passed, self._at = now - self._at, now
        self._idle_s += passed * self._idle
        self._working_s += passed * self._working
        self._starved_s += passed * self._starved
        self._idle = max(0, self.threads - graph_tasks)
        self._working = environments
        waiting = max(0, tensor_tasks - environments)
        held_back = self._idle if self.in_layers and waiting else min(self._idle, waiting)
        self._starved = math.sqrt(self._idle * held_back)

    def answered(self) -> None:
        """Counts a tensor task that is done."""
        self._answers += 1

    def decide(self, now: float) -> bool:
        """Ends the round if it is due, by rules 2 to 5. Returns whether ``wanted`` has changed."""
        if self._made_do:
            self.start_over(now)
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

    def make_do(self, granted: int, now: float) -> bool:
        """Replaces ``decide`` while only ``granted`` environments are allowed (rule 2). Returns whether they are
        enough, and lowers ``wanted`` to them if so."""
        if not self._made_do:
            self.start_over(now)
            self._made_do = True
        elapsed = now - self._opened
        if self._answers < self.round_tasks or elapsed < ROUND_S:
            return False
        starved = self._starved_s / (elapsed * self.threads)
        self._open_round(now)
        if starved > HARDLY_ANY:
            return False
        self.num_decisions += 1
        self.wanted = granted
        return True

    def start_over(self, now: float) -> None:
        """Discards the round's measurements, and lets the queue settle anew."""
        self._open_round(now)
        self._settling, self._made_do = True, False

    def _open_round(self, now: float) -> None:
        self._opened = now
        self._answers = 0
        self._idle_s = self._working_s = self._starved_s = 0.0

    def _next(self, starved: float, balance: float) -> int:
        """Rules 3 to 5. ``balance``: environments that would be busy if threads always were."""
        if balance < (1 - FALLEN) * self._balance:
            self._too_few, self._balance = 0, 0.0
        if starved > TOO_MUCH:
            return self._more(starved, balance)
        self._rounds_starved = 0
        return self.wanted if starved > HARDLY_ANY else self._fewer(balance)

    def _more(self, starved: float, balance: float) -> int:
        now = self.wanted
        was_enough = self._enough is not None and now >= self._enough
        self._rounds_starved += 1
        if now == self.most or self._rounds_starved < (3 if was_enough else 1 if starved > A_LOT else 2):
            return now
        if was_enough:
            self._enough = None
        self._rounds_starved = 0
        self._too_few, self._balance = max(self._too_few, now), balance
        more = min(2 * now, max(now + 1, math.ceil(now / (1 - starved))))
        return min(more, self._enough or self.most, self.most)

    def _fewer(self, balance: float) -> int:
        now, lowest = self.wanted, self._too_few + 1
        self._enough = now
        if now - lowest <= CLOSE * now:
            return now
        fewer = min(math.ceil(balance), now - math.ceil(CLOSE * now))
        return min(now, max(lowest, fewer, math.ceil(math.sqrt(self._too_few * now))))
