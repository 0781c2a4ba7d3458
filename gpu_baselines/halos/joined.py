"""Several partitions as one, for a rank that holds more than one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from siafu.shards import Edges, Shard, ShardSet
from siafu.sparse import Array, stack


def owners(shards: ShardSet) -> Array:
    """int32 [N]: the partition of every vertex."""
    found = np.empty(shards.manifest.num_vertices, np.int32)
    for p in range(shards.manifest.num_partitions):
        found[np.asarray(shards.partition(p).vertices)] = p
    return found


def joined(shards: Sequence[Shard], owner: Array, *, features: bool = True) -> Shard:
    """The vertices of these partitions, in their order; all other sources of their edges become ghosts. For gathering
    only: it has no out-edges, and its edges no types (apply ``siafu.views.view`` first).

    owner: int [partitions], what each partition belongs to: ghosts are sorted by it, and it becomes their
    ``ghosts_in_owner``. features: else rows have none.
    """
    vertices = np.concatenate([shard.vertices for shard in shards])  # [n]
    ids, partition = _all([s.ghosts_in for s in shards]), _all([s.ghosts_in_owner for s in shards])
    there = np.flatnonzero(~np.isin(partition, [shard.index for shard in shards]))
    ghosts, first = np.unique(ids[there], return_index=True)
    first, belongs = there[first], owner[partition[there[first]]]
    order = np.argsort(belongs, kind="stable")  # by (owner, id)
    ghosts, first, belongs = ghosts[order], first[order], belongs[order].astype(np.int32)
    edges = _stacked(shards, _Places(np.concatenate([vertices, ghosts])))
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    rows = stack([shard.features for shard in shards]) if features else np.zeros((len(vertices), 0), np.float32)
    return replace(
        shards[0],
        vertices=vertices,
        in_edges=edges,
        out_edges=edges,
        ghosts_in=ghosts,
        ghosts_in_owner=belongs,
        ghosts_out=none,
        ghosts_out_owner=none.astype(np.int32),
        degree=_all([s.degree for s in shards]),
        degree_ghosts_in=_all([s.degree_ghosts_in for s in shards])[first],
        degree_ghosts_out=nothing,
        features=rows,
        labels=_all([s.labels for s in shards]),
        split=_all([s.split for s in shards]),
        train_degree=None,
        train_degree_ghosts_in=None,
        train_degree_ghosts_out=None,
    )


class _Places:
    """Maps global ids to their places in ``ids``, without an array as long as the graph has vertices."""

    def __init__(self, ids: Array):
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def __call__(self, ids: Array) -> Array:
        return np.asarray(self._order[np.searchsorted(self._sorted, ids)])


def _stacked(shards: Sequence[Shard], place: _Places) -> Edges:
    """In-edges of all partitions, one after the other. Columns are numbered by ``place``, and sorted in each row."""
    parts = [_renamed(shard, place) for shard in shards]
    weights = [part.weight for part in parts if part.weight is not None]
    counts = _all([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Edges(indptr, _all([part.indices for part in parts]), _all(weights) if weights else None)


def _renamed(shard: Shard, place: _Places) -> Edges:
    edges = shard.in_edges
    column = place(np.concatenate([shard.vertices, shard.ghosts_in]))[np.asarray(edges.indices)].astype(np.int32)
    row = np.repeat(np.arange(len(edges.indptr) - 1), np.diff(edges.indptr))
    order = np.lexsort((column, row))
    weight = None if edges.weight is None else np.asarray(edges.weight)[order]
    return Edges(np.asarray(edges.indptr), column[order], weight)


def _all(arrays: Sequence[Array]) -> Array:
    return np.concatenate([np.asarray(one) for one in arrays])
