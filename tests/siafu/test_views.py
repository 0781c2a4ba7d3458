"""Views against the graph itself: edges in global ids, counted one by one."""

import numpy as np
import pytest

from graph_data.prepare import prepare
from siafu.graph import (
    MESSAGE,
    TEST_PAIR,
    TRAIN,
    TRAIN_NEGATIVE,
    TRAIN_PAIR,
    VAL_NEGATIVE,
    VAL_PAIR,
    tidy,
)
from siafu.shards import Edges
from siafu.tasks import Lane
from siafu.views import LEAST_LEFT_OUT, among, into_training, of_types, typed, view
from tests.graph_data.graphs import edge_dict, edges_of_shards, random_graph, typed_edge_dict

LINK = {"task": "link", "negatives": 2, "eval_negatives": 5}


def shards_of(tmp_path, graph, **options):
    shards = prepare(graph, tmp_path / "out", parts=3, partitioner="random", order="random", **options)
    return shards.manifest.edge_types, [shards.partition(p) for p in range(3)]


def untyped(found):
    assert {kind for _, _, kind in found} <= {None}
    return {(u, v): weight for (u, v, _), weight in found.items()}


def assert_degrees(shards, edges, num_vertices):
    """Every degree that a gather may read is the sum of the weights of these edges into a vertex."""
    degree = np.zeros(num_vertices)
    for (_, v), weight in edges.items():
        degree[v] += weight
    for shard in shards:
        assert np.allclose(shard.degree, degree[shard.vertices])
        assert np.allclose(shard.degree_ghosts_in, degree[shard.ghosts_in])
        assert np.allclose(shard.degree_ghosts_out, degree[shard.ghosts_out])


# --- what a lane gathers along ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("types", [1, 3])
def test_a_graph_and_its_relations_are_gathered_along_whole(types, lane, tmp_path):
    meaning, shards = shards_of(tmp_path, random_graph(types=types))
    assert all(view(shard, meaning, lane) is shard for shard in shards)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [7, 1 << 22])
def test_the_loss_gathers_along_edges_into_training_vertices(weighted, directed, block, tmp_path, monkeypatch):
    monkeypatch.setattr("siafu.views._BLOCK_EDGES", block)
    monkeypatch.setattr("siafu.views.LEAST_LEFT_OUT", 0.0)
    graph = random_graph(seed=2, weighted=weighted, edges=400)
    _, shards = shards_of(tmp_path, graph, directed=directed)
    whole = edge_dict(tidy(graph, directed))
    split = graph.split[:, 0]
    views = [into_training(shard, split[np.append(shard.vertices, shard.ghosts_out)] == TRAIN) for shard in shards]
    wanted = {(u, v): weight for (u, v), weight in whole.items() if split[v] == TRAIN}
    assert 0 < len(wanted) < len(whole)
    assert untyped(edges_of_shards(views, "in")) == untyped(edges_of_shards(views, "out")) == wanted
    for made, shard in zip(views, shards, strict=True):
        assert made.degree is shard.degree
        assert not made.undirected
        for edges in (made.in_edges, made.out_edges):
            assert (edges.indptr.dtype, edges.indices.dtype) == (np.int64, np.int32)


def test_a_direction_in_which_hardly_an_edge_is_left_out_keeps_its_edges(tmp_path):
    _, shards = shards_of(tmp_path, random_graph(seed=2), directed=True)
    for shard in shards:
        n, g = len(shard.vertices), len(shard.ghosts_out)
        all_train, none, ghosts = (
            into_training(shard, np.repeat(np.array(trains, bool), (n, g))) for trains in ((1, 1), (0, 0), (0, 1))
        )
        assert all_train is shard
        assert len(none.in_edges.indices) == len(none.out_edges.indices) == 0
        to_ghosts = (np.asarray(shard.out_edges.indices) >= n).mean()
        assert (ghosts.out_edges is shard.out_edges) == (to_ghosts > 1 - LEAST_LEFT_OUT)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_inductive_training_runs_among_training_vertices(weighted, directed, tmp_path):
    graph = random_graph(seed=2, weighted=weighted, edges=400)
    meaning, shards = shards_of(tmp_path, graph, inductive=1, directed=directed)
    whole = edge_dict(tidy(graph, directed))
    training = set(np.flatnonzero(graph.split[:, 1] == TRAIN).tolist())
    among = {(u, v): weight for (u, v), weight in whole.items() if u in training and v in training}
    assert 0 < len(among) < len(whole)
    views = [view(shard, meaning, Lane.TRAIN) for shard in shards]
    assert untyped(edges_of_shards(views, "in")) == untyped(edges_of_shards(views, "out")) == among
    assert_degrees(views, among, graph.num_vertices)
    assert all(v.undirected is not directed for v in views)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("block", [7, 1 << 22])
@pytest.mark.parametrize("kept", ["some", "all", "none", "with every edge"])
def test_a_sub_graph_has_the_edges_among_its_vertices_and_from_ghosts(
    kept, weighted, directed, block, tmp_path, monkeypatch
):
    monkeypatch.setattr("siafu.views._BLOCK_EDGES", block)
    meaning, shards = shards_of(
        tmp_path, random_graph(seed=2, weighted=weighted, edges=400), directed=directed, inductive=0
    )
    for shard in (view(shard, meaning, Lane.TRAIN) for shard in shards):
        n = len(shard.vertices)
        keep = {"all": np.ones(n, bool), "none": np.zeros(n, bool)}.get(kept, np.arange(n) % 3 > 0)
        if kept == "with every edge":  # those left out have none
            keep = (np.diff(shard.in_edges.indptr) > 0) | (np.diff(shard.out_edges.indptr) > 0)
        found = among(shard, keep)
        rows = np.flatnonzero(keep)
        assert found.undirected is shard.undirected
        for name in ("vertices", "degree", "labels", "split", "train_degree"):
            np.testing.assert_array_equal(getattr(found, name), np.asarray(getattr(shard, name))[rows])
        for edges, whole, ghosts in (
            (found.in_edges, shard.in_edges, shard.ghosts_in),
            (found.out_edges, shard.out_edges, shard.ghosts_out),
        ):
            assert (edges.indptr.dtype, edges.indices.dtype) == (np.int64, np.int32)
            table, every = np.append(found.vertices, ghosts), np.append(shard.vertices, ghosts)
            stays = np.append(keep, np.ones(len(ghosts), bool))
            assert len(edges.indptr) == len(rows) + 1
            for new, row in enumerate(rows):
                mine, theirs = (slice(e.indptr[r], e.indptr[r + 1]) for e, r in ((edges, new), (whole, row)))
                columns = np.asarray(whole.indices[theirs])
                assert table[edges.indices[mine]].tolist() == every[columns[stays[columns]]].tolist()
                if weighted:
                    wanted = np.asarray(whole.weight[theirs])[stays[columns]]
                    np.testing.assert_array_equal(edges.weight[mine], wanted)


def test_inductive_evaluation_sees_every_edge(tmp_path):
    graph = random_graph(seed=2)
    meaning, shards = shards_of(tmp_path, graph, inductive=0)
    views = [view(shard, meaning, Lane.EVAL) for shard in shards]
    whole = edge_dict(tidy(graph))
    assert {(u, v): weight for (u, v, _), weight in edges_of_shards(views).items()} == whole
    assert_degrees(views, whole, graph.num_vertices)


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("weighted", [False, True])
def test_links_are_predicted_along_training_edges_alone(weighted, lane, tmp_path):
    graph = random_graph(n=80, edges=300, weighted=weighted)
    meaning, shards = shards_of(tmp_path, graph, **LINK)
    union = edges_of_shards(shards)
    messages = {(u, v): weight for (u, v, kind), weight in union.items() if kind == MESSAGE}
    held_out = {(u, v) for u, v, kind in union if kind in (VAL_PAIR, TEST_PAIR)}
    whole = edge_dict(tidy(graph))
    assert messages == {(u, v): w for (u, v), w in whole.items() if not {(u, v), (v, u)} & held_out}
    views = [view(shard, meaning, lane) for shard in shards]
    assert untyped(edges_of_shards(views, "in")) == untyped(edges_of_shards(views, "out")) == messages
    assert_degrees(views, messages, graph.num_vertices)


# --- one type, and pairs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_every_relation_is_a_csr_of_its_own(weighted):
    graph = tidy(random_graph(n=20, weighted=weighted, types=4))
    indptr = np.searchsorted(graph.dst, np.arange(21))
    parts = typed(Edges(indptr, graph.src, graph.weight, graph.edge_type), 5)
    found = {}
    for kind, edges in enumerate(parts):
        assert (edges.type, edges.indptr.dtype, len(edges.indptr)) == (None, np.int64, 21)
        for v in range(20):
            row = slice(edges.indptr[v], edges.indptr[v + 1])
            weight = np.ones(row.stop - row.start) if edges.weight is None else edges.weight[row]
            found |= {(u, v, kind): w for u, w in zip(edges.indices[row].tolist(), weight.tolist(), strict=True)}
    assert found == typed_edge_dict(graph)
    assert not len(parts[4].indices)  # a relation without an edge


def test_edges_without_types_are_their_only_relation():
    edges = Edges(np.array([0, 1]), np.array([0], np.int32), None)
    assert typed(edges, 1) == [edges]


ROLES = [(TRAIN_PAIR, TRAIN_NEGATIVE), (VAL_PAIR, VAL_NEGATIVE), (TEST_PAIR,)]


@pytest.mark.parametrize("types", ROLES, ids=str)
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_pairs_are_the_in_edges_of_their_types(types, block, tmp_path, monkeypatch):
    monkeypatch.setattr("siafu.views._BLOCK_EDGES", block)
    _, shards = shards_of(tmp_path, random_graph(n=80, edges=300), **LINK)
    for shard in shards:
        found, whole = of_types(shard.in_edges, types), shard.in_edges
        assert set(found.type.tolist()) == set(types)
        for v in range(len(shard.vertices)):
            row, all_of_row = slice(*found.indptr[v : v + 2]), slice(*whole.indptr[v : v + 2])
            expected = [
                (u, kind)
                for u, kind in zip(whole.indices[all_of_row].tolist(), whole.type[all_of_row].tolist(), strict=True)
                if kind in types
            ]
            assert list(zip(found.indices[row].tolist(), found.type[row].tolist(), strict=True)) == expected
