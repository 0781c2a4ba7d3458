"""Gather: each vertex sums the rows of its in-neighbours, or backwards of its out-neighbours, with the model's weights.

    gcn    Z_v = Σ_{u→v} w_uv H_u / sqrt(d_v d_u) + H_v / d_v   d: D_v + 1 (Kipf & Welling)
    mean   Z_v = Σ_{u→v} w_uv H_u / D_v                         D: weighted in-degree of the whole graph
    sum    Z_v = Σ_{u→v} w_uv H_u

Backward is the transpose: dH_u = Σ_{u→v} a_vu dZ_v, along the out-edges.

Only the graph's own edge weights are stored: a_vu = t_v w_uv s_u, so rows are multiplied by s when they are written to
the table, and sums by t. The edges are the shard's, as on disk. A row's sum depends on the row alone, not on the range
or the number of threads. No call changes state, so several threads may call at once.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from siafu import kernels
from siafu.kernels import Table, csr
from siafu.shards import Shard
from siafu.sparse import Array, Rows, SparseRows

Aggregation = Literal["gcn", "mean", "sum"]
#: A gathered bag-of-words stays sparse while it is emptier than this: beyond, dense arithmetic is faster and smaller.
SPARSE_BELOW = 0.25


class Gather:
    """The aggregation of one partition in one direction."""

    def __init__(
        self, shard: Shard, aggregation: Aggregation, *, backward: bool, dtype: npt.DTypeLike, threads: int = 1
    ):
        """``dtype``: of sums and factors; ``threads``: for one call."""
        self.edges = shard.out_edges if backward else shard.in_edges
        self.threads = threads
        self.add_self = aggregation == "gcn"
        self.source_scale: Array | None = None  # s, [inner + ghosts]
        self.target_scale: Array | None = None  # t, [inner]
        degree = np.concatenate([shard.degree, shard.degree_ghosts_out if backward else shard.degree_ghosts_in])
        if aggregation == "gcn":
            self.source_scale = (1 / np.sqrt(degree + 1)).astype(dtype)
            self.target_scale = self.source_scale[: len(shard.vertices)]
        elif aggregation == "mean":
            with np.errstate(divide="ignore"):  # a vertex without in-edges is no edge's target
                inverse = np.where(degree > 0, 1 / degree, 0).astype(dtype)
            if backward:
                self.source_scale = inverse
            else:
                self.target_scale = inverse[: len(shard.vertices)]

    def __call__(self, start: int, stop: int, table: Table, *, add: Array | None = None, factor: float = 1.0) -> Array:
        """Computes rows ``start:stop`` of the product with the rows in ``table`` (inner vertices, then ghosts; each
        times its s).

        Sums are multiplied by ``factor``, then ``add`` [stop - start, F] is added. Result ``[stop - start, F]``.
        """
        scale = self.target_scale
        if factor != 1.0:
            ones = np.ones(len(self.edges.indptr) - 1, self._dtype(table)) if scale is None else scale
            scale = ones * ones.dtype.type(factor)
        return kernels.gather(
            self.edges, start, stop, table, scale=scale, add_self=self.add_self, add=add, threads=self.threads
        )

    def sparse(self, base: SparseRows, only: Array | None = None) -> Rows:
        """Computes the product with sparse rows, which are not yet times s. The result is sparse if few enough of its
        values are not zero (``SPARSE_BELOW``). ``only``: the rows to compute; None: all."""
        block = self._matrix(base)
        block = block if only is None else block[only]
        product = csr.multiply_both(block.indptr, block.indices, block.data, base)
        is_sparse = len(product.data) <= SPARSE_BELOW * len(product) * product.width
        return product if is_sparse else np.asarray(product.dense())

    def _matrix(self, base: SparseRows) -> Any:
        """Returns the aggregation as a matrix with a value per edge: CSR ``[inner, inner + ghosts]``."""
        import scipy.sparse as sp  # a tenth of a second that a run on dense features does without

        indptr, column = np.asarray(self.edges.indptr), np.asarray(self.edges.indices)
        n, value = len(indptr) - 1, np.ones(len(column), base.dtype)
        if self.edges.weight is not None:
            value *= self.edges.weight
        if self.source_scale is not None:
            value *= self.source_scale[column]
        if self.target_scale is not None:
            value *= np.repeat(self.target_scale, np.diff(indptr))
        matrix = sp.csr_array((value, column, indptr), shape=(n, len(base)))
        if not self.add_self:
            return matrix
        assert self.source_scale is not None
        rows = np.arange(n)
        return matrix + sp.csr_array((self.source_scale[:n] ** 2, rows, np.append(rows, n)), shape=matrix.shape)

    def _dtype(self, table: Table) -> npt.DTypeLike:
        return np.float64 if table.dtype == "float64" else np.float32


def edges_between(
    shard: Shard, interval_of_column: Array, ranges: list[tuple[int, int]], *, backward: bool
) -> list[tuple[Array, Array]]:
    """Returns for each range of rows the intervals that its edges come from, ascending, and the edges of each: int64.

    interval_of_column: global interval number of every inner vertex and ghost of the direction.
    """
    edges = shard.out_edges if backward else shard.in_edges
    indptr = np.asarray(edges.indptr)
    found = []
    for start, stop in ranges:
        count = np.bincount(interval_of_column[np.asarray(edges.indices[indptr[start] : indptr[stop]])])
        present = np.flatnonzero(count)
        found.append((present, count[present].astype(np.int64)))
    return found
