"""The workers of one graph server: how many there are, how many there should be, who is asked for and who may go. Pure.

The number wanted is the autotuner's, or fixed; the service's refusals (``graph_server.throttle``) and the launcher's limit
bound it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graph_server.autotune import Autotuner
from graph_server.throttle import Throttle, Uniform


@dataclass
class Alive:
    """A worker whose invocation was asked for and has not ended."""

    asked_at: float
    pulled: bool = False
    retired: bool = False  # nothing new for it: there are too many


class Workforce:
    """``count``: workers wanted, or, with a tuner, wanted at most; ``name``: what their names begin with."""

    def __init__(self, name: str, count: int, tuner: Autotuner | None, rng: Uniform):
        self.name, self.tuner = name, tuner
        # All mutable state:
        self.most_alive = 2 * count
        self.peak = 0  # of workers wanted, when one was asked for
        self.num_starting = 0  # of those alive that have not pulled
        self._count = count
        self._throttle = Throttle(rng)
        self._alive: dict[str, Alive] = {}
        self._num_asked = 0  # ever
        self._num_retired = 0  # of those alive

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
        """Names of the workers to be invoked now: no more than ``demand``, and no more at work than are wanted. Silent ones
        are not at work, but no more than twice as many as are wanted are ever alive."""
        wanted, alive = self.wanted(now), len(self._alive)
        number = min(wanted - self._at_work(num_silent), 2 * wanted - alive, self.most_alive - alive, demand)
        if number <= 0:
            return []
        number = min(number, self._throttle.allows(now))
        self._throttle.invoked(number)
        self.peak = max(self.peak, wanted)
        return [self._enlist(now) for _ in range(number)]

    def pulled(self, worker: str) -> bool:
        """It is ready for work; whether there is any for it."""
        state = self._alive[worker]
        self.num_starting -= not state.pulled
        state.pulled = True
        self._throttle.got_through()
        return not state.retired

    def ended(self, worker: str) -> Alive | None:
        """What was known of it."""
        state = self._alive.pop(worker, None)
        if state is not None:
            self.num_starting -= not state.pulled
            self._num_retired -= state.retired
        return state

    def refused(self, asked_at: float, now: float, *, shrink: bool) -> float | None:
        """By the service, an invocation of that time; how long the pause is that begins. ``shrink``: there are as many as
        there may be."""
        if shrink:
            self._throttle.shrink(len(self._alive), now)
        return self._throttle.refused(asked_at, now)

    def in_vain_for(self, now: float) -> float:
        """Seconds for which every invocation has been refused while nobody works; 0 if somebody does."""
        return self._throttle.refused_for(now) if len(self._alive) == self.num_starting else 0.0

    def surplus(self, num_silent: int, now: float) -> int:
        """Workers at work that are not wanted."""
        return max(0, self._at_work(num_silent) - self.wanted(now))

    def newest(self) -> list[str]:
        """Workers that have pulled and may be retired, those first that know the fewest intervals."""
        return [name for name, state in reversed(self._alive.items()) if state.pulled and not state.retired]

    def retire(self, worker: str) -> None:
        self._alive[worker].retired = True
        self._num_retired += 1

    def is_retired(self, worker: str) -> bool:
        return worker in self._alive and self._alive[worker].retired

    def _at_work(self, num_silent: int) -> int:
        return len(self._alive) - num_silent - self._num_retired

    def _enlist(self, now: float) -> str:
        worker = f"{self.name}-{self._num_asked}"
        self._num_asked += 1
        self.num_starting += 1
        self._alive[worker] = Alive(now)
        return worker
