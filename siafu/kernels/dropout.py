"""Dropout for the kernels: of rows, dense or sparse, and of attention's coefficients.

``siafu.ops`` defines the masks. NumPy needs a hash for every four entries, a mask and its factors, each a pass over
memory; compiled, the mask never leaves the registers.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from siafu import ops
from siafu.kernels.dense import BFLOAT16, FLOAT32, _check
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array, Rows, SparseRows


class _Dropout(ctypes.Structure):
    """``Dropout`` of dropout.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "vertices", "out")),
        *((name, ctypes.c_int64) for name in ("stride", "n", "m")),
        ("key", ctypes.c_uint64),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("threshold", "bits", "threads")),
    )


class _SparseDropout(ctypes.Structure):
    """``SparseDropout`` of dropout.hpp."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("indptr", "indices", "data", "vertices", "out_indptr", "out_indices", "out_data")
        ),
        ("n", ctypes.c_int64),
        ("key", ctypes.c_uint64),
        ("scale", ctypes.c_float),
        ("threshold", ctypes.c_int32),
    )


def dropped(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array, threads: int = 1) -> Rows:
    """Computes ``siafu.ops.dropped`` of X ``[n, m]``, float32 or (dense) bfloat16; a fresh array unless p is 0.
    vertices: global ids, int64 ``[n]``. Sparse X takes one thread, regardless of ``threads``.

    Raises: ValueError for an operand of another shape, dtype or order in memory.
    """
    if isinstance(X, np.ndarray):
        _check("X", X, (FLOAT32, BFLOAT16))
    elif X.data.dtype != FLOAT32:
        raise ValueError(f"X {X.data.dtype}, must be float32")
    if p == 0.0 or not len(X):
        return X
    if LIBRARY is None:
        return ops.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)
    key = ops.run_key(seed, epoch, layer)
    if isinstance(X, np.ndarray):
        return _dropout(X, len(X), X.shape[1], p, key, vertices, threads)
    return _sparse_dropout(X, p, key, vertices)


def factors(width: int, p: float, *, seed: int, epoch: int, layer: int, vertices: Array, threads: int = 1) -> Array:
    """Returns dropout's factors for float32 rows ``[n, width]`` that are not at hand: 0, or 1 / (the kept share).
    Raises as ``dropped``."""
    if LIBRARY is None or not len(vertices) or p == 0.0:
        ones = np.ones((len(vertices), width), np.float32)
        return np.asarray(ops.dropped(ones, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices))
    return _dropout(None, len(vertices), width, p, ops.run_key(seed, epoch, layer), vertices, threads)


def _dropout(X: Array | None, n: int, m: int, p: float, key: int, vertices: Array, threads: int) -> Array:
    vertices, out = _ids(vertices, n, m, p), np.empty((n, m), FLOAT32 if X is None else X.dtype)
    threshold, scale = ops.dropout_threshold(p)
    rows, stride = (None, 0) if X is None else (X.ctypes.data, X.strides[0])
    bits, places = out.dtype == BFLOAT16, (vertices.ctypes.data, out.ctypes.data)
    call = _Dropout(rows, *places, stride, n, m, key, scale, threshold, bits, threads)
    assert LIBRARY is not None
    LIBRARY.siafu_dropout(ctypes.byref(call))
    return out


def _sparse_dropout(X: SparseRows, p: float, key: int, vertices: Array) -> SparseRows:
    n, m = X.shape
    vertices = _ids(vertices, n, m, p)
    indptr = np.ascontiguousarray(X.indptr, np.int64)
    indices, data = np.ascontiguousarray(X.indices, np.int32), np.ascontiguousarray(X.data)
    if not len(indices) == len(data) == indptr[-1]:
        raise ValueError(f"{len(indices)} columns and {len(data)} values, must be {indptr[-1]}")
    out_indptr, out_indices, out_data = np.empty_like(indptr), np.empty_like(indices), np.empty_like(data)
    threshold, scale = ops.dropout_threshold(p)
    places = (indptr, indices, data, vertices, out_indptr, out_indices, out_data)
    call = _SparseDropout(*(place.ctypes.data for place in places), n, key, scale, threshold)
    assert LIBRARY is not None
    LIBRARY.siafu_dropout_sparse(ctypes.byref(call))
    kept = int(out_indptr[-1])
    return SparseRows(out_indptr, out_indices[:kept], out_data[:kept], m)


def _ids(vertices: Array, n: int, m: int, p: float) -> Array:
    if vertices.dtype != np.int64 or vertices.shape != (n,) or m < 1 or not 0 <= p < 1:
        raise ValueError(
            f"vertices {vertices.dtype} {vertices.shape}, {m} columns, p {p}: must be int64 ({n},), >= 1, in 0..1"
        )
    return np.ascontiguousarray(vertices)


# --- attention --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class EdgeDropout:
    """The masks of one (seed, epoch, layer), for edges between a server's vertices and the rows that it gathers.

    Raises: ValueError for a share outside 0..1 or ids that are not int64.
    """

    p: float  # share of the coefficients that become zero
    key: int  # siafu.ops.edge_key(seed, epoch, layer)
    ids: Array  # global ids by column, int64 [N]: of inner vertices, then of the direction's ghosts

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise ValueError(f"attention dropout {self.p}, must be in 0..1")
        if self.ids.dtype != np.int64 or self.ids.ndim != 1 or not self.ids.flags.c_contiguous:
            raise ValueError(f"ids {self.ids.dtype} {self.ids.shape}, must be contiguous int64 [N]")

    def mask(self, rows: Array, columns: Array, heads: int, *, forward: bool, dtype: np.dtype[Any]) -> Array:
        """Returns factors [m, heads] of edges between rows (inner vertices) and columns. ``forward``: rows are the
        targets."""
        here, there = self.ids[rows], self.ids[columns]
        ends = (there, here) if forward else (here, there)
        return ops.edge_dropout(*ends, heads, self.p, self.key, dtype)
