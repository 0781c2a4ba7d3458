"""Chooses the number of Lambda environments of a graph server: Dorylus' autotuner (OSDI'21, §6). Pure: the time is an
argument.

What is watched is the graph threads' own task queue. When it stands, tensor tasks come back faster than threads take
them: environments are paid for that nobody needs. When it runs empty while tensor tasks wait, threads starve for want
of environments. The number wanted is the smallest at which they hardly do.

Rules:
1. It starts at ``min(intervals, START)`` and stays between 1 and ``most``.
2. It is decided anew after every round: tensor tasks of about one epoch, at least ``ROUND_S``. After a change, and at
   first, when environments start cold, the queue is given time to settle before it is watched again. So it is after a
   time in which the service let us have fewer, or most had yet to start (``make_do``, ``start_over``): threads that
   starve then say nothing of the number wanted. Only if they hardly did with fewer, fewer are enough.
3. Threads starve while they have nothing to do and tensor tasks wait for an environment, or behind others in one.
   Where nobody gathers before the last has scattered (``in_layers``), one such task holds all idle threads back;
   elsewhere one of several holds back few, and the geometric mean of tasks and threads counts. The share of the
   threads' time decides: more than ``TOO_MUCH`` of it in two rounds running, or ``A_LOT`` in one: more environments,
   as many as the share says, at most twice as many. Less than ``HARDLY_ANY``: fewer, at least a tenth, and down to
   those that would be busy if threads always were.
4. A number at which threads starved is remembered, and so is the least at which they did not: what is
   tried lies between them, and when they are within ``CLOSE`` of each other nothing changes any more.
   That is what keeps it from swinging.
5. What is remembered holds while the work does: it is forgotten if threads starve three rounds running at a number that
   was enough, or if the ratio of tensor to graph work has fallen by ``FALLEN``.
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
        """No more than that may be had."""
        self.most = max(1, min(self.most, most))
        self.wanted = min(self.wanted, self.most)

    def watch(self, now: float, graph_tasks: int, tensor_tasks: int, environments: int) -> None:
        """What is so from now on: graph tasks that run or are queued, tensor tasks that are not
        answered, environments that have one."""
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
        """A tensor task is done."""
        self._answers += 1

    def decide(self, now: float) -> bool:
        """Whether a round is over and has changed ``wanted``. Rules 2 to 5."""
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
        """Instead of ``decide`` while there may be only so many: whether they are enough. Rule 2."""
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
        """What was seen does not count."""
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
