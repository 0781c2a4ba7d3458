"""The most memory that this process has held."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Name in a graph server's totals (``EpochReport.usage``); over several servers or attempts, the maximum counts.
NAME: Final = "peak_memory_bytes"


def peak_bytes(status: Path = Path("/proc/self/status")) -> int | None:
    """Returns the peak of resident memory: private pages, and mapped files (shards, libraries). None if the system does
    not tell, as outside of Linux. ru_maxrss would be wrong: it starts with the value of the parent process."""
    try:
        with status.open() as lines:
            return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    except OSError:
        return None
