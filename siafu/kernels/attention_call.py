"""Calls of attention's compiled functions: the checks before a call, and the structure that the library gets."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from siafu.kernels.dropout import EdgeDropout
from siafu.kernels.gather import BAD_EDGES
from siafu.kernels.library import LIBRARY
from siafu.kernels.records import Records, check
from siafu.ops import dropout_threshold, from_bfloat16
from siafu.sparse import Array, Edges

ATTEND, BACKWARD = range(2)  # attention.hpp: Mode


class Call(ctypes.Structure):
    """attention.cpp: Call. It holds only addresses: the caller must keep the arrays alive."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "indices", "weight", "alpha", "rows", "scores")),
        *((name, ctypes.c_void_p) for name in ("own", "own_rows", "out", "leaned", "total")),
        *((name, ctypes.c_void_p) for name in ("leaned_total", "ids")),
        ("key", ctypes.c_uint64),
        *((name, ctypes.c_int64) for name in ("start", "stop", "num_columns", "num_edges")),
        *((name, ctypes.c_int64) for name in ("row_bytes", "score_bytes", "score_step")),
        *((name, ctypes.c_int32) for name in ("mode", "heads", "width", "bits16", "own_bits16", "add_self", "threads")),
        *(("drop_below", ctypes.c_int32), ("slope", ctypes.c_float), ("keep_scale", ctypes.c_float)),
    )

    @classmethod
    def of(
        cls,
        mode: int,
        edges: Edges,
        start: int,
        stop: int,
        base: Records,
        *,
        add_self: bool,
        dropout: EdgeDropout | None,
        threads: int,
        slope: float = 1.0,
    ) -> Call:
        call = cls(mode=mode, start=start, stop=stop, threads=threads, heads=base.heads, width=base.width)
        call.slope, call.add_self = slope, add_self
        call.indptr, call.indices = edges.indptr.ctypes.data, edges.indices.ctypes.data
        call.weight = None if edges.weight is None else edges.weight.ctypes.data
        call.num_columns, call.bits16 = base.num_rows, base.dtype == "bfloat16"
        call.num_edges = len(edges.indices)
        call.rows, call.row_bytes = base.memory.ctypes.data, base.row_bytes
        call.scores, call.score_bytes, call.score_step = base.scores.ctypes.data, base.score_bytes, base.heads
        if dropout is not None:
            call.drop_below, call.keep_scale = dropout_threshold(dropout.p)
            call.key, call.ids = dropout.key, dropout.ids.ctypes.data
        return call

    def set_own(self, scores: Array) -> Array:
        """Sets t of the range, or s backwards. Like the other setters, returns the array that the caller must keep
        until the call is done."""
        scores = np.ascontiguousarray(scores, np.float32)
        self.own = scores.ctypes.data - self.start * self.heads * 4
        return scores

    def set_alpha(self, alpha: Array) -> Array:
        alpha = np.ascontiguousarray(alpha, np.float32)
        self.alpha = alpha.ctypes.data
        return alpha

    def set_own_rows(self, rows: Array) -> Array:
        """Sets T of the range."""
        rows = np.ascontiguousarray(rows, np.uint16 if rows.dtype == np.uint16 else np.float32)
        self.own_rows = rows.ctypes.data - self.start * rows.shape[1] * rows.itemsize
        self.own_bits16 = rows.dtype == np.uint16
        return rows

    def run(self) -> None:
        assert LIBRARY is not None
        if LIBRARY.siafu_attention(ctypes.byref(self)):
            raise ValueError(BAD_EDGES)

    def run_edge_dot(self) -> None:
        assert LIBRARY is not None
        if LIBRARY.siafu_edge_dot(ctypes.byref(self)):
            raise ValueError(BAD_EDGES)


def computed_here(base: Records) -> bool:
    """Whether numpy must compute it: without the compiled library, or for float64."""
    return LIBRARY is None or base.dtype == "float64"


def real_rows(rows: Array) -> Array:
    return from_bfloat16(np.ascontiguousarray(rows)) if rows.dtype == np.uint16 else rows


# --- checks -----------------------------------------------------------------------------------------------------------


def rows_of_range(array: Array, edges: Edges, start: int, stop: int, columns: int, name: str) -> Array:
    """Returns the k rows ``start:stop`` of an array that has the rows of all inner vertices, or only these."""
    if len(array) == stop - start:
        check(array, (stop - start, columns), name)
        return array
    check(array, (len(edges.indptr) - 1, columns), name)
    return array[start:stop]


def check_out(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"out {array.dtype} {array.shape}, must be contiguous {dtype} {shape}")


def check_range(edges: Edges, start: int, stop: int, threads: int) -> None:
    n = len(edges.indptr) - 1
    if not 0 <= start <= stop <= n:
        raise ValueError(f"rows {start}..{stop}, must be in 0..{n}")
    if threads < 1:
        raise ValueError(f"{threads} threads, must be at least 1")
    given = (edges.indptr, np.int64), (edges.indices, np.int32), (edges.weight, np.float32)
    for array, dtype in given:
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise ValueError(f"edges: {array.dtype}, must be contiguous {np.dtype(dtype)}")
    if edges.weight is not None and len(edges.weight) != len(edges.indices):
        raise ValueError(f"{len(edges.weight)} weights, must be as many as edges: {len(edges.indices)}")


def check_scores(base: Records, num_scores: int) -> None:
    if base.num_scores != num_scores:
        raise ValueError(f"records with {base.num_scores} scores, must be {num_scores}")


def check_dropout(dropout: EdgeDropout | None, base: Records) -> None:
    if dropout is not None and len(dropout.ids) != base.num_rows:
        raise ValueError(f"dropout with ids of {len(dropout.ids)} vertices, must be {base.num_rows}")
