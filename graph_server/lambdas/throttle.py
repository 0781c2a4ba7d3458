"""Limits the rate of invocations, and estimates how many environments the service grants. Pure: time and generator
are arguments.

Rules:
1. No more than ``BURST`` invocations at once, and ``RATE_PER_S`` of them a second in the long run.
2. A refusal stops invoking for a while: a random part of a time that doubles with each refusal in a row (full jitter:
   servers that were refused together do not come back together), at most ``LONGEST_S``. Refusals of invocations that
   were made before the pause began are ignored. After the pause the rate starts again from one invocation.
3. A worker that gets through ends the row. Refusals more than ``GAP_S`` apart, which is longer than a pause and a call
   that fails slowly, do not count as one long time: no invocation was tried between them, or the calls hung.
4. If a refusal says that we have as many environments as we may have, no more than those are wanted. One more is tried
   after every ``PATIENCE_S``.
"""

from __future__ import annotations

import math
from typing import Protocol

BURST, RATE_PER_S = 100, 10.0
FIRST_S, LONGEST_S = 0.5, 30.0
GAP_S = 180.0
PATIENCE_S = 20.0


class Uniform(Protocol):
    def uniform(self, a: float, b: float) -> float: ...


class Throttle:
    def __init__(self, rng: Uniform):
        self._rng = rng
        # All mutable state:
        self._allowed = float(BURST)
        self._counted_at: float | None = None
        self._paused_at, self._until = -math.inf, -math.inf
        self._refusals = 0  # in a row
        self._row_began_at, self._latest_at = math.inf, -math.inf  # of the refusals in a row
        self._ceiling: int | None = None
        self._ceiling_at = 0.0

    def allows(self, now: float) -> int:
        """Returns how many invocations may be made now, by rules 1 and 2."""
        if now < self._until:
            return 0
        since = max(self._until, now if self._counted_at is None else self._counted_at)
        self._allowed = min(BURST, self._allowed + max(0.0, now - since) * RATE_PER_S)
        self._counted_at = now
        return int(self._allowed)

    def invoked(self, number: int) -> None:
        self._allowed -= number

    def refused(self, invoked_at: float, now: float) -> float | None:
        """Records a refusal by rule 2. Returns the length of the pause that begins, in seconds; None if the refused
        invocation is from before the current or latest pause."""
        if now - self._latest_at > GAP_S:
            self._row_began_at = now
        self._latest_at = now
        if invoked_at < self._paused_at or now < self._until:
            return None
        pause_s = self._rng.uniform(0, min(LONGEST_S, FIRST_S * 2 ** min(self._refusals, 16)))
        self._refusals += 1
        self._row_began_at = min(self._row_began_at, now)
        self._paused_at, self._until = now, now + pause_s
        self._allowed, self._counted_at = 1.0, self._until
        return pause_s

    def got_through(self) -> None:
        """Ends the row of refusals: a worker got through (rule 3)."""
        self._refusals = 0
        self._row_began_at = math.inf

    def refused_for(self, now: float) -> float:
        """Returns the seconds since the row of refusals began; 0 if there is none."""
        return max(0.0, now - self._row_began_at)

    def shrink(self, environments: int, now: float) -> None:
        """Lowers the number granted to ``environments``, those that exist now (rule 4)."""
        granted = self.granted(now)
        self._ceiling = max(1, environments if granted is None else min(environments, granted))
        self._ceiling_at = now

    def granted(self, now: float) -> int | None:
        """Returns the number of environments that may be wanted; None while no refusal has limited it."""
        if self._ceiling is None:
            return None
        return self._ceiling + int((now - self._ceiling_at) / PATIENCE_S)
