"""Emulates a slow network between fast processes: each rank's link has a rate and a delay.

Messages leave in packets, so that threads of a rank that send at once share its link fairly, as connections share a
network card: weights do not wait behind the late halo rows of a whole epoch. The clock of a link is computed, not
slept, and runs up to a packet ahead: waking up late delays bytes, but loses no rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: A link is busy with one packet for so long.
PACKET_S = 0.002


class Link:
    """An emulated link, which all bytes of a rank pass first. ``rate`` in bytes per second, 0: nothing is slowed;
    ``delay_s`` one way."""

    def __init__(
        self,
        rate: float = 0.0,
        delay_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.rate, self.delay_s = rate, delay_s
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    @property
    def slows(self) -> bool:
        return bool(self.rate or self.delay_s)

    def pass_through(self, nbytes: int) -> None:
        """Waits until ``nbytes`` would have arrived at the other end."""
        if self.slows:
            self.until(self.leave(nbytes))

    def leave(self, nbytes: int) -> float:
        """Waits until ``nbytes`` have almost left; returns when they arrive at the other end, by the link's clock."""
        out = self._clock()
        packet = max(1, int(self.rate * PACKET_S))
        for first in range(0, nbytes if self.rate else 0, packet):
            self.until(self._free_at - PACKET_S)
            with self._lock:
                begin = max(self._clock(), self._free_at)
                self._free_at = out = begin + min(packet, nbytes - first) / self.rate
        return out + self.delay_s

    def until(self, then: float) -> None:
        if (left := then - self._clock()) > 0:
            self._sleep(left)
