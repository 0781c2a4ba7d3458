"""Who owns which vertex, and in what order a partition keeps its vertices.

A partitioner is a function ``(graph, parts, seed) -> int32 [N]``, the owner of every vertex; an order is a function
``(graph, parts, seed) -> list of int64 arrays``, made from the vertices of every partition in ascending order. The
graph is tidy (``siafu.graph.tidy``).
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

import numpy as np
import pymetis

from datasets.cut import entries_of
from siafu.errors import ConfigError, DatasetError
from siafu.graph import Graph, pack, row_starts, unpack
from siafu.sparse import Array

log = logging.getLogger(__name__)

PARTITIONERS = {
    "metis": "datasets.partitioners:metis",
    "chunk": "datasets.partitioners:chunk",
    "random": "datasets.partitioners:random",
    "hash": "datasets.partitioners:hashed",
}

ORDERS = {
    "metis": "datasets.partitioners:metis_order",
    "given": "datasets.partitioners:given_order",
    "random": "datasets.partitioners:random_order",
}

AUTO_ORDER_MAX_EDGES = 20_000_000  # METIS peaks at 100 bytes an edge: 115 million took 17 s and 10.6 GiB
MAX_CLUSTERS = 256  # fine parts that the metis order sorts a partition into
MIN_CLUSTER_VERTICES = 16


def partition(graph: Graph, name: str, parts: int, seed: int) -> Array:
    """Owner of every vertex, int32 [N], by the named partitioner; every partition owns at least one vertex.

    Raises: ConfigError for an unknown name; DatasetError if there are fewer vertices than partitions.
    """
    function = _named(PARTITIONERS, name, "partitioner")
    if not 1 <= parts <= graph.num_vertices:
        raise DatasetError(f"{graph.name}: {parts} partitions, must be in 1..{graph.num_vertices}, its vertex count")
    if parts == 1:
        return np.zeros(graph.num_vertices, np.int32)
    return _without_empty(function(graph, parts, seed), parts, name)


def order_vertices(graph: Graph, owner: Array, name: str, seed: int) -> list[Array]:
    """The vertices of each partition in local order, int64, by the named order (not "auto": see ``chosen_order``)."""
    function = _named(ORDERS, name, "order")
    by_owner = np.argsort(owner, kind="stable")
    parts = np.split(by_owner, np.cumsum(np.bincount(owner))[:-1])
    return function(graph, parts, seed)  # type: ignore[no-any-return]


def chosen_order(name: str, num_edges: int) -> str:
    """What the order "auto" stands for: metis for up to AUTO_ORDER_MAX_EDGES edges, given beyond."""
    if name != "auto":
        return name
    order = "metis" if num_edges <= AUTO_ORDER_MAX_EDGES else "given"
    log.info("order auto: %s, for %d edges (metis up to %d)", order, num_edges, AUTO_ORDER_MAX_EDGES)
    return order


def _named(table: dict[str, str], name: str, what: str) -> Any:
    if name not in table:
        raise ConfigError(f"{what} {name!r} is not one of {', '.join(table)}")
    module, _, function = table[name].partition(":")
    return getattr(import_module(module), function)


def _without_empty(owner: Array, parts: int, name: str) -> Array:
    """Gives each partition without a vertex the last vertex of the largest one."""
    counts = np.bincount(owner, minlength=parts)
    for p in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[-1]] = p
        counts[largest] -= 1
        counts[p] = 1
        log.warning("partitioner %s left partition %d empty; it got a vertex of partition %d", name, p, largest)
    return owner


# --- partitioners -----------------------------------------------------------------------------------------------------


def metis(graph: Graph, parts: int, seed: int) -> Array:
    """Few cut edges (Karypis & Kumar, SISC 1998), vertices and edges balanced together.

    METIS could balance several weights, but pymetis passes one per vertex: half of it is for the vertex, half for its
    edges.
    """
    indptr, indices = _undirected(graph)
    degree = np.diff(indptr)
    weight = degree + max(1, round(float(degree.mean())))  # [N]
    return _part_graph(indptr, indices, parts, seed, weight=weight, recursive=False)


def chunk(graph: Graph, parts: int, seed: int) -> Array:
    """Contiguous ranges of ids with equal ``alpha |V| + |E|``, alpha = 8 (P - 1) (Gemini, OSDI'16, section 4.2)."""
    n = graph.num_vertices
    cost = 8 * (parts - 1) * np.arange(1, n + 1) + row_starts(graph.dst, n)[1:]  # [N], of the vertices up to this one
    ends = np.searchsorted(cost, cost[-1] * np.arange(1, parts) / parts, side="left") + 1
    for i in range(len(ends)):  # every chunk gets a vertex, and leaves one for each chunk behind it
        ends[i] = min(max(ends[i], ends[i - 1] + 1 if i else 1), n - (parts - 1 - i))
    return np.searchsorted(ends, np.arange(n), side="right").astype(np.int32)


def random(graph: Graph, parts: int, seed: int) -> Array:
    """A random owner for every vertex; vertex counts differ by at most one."""
    owner = np.arange(graph.num_vertices, dtype=np.int32) % parts
    return np.random.default_rng(seed).permutation(owner)


def hashed(graph: Graph, parts: int, seed: int) -> Array:
    """splitmix64 of the id (Steele, Lea & Flood, OOPSLA'14), modulo P: anyone can tell an owner without a table."""
    with np.errstate(over="ignore"):
        z = np.arange(1, graph.num_vertices + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z % np.uint64(parts)).astype(np.int32)


# --- orders -----------------------------------------------------------------------------------------------------------


def metis_order(graph: Graph, parts: list[Array], seed: int) -> list[Array]:
    """Clusters next to each other: an interval, which is an equal slice of the order, then cuts few edges.

    Recursive bisection into 2^m clusters of equal vertex count numbers them like the leaves of a tree, so neighbours in
    number are neighbours in the graph, and a slice of any length is whole clusters but for its two ends.
    """
    indptr, indices = _undirected(graph)
    return [_clustered(indptr, indices, vertices, seed) for vertices in parts]


def given_order(graph: Graph, parts: list[Array], seed: int) -> list[Array]:
    """The order of the source: ascending ids."""
    return parts


def random_order(graph: Graph, parts: list[Array], seed: int) -> list[Array]:
    """No locality at all: the baseline that the other orders are measured against."""
    rng = np.random.default_rng(seed)
    return [rng.permutation(vertices) for vertices in parts]


def _clustered(indptr: Array, indices: Array, vertices: Array, seed: int) -> Array:
    clusters = 1
    while clusters < MAX_CLUSTERS and 2 * clusters * MIN_CLUSTER_VERTICES <= len(vertices):
        clusters *= 2
    if clusters == 1:
        return vertices
    local = np.full(len(indptr) - 1, -1, np.int64)  # [N]
    local[vertices] = np.arange(len(vertices))
    positions, starts = entries_of(indptr, vertices)
    neighbour = local[indices[positions]]
    inside = neighbour >= 0
    kept = np.concatenate([[0], np.cumsum(inside)])[starts]  # indptr of the induced subgraph
    cluster = _part_graph(kept, neighbour[inside], clusters, seed, weight=None, recursive=True)
    return vertices[np.argsort(cluster, kind="stable")]


# --- METIS ------------------------------------------------------------------------------------------------------------


def _undirected(graph: Graph) -> tuple[Array, Array]:
    """CSR of who is joined to whom, whatever the direction."""
    n = graph.num_vertices
    if not graph.directed:
        return row_starts(graph.dst, n), graph.src
    keys = np.unique(np.concatenate([pack(graph.dst, graph.src, n), pack(graph.src, graph.dst, n)]))
    row, column = unpack(keys, n)
    return row_starts(row, n), column


def _part_graph(indptr: Array, indices: Array, parts: int, seed: int, weight: Array | None, recursive: bool) -> Array:
    dtype = pymetis.zero_copy_dtype()
    adjacency = pymetis.CSRAdjacency(indptr.astype(dtype, copy=False), indices.astype(dtype, copy=False))
    _, owner = pymetis.part_graph(
        parts,
        adjacency,
        vweights=None if weight is None else weight.astype(dtype, copy=False),
        recursive=recursive,
        options=pymetis.Options(seed=seed % 2**31),
    )
    return np.asarray(owner, np.int32)
