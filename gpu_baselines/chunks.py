"""A stage's graph in chunks, with the history of rows that have not arrived yet: what GNNPipe's layers see (its
§3.2).

1. A chunk that goes through a layer leaves its rows there. Rows of a neighbour whose chunk has gone through in this
   epoch, or goes now, are used as they are; rows of any other are those of an older epoch: from the history.
2. The history of a layer is that of the last epoch (counted from 1) that is a multiple of ``freeze``; before the first
   such epoch, it is the first weights' output on the whole graph. Rows are kept before dropout, and dropped by this
   epoch's masks.
3. Backward, chunks come in reverse. Gradients reach rows of this epoch, and the history is constant ("no historical
   gradients"): of the two directions across an edge between chunks, one gets no gradient. ``between`` multiplies the
   gradients that cross. With 2 a gather's gradients, averaged over random orders, are the exact ones, as far as the
   history is up to date. (That holds for each of several gathers in a row, but not for their product: all layers of an
   epoch have one order.)
4. If several ranks share a stage, each has a share of every chunk. Rows that other ranks need for any of their chunks
   travel once per layer and epoch, when they go through, and so do their gradients.

Positions: a rank's own vertices in the order of chunks, then its halo, which other ranks of the stage own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.bag import Bag, dropped
from gpu_baselines.clock import Clock
from gpu_baselines.graph import AttentionEdges
from gpu_baselines.group import Group
from gpu_baselines.halos.halo import PartGraph, attention_edges
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part
from siafu.sparse import Array


@dataclass
class Table:
    """Rows of one layer in one epoch, by position."""

    rows: Tensor  # [n + h, F], dropped: the history until their chunk has been through
    mask: Tensor | None  # [n + h, F]
    gradient: Tensor | None = None  # [n + h, F], of rows before dropout, from chunks that came later


class Memory:
    """Data that the chunks of a rank share: history, this epoch's rows, and the group of the stage."""

    def __init__(self, whole: PartGraph, chunk_of: Array, group: Group, masks: Masks, clock: Clock, between: float):
        """whole: this rank's share of all chunks, as evaluation sees it. chunk_of: int [N], of every vertex. group: the
        stage."""
        self.whole, self.group, self.masks, self.clock = whole, group, masks, clock
        part = whole.part
        self.vertices = np.concatenate([part.vertices, part.halo])  # int64 [n + h]
        self.chunk_of, self.between = chunk_of, between
        # All that changes:
        # turn: of each chunk, when it goes through
        self.epoch, self.turn, self.refresh = (0, np.zeros(0, np.int64), False)
        self.history: dict[int, Tensor] = {}  # by layer, [n + h, F]
        self.remembers = False  # whether there is a history: a stage may have no layer that wants one
        self._tables: dict[int, Table] = {}
        # by layer: what is as wide as its rows; their mask's key
        self._asked: dict[int, tuple[Tensor, int | None]] = {}
        self._features: Tensor | None = None

    @property
    def features(self) -> Tensor:
        """Features by position, [n + h, F]. Those of the halo are fetched once. The first call is collective in the
        stage."""
        if self._features is None:
            self._features = self.whole.rows(0, self.whole.features)
        return self._features

    def begin(self, epoch: int, order: Sequence[int], *, refresh: bool) -> None:
        """Begins an epoch. order: of chunks. refresh: whether its rows become the history."""
        self.epoch, self.turn, self.refresh = epoch, np.argsort(order), refresh
        # All at once, and not when the first chunk asks: later stages would wait for it, one after the other.
        self._tables = {layer: self._opened(layer, like, key) for layer, (like, key) in self._asked.items()}

    def end(self) -> None:
        self._tables.clear()

    def table(self, layer: int, H: Tensor, key: int | None) -> Table:
        """The table of a layer in this epoch; rows are as wide as ``H``."""
        if layer not in self._tables:
            self._asked[layer] = H.new_empty(0, H.shape[1]), key
            self._tables[layer] = self._opened(layer, *self._asked[layer])
        return self._tables[layer]

    def _opened(self, layer: int, like: Tensor, key: int | None) -> Table:
        mask = None if key is None else self.masks(self.vertices, like.shape[1], epoch=self.epoch, key=key)
        old = self.history.get(layer)
        if old is None:
            assert len(self.turn) == 1, "several chunks need a history"
            return Table(like.new_zeros(len(self.vertices), like.shape[1]), mask)
        return Table(old.clone() if mask is None else old * mask, mask)

    def mask(self, layer: int) -> Tensor | None:
        table = self._tables.get(layer)
        return None if table is None else table.mask

    def put(self, layer: int, at: Any, H: Tensor) -> None:
        """Stores rows of this epoch, before dropout, at positions ``at``."""
        table = self._tables[layer]
        table.rows[at] = H if table.mask is None else H * table.mask[at]
        if self.refresh and layer in self.history:
            self.history[layer][at] = H

    def gradient(self, layer: int) -> Tensor:
        table = self._tables[layer]
        if table.gradient is None:
            table.gradient = torch.zeros_like(table.rows)
        return table.gradient


class Chunk:
    """This rank's share of one chunk in training, as layers see it (``gpu_baselines.graph.Graph``)."""

    training = True

    def __init__(self, number: int, rows: slice, part: Part, memory: Memory):
        """rows: positions of its own vertices. part: these vertices, with all other sources of their edges as the
        halo."""
        self.number, self.part, self.rows_at, self.num_inner = number, part, rows, part.num_inner
        self._memory = memory
        self._edges: AttentionEdges | None = None
        self._counted: tuple[Array, Tensor] | None = None  # of the epoch with these turns
        self.features: Any = _rows(memory.whole.features, rows)
        self._summed: Any = None  # A X, once it is known
        device, whole = memory.masks.device, memory.whole.part
        place = np.full(len(memory.chunk_of), -1, np.int64)
        place[memory.vertices] = np.arange(len(memory.vertices))
        self._halo = torch.from_numpy(place[part.halo]).to(device)  # int64 [h], positions
        self._halo_chunk = memory.chunk_of[part.halo]
        # What travels when this chunk goes through: its rows that others want, by rank, and theirs that we do.
        given = [index.cpu().numpy() for index in whole.given]
        self._given = [
            torch.from_numpy(index[(index >= rows.start) & (index < rows.stop)] - rows.start).to(device)
            for index in given
        ]
        owners = np.repeat(np.arange(len(whole.wanted)), whole.wanted)
        comes = np.flatnonzero(memory.chunk_of[whole.halo] == number)
        self._comes = torch.from_numpy(comes + whole.num_inner).to(device)
        self._wanted = np.bincount(owners[comes], minlength=len(whole.wanted)).tolist()

    @property
    def epoch(self) -> int:
        return self._memory.epoch

    def drop(self, X: Any, key: int | None) -> Any:
        return dropped(X, self._memory.masks, self.part.vertices, epoch=self.epoch, key=key)

    def gather(self, layer: int, H: Any, key: int | None = None) -> Any:
        if H is self.features:
            if self._summed is None:
                self._summed = _rows(self._memory.whole.gather(0, self._memory.whole.features), self.rows_at)
            return self._summed
        return _Gather.apply(H, self, layer, key)

    def rows(self, layer: int, H: Any, key: int | None = None) -> Tensor:
        if H is self.features:
            everything = self._memory.features
            there = everything[self._halo]
            there = dropped(there, self._memory.masks, self.part.halo, epoch=self.epoch, key=key)
            return torch.cat([self.drop(everything[self.rows_at], key), there])
        return _Extend.apply(H, self, layer, key)

    @property
    def edges(self) -> AttentionEdges:
        if self._edges is None:
            masks = self._memory.masks
            self._edges = attention_edges(self.part, masks.device, masks.dtype)
        return self._edges

    # --- through a layer, and back ------------------------------------------------------------------------------------

    def passed(self, layer: int, H: Tensor, key: int | None) -> tuple[Tensor, Tensor]:
        """Stores rows H [n, F] in the layer's table; returns these and the halo's [h, F], dropped."""
        memory, group = self._memory, self._memory.group
        table = memory.table(layer, H, key)
        memory.put(layer, self.rows_at, H)
        if group.size > 1:
            comes = H.new_empty(len(self._comes), H.shape[1])
            with memory.clock("communicate"):
                group.exchange([H[index] for index in self._given], list(comes.split(self._wanted)), "halo")
            memory.put(layer, self._comes, comes)
        return table.rows[self.rows_at], table.rows[self._halo]

    def returned(self, layer: int, dX: Tensor, dHalo: Tensor) -> Tensor:
        """dH [n, F] from the gradients of ``passed``'s results, and from those that later chunks have left here."""
        memory, group, mask = self._memory, self._memory.group, self._memory.mask(layer)
        gradient = memory.gradient(layer)
        share = self._shares(dX)
        gradient.index_add_(0, self._halo, dHalo * share if mask is None else dHalo * mask[self._halo] * share)
        dH = gradient[self.rows_at] + (dX if mask is None else dX * mask[self.rows_at])
        if group.size > 1:
            counts = [len(index) for index in self._given]
            comes = dX.new_empty(sum(counts), dX.shape[1])
            with memory.clock("communicate"):
                sends = list(gradient[self._comes].split(self._wanted))
                group.exchange(sends, list(comes.split(counts)), "gradient")
            for index, rows in zip(self._given, comes.split(counts), strict=True):
                dH.index_add_(0, index, rows)
        return dH

    def _shares(self, like: Tensor) -> Tensor:
        """Factor of each halo row's gradient in this epoch, [h, 1]: rule 3."""
        turn = self._memory.turn
        if self._counted is None or self._counted[0] is not turn:
            then, now = turn[self._halo_chunk], turn[self.number]
            found = np.where(then > now, 0.0, np.where(then == now, 1.0, self._memory.between))
            self._counted = turn, torch.from_numpy(found[:, None]).to(like.device, like.dtype)
        return self._counted[1]


class _Gather(torch.autograd.Function):
    """Z = A_inner drop(H) + A_outer halo."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, chunk: Chunk, layer: int, key: int | None) -> Tensor:
        ctx.chunk, ctx.layer, part = chunk, layer, chunk.part
        X, halo = chunk.passed(layer, H.detach(), key)
        Z = part.inner(X)
        if part.own_scale is not None:
            Z += X * part.own_scale[:, None]
        return part.outer.add_to(Z, halo)

    @staticmethod
    def backward(ctx: Any, dZ: Tensor) -> tuple[Tensor, None, None, None]:
        part, dZ = ctx.chunk.part, dZ.contiguous()
        dX = part.inner.transposed(dZ)
        if part.own_scale is not None:
            dX += dZ * part.own_scale[:, None]
        return ctx.chunk.returned(ctx.layer, dX, part.outer.transposed(dZ)), None, None, None


class _Extend(torch.autograd.Function):
    """[drop(H); halo]."""

    @staticmethod
    def forward(ctx: Any, H: Tensor, chunk: Chunk, layer: int, key: int | None) -> Tensor:
        ctx.chunk, ctx.layer = chunk, layer
        return torch.cat(chunk.passed(layer, H.detach(), key))

    @staticmethod
    def backward(ctx: Any, dRows: Tensor) -> tuple[Tensor, None, None, None]:
        n = ctx.chunk.num_inner
        return ctx.chunk.returned(ctx.layer, dRows[:n], dRows[n:]), None, None, None


def _rows(X: Any, at: slice) -> Any:
    return X.rows(at) if isinstance(X, Bag) else X[at]
