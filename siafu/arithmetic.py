"""siafu's one arithmetic: the functions of ``siafu.ops`` to the same bits on every
processor, wherever a tensor task runs.

What NumPy's BLAS, its vectors or the C library decide is computed by the compiled kernels: products, sums of columns,
exponentials and the like. The rest are sums, products and square roots of elements, which IEEE 754 decides. Without the
compiled library this is NumPy's arithmetic, as ``siafu.kernels.ISA`` says.

Rows may be bfloat16 here, and stay so until they are multiplied. One thread per call:
the parallelism is that of intervals.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from siafu import kernels, ops
from siafu.kernels import functions
from siafu.ops import BFLOAT16, Activation
from siafu.sparse import Array, Rows

FLOAT32 = np.dtype(np.float32)


def matmul(X: Rows, W: Array, add: Array | None = None) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse(X, W, add)
    if not X.shape[1] or not W.shape[1]:
        return ops.matmul(X, W, add)
    if W.dtype != FLOAT32:
        return kernels.matmul_doubles(ops.real(X, W.dtype), W, out=add)
    product = kernels.matmul_bf16 if X.dtype == BFLOAT16 else kernels.matmul
    return product(_float32(X), np.ascontiguousarray(W), out=add, add=add is not None)


def matmul_transposed(X: Rows, D: Array) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse_transposed(X, D)
    if not X.shape[1] or not D.shape[1]:
        return ops.matmul_transposed(X, D)
    if D.dtype != FLOAT32:
        return kernels.matmul_doubles(ops.real(X, D.dtype), D, transposed=True)
    product = kernels.matmul_bf16_transposed if X.dtype == BFLOAT16 else kernels.matmul_transposed
    return product(_float32(X), D)


def _float32(X: Array) -> Array:
    return X if X.dtype == BFLOAT16 else X.astype(FLOAT32, copy=False)


def column_sums(D: Array) -> Array:
    return kernels.column_sums(D) if D.dtype == FLOAT32 and D.size else ops.column_sums(D)


def dots(A: Array, B: Array) -> Array:
    return functions.dots(A, B)[:, 0]


def activate(N: Array, kind: Activation, out: Array | None = None) -> Array:
    if kind == "relu" and out is N and N.dtype == FLOAT32:
        return kernels.bias_relu(N)
    return ops.activate(N, kind, out, functions)


def activate_backward(dH: Array, N: Array, kind: Activation) -> Array:
    if kind == "relu" and dH.dtype == N.dtype == FLOAT32:
        return kernels.relu_backward(dH, N)
    return ops.activate_backward(dH, N, kind, functions)


def dropped(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Rows:
    if X.dtype != FLOAT32:
        return ops.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)
    return kernels.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)


def cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]:
    if logits.dtype != FLOAT32 or not len(logits) or smoothing:
        return ops.cross_entropy(logits, labels, smoothing, functions)
    return kernels.softmax_cross_entropy(logits, labels.astype(np.int64, copy=False))


layer_norm = ops.layer_norm
layer_norm_backward = ops.layer_norm_backward
squared_error = ops.squared_error
binary_cross_entropy = partial(ops.binary_cross_entropy, f=functions)
segment_softmax = partial(ops.segment_softmax, f=functions)
segment_softmax_backward = partial(ops.segment_softmax_backward, f=functions)
