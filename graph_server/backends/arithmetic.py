"""Tensor steps on the server's own threads: the functions of ``siafu.ops`` with the compiled kernels behind them.

Rows may be bfloat16 here, and stay so until they are multiplied. One thread per call: the parallelism is that of intervals.
"""

from __future__ import annotations

import numpy as np

from siafu import kernels, ops
from siafu.ops import BFLOAT16, Activation
from siafu.sparse import Array, Rows

FLOAT32 = np.dtype(np.float32)


def matmul(X: Rows, W: Array, add: Array | None = None) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse(X, W, add)
    if W.dtype != FLOAT32 or X.dtype not in (FLOAT32, BFLOAT16):
        return ops.matmul(X, W, add)
    product = kernels.matmul_bf16 if X.dtype == BFLOAT16 else kernels.matmul
    return product(X, np.ascontiguousarray(W), out=add, add=add is not None)


def matmul_transposed(X: Rows, D: Array) -> Array:
    if not isinstance(X, np.ndarray):
        return kernels.matmul_sparse_transposed(X, D)
    if D.dtype != FLOAT32 or X.dtype not in (FLOAT32, BFLOAT16):
        return ops.matmul_transposed(X, D)
    product = kernels.matmul_bf16_transposed if X.dtype == BFLOAT16 else kernels.matmul_transposed
    return product(X, D)


def activate(N: Array, kind: Activation, out: Array | None = None) -> Array:
    if kind == "relu" and out is N and N.dtype == FLOAT32:
        return kernels.bias_relu(N)
    return ops.activate(N, kind, out)


def activate_backward(dH: Array, N: Array, kind: Activation) -> Array:
    if kind == "relu" and dH.dtype == N.dtype == FLOAT32:
        return kernels.relu_backward(dH, N)
    return ops.activate_backward(dH, N, kind)


def dropped(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Rows:
    if X.dtype != FLOAT32:
        return ops.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)
    return kernels.dropped(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices)


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    if logits.dtype != FLOAT32 or not len(logits):
        return ops.cross_entropy(logits, labels)
    return kernels.softmax_cross_entropy(logits, labels.astype(np.int64, copy=False))


layer_norm = ops.layer_norm
layer_norm_backward = ops.layer_norm_backward
binary_cross_entropy = ops.binary_cross_entropy
