"""The graph in blocks of rows that are sent to every rank, needed or not: CAGNET and SANCUS.

    forward     Z_i  = Σ_k A_ik  drop(H_k)              H_k: broadcast by block k's owner, block after block
    backward    dH_i = drop'(Σ_k A_kiᵀ dZ_k)            dZ_k likewise

1. P ranks are B = P / c blocks times c replicas: c ranks have block b's rows and edges. A column of this grid is one
   replica of every block, a row all replicas of one block (c = 1: "1D", else "1.5D"; Tripathy et al., SC 2020, §4).
2. A column broadcasts its share of the blocks, about B / c, among its own ranks; a rank sums over these, and partial
   sums are all-reduced along rows. So replicas always have equal rows, and a gradient counts only on the first replica.
3. Of an arriving block a rank keeps just the rows that it has an edge from: A_ik without its empty columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.adjacency import Half, columns
from gpu_baselines.bag import Bag, dropped, features
from gpu_baselines.clock import Clock
from gpu_baselines.graph import AttentionEdges
from gpu_baselines.group import Group
from gpu_baselines.halos.halo import attention_edges
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part, Scales
from siafu.shards import Edges, Shard
from siafu.sparse import Array

Way = Literal["forward", "backward"]


class Grid:
    """A rank's position in the grid of blocks and replicas."""

    def __init__(self, group: Group, replicas: int):
        """``replicas`` divides the number of ranks. Collective."""
        self.num_blocks, self.replicas, ranks = group.size // replicas, replicas, range(group.size)
        self.replica, self.block = divmod(group.rank, self.num_blocks)
        self.column = self.row = group
        if replicas > 1:  # else nothing goes along a row
            self.column = group.subgroup([rank for rank in ranks if rank // self.num_blocks == self.replica])
            self.row = group.subgroup([rank for rank in ranks if rank % self.num_blocks == self.block])
        # by replica
        self.shares = [
            range(self.num_blocks * j // replicas, self.num_blocks * (j + 1) // replicas) for j in range(replicas)
        ]

    @property
    def share(self) -> range:
        """The blocks that our column broadcasts."""
        return self.shares[self.replica]

    @property
    def home(self) -> int:
        """The replica whose share contains our own block."""
        return next(j for j, share in enumerate(self.shares) if self.block in share)


@dataclass(frozen=True)
class Side:
    """The ends of a block's edges, in one direction, in other blocks of a column's share: h' rows."""

    ids: Array  # int64 [h'], global ids, by block
    wanted: list[Tensor]  # int64, by block: places of these rows in it; empty for our own, and outside of the share
    half: Half  # [n, h']
    into: Tensor | None  # [n], of sums
    of: Tensor | None  # [h'], of rows that are summed

    def summed(self, rows: Tensor) -> Tensor:
        """The sums over the edges, [n, F], of rows [h', F]."""
        Z = self.half(rows if self.of is None else rows * self.of[:, None])
        return Z if self.into is None else Z * self.into[:, None]


class Broadcasts:
    """Fetches other blocks' rows: every block of the share, every time. Ranks of a column make the same calls in the
    same order."""

    def __init__(self, grid: Grid, sizes: list[int], clock: Clock, kind: str = "halo"):
        """sizes: rows of each block. kind: the name under which the traffic of forward passes is counted."""
        self.grid, self.kind, self._sizes, self._clock = grid, kind, sizes, clock

    def __call__(self, way: Way, layer: int, rows: Tensor, wanted: list[Tensor]) -> Tensor:
        """Gives our rows [n, F] to the others; returns the rows of theirs that we need: [h', F], by block."""
        picked = [self.one(way, k, rows, wanted[k]) for k in self.grid.share]
        return torch.cat(picked) if picked else rows.new_empty(0, rows.shape[1])

    def one(self, way: Way, k: int, rows: Tensor, wanted: Tensor) -> Tensor:
        """Broadcasts block k; returns the rows of it that we need."""
        block = rows.contiguous() if k == self.grid.block else rows.new_empty(self._sizes[k], rows.shape[1])
        if block.numel():
            with self._clock("communicate"):
                self.grid.column.broadcast(block, k, self.kind if way == "forward" else "gradient")
        return block[wanted]

    def state(self) -> dict[str, Tensor]:
        """Tensors that a checkpoint needs."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Restores the ``state``."""

    def facts(self) -> dict[str, object]:
        """Facts for the result; JSON."""
        return {}


class BlockGraph:
    """One block and its edges, as layers see them (``gpu_baselines.graph.Graph``). For training only: inference uses
    halos."""

    training = True

    def __init__(
        self,
        part: Part,
        shard: Shard,
        grid: Grid,
        carrier: Broadcasts,
        ids: list[Array],
        masks: Masks,
        clock: Clock,
        *,
        aggregation: str,
        threads: int,
        preaggregate: bool,
    ):
        """shard: the block's partition, as the training lane sees it. ids: the vertices of every block. Collective."""
        self.part, self.num_inner, self.epoch = part, part.num_inner, 0
        self._grid, self._carrier, self._masks, self._clock = grid, carrier, masks, clock
        self._preaggregate = preaggregate
        once = Broadcasts(grid, [len(one) for one in ids], Clock(), "setup")  # of features that are fetched once
        self._of_features: Broadcasts = once if preaggregate else carrier
        self._into, self._out = _sides(part, shard, grid, ids, masks, aggregation, threads)
        self._places = _places(part.halo, part.wanted, ids, masks.device)
        # What is broadcast in every epoch is counted, and skipped, as other rows are: those are no bags.
        self.features: Any = features(part.features, masks.device, masks.dtype, sparse=preaggregate)
        self._summed: Any = None  # A X, once it is known
        self._fetched: Tensor | None = None  # the halo's features
        self._edges: AttentionEdges | None = None

    def drop(self, X: Any, key: int | None) -> Any:
        return dropped(X, self._masks, self.part.vertices, epoch=self.epoch, key=key)

    def gather(self, layer: int, H: Any, key: int | None = None) -> Any:
        if H is not self.features:
            return _Gather.apply(H, self, layer, key)
        if self._summed is None or not self._preaggregate:
            bag = isinstance(H, Bag)
            self._summed = (
                H.summed(self.part, self._grid.column) if bag else self.forward(layer, H, None, self._of_features)
            )
        return self._summed

    def rows(self, layer: int, H: Any, key: int | None = None) -> Tensor:
        if H is not self.features:
            return _Extend.apply(H, self, layer, key)
        H = H.dense() if isinstance(H, Bag) else H
        if self._fetched is None or not self._preaggregate:
            self._fetched = self.halo_rows(layer, H, self._of_features)
        there = self._mask(self.part.halo, H.shape[1], key)
        return torch.cat([self.drop(H, key), _times(self._fetched, there)])

    @property
    def edges(self) -> AttentionEdges:
        if self._edges is None:
            self._edges = attention_edges(self.part, self._masks.device, self._masks.dtype)
        return self._edges

    # --- sums over edges ----------------------------------------------------------------------------------------------

    def forward(self, layer: int, H: Tensor, key: int | None, carrier: Broadcasts | None = None) -> Tensor:
        """Z [n, F]."""
        side, X, carrier = self._into, self.drop(H, key), carrier or self._carrier
        rows = carrier("forward", layer, H, side.wanted)
        Z = side.summed(_times(rows, self._mask(side.ids, H.shape[1], key)))
        if self._grid.home == self._grid.replica:
            Z += self.part.inner(X)
            if self.part.own_scale is not None:
                Z += X * self.part.own_scale[:, None]
        return self._over_replicas(Z, carrier.kind)

    def backward(self, layer: int, dZ: Tensor, key: int | None) -> Tensor:
        """dH [n, F]."""
        side = self._out
        dX = side.summed(self._carrier("backward", layer, dZ, side.wanted))
        if self._grid.home == self._grid.replica:
            dX += self.part.inner.transposed(dZ)
            if self.part.own_scale is not None:
                dX += dZ * self.part.own_scale[:, None]
        return self.drop(self._over_replicas(dX, "gradient"), key)

    def _over_replicas(self, partial: Tensor, kind: str) -> Tensor:
        if self._grid.replicas > 1 and partial.numel():
            with self._clock("communicate"):
                self._grid.row.all_reduce(partial, kind)
        return partial

    # --- single rows: attention ---------------------------------------------------------------------------------------

    def halo_rows(self, layer: int, H: Tensor, carrier: Broadcasts | None = None) -> Tensor:
        """The halo's rows [h, F], before dropout: those that our column has fetched, and those of our replicas."""
        carrier = carrier or self._carrier
        mine = carrier("forward", layer, H, self._into.wanted)
        if self._grid.replicas == 1:
            return mine
        counts = [sum(self.part.wanted[k] for k in share) for share in self._grid.shares]
        pieces = [mine if j == self._grid.replica else mine.new_empty(n, H.shape[1]) for j, n in enumerate(counts)]
        with self._clock("communicate"):
            for j, piece in enumerate(pieces):
                if piece.numel():
                    self._grid.row.broadcast(piece, j, carrier.kind)
        return torch.cat(pieces)

    def returned(self, dHalo: Tensor) -> Tensor:
        """Sends gradients of halo rows back to their owners: [n, F]. Sends whole blocks, as rows were sent."""
        grid, column, width = self._grid, self._grid.column, dHalo.shape[1]
        sends = [dHalo.new_zeros(0)] * grid.num_blocks
        for k, rows in enumerate(dHalo.split(self.part.wanted)):
            if k in grid.share and k != grid.block:
                place, size = self._places[k]
                sends[k] = dHalo.new_zeros(size, width).index_add_(0, place, rows)
        home = grid.home == grid.replica
        comes = [
            dHalo.new_zeros(self.num_inner if home and k != grid.block else 0, width) for k in range(grid.num_blocks)
        ]
        total = dHalo.new_zeros(self.num_inner, width)
        with self._clock("communicate"):
            column.exchange(sends, comes, "gradient")
        for rows in comes:
            if len(rows):
                total += rows
        if grid.replicas > 1 and total.numel():
            with self._clock("communicate"):
                grid.row.broadcast(total, grid.home, "gradient")
        return total

    def _mask(self, vertices: Array, width: int, key: int | None) -> Tensor | None:
        return None if key is None else self._masks(vertices, width, epoch=self.epoch, key=key)

    def halo_mask(self, width: int, key: int | None) -> Tensor | None:
        return self._mask(self.part.halo, width, key)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, H: Tensor, graph: BlockGraph, layer: int, key: int | None) -> Tensor:
        ctx.graph, ctx.layer, ctx.key = graph, layer, key
        return graph.forward(layer, H.detach(), key)

    @staticmethod
    def backward(ctx: Any, dZ: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.graph.backward(ctx.layer, dZ.contiguous(), ctx.key), None, None, None


class _Extend(torch.autograd.Function):
    """[drop(H); drop(halo)]."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, graph: BlockGraph, layer: int, key: int | None) -> Tensor:
        ctx.graph, ctx.key, H = graph, key, H.detach()
        there = graph.halo_mask(H.shape[1], key)
        return torch.cat([graph.drop(H, key), _times(graph.halo_rows(layer, H), there)])

    @staticmethod
    def backward(ctx: Any, dRows: Tensor) -> tuple[Tensor, None, None, None]:
        graph, key = ctx.graph, ctx.key
        dX, dHalo = dRows[: graph.num_inner], dRows[graph.num_inner :]
        came = graph.returned(_times(dHalo, graph.halo_mask(dRows.shape[1], key)))
        return graph.drop(dX, key) + came, None, None, None


def block_ids(part: Part, grid: Grid) -> list[Array]:
    """The vertices of every block, int64. Collective."""
    sizes = [int(size) for size in grid.column.share(part.num_inner)]
    ids = [torch.zeros(size, dtype=torch.int64) for size in sizes]
    ids[grid.block].copy_(torch.from_numpy(np.array(part.vertices)))
    for k, one in enumerate(ids):
        if sizes[k]:
            grid.column.broadcast(one, k, "setup")
    return [one.numpy() for one in ids]


def _sides(
    part: Part, shard: Shard, grid: Grid, ids: list[Array], masks: Masks, aggregation: str, threads: int
) -> tuple[Side, Side]:
    """The sides of in-edges and of out-edges."""
    n, device, dtype = part.num_inner, masks.device, masks.dtype

    # edges: those from other parts alone, whose columns are the ghosts.
    def made(edges: Edges, ghosts: Array, owners: Array, into: Tensor | None, of: Tensor | None) -> Side:
        first, stop = (int(place) for place in np.searchsorted(owners, [grid.share.start, grid.share.stop]))
        mine, counts = ghosts[first:stop], np.bincount(owners[first:stop], minlength=grid.num_blocks).tolist()
        half = Half(edges if grid.replicas == 1 else columns(edges, first, stop), stop - first, threads)
        wanted = [place for place, _ in _places(mine, counts, ids, device)]
        return Side(mine, wanted, half, into, None if of is None else of[first:stop])

    # Backwards a row is multiplied by the factor of the edge's target, which is there,
    # and the sum by that of its source.
    degree = np.asarray(shard.degree)
    into = Scales.of(aggregation, np.concatenate([degree, shard.degree_ghosts_in]), n, device, dtype)
    outward = part.outer.edges if shard.undirected else columns(shard.out_edges, n, n + len(shard.ghosts_out))
    every = np.concatenate([degree, shard.degree_ghosts_out])
    out = Scales.of(aggregation, every, len(every), device, dtype)
    return (
        made(
            part.outer.edges,
            np.asarray(shard.ghosts_in),
            np.asarray(shard.ghosts_in_owner),
            into.target,
            None if into.source is None else into.source[n:],
        ),
        made(
            outward,
            np.asarray(shard.ghosts_out),
            np.asarray(shard.ghosts_out_owner),
            None if out.source is None else out.source[:n],
            None if out.target is None else out.target[n:],
        ),
    )


def _places(ghosts: Array, counts: list[int], ids: list[Array], device: torch.device) -> list[tuple[Tensor, int]]:
    """For each block, the positions of its ghosts in it, and its number of rows."""
    found, first = [], 0
    for count, vertices in zip(counts, ids, strict=True):
        order = np.argsort(vertices, kind="stable")
        place = order[np.searchsorted(vertices, ghosts[first : first + count], sorter=order)]
        found.append((torch.from_numpy(place.astype(np.int64)).to(device), len(vertices)))
        first += count
    return found


def _times(X: Tensor, mask: Tensor | None) -> Tensor:
    return X if mask is None else X * mask
