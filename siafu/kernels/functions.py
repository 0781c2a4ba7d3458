"""Elementary functions and row products with the same bits on every processor. NumPy's bits depend on its vectors and
the C library.

NumPy's sums, products of elements, quotients and square roots need none of this: IEEE 754 fixes their bits. Without the
compiled library NumPy computes the functions here too.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

from siafu import ops
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array

_FUNCTIONS: Final = ("exp", "expm1", "log", "log1p", "tanh")  # in the order of ``Function`` in functions.hpp
_CHUNK_VALUES: Final = 1 << 14  # values of a loss that a thread takes at a time
REAL: Final = (np.dtype(np.float32), np.dtype(np.float64))


class _Elementwise(ctypes.Structure):
    """``Elementwise`` of functions.hpp."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("function", ctypes.c_int32),
        ("is_double", ctypes.c_int32),
    )


class _BinaryCrossEntropy(ctypes.Structure):
    """``BinaryCrossEntropy`` of functions.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("logits", "labels", "gradient", "loss")),
        *((name, ctypes.c_int64) for name in ("n", "chunk")),
        *((name, ctypes.c_int32) for name in ("classes", "is_double", "threads")),
    )


class _Dots(ctypes.Structure):
    """``Dots`` of plain.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "out")),
        *((name, ctypes.c_int64) for name in ("n", "heads", "width")),
        ("is_double", ctypes.c_int32),
    )


def exp(x: Array, out: Array | None = None) -> Array:
    """Returns e^x. For all functions here: x is float32 or float64 of any shape, else TypeError; the result is in
    ``out`` if given, which may be x."""
    return _apply("exp", x, out)


def expm1(x: Array, out: Array | None = None) -> Array:
    """Returns e^x - 1."""
    return _apply("expm1", x, out)


def log(x: Array, out: Array | None = None) -> Array:
    """Returns ln x; -inf for 0, NaN below."""
    return _apply("log", x, out)


def log1p(x: Array, out: Array | None = None) -> Array:
    """Returns ln (1 + x)."""
    return _apply("log1p", x, out)


def tanh(x: Array, out: Array | None = None) -> Array:
    """Returns the hyperbolic tangent."""
    return _apply("tanh", x, out)


def dots(A: Array, B: Array, heads: int = 1) -> Array:
    """Returns the inner products of the rows of A and B ``[n, heads * width]``, head by head: ``[n, heads]``.

    Both must be float32, or both float64, else TypeError.
    """
    n, width = len(A), A.shape[1] // heads
    if LIBRARY is None:
        return np.asarray(np.einsum("nhw,nhw->nh", A.reshape(n, heads, width), B.reshape(n, heads, width)))
    if A.dtype != B.dtype or A.dtype not in REAL or A.shape != B.shape or A.shape[1] != heads * width:
        raise TypeError(f"rows {A.dtype} {A.shape} and {B.dtype} {B.shape}, must be real and alike, of {heads} heads")
    A, B, out = np.ascontiguousarray(A), np.ascontiguousarray(B), np.empty((n, heads), A.dtype)
    call = _Dots(A.ctypes.data, B.ctypes.data, out.ctypes.data, n, heads, width, A.dtype == np.float64)
    LIBRARY.siafu_dots(ctypes.byref(call))
    return out


def binary_cross_entropy(logits: Array, labels: Array, *, threads: int = 1) -> tuple[float, Array]:
    """Computes ``siafu.ops.binary_cross_entropy`` of logits ``[n, C]``, float32 or float64, else TypeError. Raises:
    ValueError for labels of another shape."""
    if LIBRARY is None:
        return ops.binary_cross_entropy(logits, labels)
    if logits.dtype not in REAL:
        raise TypeError(f"logits of {logits.dtype}, must be float32 or float64")
    if labels.shape != logits.shape:
        raise ValueError(f"labels {labels.shape}, must be {logits.shape}")
    logits, labels = np.ascontiguousarray(logits), np.ascontiguousarray(labels, logits.dtype)
    gradient, n, classes = np.empty_like(logits), logits.size, logits.shape[1]
    loss = np.zeros(-(-n // _CHUNK_VALUES))
    places = (array.ctypes.data for array in (logits, labels, gradient, loss))
    call = _BinaryCrossEntropy(*places, n, _CHUNK_VALUES, classes, logits.dtype == np.float64, threads)
    LIBRARY.siafu_binary_cross_entropy(ctypes.byref(call))
    return float(loss.sum()) / max(1, classes), gradient


def _apply(function: str, x: Array, out: Array | None) -> Array:
    x = np.asarray(x)
    if LIBRARY is None:
        made: Any = getattr(np, function)(x, out=out)
        return np.asarray(made)
    if x.dtype not in REAL:
        raise TypeError(f"{function} of {x.dtype}, must be float32 or float64")
    given, x = out, np.ascontiguousarray(x)
    if out is None or not out.flags.c_contiguous:
        out = np.empty_like(x)
    elif out.dtype != x.dtype or out.shape != x.shape:
        raise TypeError(f"out {out.dtype} {out.shape}, must be {x.dtype} {x.shape}")
    call = _Elementwise(x.ctypes.data, out.ctypes.data, x.size, _FUNCTIONS.index(function), x.dtype == np.float64)
    LIBRARY.siafu_elementwise(ctypes.byref(call))
    if given is None or given is out:
        return out
    given[...] = out
    return given
