"""The graph as layers see it: neighbours' rows, wherever they are, and the vertices whose rows a layer makes.

``Graph`` is the whole contract between layers and methods: a part with a halo, a subgraph by itself, a chunk with its
history, a sampled block. Layers are written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.adjacency import Adjacency
from gpu_baselines.masks import edge_places
from siafu.shards import Edges
from siafu.sparse import Array


class Graph(Protocol):
    """Rows ``H`` [n, F] are those of the graph's own vertices, in its order, before dropout. ``layer`` counts from 0.

    key: of the dropout mask that every row gets, wherever it is; None: none. A layer whose rows are constant ("the
    features") asks with ``layer`` = 0 and the very tensor that ``features`` is.
    """

    num_inner: int
    training: bool
    epoch: int

    def drop(self, X: Tensor, key: int | None) -> Tensor:
        """X of the graph's own vertices [n, F] under the mask of ``key``; X itself when not training."""

    def gather(self, layer: int, H: Tensor, key: int | None = None) -> Tensor:
        """[n, F]: Σ_u a_vu drop(H_u) over in-edges (and v itself, with gcn); differentiable."""

    def rows(self, layer: int, H: Tensor, key: int | None = None) -> Tensor:
        """drop(H), then the dropped rows of the sources that are not the graph's own, as ``edges`` counts them: [n + h,
        F]."""

    @property
    def edges(self) -> AttentionEdges:
        """All in-edges, and an edge from every vertex to itself."""


class Neighbours(NamedTuple):
    """The edges of each vertex of one side."""

    first: Tensor  # int64 [n + 1], of each vertex's edges
    other: Tensor  # int32 [m]: the vertex at the other end
    edge: Tensor | None  # int64 [m]: which of ``AttentionEdges`` it is; None: they are in that order


class AttentionEdges:
    """Edges for attention: by target, with sources counted as in ``Graph.rows``."""

    def __init__(
        self,
        source: Tensor,
        target: Tensor,
        weight: Tensor | None,
        ids: tuple[Array, Array],
        num_targets: int,
        num_sources: int,
    ):
        self.source, self.target = source, target  # int64 [m]
        self.weight = weight  # [m] or None
        self.source_ids, self.target_ids = ids  # int64 [m], global ids on the host: of masks
        self.num_targets, self.num_sources = num_targets, num_sources

    @cached_property
    def places(self) -> Tensor:
        """Hash inputs of the edges' masks, from the edges' positions: int64 [m]."""
        sources, targets = (torch.from_numpy(ids).to(self.source.device) for ids in (self.source_ids, self.target_ids))
        return edge_places(sources, targets)

    @cached_property
    def by_target(self) -> Neighbours:
        return Neighbours(_first(self.target, self.num_targets), self.source.int(), None)

    @cached_property
    def by_source(self) -> Neighbours:
        order = torch.argsort(self.source, stable=True)
        return Neighbours(_first(self.source, self.num_sources), self.target[order].int(), order)


def with_loops(n: int, kinds: Sequence[tuple[Edges, int]]) -> tuple[Array, Array, Array]:
    """Sources and targets, int64 [m], and weights, float32 [m], of n targets' edges, by target, without a sort. Each
    target's edge to itself comes first, then its edges of every kind, whose sources are counted from the number beside
    them."""
    counts = 1 + sum((np.diff(edges.indptr) for edges, _ in kinds), np.zeros(n, np.int64))
    first, total = np.cumsum(counts) - counts, int(counts.sum())
    source, weight = np.empty(total, np.int64), np.ones(total, np.float32)
    source[first] = np.arange(n)
    after = first + 1
    for edges, offset in kinds:
        degree = np.diff(edges.indptr)
        place = np.arange(len(edges.indices)) + np.repeat(after - edges.indptr[:-1], degree)
        source[place] = np.asarray(edges.indices).astype(np.int64) + offset
        if edges.weight is not None:
            weight[place] = edges.weight
        after = after + degree
    return source, np.repeat(np.arange(n), counts), weight


def _first(ends: Tensor, num_vertices: int) -> Tensor:
    counts = torch.bincount(ends, minlength=num_vertices)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


class Propagate(torch.autograd.Function):
    """Z = A (mask ⊙ H) of a matrix without halo; backward dH = mask ⊙ Aᵀ dZ."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, A: Adjacency, mask: Tensor | None) -> Tensor:
        ctx.A, ctx.mask = A, mask
        return A(H.detach() if mask is None else H.detach() * mask)

    @staticmethod
    def backward(ctx: Any, dZ: Tensor) -> tuple[Tensor, None, None]:
        dH = ctx.A.transposed(dZ.contiguous())
        return dH if ctx.mask is None else dH * ctx.mask, None, None
