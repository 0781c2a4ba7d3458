"""How large the pieces of work are that a Lambda gets: from what its tasks tell of its link and of its core. Pure.

Rules:
1. What is measured are tasks that had their worker for themselves from their sending to their answer: what
   was not computing was waiting and travelling, and a line through (bytes, seconds) gives a latency and a
   rate. Old tasks count less and less.
2. Parts: a long task's rows travel in so many that what the overlap of link and core saves is worth a message each.
   Sums over rows have other bits in other parts: where bits are promised it is always ``PARTS``.
3. Memory: Lambda's share of a core grows with its memory up to one core at ``CORE_MB``. So much is recommended as makes
   computing as long as travelling; less where the link is the limit, more where the core is, never less than what is
   used. It is fixed when the function is deployed: no more than a recommendation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from siafu.machine import LAMBDA_BYTES_PER_S, MESSAGE_S
from siafu.places import CORE_MB
from siafu.tensor_task import PARTS

LEAST_MB, STEP_MB = 128, 64
MOST_PARTS = 4
CLEARLY = 0.8
#: Weight of what is known when another task comes in; tasks that are needed for a first opinion.
KEEP, ENOUGH = 0.98, 10


@dataclass(frozen=True)
class Link:
    latency_s: float  # of a task: all its round trips
    bytes_per_s: float


class Sizing:
    """``core``: share of a core that an environment has; ``on_lambda``: whether its link is the one that counts."""

    def __init__(self, memory_mb: int, core: float, *, on_lambda: bool):
        self.memory_mb, self.core, self.on_lambda = memory_mb, core, on_lambda
        # All mutable state: weighted sums over tasks, and the most memory that any environment used
        self._n = self._x = self._y = self._xx = self._xy = self._compute_s = 0.0
        self._count = 0
        self._used_mb = 0

    def observe(self, nbytes: int, compute_s: float, elapsed_s: float) -> None:
        """A task that was alone with its worker; ``nbytes``: both ways."""
        travel_s = max(0.0, elapsed_s - compute_s)
        self._count += 1
        self._n = KEEP * self._n + 1
        self._x = KEEP * self._x + nbytes
        self._y = KEEP * self._y + travel_s
        self._xx = KEEP * self._xx + nbytes * nbytes
        self._xy = KEEP * self._xy + nbytes * travel_s
        self._compute_s = KEEP * self._compute_s + compute_s

    def used(self, memory_mb: int) -> None:
        self._used_mb = max(self._used_mb, memory_mb)

    @property
    def known(self) -> bool:
        return self._count >= ENOUGH

    @property
    def link(self) -> Link:
        """Rule 1. Tasks of one size tell no rate from a latency: then it is all rate."""
        n, x, y = self._n, self._x / self._n, self._y / self._n
        spread = self._xx / n - x * x
        slope = (self._xy / n - x * y) / spread if spread > (0.1 * x) ** 2 else 0.0
        latency_s = y - slope * x
        if slope <= 0 or latency_s < 0:
            return Link(0.0, max(x, 1.0) / max(y, 1e-9))
        return Link(latency_s, 1 / slope)

    def parts(self, now: int = PARTS) -> int:
        """Rule 2; ``now``: what it is. With k parts the shorter of travelling and computing is hidden but
        for a k-th, so the best k is sqrt(shorter / MESSAGE_S). Another one must be clearly better: what
        workers keep is cut as tasks are."""
        if not self.known:
            return now
        shorter_s = min(self._x / self._n / self.link.bytes_per_s, self._compute_s / self._n)
        best = min(math.sqrt(shorter_s / MESSAGE_S), float(MOST_PARTS))
        return now if abs(best - now) < CLEARLY else max(1, round(best))

    @property
    def recommended_mb(self) -> int:
        """Rule 3; 0 while nothing is known."""
        if not self.known:
            return 0
        link = self.link
        rate = link.bytes_per_s if self.on_lambda else min(link.bytes_per_s, LAMBDA_BYTES_PER_S)
        travel_s = link.latency_s + self._x / self._n / rate
        balanced = CORE_MB * self.core * self._compute_s / self._n / max(travel_s, 1e-9)
        wanted = max(min(balanced, CORE_MB), 1.25 * self._used_mb, LEAST_MB)
        return STEP_MB * math.ceil(wanted / STEP_MB)
