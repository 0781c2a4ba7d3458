"""Cuts a tidy graph into the shards of its partitions, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from siafu.graph import Graph, pack, row_starts, unpack
from siafu.shards import Edges, Shard
from siafu.sparse import Array, Rows, SparseRows


def shards_of(graph: Graph, parts: list[Array]) -> Iterator[Shard]:
    """The shard of every partition; ``parts[p]`` lists the vertices of partition p in local order.

    ``graph`` is tidy (``siafu.graph.tidy``): edges sorted by (dst, src), both directions there unless it is directed.
    """
    n = graph.num_vertices
    owner = np.empty(n, np.int32)  # [N]
    for p, vertices in enumerate(parts):
        owner[vertices] = p
    into = Edges(row_starts(graph.dst, n), graph.src, graph.weight)
    out_of = _reversed(graph) if graph.directed else None
    degree = in_degree(graph, into.indptr)  # [N]
    for p, vertices in enumerate(parts):
        in_edges, ghosts_in = _local_edges(into, vertices, owner)
        out_edges, ghosts_out = _local_edges(out_of, vertices, owner) if out_of else (in_edges, ghosts_in)
        yield Shard(
            index=p,
            num_partitions=len(parts),
            num_vertices=n,
            vertices=vertices.astype(np.int64, copy=False),
            in_edges=in_edges,
            out_edges=out_edges,
            ghosts_in=ghosts_in,
            ghosts_in_owner=owner[ghosts_in],
            ghosts_out=ghosts_out,
            ghosts_out_owner=owner[ghosts_out],
            degree=degree[vertices],
            degree_ghosts_in=degree[ghosts_in],
            degree_ghosts_out=degree[ghosts_out],
            features=rows_at(graph.features, vertices),
            labels=graph.labels[vertices],
            split=graph.split[vertices],
        )


def sides_of(graph: Graph) -> list[Edges]:
    """The in-edges of all vertices as CSR, and if the graph is directed, the out-edges; both without weights."""
    into = Edges(row_starts(graph.dst, graph.num_vertices), graph.src, None)
    return [into, _reversed(replace(graph, weight=None))] if graph.directed else [into]


def in_degree(graph: Graph, indptr: Array) -> Array:
    """Weighted in-degree of every vertex, float64 [N]."""
    if graph.weight is None:
        return np.diff(indptr).astype(np.float64)
    return np.bincount(graph.dst, graph.weight, minlength=graph.num_vertices)


def entries_of(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Where the entries of these CSR rows stand, int64 [m], and the ``indptr``, int64 [rows + 1], of the selection."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    selected = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=selected[1:])
    positions = np.arange(selected[-1])
    positions += np.repeat(starts - selected[:-1], counts)
    return positions, selected


def rows_at(features: Rows, vertices: Array) -> Rows:
    """The feature rows of these vertices, in their order."""
    if not isinstance(features, SparseRows):
        return features[vertices]
    positions, indptr = entries_of(features.indptr, vertices)
    indices = features.indices[positions].astype(np.int32, copy=False)
    return SparseRows(indptr, indices, features.data[positions], features.width)


def _reversed(graph: Graph) -> Edges:
    """CSR of the out-edges: row u lists the v with an edge u -> v."""
    n = graph.num_vertices
    keys, weight = pack(graph.src, graph.dst, n), None
    if graph.weight is None:
        keys.sort()
    else:
        order = np.argsort(keys)
        keys, weight = keys[order], graph.weight[order]
    src, dst = unpack(keys, n)
    return Edges(row_starts(src, n), dst, weight)


def _local_edges(edges: Edges, vertices: Array, owner: Array) -> tuple[Edges, Array]:
    """The rows of these vertices with local columns, and the global ids of the ghosts that they mention."""
    positions, indptr = entries_of(edges.indptr, vertices)
    neighbour = edges.indices[positions]  # [m]
    mentioned = np.zeros(len(owner), bool)
    mentioned[neighbour] = True
    mentioned[vertices] = False
    ghosts = np.flatnonzero(mentioned)
    ghosts = ghosts[np.argsort(owner[ghosts], kind="stable")]

    column_of = np.empty(len(owner), np.int32)  # [N], set where it is read
    column_of[vertices] = np.arange(len(vertices), dtype=np.int32)
    column_of[ghosts] = np.arange(len(vertices), len(vertices) + len(ghosts), dtype=np.int32)
    width = len(vertices) + len(ghosts)
    keys = np.repeat(np.arange(len(vertices), dtype=np.int64) * width, np.diff(indptr))
    keys += column_of[neighbour]
    if edges.weight is None:
        keys.sort()  # rows stand in order already: this sorts the columns in each
        weight = None
    else:
        order = np.argsort(keys)
        keys, weight = keys[order], edges.weight[positions[order]]
    indices = np.empty(len(keys), np.int32)
    np.remainder(keys, max(1, width), out=indices, casting="unsafe")
    return Edges(indptr, indices, weight), ghosts
