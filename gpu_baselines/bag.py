"""Bags of words: features that are mostly zero, kept sparse. They are constant, so they need no gradient."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from gpu_baselines.entries import Entries
from gpu_baselines.part import Part, dense
from siafu import kernels, ops
from siafu.sparse import Array, Rows, SparseRows

if TYPE_CHECKING:
    from gpu_baselines.adjacency import Adjacency
    from gpu_baselines.group import Group
    from gpu_baselines.masks import Masks

#: A bag whose vertices' neighbours have been added to it stays sparse while it is emptier than this.
SPARSE_BELOW = 0.25


@dataclass(frozen=True, eq=False)
class Bag:
    sparse: SparseRows  # on the host
    device: torch.device  # where it is multiplied: on a GPU as ``entries``

    @property
    def shape(self) -> tuple[int, int]:
        return self.sparse.shape

    @cached_property
    def entries(self) -> Entries:
        """The bag's copy on the device."""
        return Entries.of(self.sparse, self.device)

    def dense(self) -> Tensor:
        return torch.from_numpy(self.sparse.dense()).to(self.device)

    def rows(self, at: slice) -> Bag:
        return Bag(self.sparse[at], self.device)

    def product(self, W: Tensor) -> Tensor:
        """X W, [n, G]."""
        if self.device.type != "cpu":
            return self.entries.product(W)
        return torch.from_numpy(kernels.matmul_sparse(self.sparse, W.numpy(), threads=torch.get_num_threads()))

    def product_transposed(self, D: Tensor) -> Tensor:
        """Xᵀ D, [F, G]."""
        if self.device.type != "cpu":
            return self.entries.product_transposed(D)
        return torch.from_numpy(kernels.matmul_sparse_transposed(self.sparse, D.numpy()))

    def dropped(self, masks: Masks, vertices: Array, *, epoch: int, key: int) -> Bag | Entries:
        if self.device.type != "cpu":
            where = self.entries.structure
            return self.entries.times(masks.of_entries(vertices, where.row, where.column, epoch=epoch, key=key))
        made = ops if self.sparse.dtype != np.float32 else kernels
        rows = made.dropped(self.sparse, masks.p, seed=masks.seed, epoch=epoch, layer=key, vertices=vertices)
        assert isinstance(rows, SparseRows)
        return Bag(rows, self.device)

    def summed(self, part: Part, group: Group) -> Any:
        """A X: a bag while that is sparse enough, else a tensor. The halo's rows come over the group."""
        mine, inner = _matrix(self.sparse), _weighted(part.inner)
        if part.own_scale is not None:  # added here, where there are fewer entries than in products
            inner = inner + sp.diags_array(part.own_scale.cpu().numpy().astype(np.float64))
        product, halo = inner @ mine, self._of_halo(part, group)
        if part.num_halo:
            product = product + _weighted(part.outer) @ _matrix(halo)
        product = sp.csr_array(product)
        if product.nnz > SPARSE_BELOW * product.shape[0] * product.shape[1]:
            return torch.from_numpy(product.toarray().astype(self.sparse.dtype)).to(self.device)
        product.sort_indices()
        indptr, indices = product.indptr.astype(np.int64), product.indices.astype(np.int32)
        rows = SparseRows(indptr, indices, product.data.astype(self.sparse.dtype), self.sparse.width)
        return Bag(rows, self.device)

    def _of_halo(self, part: Part, group: Group) -> SparseRows:
        """Fetches the halo's rows: first their lengths, then columns and values."""
        sends: list[Any] = [ops.take(self.sparse, index.cpu().numpy()) for index in part.given]
        counts = torch.zeros(part.num_halo, dtype=torch.int64)
        group.exchange(
            [torch.from_numpy(np.diff(rows.indptr)) for rows in sends], list(counts.split(part.wanted)), "setup"
        )
        sizes = [int(one.sum()) for one in counts.split(part.wanted)]
        indices = torch.zeros(sum(sizes), dtype=torch.int32)
        data = torch.zeros(sum(sizes), dtype=torch.from_numpy(np.zeros(0, self.sparse.dtype)).dtype)
        group.exchange(
            [torch.from_numpy(np.array(rows.indices)) for rows in sends], list(indices.split(sizes)), "setup"
        )
        group.exchange([torch.from_numpy(np.array(rows.data)) for rows in sends], list(data.split(sizes)), "setup")
        indptr = np.concatenate([[0], np.cumsum(counts.numpy())])
        return SparseRows(indptr, indices.numpy(), data.numpy(), self.sparse.width)


def features(rows: Rows, device: torch.device, dtype: torch.dtype, *, sparse: bool = True) -> Any:
    """The input of a net: a bag if the shard has one, else (or if nothing is to be sparse) a tensor [n, F]."""
    if not sparse or not isinstance(rows, SparseRows):
        return dense(rows, device, dtype)
    mine = SparseRows(np.asarray(rows.indptr), np.asarray(rows.indices), np.asarray(rows.data), rows.width)
    return Bag(mine.astype(str(dtype).removeprefix("torch.")), device)


def dropped(X: Any, masks: Masks, vertices: Array, *, epoch: int, key: int | None) -> Any:
    """X [n, F] of these vertices, a tensor or a bag, under the mask of ``key``; None: X itself."""
    if key is None or not masks.p:
        return X
    if isinstance(X, Bag):
        return X.dropped(masks, vertices, epoch=epoch, key=key)
    mask = masks(vertices, X.shape[1], epoch=epoch, key=key)
    return X if mask is None else X * mask


def linear(X: Any, W: Tensor) -> Tensor:
    """X W [n, G], for X a tensor, a bag, or a dropped bag; differentiable in W [F, G]."""
    return X @ W if isinstance(X, Tensor) else _Product.apply(W, X)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, W: Tensor, bag: Bag | Entries) -> Tensor:
        ctx.bag = bag
        return bag.product(W.detach())

    @staticmethod
    def backward(ctx: Any, dY: Tensor) -> tuple[Tensor, None]:
        return ctx.bag.product_transposed(dY.contiguous()), None


def _matrix(rows: SparseRows) -> Any:
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)


def _weighted(A: Adjacency) -> Any:
    """The weighted matrix of an adjacency."""
    edges = A.edges
    value = np.ones(len(edges.indices)) if edges.weight is None else np.asarray(edges.weight, np.float64)
    matrix = sp.csr_array(
        (value, np.asarray(edges.indices), np.asarray(edges.indptr)), shape=(A.num_rows, A.num_columns)
    )
    for side, scale in ((0, A.target_scale), (1, A.source_scale)):
        if scale is not None:
            diagonal = sp.diags_array(scale.cpu().numpy().astype(np.float64))
            matrix = diagonal @ matrix if side == 0 else matrix @ diagonal
    return matrix
