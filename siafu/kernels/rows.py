"""Rows that will be gathered: their layout in memory, and their precision.

A ``Table`` keeps its rows in column tiles, and a gather passes over the edges once per tile. Rows of a small table are
whole. Tiles of a larger one are two cache lines wide, which processors fetch as a pair: 1.1 to 1.4 times faster than
four lines for 58,000 to 1,000,000 rows of 64 and 128 floats (EPYC 9004). They are of one line where only those stay in
the last-level cache and rows have many edges (docs/adr/0013).
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from siafu import ops
from siafu.kernels import fallback
from siafu.kernels.caches import L3_BYTES, LINE_BYTES, line_zeros
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array

#: By the number that the library gives them.
ROW_TYPES: Final = ("float32", "float64", "bfloat16", "float16", "uint8")
TABLE_TYPES: Final = ROW_TYPES[:4]
PAGE_BYTES = 2 << 20  # of a huge page
#: Of the last-level cache, what a small table may fill.
SMALL_SHARE = 0.25
#: Values. Of wider rows too few fit the first-level cache between their fetching and their use.
WIDEST_TILE: Final = 64
PAIR_LINES, ODD_LINES = 2, 3  # of a large table's tile; rows of three lines would be padded to four
#: Of the last-level cache, what a tile may fill that is to stay there; edges to a row, from which on that is worth more
#: passes over them.
KEPT_SHARE, MANY_EDGES = 0.5, 32
CONVERTED_VALUES = 1 << 20  # of rows that are converted before they are written, at a time


class Table:
    """``num_rows`` rows of ``width`` values that will be gathered, zero until they are written.

    dtype: what is stored: float32, float64, bfloat16 or float16. Rows are padded to whole cache lines where they are
    longer than half of one. edges: to each row of the sums, on the mean.
    Several threads may write different rows at once. Raises: ValueError for a count below 1 or an unknown dtype.
    """

    def __init__(self, num_rows: int, width: int, dtype: str = "float32", *, edges: float = 0.0):
        if num_rows < 0 or width < 1:
            raise ValueError(f"table of {num_rows} rows of {width} values, must be >= 0 and >= 1")
        if dtype not in TABLE_TYPES:
            raise ValueError(f"table of {dtype!r}, must be one of {', '.join(TABLE_TYPES)}")
        self.num_rows, self.width, self.dtype = num_rows, width, dtype
        stored = stored_type(dtype)
        self.tile = _tile(num_rows, width, stored.itemsize, edges)  # values
        num_tiles = -(-width // self.tile)
        self._tiles = huge_zeros((num_tiles, num_rows, self.tile), stored)

    @property
    def nbytes(self) -> int:
        return int(self._tiles.nbytes)

    def __len__(self) -> int:
        return self.num_rows

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_rows, self.width

    def write(self, place: slice | Array, rows: Array, scale: Array | None = None, *, threads: int = 1) -> None:
        """Puts rows ``[k, width]``, each times its scale ``[k]``, into their places: a slice or k different row
        numbers.

        Raises: ValueError if the shapes disagree, IndexError for a place that is not there.
        """
        places = self._places(place)
        count = len(range(self.num_rows)[places]) if isinstance(places, slice) else len(places)
        if rows.shape != (count, self.width):
            raise ValueError(f"rows {list(rows.shape)}, must be [{count}, {self.width}]")
        if scale is not None and scale.shape != (count,):
            raise ValueError(f"scale {list(scale.shape)}, must be [{count}]")
        value = np.dtype(np.float64 if self.dtype == "float64" else np.float32)
        step = max(1, CONVERTED_VALUES // self.width)
        if LIBRARY is not None and rows.dtype == value and rows.strides[1] == value.itemsize:
            step = max(1, count)  # nothing to convert
        for first in range(0, count, step):
            part = slice(first, first + step)
            where = (
                slice(places.start + first, min(places.start + first + step, places.stop))
                if isinstance(places, slice)
                else places[part]
            )
            factor = None if scale is None else np.ascontiguousarray(scale[part], value)
            self._write(where, rows[part], factor, value, threads)

    def _write(self, place: slice | Array, rows: Array, scale: Array | None, value: Any, threads: int) -> None:
        if LIBRARY is None:
            fallback.write(self._tiles, self.dtype, place, rows, scale)
            return
        if rows.dtype != value or rows.strides[1] != value.itemsize:
            rows = np.ascontiguousarray(rows, value)
        call = _Pack(
            rows=rows.ctypes.data,
            scale=address(scale),
            place=None if isinstance(place, slice) else address(place),
            table=self._tiles.ctypes.data,
            first=place.start if isinstance(place, slice) else 0,
            num_rows=len(rows),
            width=self.width,
            stride=rows.strides[0] // value.itemsize,
            type=ROW_TYPES.index(self.dtype),
            threads=threads,
            **self.layout(),
        )
        LIBRARY.siafu_pack(ctypes.byref(call))

    def read(self, place: slice | Array) -> Array:
        """Rows ``[k, width]`` of a slice or of row numbers, float32 (float64 if that is what is stored)."""
        return fallback.read(self._tiles, self.dtype, self._places(place), self.width)

    def columns(self, first: int, stop: int) -> Array:
        """Columns ``first:stop`` of every row, ``[num_rows, stop - first]``, float32 or float64; inside one tile."""
        tile, at = divmod(first, self.tile)
        return fallback.widened(self._tiles[tile, :, at : at + stop - first], self.dtype)

    def layout(self) -> dict[str, int]:
        """Where rows are: of ``siafu::Source``, beside the address."""
        _, row, _ = self._tiles.strides
        return {"row_bytes": row, "tile_bytes": self._tiles.strides[0], "tile": self.tile}

    @property
    def address(self) -> int:
        return self._tiles.ctypes.data

    def _places(self, place: slice | Array) -> slice | Array:
        if isinstance(place, slice):
            start, stop, step = place.indices(self.num_rows)
            if step != 1:
                raise ValueError(f"place {place}, must have step 1")
            if place.stop is not None and place.stop > self.num_rows:
                raise IndexError(f"place {place}, the table has {self.num_rows} rows")
            return slice(start, max(start, stop))
        if place.dtype.kind not in "iu" or place.ndim != 1:
            raise ValueError(f"place {place.dtype} {list(place.shape)}, must be integers [k]")
        place = np.ascontiguousarray(place, np.int64)
        if len(place) and (place.min() < 0 or place.max() >= self.num_rows):
            raise IndexError(f"place {place.min()}..{place.max()}, must be in 0..{self.num_rows - 1}")
        return place


class _Pack(ctypes.Structure):
    """siafu::Pack of src/pack.hpp."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("place", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("row_bytes", ctypes.c_int64),
        ("tile_bytes", ctypes.c_int64),
        ("tile", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("num_rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    )


def stored_type(dtype: str) -> np.dtype[Any]:
    return np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data


def to_bfloat16(rows: Array) -> npt.NDArray[np.uint16]:
    """The upper half of each float32's bits, rounded to the nearest, ties to even; nan stays nan."""
    rows = np.asarray(rows, np.float32)
    if LIBRARY is None or rows.ndim != 2 or not rows.size or rows.strides[1] != rows.itemsize:
        return ops.to_bfloat16(rows)
    out = np.empty(rows.shape, np.uint16)
    call = _Pack(
        rows=rows.ctypes.data,
        table=out.ctypes.data,
        num_rows=len(rows),
        width=rows.shape[1],
        stride=rows.strides[0] // rows.itemsize,
        type=ROW_TYPES.index("bfloat16"),
        threads=1,
        row_bytes=out.strides[0],
        tile_bytes=0,
        tile=rows.shape[1],
    )
    LIBRARY.siafu_pack(ctypes.byref(call))
    return out


def row_bytes(num_rows: int, width: int, itemsize: int, edges: float = 0.0) -> int:
    """What a row of a table takes, over all tiles and with their padding. edges: of ``Table``."""
    tile = _tile(num_rows, width, itemsize, edges)
    return -(-width // tile) * tile * itemsize


def _tile(num_rows: int, width: int, itemsize: int, edges: float) -> int:
    """Values in a row of a tile: of a small table up to WIDEST_TILE, else a pair of cache
    lines or one; padded to whole lines if longer than half of one."""
    if width * itemsize <= LINE_BYTES // 2:
        return _next_power(width)
    lines = -(-width * itemsize // LINE_BYTES)
    if num_rows * lines * LINE_BYTES <= SMALL_SHARE * L3_BYTES:
        lines = -(-min(width, WIDEST_TILE) * itemsize // LINE_BYTES)
    else:
        lines = PAIR_LINES if lines > ODD_LINES else lines
        kept = KEPT_SHARE * L3_BYTES / (num_rows * LINE_BYTES)  # lines
        lines = 1 if edges >= MANY_EDGES and 1 <= kept < lines else lines
    return lines * LINE_BYTES // itemsize


def _next_power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def huge_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Zeros at the start of a cache line; in huge pages where they fill some: a gather touches a page per edge.

    One line more is there to read behind the last row.
    """
    nbytes = int(np.prod(shape)) * dtype.itemsize + LINE_BYTES
    if nbytes < PAGE_BYTES:
        return line_zeros(shape, dtype)
    pages = mmap.mmap(-1, nbytes + PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return np.ndarray(shape, dtype, memory.data, -memory.ctypes.data % PAGE_BYTES)
