"""siafu's one arithmetic: the functions of ``siafu.ops`` to the same bits on every processor, wherever a tensor task
runs.

Compiled kernels compute products, sums of columns, exponentials and the like, whose bits would else depend on NumPy's
BLAS, its vectors or the C library. The rest are sums, products and square roots of elements, whose bits IEEE 754 fixes.
Without the compiled library this is NumPy's arithmetic, and ``siafu.kernels.ISA`` is "numpy".

Rows may be bfloat16 here, and stay so until they are multiplied. One thread per call, unless ``on_threads`` is asked:
the bits are the same.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np

from siafu import kernels, ops
from siafu.kernels import functions, pairs
from siafu.ops import BFLOAT16, Activation
from siafu.sparse import Array, Rows

if TYPE_CHECKING:
    from siafu.models import TensorOps

FLOAT32 = np.dtype(np.float32)
#: Functions whose kernels several threads can share.
SHARED = (
    "matmul",
    "matmul_transposed",
    "column_sums",
    "activate",
    "activate_backward",
    "dropped",
    "cross_entropy",
    "binary_cross_entropy",
    "pair_dots",
    "pair_products",
    "pair_sums",
)


def on_threads(threads: int) -> TensorOps:
    """Returns the same functions with up to ``threads`` threads: each call uses its caller's thread, and others as long
    as the process has no more than ``threads`` at work."""
    shared = {name: partial(globals()[name], threads=threads) for name in SHARED}
    return cast("TensorOps", SimpleNamespace(**{**globals(), **shared}))


def matmul(X: Rows, W: Array, add: Array | None = None, *, rounds: bool = False, threads: int = 1) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse(X, W, add, threads=threads)
    if not X.shape[1] or not W.shape[1]:
        return ops.matmul(X, W, add)
    if W.dtype != FLOAT32:
        return kernels.matmul_doubles(ops.real(X, W.dtype), W, out=add, threads=threads)
    return kernels.matmul(_float32(X), W, out=add, add=add is not None, rounds=rounds, threads=threads)


def matmul_transposed(X: Rows, D: Array, *, rounds: bool = False, threads: int = 1) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse_transposed(X, D)
    if not X.shape[1] or not D.shape[1]:
        return ops.matmul_transposed(X, D)
    if D.dtype != FLOAT32:
        return kernels.matmul_doubles(ops.real(X, D.dtype), D, transposed=True, threads=threads)
    return kernels.matmul_transposed(_float32(X), D, rounds=rounds, threads=threads)


def _float32(X: Array) -> Array:
    return X if X.dtype == BFLOAT16 else X.astype(FLOAT32, copy=False)


def column_sums(D: Array, *, threads: int = 1) -> Array:
    return kernels.column_sums(D, threads=threads) if D.dtype == FLOAT32 and D.size else ops.column_sums(D)


def dots(A: Array, B: Array) -> Array:
    return functions.dots(A, B)[:, 0]


def activate(N: Array, kind: Activation, out: Array | None = None, *, threads: int = 1) -> Array:
    if kind == "relu" and out is N and N.dtype == FLOAT32:
        return kernels.relu(N, threads=threads)
    return ops.activate(N, kind, out, functions)


def activate_backward(dH: Array, N: Array, kind: Activation, *, threads: int = 1) -> Array:
    if kind == "relu" and dH.dtype == N.dtype == FLOAT32:
        return kernels.relu_backward(dH, N, threads=threads)
    return ops.activate_backward(dH, N, kind, functions)


def dropped(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array, threads: int = 1) -> Rows:
    if X.dtype not in (FLOAT32, BFLOAT16):
        return ops.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)
    return kernels.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices, threads=threads)


def cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0, *, threads: int = 1) -> tuple[float, Array]:
    if logits.dtype != FLOAT32 or not len(logits) or smoothing:
        return ops.cross_entropy(logits, labels, smoothing, functions)
    return kernels.softmax_cross_entropy(logits, labels.astype(np.int64, copy=False), threads=threads)


pair_dots = pairs.dots
pair_products = pairs.products
pair_sums = pairs.sums
layer_norm = ops.layer_norm
layer_norm_backward = ops.layer_norm_backward
squared_error = ops.squared_error
binary_cross_entropy = functions.binary_cross_entropy
segment_softmax = partial(ops.segment_softmax, f=functions)
segment_softmax_backward = partial(ops.segment_softmax_backward, f=functions)
