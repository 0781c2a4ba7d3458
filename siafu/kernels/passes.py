"""Elementwise passes over float32 rows ``[n, m]`` between the products: each reads its rows once, on several threads.

NumPy needs a pass over memory, and often a temporary as large as the rows, for every operation of a formula. Each
function has the result of its formula in ``siafu.ops``, except for rounding, and the same bits for any number of
threads. Rows need not be adjacent in memory; the numbers of a row must be.
"""

from __future__ import annotations

import ctypes
from typing import Final

import numpy as np

from siafu import ops
from siafu.kernels.dense import BFLOAT16, FLOAT32, Array, _check
from siafu.kernels.library import LIBRARY

_CHUNK_NBYTES: Final = 128 << 10  # of rows that a thread takes at a time


class _Pass(ctypes.Structure):
    """``Pass`` of dense.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("rows", "other", "labels", "out", "loss")),
        *((name, ctypes.c_int64) for name in ("stride", "other_stride", "out_stride", "n", "m", "chunk")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("other_bits", "threads")),
    )


def relu(P: Array, *, threads: int = 1) -> Array:
    """Computes ``max(P, 0)`` in place, P ``[n, m]``. Returns P."""
    _check("P", P, (FLOAT32,))
    if LIBRARY is None:
        return ops.activate(P, "relu", out=P)
    LIBRARY.siafu_relu(ctypes.byref(_call(P, threads)))
    return P


def relu_backward(dH: Array, H: Array, *, out: Array | None = None, threads: int = 1) -> Array:
    """Returns dH where H is above 0, else 0, in ``out`` if given, which may be dH. All ``[n, m]``; H is float32 or
    bfloat16 (uint16)."""
    _check("dH", dH, (FLOAT32,))
    _check("H", H, (FLOAT32, BFLOAT16), dH.shape)
    if out is None:
        out = np.empty(dH.shape, np.float32)
    _check("out", out, (FLOAT32,), dH.shape)
    if LIBRARY is None:
        out[:] = ops.activate_backward(dH, ops.real(H, FLOAT32), "relu")
        return out
    call = _call(dH, threads)
    call.other, call.other_stride, call.other_bits = H.ctypes.data, H.strides[0], H.dtype == BFLOAT16
    call.out, call.out_stride = out.ctypes.data, out.strides[0]
    LIBRARY.siafu_relu_backward(ctypes.byref(call))
    return out


def softmax_cross_entropy(
    logits: Array, labels: Array, rows: Array | None = None, *, scale: float = 1.0, threads: int = 1
) -> tuple[float, Array]:
    """Returns softmax cross-entropy summed over the chosen rows, and ``scale`` times its gradient, which overwrites the
    logits.

    logits: float32 [n, C]; other rows get gradient 0. labels: int64 [n], in 0..C-1 where the row is chosen.
    rows: bool [n], or int64 numbers without repetition; None is all. The loss itself is not scaled.
    Raises: ValueError for a label out of range; the logits may be overwritten by then.
    """
    _check("logits", logits, (FLOAT32,))
    if labels.dtype != np.int64 or labels.shape != logits.shape[:1]:
        raise ValueError(f"labels: {labels.dtype} {list(labels.shape)}, must be int64 [{len(logits)}]")
    chosen = _chosen(rows, len(logits))
    if LIBRARY is None:
        _check_labels(labels, chosen, logits.shape[1])
        return _softmax_cross_entropy_numpy(logits, labels, chosen, scale)
    labels = np.ascontiguousarray(labels)
    call = _call(logits, threads)
    loss = np.zeros(-(-len(logits) // call.chunk))  # of each chunk
    call.labels, call.loss, call.scale = labels.ctypes.data, loss.ctypes.data, scale
    call.other = None if chosen is None else chosen.ctypes.data
    LIBRARY.siafu_cross_entropy(ctypes.byref(call))
    total = float(loss.sum())
    if np.isnan(total):  # the kernel's result for a label out of range, among other causes
        _check_labels(labels, chosen, logits.shape[1])
    return total, logits


def _chosen(rows: Array | None, n: int) -> Array | None:
    """Returns the chosen rows as bool [n]; None: all."""
    if rows is None:
        return None
    if rows.dtype == np.bool_:
        if rows.shape != (n,):
            raise ValueError(f"rows: bool {list(rows.shape)}, must be bool [{n}]")
        return np.ascontiguousarray(rows)
    chosen = np.zeros(n, np.bool_)
    chosen[rows] = True
    return chosen


def _check_labels(labels: Array, chosen: Array | None, num_classes: int) -> None:
    wrong = (labels < 0) | (labels >= num_classes)
    if chosen is not None:
        wrong &= chosen
    if wrong.any():
        raise ValueError(f"labels: {labels[wrong][0]}, must be in 0..{num_classes - 1}")


def _softmax_cross_entropy_numpy(
    logits: Array, labels: Array, chosen: Array | None, scale: float
) -> tuple[float, Array]:
    index = np.arange(len(logits)) if chosen is None else np.flatnonzero(chosen)
    total, gradient = ops.cross_entropy(logits[index], labels[index])
    logits[:] = 0
    logits[index] = gradient * np.float32(scale)
    return total, logits


def column_sums(D: Array, *, threads: int = 1) -> Array:
    """Returns sums of the columns of D ``[n, m]``, float32 [m]: summed in float32 within a chunk of rows, in float64
    over the chunks."""
    _check("D", D, (FLOAT32,))
    if LIBRARY is None:
        return np.asarray(D.sum(0, dtype=np.float64).astype(np.float32))
    call = _call(D, threads)
    sums = np.empty((-(-len(D) // call.chunk), D.shape[1]), np.float32)
    call.out, call.out_stride = sums.ctypes.data, sums.strides[0]
    LIBRARY.siafu_column_sums(ctypes.byref(call))
    return np.asarray(sums.sum(0, dtype=np.float64).astype(np.float32))


def _call(rows: Array, threads: int) -> _Pass:
    n, m = rows.shape
    call = _Pass(rows=rows.ctypes.data, stride=rows.strides[0], n=n, m=m, threads=threads)
    call.chunk = max(1, _CHUNK_NBYTES // (4 * m))
    return call
