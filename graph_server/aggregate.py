"""Gather: each vertex sums the rows of its in-neighbours, or backwards of its out-neighbours, with the model's weights.

    gcn    Z_v = Σ_{u→v} w_uv H_u / sqrt(d_v d_u) + H_v / d_v      d: weighted in-degree of the whole graph + 1 (Kipf & Welling)
    mean   Z_v = Σ_{u→v} w_uv H_u / D_v                              D: weighted in-degree of the whole graph
    sum    Z_v = Σ_{u→v} w_uv H_u

Backward is the transpose: dH_u = Σ_{u→v} a_vu dZ_v, along the out-edges.

``Gather`` is the interface that a compiled kernel takes over: it knows one direction of one partition, and is called for
a range of rows on one base array whose rows are the inner vertices followed by the ghosts. It holds no state that a call
changes, and SciPy's product releases the interpreter lock, so threads may call it at once. Each row is summed in the
order of its edges: the result does not depend on the range.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from siafu.shards import Shard
from siafu.sparse import Array, Rows, SparseRows

Aggregation = Literal["gcn", "mean", "sum"]
#: A gathered bag-of-words stays sparse while it is emptier than this: beyond, dense arithmetic is faster and smaller.
SPARSE_BELOW = 0.25


class Gather:
    """The aggregation of one partition in one direction."""

    def __init__(self, shard: Shard, aggregation: Aggregation, *, backward: bool, dtype: npt.DTypeLike):
        edges = shard.out_edges if backward else shard.in_edges
        ghost_degree = shard.degree_ghosts_out if backward else shard.degree_ghosts_in
        degree = np.concatenate([shard.degree, ghost_degree])  # [n + ghosts]
        num_inner, num_rows = len(shard.vertices), len(degree)
        indptr, column = np.asarray(edges.indptr), np.asarray(edges.indices)
        row = np.repeat(np.arange(num_inner, dtype=np.int32), np.diff(indptr))
        value = np.ones(len(column)) if edges.weight is None else np.asarray(edges.weight, np.float64)
        if aggregation == "gcn":
            scale = 1 / np.sqrt(degree + 1)
            value = value * scale[row] * scale[column]
        elif aggregation == "mean":
            target = column if backward else row
            value = value / degree[target]  # an edge's target has a degree above 0
        matrix = sp.csr_array((value.astype(dtype), column, indptr), shape=(num_inner, num_rows))
        if aggregation == "gcn":
            own = sp.csr_array(
                ((1 / (shard.degree + 1)).astype(dtype), np.arange(num_inner), np.arange(num_inner + 1)),
                shape=matrix.shape,
            )
            matrix = matrix + own
        self._matrix = matrix
        self._blocks: dict[tuple[int, int], Any] = {}

    def prepare(self, ranges: list[tuple[int, int]]) -> None:
        """Cuts the rows into the ranges that will be asked for; the whole is not kept."""
        self._blocks = {(start, stop): self._matrix[start:stop] for start, stop in ranges}
        self._matrix = None

    def __call__(self, start: int, stop: int, base: Rows) -> Rows:
        """Rows ``start:stop`` of the product with base ``[inner + ghosts, F]``; sparse if base is and the result is sparse enough."""
        block = self._blocks[start, stop]
        if isinstance(base, np.ndarray):
            return np.asarray(block @ base)
        product = sp.csr_array(block @ sp.csr_array((base.data, base.indices, base.indptr), shape=base.shape))
        if product.nnz > SPARSE_BELOW * product.shape[0] * product.shape[1]:
            return np.asarray(product.toarray())
        product.sort_indices()
        return SparseRows(
            product.indptr.astype(np.int64), product.indices.astype(np.int32), product.data, product.shape[1]
        )


def stack(parts: list[Rows]) -> Rows:
    """Row blocks one under the other; all dense or all sparse."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    assert len(sparse) == len(parts), "dense and sparse rows mixed"
    counts = np.concatenate([np.diff(part.indptr) for part in sparse])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([part.indices for part in sparse])
    return SparseRows(indptr, indices, np.concatenate([part.data for part in sparse]), sparse[0].width)


def edges_between(shard: Shard, interval_of_column: Array, ranges: list[tuple[int, int]], *, backward: bool) -> Any:
    """How many edges reach each range of rows from each interval: CSR ``[ranges, intervals]``, int64.

    interval_of_column: global interval number of every inner vertex and ghost of the direction.
    """
    edges = shard.out_edges if backward else shard.in_edges
    indptr = np.asarray(edges.indptr)
    num_intervals = int(interval_of_column.max(initial=-1)) + 1
    rows, columns, counts = [], [], []
    for row, (start, stop) in enumerate(ranges):
        sources = interval_of_column[np.asarray(edges.indices[indptr[start] : indptr[stop]])]
        count = np.bincount(sources, minlength=num_intervals)
        present = np.flatnonzero(count)
        rows.append(np.full(len(present), row))
        columns.append(present)
        counts.append(count[present])
    data = np.concatenate(counts).astype(np.int64)
    return sp.csr_array((data, (np.concatenate(rows), np.concatenate(columns))), shape=(len(ranges), num_intervals))
