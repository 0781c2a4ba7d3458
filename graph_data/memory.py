"""The memory of this machine, and the part of it that a preparation may use."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from siafu import allotment
from siafu.errors import ConfigError
from siafu.setting import BYTES

SHARE = 0.6  # of the available memory, where no limit is given
RESERVED = 48 << 20  # bytes that readers and allocators take beside our arrays: Parquet's pages, above all
LEAST_WORKING = 16 << 20  # bytes of arrays without which nothing moves


@dataclass(frozen=True)
class Budget:
    """A limit on resident memory, and the memory in use when the work began (the interpreter and its libraries)."""

    limit: int
    taken: int

    @classmethod
    def of(cls, limit: str | int | None) -> Budget:
        """``limit`` as bytes or as text ("6GiB"); None: SHARE of the available memory. Raises: ConfigError if
        malformed."""
        if limit is None:
            return cls(int(SHARE * available()) + resident(), resident())
        return cls(parse_bytes(limit) if isinstance(limit, str) else limit, resident())

    @property
    def working(self) -> int:
        """Bytes for arrays. Raises: ConfigError if fewer than LEAST_WORKING."""
        return self._left(self.taken + RESERVED, f"{show_bytes(self.taken)} are taken by the program itself")

    def beside(self, nbytes: int, what: str) -> int:
        """Bytes that remain beside arrays of ``nbytes``. Raises: ConfigError if fewer than LEAST_WORKING."""
        return self._left(self.taken + RESERVED + nbytes, f"{what} take {show_bytes(nbytes)}")

    def _left(self, used: int, why: str) -> int:
        if self.limit - used < LEAST_WORKING:
            raise ConfigError(
                f"memory limit {show_bytes(self.limit)}: {why}, must be >= {show_bytes(used + LEAST_WORKING)}"
            )
        return self.limit - used


def parse_bytes(text: str) -> int:
    """Bytes of "6GiB", "500MB", "1.5G" or "1000000". Raises: ConfigError for anything else, and for 0."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    factor = BYTES.get(match[2].lower()) if match else None
    nbytes = int(float(match[1]) * factor) if match and factor else 0
    if nbytes < 1:
        raise ConfigError(f"memory limit {text!r} is no size: write 6GiB, 500MB or a number of bytes")
    return nbytes


def show_bytes(nbytes: float) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if nbytes >= factor:
            return f"{nbytes / factor:.{1 if nbytes < 100 * factor else 0}f} {unit}"
    return f"{nbytes / 2**10:.0f} KiB"


def available() -> int:
    """Bytes that a new process can get without swapping, within the limits of the machine, control groups and Slurm."""
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        free = int(found[1]) * 1024 if found else allotment.memory_bytes()
    except OSError:  # not Linux
        free = allotment.memory_bytes()
    return min(free, allotment.memory_room())


def resident() -> int:
    """Resident bytes of this process."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # not Linux
        return 100 << 20
