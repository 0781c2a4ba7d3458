"""Sums over edges: a sparse matrix that is multiplied with rows, forward and transposed.

The products use siafu's gather kernels on the CPU, and torch's sparse products on a GPU. Values are as in
``graph_server.aggregate``: a_vu = t_v w_uv s_u, so that rows are scaled before they are summed, and sums after.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gpu_baselines.entries import csr_matrix
from siafu import kernels
from siafu.shards import Edges
from siafu.sparse import Array


class Half:
    """One direction: row v of the product sums the rows that ``edges`` list for it."""

    def __init__(self, edges: Edges, num_columns: int, threads: int):
        self.edges, self.num_columns, self.threads = edges, num_columns, threads
        self._matrices: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def __call__(self, X: Tensor) -> Tensor:
        """The product, [num_rows, F], of rows X [num_columns, F]."""
        num_rows = len(self.edges.indptr) - 1
        if not len(self.edges.indices) or not X.shape[1]:
            return X.new_zeros(num_rows, X.shape[1])
        if X.device.type == "cpu":
            table = np.ascontiguousarray(X.numpy())
            return torch.from_numpy(kernels.gather(self.edges, 0, num_rows, table, threads=self.threads))
        return torch.sparse.mm(self._matrix(X), X)

    def _matrix(self, X: Tensor) -> Tensor:
        """torch's copy of the edges, made on first use."""
        made, key = self._matrices, (X.device, X.dtype)
        if key not in made:
            value = np.ones(len(self.edges.indices), np.float32) if self.edges.weight is None else self.edges.weight
            made[key] = csr_matrix(
                torch.from_numpy(np.array(self.edges.indptr)).to(X.device),
                torch.from_numpy(np.array(self.edges.indices)).to(X.device),
                torch.from_numpy(np.array(value)).to(X.device, X.dtype),
                (len(self.edges.indptr) - 1, self.num_columns),
            )
        return made[key]


class Adjacency:
    """Edges between ``num_rows`` targets and ``num_columns`` sources, with a factor for each target and each source."""

    def __init__(
        self, edges: Edges, num_columns: int, target_scale: Tensor | None, source_scale: Tensor | None, threads: int = 1
    ):
        self.edges, self.num_rows, self.num_columns = edges, len(edges.indptr) - 1, num_columns
        self.target_scale, self.source_scale = target_scale, source_scale  # [num_rows], [num_columns]
        self._forward = Half(edges, num_columns, threads)
        self._threads = threads

    def __call__(self, X: Tensor) -> Tensor:
        """A X, [num_rows, F]."""
        return _scaled(self._forward(_scaled(X, self.source_scale)), self.target_scale)

    @cached_property
    def _backward(self) -> Half:
        """The edges by source, made on first use: sums of features have no backward."""
        return Half(transposed(self.edges, self.num_columns), self.num_rows, self._threads)

    def transposed(self, D: Tensor) -> Tensor:
        """Aᵀ D, [num_columns, F]."""
        return _scaled(self._backward(_scaled(D, self.target_scale)), self.source_scale)


class Outer(Adjacency):
    """Edges from a halo. Computes only targets with such an edge: AdaQP's marginal vertices (section 3.2), which are
    few in a good partition."""

    def __init__(
        self, edges: Edges, num_columns: int, target_scale: Tensor | None, source_scale: Tensor | None, threads: int = 1
    ):
        super().__init__(edges, num_columns, target_scale, source_scale, threads)
        counts = np.diff(edges.indptr)
        marginal = np.flatnonzero(counts)
        self._all = len(marginal) == len(counts)  # then rows need not be picked
        indptr = np.concatenate([[0], np.cumsum(counts[marginal])]).astype(np.int64)
        device = None if target_scale is None else target_scale.device
        self._marginal = torch.from_numpy(marginal).to(device)  # int64 [m]
        scale = None if target_scale is None else target_scale[self._marginal]
        self._rows = Adjacency(replace(edges, indptr=indptr), num_columns, scale, source_scale, threads)

    def add_to(self, Z: Tensor, X: Tensor) -> Tensor:
        """Z += A X, [num_rows, F]; returns Z itself."""
        return Z.add_(self._rows(X)) if self._all else Z.index_add_(0, self._marginal, self._rows(X))

    def transposed(self, D: Tensor) -> Tensor:
        return self._rows.transposed(D if self._all else D[self._marginal])


def _scaled(X: Tensor, scale: Tensor | None) -> Tensor:
    return X if scale is None else X * scale[:, None]


def transposed(edges: Edges, num_columns: int) -> Edges:
    """The same edges grouped by source, ordered by target within each."""
    weight = np.ones(len(edges.indices), np.int8) if edges.weight is None else np.asarray(edges.weight)
    shape = len(edges.indptr) - 1, num_columns
    found = sp.csr_array((weight, np.asarray(edges.indices), np.asarray(edges.indptr)), shape=shape).tocsc()
    indices = found.indices.astype(np.int32, copy=False)
    return Edges(found.indptr.astype(np.int64), indices, None if edges.weight is None else found.data)


def columns(edges: Edges, first: int, stop: int) -> Edges:
    """The edges from sources ``first:stop`` alone, renumbered from 0."""
    indices: Array = np.asarray(edges.indices)
    kept = np.flatnonzero((indices >= first) & (indices < stop))
    indptr = np.searchsorted(kept, edges.indptr).astype(np.int64)
    weight = None if edges.weight is None else np.ascontiguousarray(np.asarray(edges.weight)[kept])
    return Edges(indptr, (indices[kept] - first).astype(np.int32), weight)
