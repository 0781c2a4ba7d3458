"""Whatever cuts the graph, its shards put together again are the graph."""

import numpy as np
import pytest

from graph_data.cut import shards_of
from graph_data.orders import ORDERS, order_vertices
from graph_data.partitioners import PARTITIONERS, partition
from siafu.graph import tidy
from siafu.sparse import SparseRows
from tests.graph_data.graphs import edge_dict, edges_of_shards, random_graph, typed_edge_dict

SHAPES = [
    {},
    {"weighted": True},
    {"sparse": True},
    {"multilabel": True},
    {"directed": True},
    {"directed": True, "weighted": True, "sparse": True},
]


def cut(parts=3, partitioner="random", order="given", directed=False, seed=0, **shape):
    graph = tidy(random_graph(seed, **shape), directed)
    owner = partition(graph, partitioner, parts, seed)
    return graph, owner, list(shards_of(graph, order_vertices(graph, owner, order, seed)))


def columns(shard, side):
    """Global ids of the columns of the in-edges or out-edges."""
    return np.concatenate([shard.vertices, getattr(shard, f"ghosts_{side}")])


def reassembled(shards, side):
    """{(src, dst): weight} from the in-edges (or out-edges) of all shards."""
    found = {}
    for shard in shards:
        edges, ids = getattr(shard, f"{side}_edges"), columns(shard, side)
        for row, v in enumerate(shard.vertices.tolist()):
            for entry in range(edges.indptr[row], edges.indptr[row + 1]):
                u = int(ids[edges.indices[entry]])
                pair = (u, v) if side == "in" else (v, u)
                assert pair not in found
                found[pair] = 1.0 if edges.weight is None else float(edges.weight[entry])
    return found


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("parts", [1, 2, 3, 4])
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_in_edges_and_out_edges_reassemble_the_graph(partitioner, parts, shape):
    graph, _, shards = cut(parts, partitioner, **shape)
    expected = edge_dict(graph)
    assert reassembled(shards, "in") == expected
    assert reassembled(shards, "out") == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("order", ORDERS)
def test_vertex_rows_reassemble_the_graph(order, shape):
    graph, owner, shards = cut(order=order, **shape)
    assert sorted(np.concatenate([s.vertices for s in shards])) == list(range(graph.num_vertices))
    for shard in shards:
        assert (owner[shard.vertices] == shard.index).all()
        assert np.array_equal(shard.labels, graph.labels[shard.vertices])
        assert np.array_equal(shard.split, graph.split[shard.vertices])
        assert isinstance(shard.features, SparseRows) == shape.get("sparse", False)
        assert shard.features.dtype == graph.features.dtype
        assert np.array_equal(dense(shard.features), dense(graph.features)[shard.vertices])


def dense(features):
    return features.dense() if isinstance(features, SparseRows) else features


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_degrees_are_of_the_whole_graph(directed, weighted):
    graph, _, shards = cut(directed=directed, weighted=weighted)
    degree = np.zeros(graph.num_vertices)
    for (_, v), weight in edge_dict(graph).items():
        degree[v] += weight
    for shard in shards:
        assert np.allclose(shard.degree, degree[shard.vertices], rtol=1e-12)
        assert np.allclose(shard.degree_ghosts_in, degree[shard.ghosts_in], rtol=1e-12)
        assert np.allclose(shard.degree_ghosts_out, degree[shard.ghosts_out], rtol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("directed", [False, True])
def test_ghosts_are_the_remote_neighbours_sorted_by_owner_then_id(directed, order):
    graph, owner, shards = cut(4, directed=directed, order=order)
    pairs = edge_dict(graph)
    for shard in shards:
        p = shard.index
        for side, (inner, other) in {"in": (1, 0), "out": (0, 1)}.items():
            remote = {pair[other] for pair in pairs if owner[pair[inner]] == p and owner[pair[other]] != p}
            ghosts = getattr(shard, f"ghosts_{side}")
            assert ghosts.tolist() == sorted(remote, key=lambda v: (owner[v], v))
            assert np.array_equal(getattr(shard, f"ghosts_{side}_owner"), owner[ghosts])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columns_are_sorted_in_each_row(shape):
    _, _, shards = cut(order="random", **shape)
    for shard in shards:
        for edges in (shard.in_edges, shard.out_edges):
            assert edges.indices.dtype == np.int32
            for start, stop in zip(edges.indptr[:-1], edges.indptr[1:], strict=True):
                assert (np.diff(edges.indices[start:stop]) > 0).all()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("parts", [1, 3])
def test_edges_of_several_types_reassemble_the_graph(parts, weighted, directed):
    graph, _, shards = cut(parts, order="random", directed=directed, weighted=weighted, types=3, n=15)
    expected = typed_edge_dict(graph)
    assert edges_of_shards(shards, "in") == expected
    assert edges_of_shards(shards, "out") == expected
    for shard in shards:
        for edges in (shard.in_edges, shard.out_edges):
            assert edges.type.dtype == np.uint16
            row = np.repeat(np.arange(len(shard.vertices)), np.diff(edges.indptr))
            assert np.array_equal(np.lexsort((edges.type, edges.indices, row)), np.arange(len(row)))


def test_an_undirected_shard_has_its_edges_once():
    _, _, shards = cut()
    assert all(shard.out_edges is shard.in_edges for shard in shards)


def test_one_partition_has_no_ghosts():
    _, _, (shard,) = cut(parts=1, directed=True)
    assert len(shard.ghosts_in) == len(shard.ghosts_out) == 0


def test_a_partition_of_isolated_vertices_is_a_shard():
    graph, _, shards = cut(parts=4, partitioner="chunk", edges=0)
    assert [len(s.in_edges.indices) for s in shards] == [0] * 4
    assert sum(len(s.vertices) for s in shards) == graph.num_vertices
