"""Cuts a tidy graph into the shards of its partitions, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from siafu.graph import MESSAGE, Graph, pack_typed, row_starts, stored_labels, unpack_typed
from siafu.shards import Edges, EdgeTypes, Shard
from siafu.sparse import Array, Rows, SparseRows
from siafu.views import TRAINING


def shards_of(graph: Graph, parts: list[Array], edge_types: EdgeTypes = "none") -> Iterator[Shard]:
    """The shard of every partition; ``parts[p]`` lists the vertices of partition p in local order.

    ``graph`` is tidy (``siafu.graph.tidy``): edges sorted by (dst, src, type), both directions there unless it is
    directed. ``edge_types`` tells what their types mean, and so which edges a degree counts.
    """
    n = graph.num_vertices
    owner = np.empty(n, np.int32)  # [N]
    for p, vertices in enumerate(parts):
        owner[vertices] = p
    into = Edges(row_starts(graph.dst, n), graph.src, graph.weight, graph.edge_type)
    out_of = _reversed(graph) if graph.directed else None
    degree = in_degree(graph, into.indptr) if edge_types != "links" else in_degree_of(graph, MESSAGE)  # [N]
    among = in_degree_of(graph, TRAINING) if edge_types == "inductive" else None  # [N]
    for p, vertices in enumerate(parts):
        in_edges, ghosts_in = _local_edges(into, vertices, owner, graph.num_edge_types)
        out_edges, ghosts_out = (
            _local_edges(out_of, vertices, owner, graph.num_edge_types) if out_of else (in_edges, ghosts_in)
        )
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
            labels=stored_labels(graph.labels[vertices]),
            split=graph.split[vertices],
            train_degree=None if among is None else among[vertices],
            train_degree_ghosts_in=None if among is None else among[ghosts_in],
            train_degree_ghosts_out=None if among is None else among[ghosts_out],
        )


def sides_of(graph: Graph) -> list[Edges]:
    """The in-edges of all vertices as CSR, and for a directed graph the out-edges; both without weights."""
    into = Edges(row_starts(graph.dst, graph.num_vertices), graph.src, None)
    return [into, _reversed(replace(graph, weight=None))] if graph.directed else [into]


def in_degree(graph: Graph, indptr: Array) -> Array:
    """Weighted in-degree of every vertex, float64 [N]."""
    if graph.weight is None:
        return np.diff(indptr).astype(np.float64)
    return np.bincount(graph.dst, graph.weight, minlength=graph.num_vertices)


def in_degree_of(graph: Graph, kind: int) -> Array:
    """Weighted in-degree by edges of one type, float64 [N]."""
    assert graph.edge_type is not None
    chosen = graph.edge_type == kind
    weight = None if graph.weight is None else graph.weight[chosen]
    return np.bincount(graph.dst[chosen], weight, minlength=graph.num_vertices).astype(np.float64)


def entries_of(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """Positions of these CSR rows' entries, int64 [m], and the ``indptr``, int64 [rows + 1], of the selection."""
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
    n, types = graph.num_vertices, graph.num_edge_types
    keys, weight = pack_typed(graph.src, graph.dst, graph.edge_type, n, types), None
    if graph.weight is None:
        keys.sort()
    else:
        order = np.argsort(keys)
        keys, weight = keys[order], graph.weight[order]
    src, dst, kind = unpack_typed(keys, n, types)
    return Edges(row_starts(src, n), dst, weight, kind)


def _local_edges(edges: Edges, vertices: Array, owner: Array, num_types: int) -> tuple[Edges, Array]:
    """The rows of these vertices with local columns, and the global ids of the ghosts in them."""
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
    if edges.type is not None:
        keys *= num_types
        keys += edges.type[positions]
    if edges.weight is None:
        keys.sort()  # rows stand in order already: this sorts the columns in each
        weight = None
    else:
        order = np.argsort(keys)
        keys, weight = keys[order], edges.weight[positions[order]]
    kind = None
    if edges.type is not None:
        keys, remainder = np.divmod(keys, num_types)
        kind = remainder.astype(np.uint16)
    indices = np.empty(len(keys), np.int32)
    np.remainder(keys, max(1, width), out=indices, casting="unsafe")
    return Edges(indptr, indices, weight, kind), ghosts
