"""Gather: every vertex sums the rows of its neighbours, in one pass over the edges and the result.

The compiled kernel (``src/gather.cpp``) defines the order in which a row is summed: it depends on the row alone, not on
the range of rows, the number of threads, or other computations.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from siafu.kernels import fallback
from siafu.kernels.library import LIBRARY
from siafu.kernels.rows import ROW_TYPES, Table, address
from siafu.sparse import Array, Edges

Base = Table | Array
BAD_EDGES = "edges: row pointers fall or lead beyond the edges, or a column is none of the rows"


def gather(
    edges: Edges,
    start: int,
    stop: int,
    base: Base,
    *,
    scale: Array | None = None,
    add_self: bool = False,
    bias: Array | None = None,
    relu: bool = False,
    add: Array | None = None,
    out: Array | None = None,
    threads: int = 1,
) -> Array:
    """Computes rows ``start:stop`` of ``scale_v (Σ_{u→v} w_uv X_u + [add_self] X_v) + add_v + bias``, then relu if
    asked.

    X are the rows of ``base``: a ``Table``, or an array (float32, float64, float16 or uint8, perhaps memory-mapped)
    ``[N, F]``. ``scale`` [n] is by row of the edges, ``bias`` [F], ``add`` and ``out`` [stop - start, F]. These and the
    sums are float32, or float64 if the rows are. Several calls may run at once; together they take no more than
    ``threads`` threads. Returns ``out``, or a new array.
    Raises: ValueError for another shape, dtype or order, and for edges that lead to no row (the content of ``out`` is
    then undefined).
    """
    _check_range(edges, start, stop, base, add_self)
    if threads < 1:
        raise ValueError(f"{threads} threads, must be >= 1")
    width = base.shape[1]
    value = np.dtype(np.float64 if row_type(base) == "float64" else np.float32)
    _check("scale", scale, value, (len(edges.indptr) - 1,))
    _check("bias", bias, value, (width,))
    _check("add", add, value, (stop - start, width))
    if out is None:
        out = np.empty((stop - start, width), value)
    else:
        _check("out", out, value, (stop - start, width))
    if not out.size:
        return out
    if LIBRARY is None:
        return _with_scipy(edges, start, stop, base, scale, add_self, bias, relu, add, out)
    call = GatherCall(
        indptr=address(edges.indptr),
        indices=address(edges.indices),
        weight=address(edges.weight),
        base=source(base),
        num_columns=len(base),
        scale=address(scale),
        bias=address(bias),
        add=address(add),
        out=address(out),
        add_stride=0 if add is None else add.strides[0] // value.itemsize,
        out_stride=out.strides[0] // value.itemsize,
        start=start,
        stop=stop,
        width=width,
        num_edges=len(edges.indices),
        type=ROW_TYPES.index(row_type(base)),
        padded=isinstance(base, Table),
        add_self=add_self,
        relu=relu,
        threads=threads,
        prefetch=-1,
    )
    if LIBRARY.siafu_gather(ctypes.byref(call)):
        raise ValueError(BAD_EDGES)
    return out


class Source(ctypes.Structure):
    """siafu::Source of src/gather.hpp."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("row_bytes", ctypes.c_int64),
        ("tile_bytes", ctypes.c_int64),
        ("tile", ctypes.c_int64),
    )


class GatherCall(ctypes.Structure):
    """siafu::Gather of src/gather.hpp."""

    _fields_ = (
        ("indptr", ctypes.c_void_p),
        ("indices", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("base", Source),
        ("num_columns", ctypes.c_int64),
        ("scale", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("add", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("add_stride", ctypes.c_int64),
        ("out_stride", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("num_edges", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("padded", ctypes.c_int32),
        ("add_self", ctypes.c_int32),
        ("relu", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("prefetch", ctypes.c_int32),
    )


def source(base: Base) -> Source:
    if isinstance(base, Table):
        return Source(rows=base.address, **base.layout())
    return Source(rows=address(base), row_bytes=base.strides[0], tile_bytes=0, tile=base.shape[1])


def row_type(base: Base) -> str:
    return base.dtype if isinstance(base, Table) else str(base.dtype)


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_range(edges: Edges, start: int, stop: int, base: Base, add_self: bool) -> None:
    num_rows = len(edges.indptr) - 1
    if not 0 <= start <= stop <= num_rows:
        raise ValueError(f"rows {start}:{stop}, must be in 0:{num_rows}")
    for name, array, dtype in (
        ("indptr", edges.indptr, np.int64),
        ("indices", edges.indices, np.int32),
        ("weight", edges.weight, np.float32),
    ):
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise ValueError(f"{name} is {array.dtype}, strides {array.strides}, must be {np.dtype(dtype)}, contiguous")
    if edges.weight is not None and len(edges.weight) != len(edges.indices):
        raise ValueError(f"{len(edges.weight)} weights, must be as many as edges: {len(edges.indices)}")
    _check_rows(base)
    if add_self and len(base) < num_rows:
        raise ValueError(f"base has {len(base)} rows, must have the {num_rows} of the edges to add them")


def _check_rows(rows: Base) -> None:
    if isinstance(rows, Table):
        return
    if rows.ndim != 2 or str(rows.dtype) not in ROW_TYPES or rows.strides[1] != rows.itemsize:
        raise ValueError(
            f"base is {rows.dtype} {list(rows.shape)}, strides {rows.strides}, "
            "must be rows of float32, float64, float16 or uint8 without gaps between columns"
        )


def _check(name: str, array: Array | None, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if array is None:
        return
    gaps = array.size > 0 and array.strides[-1] != array.itemsize
    if array.dtype != dtype or array.shape != shape or gaps:
        raise ValueError(
            f"{name} is {array.dtype} {list(array.shape)}, strides {array.strides}, must be {dtype} {list(shape)}, "
            "columns without gaps"
        )


# --- without a compiled library ---------------------------------------------------------------------------------------


def _with_scipy(
    edges: Edges,
    start: int,
    stop: int,
    base: Base,
    scale: Array | None,
    add_self: bool,
    bias: Array | None,
    relu: bool,
    add: Array | None,
    out: Array,
) -> Array:
    tile = base.tile if isinstance(base, Table) else base.shape[1]
    add_first = out.copy() if add is out else add
    fallback.gather(edges, start, stop, _columns(base), len(base), base.shape[1], tile, out)
    if add_self:
        out += base.read(slice(start, stop)) if isinstance(base, Table) else base[start:stop]
    if scale is not None:
        out *= scale[start:stop, None]
    if add_first is not None:
        out += add_first
    if bias is not None:
        out += bias
    return np.maximum(out, 0, out=out) if relu else out


def _columns(rows: Base) -> fallback.Columns:
    if isinstance(rows, Table):
        return rows.columns
    dtype = str(rows.dtype)
    return lambda first, stop: fallback.widened(rows[:, first:stop], dtype)
