"""Joins the partitions of a prepared graph for other libraries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from siafu.shards import Edges, Shard, ShardSet
from siafu.sparse import Array, SparseRows


@dataclass(frozen=True)
class Inputs:
    x: Array  # [N, F] float32 or float64
    edge_index: Array  # int64 [2, E]: sources, targets
    edge_weight: Array | None  # float32 [E]
    edge_type: Array | None  # int64 [E]

    @property
    def arrays(self) -> dict[str, Array]:
        found = {
            "x": self.x,
            "edge_index": self.edge_index,
            "edge_weight": self.edge_weight,
            "edge_type": self.edge_type,
        }
        return {name: array for name, array in found.items() if array is not None}


def inputs_of(shards: ShardSet, *, typed: bool = False, dtype: str = "float32") -> Inputs:
    """Features as prepared, and every edge once for each direction. ``typed``: with edge types, all 0 if the graph has
    one type."""
    manifest = shards.manifest
    x = np.empty((manifest.num_vertices, manifest.num_features), dtype)
    ends, weights, types = [], list[Array](), list[Array]()
    for p in range(manifest.num_partitions):
        shard = shards.partition(p)
        features = shard.features
        x[shard.vertices] = features.dense() if isinstance(features, SparseRows) else features
        edges = shard.in_edges
        ends.append(_ends(shard, edges))
        weights += [] if edges.weight is None else [np.asarray(edges.weight)]
        kind = (
            edges.type
            if manifest.edge_types == "relations" and edges.type is not None
            else np.zeros(len(edges.indices))
        )
        types.append(np.asarray(kind, np.int64))
    return Inputs(
        x,
        np.concatenate(ends, axis=1),
        np.concatenate(weights) if weights else None,
        np.concatenate(types) if typed else None,
    )


def _ends(shard: Shard, edges: Edges) -> Array:
    """int64 [2, m], by global numbers."""
    vertices = np.concatenate([shard.vertices, shard.ghosts_in])
    targets = np.repeat(np.asarray(shard.vertices), np.diff(edges.indptr))
    return np.stack([vertices[edges.indices], targets]).astype(np.int64, copy=False)
