"""The workers of one graph server: how many exist, how many are wanted, which to start and which may leave. Pure.

The number wanted is the autotuner's, or fixed; the service's refusals (``graph_server.lambdas.throttle``)
and the launcher's limit bound it.

An invocation may end, or never begin, without our knowledge: its answer is lost, and the connection that waits for it
gives up only after the function's own timeout. So a worker counts until it says Bye, and for ``LEAVE_S`` more. The
answer usually comes in that time, and then the environment is free for the next worker. A worker that has not pulled
``START_S`` after it was asked for stops counting until it pulls.

Failed starts are counted by cohort: the workers asked for before the first of them failed to start, but at least
``LEAST_COHORT``. A few failures among many starts say nothing about the function. A whole cohort of which no worker
came up does (``hopeless``). A worker that pulls shows that the function works: earlier cohorts are forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.throttle import Throttle, Uniform

LEAVE_S = 1.0
#: Lambda gives a function 10 s to initialise; in a VPC the way there may take as long again.
START_S = 30.0
#: The function counts as broken once so many workers of a cohort failed to start and none came up.
LEAST_COHORT = 3


@dataclass
class Cohort:
    """Workers that were asked for together."""

    size: int = 0  # workers, without those that the service refused
    failed: int = 0  # workers whose invocation ended before they pulled
    overdue: int = 0  # workers not failed, but no longer waited for

    @property
    def is_starting(self) -> bool:
        return self.failed + self.overdue < self.size


@dataclass
class Alive:
    """A worker whose invocation was asked for and has not ended."""

    asked_at: float
    cohort: Cohort
    pulled: bool = False
    retired: bool = False  # it gets no new tasks: there are too many workers
    overdue: bool = False  # it has not pulled in ``START_S``
    left_at: float | None = None  # when it said Bye
    gone: bool = False  # it said Bye at least ``LEAVE_S`` ago

    @property
    def is_starting(self) -> bool:
        return not (self.pulled or self.overdue or self.left_at is not None)

    @property
    def works(self) -> bool:
        return self.pulled and self.left_at is None

    @property
    def is_off(self) -> bool:
        """Whether the worker does not count as at work."""
        return self.retired or self.overdue or self.left_at is not None

    @property
    def is_leaving(self) -> bool:
        """Whether the worker has said Bye but still takes up a place, for ``LEAVE_S``. A retired worker takes up
        none."""
        return self.left_at is not None and not (self.gone or self.retired)


class Workforce:
    """All workers of one graph server. ``count``: workers wanted, or, with a tuner, wanted at most; ``name``: prefix of
    their names."""

    def __init__(self, name: str, count: int, tuner: Autotuner | None, rng: Uniform):
        self.name, self.tuner = name, tuner
        # All mutable state:
        self.most_alive = 2 * count
        self.peak = 0  # the most workers wanted at a time when one was asked for
        self.num_starting = 0  # workers alive that have not pulled, and may yet
        self._count = count
        self._throttle = Throttle(rng)
        self._alive: dict[str, Alive] = {}
        self._num_asked = 0  # workers ever asked for
        self._num_off = self._num_leaving = self._num_working = 0  # of workers alive
        self._worked_at = -math.inf  # when the last worker ended that the service had let run
        self._cohorts: list[Cohort] = []  # asked for since a worker last pulled, the oldest first

    def __len__(self) -> int:
        return len(self._alive)

    def __contains__(self, worker: str) -> bool:
        return worker in self._alive

    @property
    def names(self) -> list[str]:
        return list(self._alive)

    @property
    def best(self) -> int:
        """The number of workers wanted, if the service grants them."""
        return self._count if self.tuner is None else self.tuner.wanted

    def wanted(self, now: float) -> int:
        granted = self._throttle.granted(now)
        return self.best if granted is None else min(self.best, granted)

    def limit(self, environments: int) -> None:
        """Limits the workers alive at a time to ``environments``."""
        self.most_alive = min(self.most_alive, environments)
        self._count = max(1, min(self._count, environments))
        if self.tuner is not None:
            self.tuner.limit(self._count)

    def ask(self, demand: int, num_silent: int, now: float) -> list[str]:
        """Returns the names of the workers to invoke now, at most ``demand``. No more are at work than are wanted;
        silent workers are not at work. At most twice as many as are wanted are ever alive."""
        wanted, alive = self.wanted(now), len(self._alive)
        places = wanted - self._at_work(num_silent) - self._num_leaving
        number = min(places, 2 * wanted - alive, self.most_alive - alive, demand)
        if number <= 0:
            return []
        number = min(number, self._throttle.allows(now))
        self._throttle.invoked(number)
        self.peak = max(self.peak, wanted)
        if not self._cohorts or (self._cohorts[-1].failed and self._cohorts[-1].size >= LEAST_COHORT):
            self._cohorts.append(Cohort())
        return [self._enlist(now) for _ in range(number)]

    def pulled(self, worker: str) -> bool:
        """Records that the worker asks for tasks. Returns whether it may be given any: not if it is retired or has said
        Bye."""
        state = self._alive[worker]
        self._tally(state, -1)
        state.pulled, state.overdue = True, False
        self._tally(state, 1)
        self._throttle.got_through()
        self._cohorts.clear()
        return not state.is_off

    def left(self, worker: str, now: float) -> None:
        """Records that the worker has said Bye."""
        state = self._alive.get(worker)
        if state is not None and state.left_at is None:
            self._tally(state, -1)
            self._worked_at = now if state.works else self._worked_at
            state.left_at = now
            self._tally(state, 1)

    def ended(self, worker: str, now: float, *, ran: bool) -> Alive | None:
        """Removes a worker whose invocation ended, and returns its state. ``ran``: the function itself ran, well or
        not; it was not refused."""
        state = self._alive.pop(worker, None)
        if state is not None:
            self._tally(state, -1)
            self._worked_at = now if ran or state.works else self._worked_at
            if not state.pulled:
                state.cohort.overdue -= state.overdue
                state.cohort.failed += ran
                state.cohort.size -= not ran
        return state

    def hopeless(self) -> int:
        """Returns the number of failed workers of a cohort in which no worker can come up any more, if they are at
        least ``LEAST_COHORT``; else 0. Earlier cohorts must not be starting any more either."""
        for cohort in self._cohorts:
            if cohort.is_starting:
                return 0
            if cohort.failed >= LEAST_COHORT:
                return cohort.failed
        return 0

    def tick(self, now: float) -> None:
        """Stops counting workers that do not start in ``START_S``, or said Bye ``LEAVE_S`` ago: others take their
        places."""
        for state in self._alive.values():
            overdue = state.is_starting and now - state.asked_at >= START_S
            gone = state.left_at is not None and now - state.left_at >= LEAVE_S
            if overdue or gone:
                self._tally(state, -1)
                state.cohort.overdue += overdue
                state.overdue, state.gone = state.overdue or overdue, gone
                self._tally(state, 1)

    def tune(self, now: float) -> bool:
        """Lets the tuner decide; returns whether it wants another number. Measurements do not count while most workers
        have yet to start, and count less while the service grants fewer: they say little about the number wanted."""
        if self.tuner is None:
            return False
        if 2 * self.num_starting > self.tuner.wanted:
            self.tuner.start_over(now)
            return False
        granted = self.wanted(now)
        return self.tuner.decide(now) if granted == self.tuner.wanted else self.tuner.make_do(granted, now)

    def refused(self, asked_at: float, now: float, *, shrink: bool) -> float | None:
        """Records that the service refused an invocation asked for at ``asked_at``. Returns the seconds of the pause
        that begins, if one does. ``shrink``: the service allows no more workers than are alive."""
        if shrink:
            self._throttle.shrink(len(self._alive), now)
        return self._throttle.refused(asked_at, now)

    def in_vain_for(self, now: float) -> float:
        """Returns the seconds for which every invocation that ended was refused and no worker worked; 0 if one works
        now."""
        return 0.0 if self._num_working else min(self._throttle.refused_for(now), now - self._worked_at)

    def surplus(self, num_silent: int, now: float) -> int:
        """Returns the number of workers at work beyond those wanted."""
        return max(0, self._at_work(num_silent) - self.wanted(now))

    def newest(self) -> list[str]:
        """Returns the workers that have pulled and are not retired, the newest first: they keep the rows of the fewest
        intervals."""
        return [name for name, state in reversed(self._alive.items()) if state.pulled and not state.retired]

    def retire(self, worker: str) -> None:
        state = self._alive[worker]
        self._tally(state, -1)
        state.retired = True
        self._tally(state, 1)

    def is_retired(self, worker: str) -> bool:
        return worker in self._alive and self._alive[worker].retired

    def _at_work(self, num_silent: int) -> int:
        return len(self._alive) - num_silent - self._num_off

    def _tally(self, state: Alive, sign: int) -> None:
        """Updates the counters for a worker's state. Call it with -1 before a change, and with 1 after."""
        self.num_starting += sign * state.is_starting
        self._num_off += sign * state.is_off
        self._num_leaving += sign * state.is_leaving
        self._num_working += sign * state.works

    def _enlist(self, now: float) -> str:
        worker = f"{self.name}-{self._num_asked}"
        self._num_asked += 1
        state = self._alive[worker] = Alive(now, self._cohorts[-1])
        state.cohort.size += 1
        self._tally(state, 1)
        return worker
