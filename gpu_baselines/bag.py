"""Bags of words: features that are mostly zero and stay sparse. They are constant: nobody wants their gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from siafu import ops
from siafu.sparse import Array, Rows, SparseRows

if TYPE_CHECKING:
    from gpu_baselines.adjacency import Adjacency
    from gpu_baselines.group import Group
    from gpu_baselines.masks import Masks
    from gpu_baselines.part import Part

#: A bag whose vertices' neighbours have been added to it stays sparse while it is emptier than this.
SPARSE_BELOW = 0.25


@dataclass(frozen=True, eq=False)
class Bag:
    sparse: SparseRows  # on the host

    @classmethod
    def of(cls, rows: Rows) -> Bag | None:
        if not isinstance(rows, SparseRows):
            return None
        return cls(SparseRows(np.asarray(rows.indptr), np.asarray(rows.indices), np.asarray(rows.data), rows.width))

    @property
    def shape(self) -> tuple[int, int]:
        return self.sparse.shape

    def to(self, dtype: torch.dtype) -> Bag:
        return Bag(self.sparse.astype(str(dtype).removeprefix("torch.")))

    def dense(self) -> Tensor:
        return torch.from_numpy(self.sparse.dense())

    def linear(self, W: Tensor) -> Tensor:
        """X W [n, G], differentiable in W [F, G]."""
        return _Product.apply(W, self)

    def dropped(self, masks: Masks, vertices: Array, *, epoch: int, key: int) -> Bag:
        keep = ops.dropout_mask(self.sparse, masks.p, seed=masks.seed, epoch=epoch, layer=key, vertices=vertices)
        rows = ops.dropout(self.sparse, keep, masks.p)
        assert isinstance(rows, SparseRows)
        return Bag(rows)

    def summed(self, part: Part, group: Group) -> Any:
        """A X: another bag while that is empty enough, else a tensor. The halo's rows come over the group."""
        mine = _matrix(self.sparse)
        product = _weighted(part.inner) @ mine + _weighted(part.outer) @ _matrix(self._of_halo(part, group))
        if part.own_scale is not None:
            product = product + sp.diags_array(part.own_scale.cpu().numpy().astype(self.sparse.dtype)) @ mine
        product = sp.csr_array(product)
        if product.nnz > SPARSE_BELOW * product.shape[0] * product.shape[1]:
            return torch.from_numpy(product.toarray().astype(self.sparse.dtype)).to(part.labels.device)
        product.sort_indices()
        indptr, indices = product.indptr.astype(np.int64), product.indices.astype(np.int32)
        return Bag(SparseRows(indptr, indices, product.data.astype(self.sparse.dtype), self.sparse.width))

    def _of_halo(self, part: Part, group: Group) -> SparseRows:
        """The halo's rows: first how long each is, then its columns and values."""
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


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, W: Tensor, bag: Bag) -> Tensor:
        ctx.bag = bag
        return torch.from_numpy(ops.matmul(bag.sparse, W.detach().cpu().numpy())).to(W.device)

    @staticmethod
    def backward(ctx: Any, dY: Tensor) -> tuple[Tensor, None]:
        found = ops.matmul_transposed(ctx.bag.sparse, np.ascontiguousarray(dY.cpu().numpy()))
        return torch.from_numpy(found).to(dY.device), None


def _matrix(rows: SparseRows) -> Any:
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)


def _weighted(A: Adjacency) -> Any:
    """The matrix that an adjacency stands for."""
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
