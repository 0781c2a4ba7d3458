"""Streaming partitioners: they read the rows of the graph once per pass, and keep one number per vertex.

A vertex goes where most of its neighbours already are, less a price for partitions that are full:

    ldg     maximises  |N(v) in i| (1 - load_i / C)                      (Stanton & Kliot, KDD 2012: linear greedy)
    fennel  maximises  |N(v) in i| - alpha gamma load_i^(gamma - 1) w_v  (Tsourakakis et al., WSDM 2014; gamma 1.5,
            alpha = sqrt(P) m / n^1.5), where neither may fill a partition beyond C = SLACK times its fair share

Passes after the first know where every neighbour was (restreaming: Nishimura & Ugander, KDD 2013). ``NAME:PASSES``, as
in ``fennel:10``, sets their number. A partition's load counts a vertex as its edges and one mean vertex's edges, as for
metis, so that both are balanced.

Vertices are placed a block at a time: those of a block do not see each other's places, and are let into a partition
that is nearly full in the order of their gain. This vectorises: a pass takes about 15 ns per entry of the CSR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from siafu.shards import Edges
from siafu.sparse import Array

SLACK = 1.05  # a partition's largest load, in fair shares
PASSES = 5
GAMMA = 1.5
BLOCKS = 1024  # a pass places a graph in about so many blocks
MIN_BLOCK, MAX_BLOCK = 16, 1 << 15  # vertices of a block
BLOCK_ENTRIES = 1 << 18  # edges of a block, where so many vertices have more
TIE = 1e-3  # of a neighbour: decides for the emptier partition where neighbours do not

Price = Callable[[Array, Array, Array], Array]  # (neighbours [k, P], load [P], weight [k]) -> gain [k, P]


def greedy(name: str, sides: list[Edges], parts: int, passes: int) -> Array:
    """Owner of every vertex, int32 [N]: ``name`` is ldg or fennel.

    ``sides`` are CSRs over all vertices whose rows list neighbours: one of an undirected graph, both of a directed one.
    Their ``indices`` are read by ascending slices and may lie on disk.
    """
    n = len(sides[0].indptr) - 1
    # [N], edges of the vertices up to this one
    ends = sum((side.indptr[1:] for side in sides[1:]), sides[0].indptr[1:])
    weight = np.diff(ends, prepend=0).astype(np.float64)  # [N]
    weight += max(1.0, weight.mean())
    weight /= weight.mean()  # in mean vertices, so that the loads add up to N
    room = SLACK * n / parts
    price = _linear(room) if name == "ldg" else _interpolated(n, float(ends[-1]) / 2, parts)
    placement = _Placement(np.full(n, parts, np.int32), np.zeros(parts), room, price)
    for _ in range(passes):
        moved = 0
        for start, stop in _blocks(ends, parts):
            neighbours = _neighbours(sides, start, stop, placement.owner, parts)
            moved += placement.place(start, stop, neighbours, weight[start:stop])
        if not moved:
            break
    return placement.owner


@dataclass
class _Placement:
    """The vertices placed so far."""

    owner: Array  # int32 [N]; P: nowhere yet
    load: Array  # [P], the weights of those who are there
    room: float  # what a load may not exceed
    price: Price

    def place(self, start: int, stop: int, neighbours: Array, weight: Array) -> int:
        """Places the vertices of this block, given how many neighbours each has in each partition. Returns how many
        moved."""
        before, parts = self.owner[start:stop].copy(), len(self.load)
        self.load -= np.bincount(before, weight, minlength=parts + 1)[:parts]
        gain = self.price(neighbours, self.load, weight)  # [k, P]
        waiting = np.arange(stop - start)
        while len(waiting):
            choice = gain[waiting].argmax(axis=1)
            nowhere = np.isneginf(gain[waiting, choice])
            choice[nowhere] = self.load.argmin()  # fits in no partition: there it does the least harm
            let_in = self._let_in(choice, gain[waiting, choice], weight[waiting]) | nowhere
            self.owner[start + waiting[let_in]] = choice[let_in]
            self.load += np.bincount(choice[let_in], weight[waiting[let_in]], minlength=parts)
            gain[waiting[~let_in], choice[~let_in]] = -np.inf
            waiting = waiting[~let_in]
        return int((self.owner[start:stop] != before).sum())

    def _let_in(self, choice: Array, gain: Array, weight: Array) -> Array:
        """Whether each vertex finds room in its chosen partition, the greatest gain first: bool [k]."""
        space = self.room - self.load
        if (np.bincount(choice, weight, minlength=len(space)) <= space).all():
            return np.ones(len(choice), bool)
        order = np.lexsort((-gain, choice))
        total = np.cumsum(weight[order])
        first = np.searchsorted(choice[order], np.arange(len(space)))  # where each partition's candidates begin
        total -= np.append(0.0, total)[first][choice[order]]
        let_in = np.empty(len(choice), bool)
        let_in[order] = total <= space[choice[order]]
        return let_in


def _linear(room: float) -> Price:
    return lambda neighbours, load, weight: (neighbours + TIE) * (1 - load / room)


def _interpolated(n: int, edges: float, parts: int) -> Price:
    alpha = np.sqrt(parts) * edges / n**GAMMA
    return lambda neighbours, load, weight: neighbours - np.outer(weight, alpha * GAMMA * np.sqrt(np.maximum(load, 0)))


def _blocks(ends: Array, parts: int) -> Iterator[tuple[int, int]]:
    """Ranges of vertices that are placed together. Their sizes do not depend on memory, which must not change
    owners."""
    n = len(ends)
    size = min(max(n // BLOCKS, MIN_BLOCK), MAX_BLOCK, max(1, BLOCK_ENTRIES // (parts + 1)))
    start = 0
    while start < n:
        before = ends[start - 1] if start else 0
        fits = int(np.searchsorted(ends, before + BLOCK_ENTRIES, side="right"))
        stop = min(n, start + size, max(fits, start + 1))
        yield start, stop
        start = stop


def _neighbours(sides: list[Edges], start: int, stop: int, owner: Array, parts: int) -> Array:
    """Number of neighbours of each vertex of the block in each partition, float64 [stop - start, P]."""
    counts = np.zeros((stop - start) * (parts + 1), np.int64)
    for side in sides:
        indptr = side.indptr[start : stop + 1]
        cell = owner[side.indices[indptr[0] : indptr[-1]]].astype(np.int64)  # [m]
        cell += np.repeat(np.arange(stop - start) * (parts + 1), np.diff(indptr))
        counts += np.bincount(cell, minlength=len(counts))
    return counts.reshape(-1, parts + 1)[:, :parts].astype(np.float64)
