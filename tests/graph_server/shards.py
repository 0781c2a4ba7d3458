"""Shards of toy graphs in memory, cut at random."""

from __future__ import annotations

import numpy as np

from graph_data.cut import shards_of
from siafu.graph import Graph, tidy
from siafu.shards import Shard
from siafu.sparse import Array


def cut(graph: Graph, parts: int, seed: int = 0) -> list[Shard]:
    """Partitions of random sizes, each with at least one vertex, in random order."""
    rng = np.random.default_rng(seed)
    owner = rng.permutation(np.concatenate([np.arange(parts), rng.integers(0, parts, graph.num_vertices - parts)]))
    tidied = tidy(graph, graph.directed, "none")
    return list(shards_of(tidied, [rng.permutation(np.flatnonzero(owner == p)) for p in range(parts)]))


def base_vertices(shard: Shard, *, backward: bool) -> Array:
    """Global ids of the rows of a base array: inner vertices, then ghosts."""
    return np.concatenate([shard.vertices, shard.ghosts_out if backward else shard.ghosts_in])
