"""The sizes of this machine's caches, which decide how rows are laid out, and arrays that begin at a cache line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from siafu.sparse import Array

LINE_BYTES: Final = 64
CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
#: Sizes by level if the kernel does not tell: small for a server of today.
DEFAULT_BYTES: Final = {2: 1 << 20, 3: 32 << 20}
#: A larger last-level cache serves dozens of cores over a mesh: each core reads it slowly, and has few of its bytes.
MESH_BYTES: Final = 64 << 20
UNITS: Final = {"K": 1 << 10, "M": 1 << 20}


def size(level: int, folder: Path = CACHES) -> int:
    """Returns the bytes of core 0's data cache of this level (sysconf gives the whole socket's on some processors)."""
    for index in sorted(folder.glob("index*")):
        try:
            if int((index / "level").read_text()) == level and "Instruction" not in (index / "type").read_text():
                text = (index / "size").read_text().strip()
                return int(text[:-1]) * UNITS[text[-1]]
        except (OSError, ValueError, KeyError):
            continue
    return DEFAULT_BYTES[level]


def for_tables(l2_bytes: int, l3_bytes: int) -> int:
    """Returns the bytes of cache that rows to be gathered are laid out for (measured, docs/adr/0013)."""
    return l3_bytes if l3_bytes <= MESH_BYTES else 4 * l2_bytes


L2_BYTES: Final = size(2)
L3_BYTES: Final = size(3)
TABLE_BYTES: Final = for_tables(L2_BYTES, L3_BYTES)


def line_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns zeros that begin at a cache line, with one more line after the end. NumPy's arrays begin anywhere, and a
    row of 64 bytes across two lines costs two reads."""
    return _at_a_line(np.zeros(_room(shape, dtype), np.uint8), shape, dtype)


def line_copy(rows: Array) -> Array:
    """Returns a copy that begins at a cache line."""
    copy = _at_a_line(np.empty(_room(rows.shape, rows.dtype), np.uint8), rows.shape, rows.dtype)
    copy[:] = rows
    return copy


def _room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape)) * dtype.itemsize + 2 * LINE_BYTES


def _at_a_line(memory: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    return np.ndarray(shape, dtype, memory.data, -memory.ctypes.data % LINE_BYTES)
