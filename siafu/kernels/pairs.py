"""Pairs of vertices, as ``EdgeRows``: scores, products and sums of their rows without copies, and draws from a pool.

``siafu.ops`` defines each function. NumPy makes a row for every pair and operation of a formula; the compiled kernels
make rows only for results.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from siafu import ops
from siafu.kernels.functions import REAL
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array, EdgeRows, blocks

_DOTS, _PRODUCTS, _SUMS, _SCALED = range(4)  # in the order of ``PairOperation`` in pairs.hpp
#: Pairs that NumPy draws together: the hash's passes stay in a core's cache.
DRAWN_TOGETHER: Final = 1 << 14


class _PairRows(ctypes.Structure):
    """``PairRows`` of pairs.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "index", "own", "others", "values", "out")),
        *((name, ctypes.c_int64) for name in ("n", "m", "k", "width")),
        *((name, ctypes.c_int32) for name in ("is_double", "operation", "threads")),
    )


class _PairDraw(ctypes.Structure):
    """``PairDraw`` of pairs.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "columns", "kind", "ids", "own")),
        *((name, ctypes.c_void_p) for name in ("out_indptr", "out_columns", "out_true")),
        *((name, ctypes.c_int64) for name in ("n", "m", "num_ids")),
        ("key", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("threshold", "true_kind", "threads")),
    )


def dots(own: Array, others: EdgeRows, *, threads: int = 1) -> Array:
    """Computes ``siafu.ops.pair_dots``: ``[m]``. All functions here raise ValueError for rows that are not float32 or
    float64, or do not fit each other, and for an edge without a row."""
    if LIBRARY is None:
        return ops.pair_dots(own, others)
    return _run(_DOTS, own, None, others, (others.num_edges,), threads)


def products(own: Array, others: EdgeRows, *, threads: int = 1) -> Array:
    """Computes ``siafu.ops.pair_products``: ``[m, F]``."""
    if LIBRARY is None:
        return ops.pair_products(own, others)
    return _run(_PRODUCTS, own, None, others, (others.num_edges, others.values.shape[1]), threads)


def sums(values: Array, others: EdgeRows, *, threads: int = 1) -> Array:
    """Computes ``siafu.ops.pair_sums``: ``[n, F]``."""
    if LIBRARY is None:
        return ops.pair_sums(values, others)
    operation = _SCALED if values.shape[1] == 1 else _SUMS
    return _run(operation, None, values, others, others.shape, threads)


def _run(
    operation: int, own: Array | None, values: Array | None, others: EdgeRows, shape: tuple[int, ...], threads: int
) -> Array:
    (n, width), m, dtype = others.shape, others.num_edges, others.values.dtype
    for name, rows, shapes in (("own", own, [(n, width)]), ("values", values, [(m, width), (m, 1)])):
        if rows is not None and (rows.dtype != dtype or rows.shape not in shapes):
            raise ValueError(f"{name}: {rows.dtype} {rows.shape}, must be {dtype} {shapes[0]}")
    if dtype not in REAL or (others.index is not None and len(others.index) != m):
        raise ValueError(f"rows of {dtype}, {m} edges and as many numbers: must be float32 or float64")
    indptr, rows = np.ascontiguousarray(others.indptr, np.int64), np.ascontiguousarray(others.values)
    index = None if others.index is None else np.ascontiguousarray(others.index, np.int32)
    own, values = (None if array is None else np.ascontiguousarray(array) for array in (own, values))
    out = np.empty(shape, dtype)
    places = (None if array is None else array.ctypes.data for array in (indptr, index, own, rows, values, out))
    call = _PairRows(*places, n, m, len(rows), width, dtype == np.float64, operation, threads)
    assert LIBRARY is not None
    if LIBRARY.siafu_pairs(ctypes.byref(call)):
        raise ValueError(
            f"{m} edges of {n} vertices: they do not follow each other, or one is not in 0..{len(rows) - 1}"
        )
    return out


def draw(
    indptr: Array, columns: Array, kind: Array, true: int, ids: Array, own: Array, p: float, key: int, threads: int = 1
) -> tuple[Array, Array, Array]:
    """Draws the pairs of an epoch: all pairs of the kind ``true``, and of the others those that
    ``siafu.ops.edge_dropout`` of (the smaller id, the larger one, p, key) keeps.

    indptr: int64 [n + 1]; columns: int32 [m], other ends; kind: uint8 [m]; ids: int64, of the columns; own: int64 [n],
    ids of the rows. Returns the drawn pairs: indptr, columns, and uint8 [kept, 1], whether each is true.
    Raises: ValueError for arrays of other shapes or dtypes, and for a column without an id.
    """
    m = len(columns)
    for name, array, dtype, count in (
        ("indptr", indptr, np.int64, len(own) + 1),
        ("columns", columns, np.int32, m),
        ("kind", kind, np.uint8, m),
        ("ids", ids, np.int64, len(ids)),
        ("own", own, np.int64, len(own)),
    ):
        if array.dtype != dtype or array.shape != (count,) or not array.flags.c_contiguous:
            raise ValueError(f"{name}: {array.dtype} {array.shape}, must be contiguous {np.dtype(dtype)} ({count},)")
    if LIBRARY is None:
        return _draw_numpy(indptr, columns, kind == true, ids, own, p, key)
    kept, found, is_true = np.empty_like(indptr), np.empty_like(columns), np.empty((m, 1), np.uint8)
    places = (array.ctypes.data for array in (indptr, columns, kind, ids, own, kept, found, is_true))
    call = _PairDraw(*places, len(own), m, len(ids), key, ops.dropout_threshold(p)[0], true, threads)
    if LIBRARY.siafu_draw_pairs(ctypes.byref(call)):
        raise ValueError(f"{m} pairs of {len(own)} vertices: they do not follow each other, or one has no id")
    count = int(kept[-1])
    return kept, found[:count].copy(), is_true[:count].copy()  # few of a large pool, so release the rest


def _draw_numpy(
    indptr: Array, columns: Array, true: Array, ids: Array, own: Array, p: float, key: int
) -> tuple[Array, Array, Array]:
    kept, found = np.zeros_like(indptr), []
    for low, high in blocks(indptr, DRAWN_TOGETHER):
        place = slice(int(indptr[low]), int(indptr[high]))
        drawn, false = true[place].copy(), np.flatnonzero(~true[place])
        one, other = np.repeat(own[low:high], np.diff(indptr[low : high + 1])), ids[columns[place]]
        ends = np.minimum(one, other)[false], np.maximum(one, other)[false]
        drawn[false] = ops.edge_dropout(*ends, 1, p, key)[:, 0] > 0
        positions = np.flatnonzero(drawn)
        ends_of_rows = indptr[low + 1 : high + 1] - place.start
        kept[low + 1 : high + 1] = kept[low] + np.searchsorted(positions, ends_of_rows)
        found.append((columns[place][positions], true[place][positions].astype(np.uint8)))
    column, is_true = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return kept, column, is_true[:, None]
