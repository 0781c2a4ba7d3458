"""The workers of one graph server: how many exist, how many are wanted, which to start and which may leave. Pure.

The number wanted is the autotuner's, or fixed; the service's refusals (``graph_server.lambdas.throttle``)
and the launcher's limit bound it.

An invocation may be over, or never have begun, without our being told: its answer is lost, and the connection that
waits for it gives up only after the function's own timeout. So a worker counts until it says Bye, and for ``LEAVE_S``
more, in which the answer usually comes: its environment is then free for the next one. A worker that has not pulled
``START_S`` after it was asked for is counted again only when it does.

Failed starts are counted by cohort: the workers asked for before the first of them failed to start, but at least
``LEAST_COHORT``. A few failures among many starts say nothing of the function; a whole cohort of which nobody came
up does (``hopeless``). Any worker that pulls shows that the function works: cohorts asked for before are forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.throttle import Throttle, Uniform

LEAVE_S = 1.0
#: Lambda gives a function 10 s to initialise; in a VPC the way there may take as long again.
START_S = 30.0
#: Workers that must have failed to start, and nobody else of their cohort come up,
#: before the function counts as broken.
LEAST_COHORT = 3


@dataclass
class Cohort:
    """Workers that were asked for together."""

    size: int = 0  # without those that the service refused
    failed: int = 0  # whose invocation ended before they pulled
    overdue: int = 0  # not failed, and nobody waits for them any more

    @property
    def is_starting(self) -> bool:
        return self.failed + self.overdue < self.size


@dataclass
class Alive:
    """A worker whose invocation was asked for and has not ended."""

    asked_at: float
    cohort: Cohort
    pulled: bool = False
    retired: bool = False  # nothing new for it: there are too many
    overdue: bool = False  # it has not pulled in ``START_S``
    left_at: float | None = None  # when it said Bye
    gone: bool = False  # that was ``LEAVE_S`` ago

    @property
    def is_starting(self) -> bool:
        return not (self.pulled or self.overdue or self.left_at is not None)

    @property
    def works(self) -> bool:
        return self.pulled and self.left_at is None

    @property
    def is_off(self) -> bool:
        """It does not count as being at work."""
        return self.retired or self.overdue or self.left_at is not None

    @property
    def is_leaving(self) -> bool:
        """It keeps its place all the same, for a moment. One that is too many has none."""
        return self.left_at is not None and not (self.gone or self.retired)


class Workforce:
    """``count``: workers wanted, or, with a tuner, wanted at most; ``name``: what their names begin with."""

    def __init__(self, name: str, count: int, tuner: Autotuner | None, rng: Uniform):
        self.name, self.tuner = name, tuner
        # All mutable state:
        self.most_alive = 2 * count
        self.peak = 0  # of workers wanted, when one was asked for
        self.num_starting = 0  # of those alive: they have not pulled, and may yet
        self._count = count
        self._throttle = Throttle(rng)
        self._alive: dict[str, Alive] = {}
        self._num_asked = 0  # ever
        self._num_off = self._num_leaving = self._num_working = 0  # of those alive
        self._worked_at = -math.inf  # when the last ended of those that the service let run
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
        """Workers wanted, if the service grants them."""
        return self._count if self.tuner is None else self.tuner.wanted

    def wanted(self, now: float) -> int:
        granted = self._throttle.granted(now)
        return self.best if granted is None else min(self.best, granted)

    def limit(self, environments: int) -> None:
        """No more than that can be had at a time."""
        self.most_alive = min(self.most_alive, environments)
        self._count = max(1, min(self._count, environments))
        if self.tuner is not None:
            self.tuner.limit(self._count)

    def ask(self, demand: int, num_silent: int, now: float) -> list[str]:
        """Names of the workers to be invoked now: no more than ``demand``, and no more at work than are wanted. Silent
        ones are not at work, but no more than twice as many as are wanted are ever alive."""
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
        """It is ready for work; whether there is any for it."""
        state = self._alive[worker]
        self._tally(state, -1)
        state.pulled, state.overdue = True, False
        self._tally(state, 1)
        self._throttle.got_through()
        self._cohorts.clear()
        return not state.is_off

    def left(self, worker: str, now: float) -> None:
        """It has said Bye."""
        state = self._alive.get(worker)
        if state is not None and state.left_at is None:
            self._tally(state, -1)
            self._worked_at = now if state.works else self._worked_at
            state.left_at = now
            self._tally(state, 1)

    def ended(self, worker: str, now: float, *, ran: bool) -> Alive | None:
        """What was known of it. ``ran``: its end is the function's own, whether it worked or not."""
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
        """How many workers of a cohort have failed to start, if that is the whole of it, and of those before it
        nobody may come up still; else 0."""
        for cohort in self._cohorts:
            if cohort.is_starting:
                return 0
            if cohort.failed >= LEAST_COHORT:
                return cohort.failed
        return 0

    def tick(self, now: float) -> None:
        """Those who do not begin, or whose end is not told, make room for others."""
        for state in self._alive.values():
            overdue = state.is_starting and now - state.asked_at >= START_S
            gone = state.left_at is not None and now - state.left_at >= LEAVE_S
            if overdue or gone:
                self._tally(state, -1)
                state.cohort.overdue += overdue
                state.overdue, state.gone = state.overdue or overdue, gone
                self._tally(state, 1)

    def tune(self, now: float) -> bool:
        """Whether the tuner wants another number. What is seen while the service lets it have fewer, or while most have
        yet to start, says little of what the number wanted would do."""
        if self.tuner is None:
            return False
        if 2 * self.num_starting > self.tuner.wanted:
            self.tuner.start_over(now)
            return False
        granted = self.wanted(now)
        return self.tuner.decide(now) if granted == self.tuner.wanted else self.tuner.make_do(granted, now)

    def refused(self, asked_at: float, now: float, *, shrink: bool) -> float | None:
        """By the service, an invocation of that time; how long the pause is that begins. ``shrink``:
        there are as many as there may be."""
        if shrink:
            self._throttle.shrink(len(self._alive), now)
        return self._throttle.refused(asked_at, now)

    def in_vain_for(self, now: float) -> float:
        """Seconds for which every invocation that ended was refused, and nobody worked; 0 if somebody does."""
        return 0.0 if self._num_working else min(self._throttle.refused_for(now), now - self._worked_at)

    def surplus(self, num_silent: int, now: float) -> int:
        """Workers at work that are not wanted."""
        return max(0, self._at_work(num_silent) - self.wanted(now))

    def newest(self) -> list[str]:
        """Workers that have pulled and may be retired, those first that know the fewest intervals."""
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
        """Before it changes, -1, and after, 1."""
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
