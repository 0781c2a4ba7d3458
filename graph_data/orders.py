"""The order of a partition's vertices. An interval is a slice of it, and rows that are gathered together should lie
together.

An order is a function ``(inner) -> int64 [n]``: the partition's vertices, by their place in ``inner.vertices``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np

from graph_data.cut import entries_of
from graph_data.louvain import nested_communities
from graph_data.metis import part_graph, undirected
from siafu.graph import Graph, row_starts
from siafu.sparse import Array
from siafu.table import named

ORDERS = {
    "metis+degree": "graph_data.orders:metis_degree_order",
    "louvain+degree": "graph_data.orders:louvain_degree_order",
    "degree": "graph_data.orders:degree_order",
    "given": "graph_data.orders:given_order",
    "random": "graph_data.orders:random_order",
}

MAX_CLUSTERS = 256  # fine parts that the metis order sorts a partition into
MIN_CLUSTER_VERTICES = 16


class Inner:
    """The part of a partition that an order sees: its vertices, and the edges between them in either direction."""

    def __init__(
        self, vertices: Array, row_lengths: Array, joined: Callable[[], tuple[Array, Array]], seed: int
    ) -> None:
        self.vertices = vertices  # int64 [n], ascending
        self.row_lengths = row_lengths  # int64 [n], edges into each from anywhere
        self.seed = seed
        self._joined = joined

    def edges(self) -> tuple[Array, Array]:
        """CSR of the induced subgraph: int64 [n + 1], int32 [m]."""
        indptr, indices = self._joined()
        if len(self.vertices) == len(indptr) - 1:
            return indptr, indices.astype(np.int32, copy=False)
        local = np.full(len(indptr) - 1, -1, np.int32)  # [N]
        local[self.vertices] = np.arange(len(self.vertices), dtype=np.int32)
        positions, starts = entries_of(indptr, self.vertices)
        neighbour = local[indices[positions]]
        inside = neighbour >= 0
        return np.concatenate([[0], np.cumsum(inside)])[starts], neighbour[inside]

    @cached_property
    def clusters(self) -> Array:
        """Leaves of a recursive bisection by METIS into 2^m clusters of equal vertex count, int32 [n]."""
        clusters = 1
        while clusters < MAX_CLUSTERS and 2 * clusters * MIN_CLUSTER_VERTICES <= len(self.vertices):
            clusters *= 2
        if clusters == 1:
            return np.zeros(len(self.vertices), np.int32)
        return part_graph(*self.edges(), clusters, self.seed, weight=None, recursive=True)

    @cached_property
    def communities(self) -> Array:
        """Nested communities, int64 [n]: adjacent numbers lie in a common larger community."""
        return nested_communities(*self.edges())


def inners(graph: Graph, owner: Array, seed: int) -> list[Inner]:
    """``Inner`` of every partition of a tidy graph."""
    joined = cache(lambda: undirected(graph))
    row_lengths = np.diff(row_starts(graph.dst, graph.num_vertices))  # [N]
    by_owner = np.argsort(owner, kind="stable")
    parts = np.split(by_owner, np.cumsum(np.bincount(owner))[:-1])
    return [Inner(vertices, row_lengths[vertices], joined, seed) for vertices in parts]


def order_vertices(graph: Graph, owner: Array, name: str, seed: int) -> list[Array]:
    """The vertices of each partition, int64, by the named order (not "auto": see ``graph_data.choice``)."""
    named(ORDERS, name, "order")
    return [ordered(inner, name) for inner in inners(graph, owner, seed)]


def ordered(inner: Inner, name: str) -> Array:
    """The partition's vertices in the named order, int64 [n]."""
    places: Array = named(ORDERS, name, "order")(inner)
    return inner.vertices[places]


# --- clusters: neighbours in the graph are neighbours in the order ----------------------------------------------------


def metis_degree_order(inner: Inner) -> Array:
    """Places clusters next to each other: an interval, which is an equal slice of the order, then cuts few edges.

    Recursive bisection numbers the clusters like the leaves of a tree, so neighbours in number are neighbours in the
    graph, and a slice of any length is whole clusters but for its two ends. In each cluster longest rows come first: a
    processor foresees the end of a row as long as the one before.
    """
    return np.lexsort((-inner.row_lengths, inner.clusters))


def louvain_degree_order(inner: Inner) -> Array:
    """As ``metis_degree_order`` with nested communities, whose number and sizes follow from the graph. Linear in the
    edges."""
    return np.lexsort((-inner.row_lengths, inner.communities))


# --- the rest ---------------------------------------------------------------------------------------------------------


def degree_order(inner: Inner) -> Array:
    """Longest rows first: hubs, which are read most, lie together."""
    return np.argsort(-inner.row_lengths, kind="stable")


def given_order(inner: Inner) -> Array:
    """The order of the source: ascending ids."""
    return np.arange(len(inner.vertices))


def random_order(inner: Inner) -> Array:
    """No locality at all: the baseline that the other orders are measured against."""
    return np.random.default_rng(inner.seed).permutation(len(inner.vertices))
