"""Where an epoch's time goes: seconds by phase, of what a rank's main thread does or waits for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: compute is what is left of the epoch.
PHASES = ("compute", "communicate", "reduce", "quantise")


class Clock:
    """``with clock("communicate"): ...``; an inner phase does not count for the outer one too."""

    def __init__(self, synchronise: Callable[[], None] = lambda: None, now: Callable[[], float] = time.perf_counter):
        # synchronise: waits for the GPU, so that its time is the phase's
        self._synchronise, self._now = (synchronise, now)
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self._synchronise()
        begin, before = self._now(), self._inner
        self._inner = 0.0
        try:
            yield
        finally:
            self._synchronise()
            whole = self._now() - begin
            self.seconds[phase] += whole - self._inner
            self._inner = before + whole

    def take(self) -> dict[str, float]:
        """The seconds since the last call."""
        found = dict(self.seconds)
        self.seconds.clear()
        return found
