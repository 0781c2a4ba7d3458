"""The most memory that this process has held."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Of a graph server's totals (``EpochReport.usage``); of several servers or attempts, the most of any.
NAME: Final = "peak_memory_bytes"


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Resident at the peak: private pages, and what is mapped (shards, libraries). None where the system does not
    tell, as outside of Linux. Not ru_maxrss, which begins with that of the process that started us."""
    try:
        with status.open() as lines:
            return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    except OSError:
        return None
