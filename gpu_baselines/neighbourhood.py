"""Sampled neighbourhoods: a few in-edges of a few vertices, drawn by who owns them, and the rows that they need.

1. Each vertex draws up to ``fanout`` of its in-edges, uniformly and without replacement (as DGL does; GraphSAGE's own
   code draws with): all of them where there are no more. What it draws is a function of (seed, step, layer, vertex)
   alone, so that it does not depend on how many ranks there are.
2. A drawn edge stands for degree / drawn edges, and keeps its weight in the whole graph: sums are unbiased, and exact
   if all edges are drawn. Attention takes its softmax over the drawn edges.
3. Ranks hold one partition each. Edges of a vertex and rows of features are requested from the vertex's owner; both
   travel and are counted, as "sampling" and "features". Bags of words travel with their zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.adjacency import Adjacency
from gpu_baselines.bag import dropped
from gpu_baselines.clock import Clock
from gpu_baselines.graph import AttentionEdges, Propagate, with_loops
from gpu_baselines.group import Group
from gpu_baselines.masks import Masks
from gpu_baselines.part import Scales, dense
from siafu import ops
from siafu.shards import Edges, Shard
from siafu.sparse import Array, SparseRows


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Drawn in-edges of vertices, one vertex after the other."""

    degree: Array  # int64 [k], in-edges in the whole graph
    sources: Array  # int64 [m], global ids
    weight: Array | None  # float32 [m]
    fanout: int

    @property
    def drawn(self) -> Array:
        """int64 [k]."""
        return np.minimum(self.degree, self.fanout)


def draw(counts: Array, fanout: int, keys: Array) -> Array:
    """Numbers of the edges that each vertex draws: int64 [Σ min(count, fanout)], below ``counts``, ascending for each.

    keys: uint64 [k], on which the draw depends. Floyd's algorithm (Bentley & Floyd, CACM 30:9, 1987), all at once.
    """
    drawn = np.minimum(counts, fanout)
    found = _ragged(np.zeros_like(drawn), drawn)
    many = np.flatnonzero(counts > fanout)
    chosen = np.empty((len(many), fanout), np.int64)
    with np.errstate(over="ignore"):
        for place in range(fanout):
            last = counts[many] - fanout + place
            bits = ops.mixed(keys[many] + np.uint64(place + 1) * ops.GOLDEN)
            one = (bits % (last + 1).astype(np.uint64)).astype(np.int64)
            taken = (chosen[:, :place] == one[:, None]).any(1)
            chosen[:, place] = np.where(taken, last, one)
    begin = np.cumsum(drawn) - drawn
    found[begin[many][:, None] + np.arange(fanout)] = np.sort(chosen, 1)
    return found


class Store:
    """One rank's partition of a graph, which all ranks query. All calls are collective."""

    def __init__(
        self, shard: Shard, owner: Array, group: Group, clock: Clock, *, device: torch.device, dtype: torch.dtype
    ):
        """owner: int [N], each vertex's rank."""
        self._owner, self._group, self._clock = owner, group, clock
        self._device, self._dtype = device, dtype
        self._degree = shard.degree
        self._indptr, self._sources, self._weight = _by_source(shard)
        self._place = np.full(len(owner), -1, np.int64)  # global id -> own row
        self._place[shard.vertices] = np.arange(len(shard.vertices))
        self._bags = shard.features if isinstance(shard.features, SparseRows) else None
        self._dense = None if self._bags is not None else dense(shard.features, device, dtype)
        self._width = shard.features.shape[1]

    def neighbours(self, vertices: Array, fanout: int, key: int) -> Neighbours:
        """Draws in-edges of these vertices (int64 [k], global ids). The draw depends on the vertices and ``key``."""
        order, parts = self._by_owner(vertices)
        asked = self._told([torch.from_numpy(part) for part in parts])
        answers = [self._drawn(one.numpy(), fanout, key) for one in asked]
        sizes = [len(part) for part in parts]
        degrees = self._brought([torch.from_numpy(one.degree) for one in answers], sizes, "sampling")
        counts = [int(one.clamp(max=fanout).sum()) for one in degrees]
        sources = self._brought([torch.from_numpy(one.sources) for one in answers], counts, "sampling")
        weights = [torch.from_numpy(one.weight) for one in answers if one.weight is not None]
        values = torch.cat(self._brought(weights, counts, "sampling")).numpy() if weights else None
        back = np.argsort(order, kind="stable")
        degree = torch.cat(degrees).numpy()
        drawn = np.minimum(degree, fanout)
        entries = _ragged((np.cumsum(drawn) - drawn)[back], drawn[back])
        return Neighbours(
            degree[back], torch.cat(sources).numpy()[entries], None if values is None else values[entries], fanout
        )

    def rows(self, vertices: Array) -> tuple[Tensor, Array]:
        """Features [k, F] and weighted in-degrees float64 [k] of these vertices (int64 [k], global ids)."""
        order, parts = self._by_owner(vertices)
        asked = [self._place[one.numpy()] for one in self._told([torch.from_numpy(part) for part in parts])]
        sizes, back = [len(part) for part in parts], np.argsort(order, kind="stable")
        degrees = self._brought([torch.from_numpy(self._degree[rows]) for rows in asked], sizes, "features")
        found = torch.cat(self._brought([self._features(rows) for rows in asked], sizes, "features"))
        return found[torch.from_numpy(back).to(self._device)], torch.cat(degrees).numpy()[back]

    def _drawn(self, vertices: Array, fanout: int, key: int) -> Neighbours:
        """Drawn in-edges of own vertices."""
        rows = self._place[vertices]
        begin = self._indptr[rows]
        degree = self._indptr[rows + 1] - begin
        with np.errstate(over="ignore"):
            keys = ops.mixed(vertices.astype(np.uint64) * ops.GOLDEN + np.uint64(key))
        entries = np.repeat(begin, np.minimum(degree, fanout)) + draw(degree, fanout, keys)
        return Neighbours(
            degree, self._sources[entries], None if self._weight is None else self._weight[entries], fanout
        )

    def _features(self, rows: Array) -> Tensor:
        if self._dense is not None:
            return self._dense[torch.from_numpy(rows).to(self._device)]
        assert self._bags is not None
        return dense(ops.take(self._bags, rows), self._device, self._dtype)

    def _by_owner(self, vertices: Array) -> tuple[Array, list[Array]]:
        """The order that groups vertices by owner, and each owner's vertices."""
        owners = self._owner[vertices]
        order = np.argsort(owners, kind="stable")
        cuts = np.cumsum(np.bincount(owners, minlength=self._group.size))[:-1]
        return order, np.split(vertices[order], cuts)

    def _told(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """The requests of each rank to this one."""
        counts = self._brought([torch.tensor([len(part)]) for part in parts], [1] * len(parts), "sampling")
        return self._brought(parts, [int(count) for count in counts], "sampling")

    def _brought(self, parts: Sequence[Tensor], sizes: Sequence[int], kind: str) -> list[Tensor]:
        """Rows from each rank, ``sizes`` of them; rows for this rank itself are not sent."""
        inboxes = [part.new_empty((size, *part.shape[1:])) for part, size in zip(parts, sizes, strict=True)]
        with self._clock("communicate"):
            self._group.exchange(parts, inboxes, kind)
        inboxes[self._group.rank] = parts[self._group.rank]
        return inboxes


def _by_source(shard: Shard) -> tuple[Array, Array, Array | None]:
    """In-edges with global ids, ascending for each vertex: this order is the same in any partition."""
    edges = shard.in_edges
    indptr = np.array(edges.indptr)
    sources = np.concatenate([shard.vertices, shard.ghosts_in])[np.asarray(edges.indices)]
    order = np.lexsort((sources, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))))
    return indptr, sources[order], None if edges.weight is None else np.asarray(edges.weight)[order]


class Block:
    """One layer's targets and the sources of their drawn edges (``gpu_baselines.graph.Graph``).

    Its vertices are the sources, the targets first. Input rows are [n_s, F]; a layer's output, and a vertex's own
    dropped rows, are [n_t, F].
    """

    training = True

    def __init__(
        self,
        vertices: Array,
        num_targets: int,
        edges: Edges,
        scales: Scales,
        masks: Masks,
        step: int,
        threads: int,
    ):
        self.num_inner, self.epoch = num_targets, step
        self._vertices, self._masks, self._own, self._csr = vertices, masks, scales.own, edges
        self._sum = Adjacency(edges, len(vertices), scales.target, scales.source, threads)

    def drop(self, X: Tensor, key: int | None) -> Tensor:
        return self._dropped(X[: self.num_inner], key)

    def gather(self, layer: int, H: Tensor, key: int | None = None) -> Tensor:
        X = self._dropped(H, key)
        Z: Tensor = Propagate.apply(X, self._sum, None)
        return Z if self._own is None else Z + X[: self.num_inner] * self._own[:, None]

    def rows(self, layer: int, H: Tensor, key: int | None = None) -> Tensor:
        return self._dropped(H, key)

    @property
    def edges(self) -> AttentionEdges:
        n, csr, device = self.num_inner, self._csr, self._masks.device
        source, target, weights = with_loops(n, ((csr, 0),))
        weight = None if csr.weight is None else torch.from_numpy(weights).to(device, self._masks.dtype)
        ids = self._vertices[source], self._vertices[target]
        ends = torch.from_numpy(source).to(device), torch.from_numpy(target).to(device)
        return AttentionEdges(*ends, weight, ids, n, len(self._vertices))

    def _dropped(self, X: Tensor, key: int | None) -> Tensor:
        return dropped(X, self._masks, self._vertices[: len(X)], epoch=self.epoch, key=key)


def blocks(
    store: Store, seeds: Array, fanouts: Sequence[int], aggregation: str, masks: Masks, step: int, threads: int = 1
) -> tuple[list[Block], Tensor]:
    """A block for each layer, the first layer's first, and the first layer's features [n_s, F]. Collective.

    seeds: int64, global ids of the vertices whose logits are wanted. fanouts: the last layer's first.
    """
    vertices, found, sizes = seeds, [], [len(seeds)]
    for layer, fanout in enumerate(fanouts):
        found.append(store.neighbours(vertices, fanout, _key(masks.seed, step, layer)))
        vertices = np.concatenate([vertices, np.setdiff1d(found[-1].sources, vertices)])
        sizes.append(len(vertices))
    features, degree = store.rows(vertices)
    order = np.argsort(vertices, kind="stable")
    made: list[Block] = []
    for neighbours, targets, sources in zip(found, sizes[:-1], sizes[1:], strict=True):
        column = order[np.searchsorted(vertices, neighbours.sources, sorter=order)].astype(np.int32)
        indptr = np.concatenate([[0], np.cumsum(neighbours.drawn)]).astype(np.int64)
        stands_for = neighbours.degree / np.maximum(neighbours.drawn, 1)  # rule 2
        scales = Scales.of(aggregation, degree[:sources], targets, masks.device, masks.dtype, stands_for)
        edges = Edges(indptr, column, neighbours.weight)
        made.append(Block(vertices[:sources], targets, edges, scales, masks, step, threads))
    return made[::-1], features


def _ragged(starts: Array, lengths: Array) -> Array:
    """The ranges start, start + 1, ... of all rows, concatenated."""
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.repeat(starts - before, lengths) + np.arange(int(lengths.sum())))


def _key(*words: int) -> int:
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
