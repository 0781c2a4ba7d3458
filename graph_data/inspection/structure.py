"""Describes a graph's structure: what its source lists, and the undirected graph that is made of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from siafu.graph import Graph, each_once, id_dtype, pack, pack_typed, row_starts, unpack
from siafu.sparse import Array

TOP_SHARE = 0.01
LARGEST_COMPONENTS = 1000  # whose sizes are kept


@dataclass(frozen=True, eq=False)
class Pairs:
    """Every pair of neighbours once, ``low < high``; and the edges as listed, each once, self-loops too."""

    num_vertices: int
    low: Array  # [P]
    high: Array
    out: Array  # int64 [E'], ascending: pack(src, dst, N) of what is listed

    @property
    def degree(self) -> Array:
        """Neighbours of every vertex but itself, int64 [N]."""
        n = self.num_vertices
        return np.bincount(self.low, minlength=n) + np.bincount(self.high, minlength=n)

    def neighbours(self) -> tuple[Array, Array]:
        """CSR of the targets of the listed edges: int64 [N + 1], [E']."""
        src, dst = unpack(self.out, self.num_vertices)
        return row_starts(src, self.num_vertices), dst


@dataclass(frozen=True)
class Structure:
    """Counts of the source's list, then of pairs of neighbours: self-loops, directions and repetitions left out."""

    vertices: int
    listed_edges: int
    edge_types: int
    weighted: bool
    self_loops: int
    repeated_edges: int  # that an earlier one of the same ends and type says already
    reciprocity: float  # share of the distinct edges between two vertices that are listed the other way too
    pairs: int
    isolated: int  # vertices without a neighbour
    components: int
    component_sizes: tuple[int, ...]  # of the largest ones, falling
    density: float  # pairs of neighbours, of all pairs

    @property
    def largest_component(self) -> int:
        return self.component_sizes[0]


@dataclass(frozen=True)
class Degrees:
    """Degrees, over pairs of neighbours."""

    min: int
    median: float
    mean: float
    max: int
    gini: float  # 0: all alike, 1: one vertex has all
    top_share: float  # ends of edges at the TOP_SHARE of the vertices with the most
    histogram: tuple[tuple[int, int, int], ...]  # from degree, to degree, vertices; bins double


def pairs_of(graph: Graph) -> Pairs:
    """Pairs of neighbours, and the source's edges, without repetitions."""
    n, apart = graph.num_vertices, graph.src != graph.dst
    src, dst = graph.src[apart], graph.dst[apart]
    low, high = unpack(each_once(pack(np.minimum(src, dst), np.maximum(src, dst), n)), n)
    return Pairs(n, low, high, each_once(pack(graph.src, graph.dst, n)))


def structure_of(graph: Graph, pairs: Pairs) -> Structure:
    n = graph.num_vertices
    sizes = _component_sizes(pairs)
    keys = pack_typed(graph.src, graph.dst, graph.edge_type, n, graph.num_edge_types)
    straight = int(np.count_nonzero(pairs.out % (n + 1)))  # s * n + t is a multiple of n + 1 where s = t
    both = 2 * (straight - len(pairs.low))  # of a pair that is listed once, there is one
    return Structure(
        vertices=n,
        listed_edges=graph.num_edges,
        edge_types=graph.num_edge_types,
        weighted=graph.weight is not None,
        self_loops=int(np.count_nonzero(graph.src == graph.dst)),
        repeated_edges=graph.num_edges - len(each_once(keys)),
        reciprocity=both / max(1, straight),
        pairs=len(pairs.low),
        isolated=int(np.count_nonzero(pairs.degree == 0)),
        components=len(sizes),
        component_sizes=tuple(sizes[:LARGEST_COMPONENTS].tolist()),
        density=len(pairs.low) / max(1, n * (n - 1) // 2),
    )


def degrees_of(pairs: Pairs) -> Degrees:
    degree = np.sort(pairs.degree)
    n, total = len(degree), max(1, int(degree.sum()))
    rank = np.arange(1, n + 1)
    top = max(1, round(TOP_SHARE * n))
    return Degrees(
        min=int(degree[0]),
        median=float(np.median(degree)),
        mean=float(degree.mean()),
        max=int(degree[-1]),
        gini=float(max(0.0, (2 * (rank * degree).sum() / total - (n + 1)) / n)) if degree[-1] else 0.0,
        top_share=float(degree[-top:].sum() / total),
        histogram=_histogram(degree),
    )


def _histogram(degree: Array) -> tuple[tuple[int, int, int], ...]:
    """Bins of degrees: 0, 1, 2 to 3, 4 to 7, ...; without the empty ones at the end."""
    edges = [0, *(1 << k for k in range(int(degree[-1]).bit_length() + 1))]
    counts = np.diff(np.searchsorted(degree, edges))
    return tuple((low, high - 1, int(c)) for low, high, c in zip(edges[:-1], edges[1:], counts, strict=True))


def _component_sizes(pairs: Pairs) -> Array:
    """Vertices of every connected component, the largest first."""
    n = pairs.num_vertices
    indices, ones = pairs.high.astype(id_dtype(n)), np.ones(len(pairs.high), np.int8)
    matrix = csr_array((ones, indices, row_starts(pairs.low, n)), shape=(n, n))
    _, component = connected_components(matrix, directed=False)
    return np.sort(np.bincount(component))[::-1]
