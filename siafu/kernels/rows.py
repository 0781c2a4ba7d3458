"""Rows to be gathered: their layout in memory, and their precision.

A ``Table`` keeps its rows in column tiles, and a gather passes over the edges once per tile. Tiles of a small table are
up to ``WIDEST_TILE`` values wide. Tiles of a larger one are two cache lines wide, which processors fetch as a pair: 1.1
to 1.4 times faster than four lines for 58,000 to 1,000,000 rows of 64 and 128 floats (EPYC 9004). They are one line
wide if only such tiles stay in the cache (``caches.TABLE_BYTES``) and rows have many edges (docs/adr/0013).
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from siafu import ops
from siafu.kernels import fallback
from siafu.kernels.caches import LINE_BYTES, TABLE_BYTES, line_zeros
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array

#: Types by their number in the library.
ROW_TYPES: Final = ("float32", "float64", "bfloat16", "float16", "uint8")
TABLE_TYPES: Final = ROW_TYPES[:4]
PAGE_BYTES = 2 << 20  # of a huge page
#: The largest share of ``TABLE_BYTES`` that a small table fills.
SMALL_SHARE = 0.25
#: The most values in a row of a tile: too few wider rows fit the first-level cache between their fetch and their use.
WIDEST_TILE: Final = 64
PAIR_LINES, ODD_LINES = 2, 3  # of a large table's tile; rows of three lines would be padded to four
#: The largest share of ``TABLE_BYTES`` for a tile that is to stay in the cache; the least edges per row for which this
#: is worth more passes over the edges.
KEPT_SHARE, MANY_EDGES = 0.5, 32
CONVERTED_VALUES = 1 << 20  # values converted at a time before they are written


class Table:
    """``num_rows`` rows of ``width`` values to be gathered, zero until they are written.

    dtype: of the stored values: float32, float64, bfloat16 or float16. Rows longer than half a cache line are padded to
    whole lines. edges: the mean number of edges per row of the sums.
    Several threads may write different rows at once. Raises: ValueError for fewer than 0 rows or 1 column, or an
    unknown dtype.
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
        """Writes rows ``[k, width]``, each times its scale ``[k]``, to their places: a slice or k distinct row numbers.

        Raises: ValueError if the shapes disagree, IndexError for a place out of range.
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
        """Returns rows ``[k, width]`` at a slice or at row numbers, float32 (float64 if stored so)."""
        return fallback.read(self._tiles, self.dtype, self._places(place), self.width)

    def columns(self, first: int, stop: int) -> Array:
        """Returns columns ``first:stop`` of every row, ``[num_rows, stop - first]``, float32 or float64. They must be
        inside one tile."""
        tile, at = divmod(first, self.tile)
        return fallback.widened(self._tiles[tile, :, at : at + stop - first], self.dtype)

    def layout(self) -> dict[str, int]:
        """Returns the fields of ``siafu::Source`` that describe the layout, all but the address."""
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
    """Returns the upper half of each float32's bits, rounded to the nearest, ties to even; NaN stays NaN."""
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
    """Returns the bytes of a table's row over all tiles, padding included. edges: as for ``Table``."""
    tile = _tile(num_rows, width, itemsize, edges)
    return -(-width // tile) * tile * itemsize


def _tile(num_rows: int, width: int, itemsize: int, edges: float) -> int:
    """Returns the number of values in a row of a tile: of a small table up to WIDEST_TILE, else two cache lines or one;
    padded to whole lines if longer than half a line."""
    if width * itemsize <= LINE_BYTES // 2:
        return _next_power(width)
    lines = -(-width * itemsize // LINE_BYTES)
    if num_rows * lines * LINE_BYTES <= SMALL_SHARE * TABLE_BYTES:
        lines = -(-min(width, WIDEST_TILE) * itemsize // LINE_BYTES)
    else:
        lines = PAIR_LINES if lines > ODD_LINES else lines
        kept = KEPT_SHARE * TABLE_BYTES / (num_rows * LINE_BYTES)  # lines
        lines = 1 if edges >= MANY_EDGES and 1 <= kept < lines else lines
    return lines * LINE_BYTES // itemsize


def _next_power(count: int) -> int:
    return 1 << (count - 1).bit_length()


def huge_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Returns zeros that begin at a cache line, in huge pages if they fill some: a gather touches a page per edge.

    One more line after the last row may be read.
    """
    nbytes = int(np.prod(shape)) * dtype.itemsize + LINE_BYTES
    if nbytes < PAGE_BYTES:
        return line_zeros(shape, dtype)
    pages = mmap.mmap(-1, nbytes + PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return np.ndarray(shape, dtype, memory.data, -memory.ctypes.data % PAGE_BYTES)
