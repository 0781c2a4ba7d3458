"""Slows a local environment to the share of a core that AWS Lambda gives for its memory.

An environment of 192 MB on this machine would compute on a whole core, and be billed for 0.109 of one. So after what it
computes it sleeps, until as much time has passed as Lambda would have taken: its CPU time over its share. Not a cgroup:
making one takes rights that few users have.
"""

from __future__ import annotations

import time


class CpuShare:
    """Around everything that is computed: ``with share:``. ``core``: 1 or more limits nothing."""

    def __init__(self, core: float):
        self._core = min(1.0, core)
        # All mutable state:
        self._cpu_s = time.process_time()  # of all threads, paid for by sleeping
        self._began = 0.0

    def clock(self) -> float:
        """Seconds that computing takes, waiting left out where there is a limit."""
        return time.perf_counter() if self._core == 1 else time.process_time() / self._core

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        if self._core == 1:
            return
        owed_s = (time.process_time() - self._cpu_s) / self._core - (time.perf_counter() - self._began)
        if owed_s > 0:
            time.sleep(owed_s)
        self._cpu_s = time.process_time()
