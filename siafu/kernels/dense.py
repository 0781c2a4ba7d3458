"""Products of many rows with a small matrix, X W and Xᵀ D, for rows of float32 and of bfloat16.

BLAS is made for large square matrices; here one side has a few hundred columns and the other as many rows as the graph
has vertices. These kernels read the rows once, keep the small operand in the caches, and fuse bias and relu. They
multiply bfloat16 directly if the processor can (vdpbf16ps: twice the speed of float32). The order of sums depends on
the shapes alone: a result has the same bits for any number of threads.

    bfloat16   uint16, the upper halves of float32. The other operand is rounded to bfloat16 (to nearest even), products
               are exact, sums float32. So it is with ``rounds`` too, which rounds both operands. Processors without
               vdpbf16ps multiply such numbers as float32: the result differs only by the order of sums (and vdpbf16ps
               treats subnormal numbers as 0).

Rows need not be adjacent in memory (``X[:, a:b]``); the numbers of a row must be. Without the compiled library NumPy
does the same, 4,096 rows at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from siafu import ops
from siafu.kernels.library import LIBRARY

Array = npt.NDArray[Any]

FLOAT32: Final = np.dtype(np.float32)
FLOAT64: Final = np.dtype(np.float64)
BFLOAT16: Final = np.dtype(np.uint16)  # its bits
_BLOCK: Final = 4096  # rows that NumPy widens at a time


class _Product(ctypes.Structure):
    """``Product`` of dense.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("left", "right", "out", "bias")),
        *((name, ctypes.c_int64) for name in ("left_stride", "right_stride", "out_stride", "n", "k", "m")),
        *((name, ctypes.c_int32) for name in ("left_bits", "right_bits", "rounds", "add", "relu", "threads")),
    )


class _DoubleProduct(ctypes.Structure):
    """``DoubleProduct`` of plain.hpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("left", "right", "out")),
        *((name, ctypes.c_int64) for name in ("left_stride", "right_stride", "out_stride", "n", "k", "m")),
        *((name, ctypes.c_int32) for name in ("add", "transposed", "threads")),
    )


# --- X W ----------------------------------------------------------------------------------------------------------


def matmul(
    X: Array,
    W: Array,
    *,
    bias: Array | None = None,
    relu: bool = False,
    out: Array | None = None,
    add: bool = False,
    rounds: bool = False,
    threads: int = 1,
) -> Array:
    """Returns ``relu(X W + bias)`` of X ``[n, K]`` and W ``[K, N]`` in ``out`` ``[n, N]``; ``add``: adds to its values.

    All are float32; or X is bfloat16's bits in uint16, and W is rounded to bfloat16. rounds: both are.

    Raises: ValueError for an operand of another shape, dtype or order in memory.
    """
    _check("X", X, (FLOAT32, BFLOAT16))
    W = np.ascontiguousarray(W)  # small, and often a transpose
    _check("W", W, (FLOAT32,), (X.shape[1], None))
    out = _room(out, add, (len(X), W.shape[1]))
    if bias is not None and (bias.dtype != FLOAT32 or bias.shape != W.shape[1:]):
        raise ValueError(f"bias: {bias.dtype} {list(bias.shape)}, must be float32 {list(W.shape[1:])}")
    if LIBRARY is None:
        return _matmul_numpy(X, W, bias, relu, out, add, rounds or X.dtype == BFLOAT16)
    if len(X):
        bias = None if bias is None else np.ascontiguousarray(bias)
        call = _product(X, W, out, add, rounds, threads)
        call.bias, call.relu = None if bias is None else bias.ctypes.data, relu
        LIBRARY.siafu_matmul(ctypes.byref(call))
    return out


def _matmul_numpy(X: Array, W: Array, bias: Array | None, relu: bool, out: Array, add: bool, rounds: bool) -> Array:
    W = _operand(W, rounds)
    for rows in _blocks(X, rounds):
        if add:
            out[rows] += _operand(X[rows], rounds) @ W
        else:
            np.matmul(_operand(X[rows], rounds), W, out=out[rows])
        if bias is not None:
            out[rows] += bias
        if relu:
            np.maximum(out[rows], 0, out=out[rows])
    return out


# --- Xᵀ D ---------------------------------------------------------------------------------------------------------


def matmul_transposed(
    X: Array, D: Array, *, out: Array | None = None, add: bool = False, rounds: bool = False, threads: int = 1
) -> Array:
    """Returns ``Xᵀ D`` of X ``[n, K]`` and D ``[n, N]`` in float32 ``out`` ``[K, N]``; ``add``: adds to its values.

    X and D are float32; or X is bfloat16's bits in uint16, and D is too, or is float32 and rounded to bfloat16.
    rounds: both are, and D may be bfloat16's bits alone.

    Ranges of rows are summed separately, then added in their order. Raises: ValueError as ``matmul`` does.
    """
    _check("X", X, (FLOAT32, BFLOAT16))
    rounds = rounds or X.dtype == BFLOAT16
    _check("D", D, (FLOAT32, BFLOAT16) if rounds else (FLOAT32,), (len(X), None))
    out = _room(out, add, (X.shape[1], D.shape[1]))
    if LIBRARY is None or not len(X):
        return _matmul_transposed_numpy(X, D, out, add, rounds)
    call = _product(X, D, out, add, rounds, threads)
    LIBRARY.siafu_matmul_transposed(ctypes.byref(call))
    return out


def _matmul_transposed_numpy(X: Array, D: Array, out: Array, add: bool, rounds: bool) -> Array:
    if not add:
        out[:] = 0
    for rows in _blocks(X, rounds):
        out += _operand(X[rows], rounds).T @ _operand(D[rows], rounds)
    return out


# --- float64 ------------------------------------------------------------------------------------------------------


def matmul_doubles(
    X: Array, W: Array, *, out: Array | None = None, transposed: bool = False, threads: int = 1
) -> Array:
    """Returns ``X W``, or ``Xᵀ W`` if ``transposed``, of float64, added to ``out`` if it is given. Plain loops sum each
    number in order: slower than a BLAS. Raises: ValueError as ``matmul`` does.
    """
    _check("X", X, (FLOAT64,))
    W = np.ascontiguousarray(W)
    _check("W", W, (FLOAT64,), (X.shape[0 if transposed else 1], None))
    shape, add = (X.shape[1] if transposed else len(X), W.shape[1]), out is not None
    if out is None:
        out = np.empty(shape)
    _check("out", out, (FLOAT64,), shape)
    if LIBRARY is None:
        product = (X.T if transposed else X) @ W
        out[...] = out + product if add else product
        return out
    call = _DoubleProduct(
        X.ctypes.data,
        W.ctypes.data,
        out.ctypes.data,
        *(rows.strides[0] // 8 for rows in (X, W, out)),
        len(X),
        X.shape[1],
        W.shape[1],
        add,
        transposed,
        threads,
    )
    LIBRARY.siafu_multiply_doubles(ctypes.byref(call))
    return out


# --- operands -----------------------------------------------------------------------------------------------------


def _check(
    name: str, X: Array, dtypes: tuple[np.dtype[Any], ...], shape: tuple[int | None, int | None] = (None, None)
) -> None:
    """Raises: ValueError unless X is a matrix of one of the dtypes with contiguous rows. shape: None is any size."""
    if X.dtype not in dtypes:
        raise ValueError(f"{name}: dtype {X.dtype}, must be {' or '.join(map(str, dtypes))}")
    if X.ndim != 2 or any(want not in (None, have) for have, want in zip(X.shape, shape, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ValueError(f"{name}: shape {list(X.shape)}, must be [{wanted}]")
    if X.shape[1] == 0:
        raise ValueError(f"{name}: no columns")
    if not len(X):
        return
    if X.shape[1] > 1 and X.strides[1] != X.itemsize:
        raise ValueError(f"{name}: the numbers of a row must be adjacent in memory, strides are {X.strides}")
    if len(X) > 1 and X.strides[0] < X.shape[1] * X.itemsize:
        raise ValueError(f"{name}: rows must follow each other in memory, strides are {X.strides}")


def _room(out: Array | None, add: bool, shape: tuple[int, int]) -> Array:
    if out is None:
        if add:
            raise ValueError("out: add needs what to add to")
        return np.empty(shape, np.float32)
    _check("out", out, (FLOAT32,), shape)
    if not out.flags.writeable:
        raise ValueError("out: must be writeable")
    return out


def _product(left: Array, right: Array, out: Array, add: bool, rounds: bool, threads: int) -> _Product:
    return _Product(
        left.ctypes.data,
        right.ctypes.data,
        out.ctypes.data,
        None,
        left.strides[0],
        right.strides[0],
        out.strides[0],
        len(left),
        left.shape[1],
        right.shape[1],
        left.dtype == BFLOAT16,
        right.dtype == BFLOAT16,
        rounds or left.dtype == BFLOAT16,
        add,
        False,
        threads,
    )


def _blocks(X: Array, rounds: bool) -> Iterator[slice]:
    """Returns one block of all rows if they stay as they are, else the blocks of rows to convert at a time."""
    size = _BLOCK if rounds else max(1, len(X))
    return (slice(start, start + size) for start in range(0, len(X), size))


def _operand(X: Array, rounds: bool) -> Array:
    return ops.rounded(X, FLOAT32) if rounds else X
