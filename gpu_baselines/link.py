"""A slow network between fast processes: every rank's link has a rate and a delay, whoever it talks to.

The clock of a link is computed, not slept: waking up late delays bytes, but loses no rate. Both threads of a rank, that
computes and that which carries late halo rows, share one link, as they share one network card.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Link:
    """What a rank sends goes through here first. ``rate`` in bytes per second, 0: nothing is slowed; ``delay_s`` one way."""

    def __init__(
        self, rate: float = 0.0, delay_s: float = 0.0, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):  # fmt: skip
        self.rate, self.delay_s = rate, delay_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    def pass_through(self, nbytes: int) -> None:
        """Returns when so many bytes would be out at the other end."""
        if not self.rate and not self.delay_s:
            return
        with self._lock:
            begin = max(self._clock(), self._free_at)
            self._free_at = begin + (nbytes / self.rate if self.rate else 0.0)
            arrives = self._free_at + self.delay_s
        if (left := arrives - self._clock()) > 0:
            self._sleep(left)
