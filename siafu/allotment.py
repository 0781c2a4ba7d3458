"""Cores and memory that this process may use: CPU affinity, control groups (versions 1 and 2, all levels) and Slurm."""

from __future__ import annotations

import ctypes
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")  # of /proc and /sys
#: The largest threshold that glibc takes: larger arrays come from the system and go back to it at once.
KEPT_BYTES = 32 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of malloc.h


def cores() -> int:
    """Returns how many threads can run at a time; a quota of one and a half cores counts as two."""
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # macOS has none
    said = os.environ.get("SLURM_CPUS_PER_TASK") or os.environ.get("SLURM_CPUS_ON_NODE") or ""
    quotas = [math.ceil(quota) for quota in _quotas()]
    return max(1, min(ours, *quotas, int(said) if said.isdecimal() else ours))


def memory_bytes() -> int:
    """Returns the memory of this machine, or of our part of it, in bytes."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for limit, _ in _memory()), *_slurms_bytes()])


def keep_freed_memory() -> None:
    """Tells glibc's allocator to keep freed memory for the next epoch, which needs as much: memory that comes from the
    system is zeroed page by page. By default glibc adapts to the sizes freed first. So an epoch of GAT on 28.7 million
    edges took 631 or 655 ms, depending on the sizes of arrays at the start. Does nothing with other C libraries."""
    with suppress(OSError, AttributeError):
        heap = ctypes.CDLL(None).mallopt
        heap(_MMAP_THRESHOLD, KEPT_BYTES)
        heap(_TRIM_THRESHOLD, 2 * KEPT_BYTES)


def memory_room() -> int:
    """Returns the bytes that control groups and Slurm still allow; 2^63 if they set no limit. Inactive pages of files
    count as free."""
    taken = 0
    for used in _numbers(ROOT / "proc/self/statm")[1:2]:
        taken = used * os.sysconf("SC_PAGE_SIZE")
    rooms = [limit - used for limit, used in _memory()] + [limit - taken for limit in _slurms_bytes()]
    return max(0, min([2**63, *rooms]))


def _quotas() -> Iterator[float]:
    for folder in _groups("cpu"):
        match _numbers(folder / "cpu.max") or [
            *_numbers(folder / "cpu.cfs_quota_us"),
            *_numbers(folder / "cpu.cfs_period_us"),
        ]:
            case [quota, period] if quota > 0 < period:
                yield quota / period


def _memory() -> Iterator[tuple[int, int]]:
    """Yields (limit, used bytes) of each control group that limits memory."""
    for folder in _groups("memory"):
        for limit, current in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            for found, used in zip(_numbers(folder / limit), _numbers(folder / current), strict=False):
                yield found, used - _inactive(folder)


def _inactive(folder: Path) -> int:
    try:
        lines = dict(line.split(" ", 1) for line in (folder / "memory.stat").read_text().splitlines())
        return int(lines.get("total_inactive_file") or lines.get("inactive_file") or 0)
    except (OSError, ValueError):
        return 0


def _groups(controller: str) -> Iterator[Path]:
    """Yields the folders of our control groups for this controller, and those above them, as far as they are
    visible."""
    try:
        lines = (ROOT / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for _, controllers, path in (line.split(":", 2) for line in lines if line.count(":") > 1):
        if not controllers or controller in controllers.split(","):
            for mount in (controllers, controller) if controllers else ("", "unified"):
                top = ROOT / "sys/fs/cgroup" / mount
                inside = top / path.strip("/")
                yield from dict.fromkeys([inside, *(above for above in inside.parents if above.is_relative_to(top))])


def _numbers(file: Path) -> list[int]:
    """Returns the integers in a file of one line; none if the file is missing or has a word such as "max"."""
    try:
        return [int(word) for word in file.read_text().split()]
    except (OSError, ValueError):
        return []


def _slurms_bytes() -> list[int]:
    per_node, per_cpu = os.environ.get("SLURM_MEM_PER_NODE", ""), os.environ.get("SLURM_MEM_PER_CPU", "")
    if per_node.isdecimal():
        return [int(per_node) << 20] if int(per_node) else []  # 0: all of the node
    return [int(per_cpu) * cores() << 20] if per_cpu.isdecimal() and int(per_cpu) else []
