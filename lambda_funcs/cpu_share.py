"""Slows a local environment to the share of a core that AWS Lambda gives for its memory.

Without it, an environment of 192 MB on this machine would compute on a whole core, and be billed for 0.109 of one. So
after each computation it sleeps until Lambda's time for it has passed: the CPU time divided by the share. A cgroup
would need rights that few users have.
"""

from __future__ import annotations

import time


class CpuShare:
    """Limits the computation in a block ``with share:`` to a share of a core. ``core``: the share; 1 or more: no
    limit."""

    def __init__(self, core: float):
        self._core = min(1.0, core)
        # All mutable state:
        self._cpu_s = time.process_time()  # CPU time of all threads that is paid for by sleeping
        self._began = 0.0

    def clock(self) -> float:
        """Returns the time in seconds by which computations are timed. With a limit, it leaves out waits."""
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
