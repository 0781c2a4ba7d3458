"""Products of sparse rows (bags of words) with a small matrix, X W and Xᵀ D.

A row of X W is a weighted sum of rows of W, just as a vertex sums its neighbours' rows: ``gather`` computes it. NumPy
alone (``siafu.ops``) must make blocks of X dense, and multiplies the zeros too: 20 times slower.
"""

from __future__ import annotations

import numpy as np

from siafu import ops
from siafu.kernels import csr
from siafu.kernels.caches import LINE_BYTES, line_copy
from siafu.kernels.dense import FLOAT32
from siafu.kernels.gather import gather
from siafu.kernels.library import LIBRARY
from siafu.sparse import Array, Edges, SparseRows

#: The mean number of reads of each row of W from which a copy of W that begins at a cache line pays: it saves a quarter
#: of the time with 1 MB.
OFTEN = 8


def matmul_sparse(X: SparseRows, W: Array, add: Array | None = None, *, threads: int = 1) -> Array:
    """Computes ``siafu.ops.matmul`` of sparse X ``[n, F]`` and W ``[F, G]``: ``[n, G]`` in W's dtype, added to ``add``
    in place."""
    if LIBRARY is not None and W.dtype == FLOAT32 and W.size:
        edges = Edges(
            np.ascontiguousarray(X.indptr), np.ascontiguousarray(X.indices), np.ascontiguousarray(X.data, FLOAT32)
        )
        rows = np.ascontiguousarray(W).reshape(W.shape)  # of one column, NumPy calls any strides contiguous
        rows = rows if rows.strides[1] == rows.itemsize else rows.copy()
        if rows.ctypes.data % LINE_BYTES and len(X.indices) >= OFTEN * len(W):
            rows = line_copy(rows)
        return gather(edges, 0, len(X), rows, add=add, out=add, threads=threads)
    if not csr.AVAILABLE:
        return ops.matmul(X, W, add)
    product = csr.multiply(X.indptr, X.indices, X.data, W)
    if add is None:
        return product
    add += product
    return add


def matmul_sparse_transposed(X: SparseRows, D: Array) -> Array:
    """Computes ``siafu.ops.matmul_transposed`` of sparse X ``[n, F]`` and D ``[n, G]``: ``[F, G]`` in D's dtype."""
    if not csr.AVAILABLE:
        return ops.matmul_transposed(X, D)
    return csr.multiply(X.indptr, X.indices, X.data, D, width=X.width)
