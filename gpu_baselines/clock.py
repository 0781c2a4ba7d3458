"""Seconds of an epoch by phase: what a rank's main thread does or waits for."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: compute is what is left of the epoch.
PHASES = ("compute", "communicate", "reduce", "quantise")


class Clock:
    """Counts seconds by phase: ``with clock("communicate"): ...``. An inner phase does not count for the outer one
    too."""

    def __init__(self, synchronise: Callable[[], None] = lambda: None):
        """synchronise: waits for the calling thread's work on its GPU, where operations return before they are done.
        Called before each reading of the time."""
        self.synchronise = synchronise
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = 0.0

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        self.synchronise()
        begin, before = time.perf_counter(), self._inner
        self._inner = 0.0
        try:
            yield
        finally:
            self.synchronise()
            whole = time.perf_counter() - begin
            self.seconds[phase] += whole - self._inner
            self._inner = before + whole

    def take(self) -> dict[str, float]:
        """The seconds of each phase since the last call."""
        found = dict(self.seconds)
        self.seconds.clear()
        return found
