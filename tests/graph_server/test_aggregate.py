"""Gather against dense matrices of the whole graph, in float64."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from graph_server.aggregate import SPARSE_BELOW, Aggregation, Gather, edges_between
from graph_server.exchange import bounds_of
from siafu.graph import Graph
from siafu.kernels import Table
from siafu.shards import Shard
from siafu.sparse import Array, SparseRows
from tests.graph_server.shards import base_vertices, cut
from tests.toy_graphs import random_graph, sparse

K = 4

GRAPHS = {
    "directed, weighted": {},  # with vertices without any edge, without in-edges, without out-edges
    "undirected": {"directed": False, "weighted": False},
    "undirected, weighted": {"directed": False},
    "dense": {"num_edges": 400, "weighted": False},
    "without edges": {"num_edges": 0},
}
graphs = pytest.mark.parametrize("name", GRAPHS)
aggregations = pytest.mark.parametrize("aggregation", ["gcn", "mean", "sum"])


def dense(graph: Graph, aggregation: Aggregation) -> Array:
    """A [N, N] with Z = A H, as the module's text defines it, edge by edge."""
    n = graph.num_vertices
    weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight
    W = np.zeros((n, n))  # W[v, u]: the weight of u -> v
    for u, v, w in zip(graph.src, graph.dst, weight, strict=True):
        W[v, u] = w
    degree = W.sum(1)  # weighted in-degree
    if aggregation == "gcn":
        d = degree + 1
        return W / np.sqrt(np.outer(d, d)) + np.diag(1 / d)
    if aggregation == "mean":
        return np.divide(W, degree[:, None], out=np.zeros_like(W), where=degree[:, None] > 0)
    return W


def table_of(gather: Gather, rows: Array, dtype: npt.DTypeLike = np.float64) -> Table:
    """The rows as a published slot holds them."""
    table = Table(len(rows), rows.shape[1], np.dtype(dtype).name)
    table.write(slice(None), rows, gather.source_scale)
    return table


def gathered(
    shard: Shard, aggregation: Aggregation, rows: Array, *, backward: bool, dtype: npt.DTypeLike = np.float64
) -> list[Array]:
    """What each interval of the shard gathers from ``rows`` of its inner vertices and ghosts."""
    gather = Gather(shard, aggregation, backward=backward, dtype=dtype)
    table = table_of(gather, rows, dtype)
    return [gather(start, stop, table) for start, stop in bounds_of(len(shard.vertices), K)]


@pytest.mark.sampled(4)
@graphs
@aggregations
@pytest.mark.parametrize("parts", [1, 2, 4])
@pytest.mark.parametrize("backward", [False, True])
def test_gather_is_the_dense_product(name: str, aggregation: Aggregation, parts: int, backward: bool):
    graph = random_graph(5, **GRAPHS[name])
    A = dense(graph, aggregation)
    if backward:
        A = A.T
    H = np.random.default_rng(1).normal(size=(graph.num_vertices, 6))
    for shard in cut(graph, parts):
        base = H[base_vertices(shard, backward=backward)]
        Z = np.concatenate([np.asarray(rows) for rows in gathered(shard, aggregation, base, backward=backward)])
        np.testing.assert_allclose(Z, (A @ H)[shard.vertices], rtol=1e-12, atol=1e-13)


@aggregations
def test_a_vertex_without_in_edges_gathers_only_itself(aggregation: Aggregation):
    (shard,) = cut(random_graph(5), 1)
    Z = np.concatenate([np.asarray(z) for z in gathered(shard, aggregation, np.ones((23, 1)), backward=False)])
    lonely = np.flatnonzero(np.diff(shard.in_edges.indptr) == 0)
    assert len(lonely) >= 2
    assert (Z[lonely] == (1 if aggregation == "gcn" else 0)).all()


@aggregations
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_the_result_does_not_depend_on_the_range_or_threads(aggregation: Aggregation, backward: bool, threads: int):
    for shard in cut(random_graph(6), 2):
        H = np.random.default_rng(2).normal(size=(len(base_vertices(shard, backward=backward)), 5)).astype(np.float32)
        n = len(shard.vertices)
        results = []
        for ranges in ([(0, n)], [(i, i + 1) for i in range(n)], bounds_of(n, 3)):
            gather = Gather(shard, aggregation, backward=backward, dtype=np.float32, threads=threads)
            table = table_of(gather, H, np.float32)
            results.append(np.concatenate([gather(start, stop, table) for start, stop in ranges]).tobytes())
        assert len(set(results)) == 1


def test_an_empty_range_gathers_nothing():
    (shard,) = cut(random_graph(5), 1)
    gather = Gather(shard, "gcn", backward=False, dtype=np.float64)
    assert gather(3, 3, table_of(gather, np.ones((23, 2)))).shape == (0, 2)


@aggregations
def test_a_factor_and_rows_to_add_come_last(aggregation: Aggregation):
    (shard,) = cut(random_graph(5), 1)
    gather = Gather(shard, aggregation, backward=True, dtype=np.float64)
    table = table_of(gather, np.random.default_rng(3).normal(size=(23, 4)))
    more = np.random.default_rng(4).normal(size=(9, 4))
    expected = 1.5 * gather(2, 11, table) + more
    np.testing.assert_allclose(gather(2, 11, table, add=more, factor=1.5), expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_result_has_the_precision_that_was_asked_for(dtype: npt.DTypeLike):
    (shard,) = cut(random_graph(5), 1)
    for rows in gathered(shard, "gcn", np.ones((23, 2), dtype), backward=False, dtype=dtype):
        assert rows.dtype == dtype


# --- sparse rows ------------------------------------------------------------------------------------------------------


@aggregations
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("width", [8, 200])
def test_sparse_rows_give_what_dense_ones_give(aggregation: Aggregation, parts: int, width: int):
    graph = random_graph(7)
    H = np.zeros((23, width))
    H[np.arange(23), np.arange(23) % width] = np.arange(1, 24)  # one entry in a row
    for shard in cut(graph, parts):
        base = H[base_vertices(shard, backward=False)]
        expected = gathered(shard, aggregation, base, backward=False)
        gather = Gather(shard, aggregation, backward=False, dtype=np.float64)
        chosen = [
            (np.arange(*bounds), rows) for bounds, rows in zip(bounds_of(len(shard.vertices), K), expected, strict=True)
        ]
        for only, dense_rows in [*chosen, (None, np.concatenate(expected))]:
            rows = gather.sparse(sparse(base), only)
            share = np.count_nonzero(dense_rows) / max(dense_rows.size, 1)
            assert isinstance(rows, SparseRows) == (share <= SPARSE_BELOW)
            if isinstance(rows, SparseRows):
                assert all(
                    (np.diff(rows.indices[first:last]) > 0).all()
                    for first, last in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
                )
            np.testing.assert_allclose(rows.dense() if isinstance(rows, SparseRows) else rows, dense_rows, rtol=1e-12)


# --- edges between intervals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_edges_between_intervals_are_counted(parts: int, backward: bool):
    graph = random_graph(8)
    shards = cut(graph, parts)
    interval_of = np.empty(23, np.int64)
    for p, shard in enumerate(shards):
        for i, (start, stop) in enumerate(bounds_of(len(shard.vertices), K)):
            interval_of[shard.vertices[start:stop]] = p * K + i
    expected = np.zeros((parts * K, parts * K), np.int64)  # [gathering interval, interval whose rows it reads]
    for u, v in zip(graph.src, graph.dst, strict=True):
        reader, source = (interval_of[u], interval_of[v]) if backward else (interval_of[v], interval_of[u])
        expected[reader, source] += 1
    for p, shard in enumerate(shards):
        of_row = interval_of[base_vertices(shard, backward=backward)]
        between = np.zeros((K, parts * K), np.int64)
        found = edges_between(shard, of_row, bounds_of(len(shard.vertices), K), backward=backward)
        for row, (sources, counts) in zip(between, found, strict=True):
            row[sources] = counts
        assert between.tolist() == expected[p * K : (p + 1) * K].tolist()
