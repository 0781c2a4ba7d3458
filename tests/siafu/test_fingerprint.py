"""What a fingerprint depends on, and what it does not."""

from dataclasses import replace

import numpy as np
import pytest

from graph_data.prepare import prepare
from siafu.errors import ConfigError
from siafu.fingerprint import differences, of_run
from siafu.graph import TEST, TRAIN
from tests.graph_data.graphs import random_graph, sparse_rows

OTHER_WAYS = [
    {"parts": 3, "partitioner": "random"},
    {"parts": 2, "partitioner": "fennel", "order": "given"},
    {"parts": 4, "partitioner": "hash", "order": "random", "seed": 5},
]


def made(graph, folder, **options):
    return dict(prepare(graph, folder, **{"partitioner": "random", **options}).manifest.fingerprint)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "shape",
    [{}, {"weighted": True}, {"types": 3, "weighted": True}, {"multilabel": True}, {"numbers": 2}, {"sparse": True}],
)
@pytest.mark.parametrize("directed", [False, True])
def test_it_depends_neither_on_partitions_nor_on_the_order_of_vertices(tmp_path, shape, directed):
    graph = random_graph(**shape)
    one = made(graph, tmp_path / "one", directed=directed)
    for number, way in enumerate(OTHER_WAYS):
        assert made(graph, tmp_path / str(number), directed=directed, **way) == one


def test_it_does_not_depend_on_the_partitions_of_held_out_edges_and_of_false_ones(tmp_path):
    graph = random_graph(n=120, edges=300)
    one = made(graph, tmp_path / "one", task="link", eval_negatives=9)
    assert made(graph, tmp_path / "three", task="link", eval_negatives=9, parts=3) == one
    assert differences(made(graph, tmp_path / "more", task="link", eval_negatives=9, negatives=4), one) == "edges"
    assert differences(made(graph, tmp_path / "shares", task="link", eval_negatives=9, test_edges=0.2), one) == "edges"


@pytest.mark.parametrize("shape", [{}, {"weighted": True}, {"multilabel": True}, {"numbers": 1}])
@pytest.mark.parametrize("parts", [1, 3])
def test_shards_made_over_the_disk_have_that_of_those_made_in_memory(tmp_path, shape, parts):
    graph = random_graph(**shape)
    assert made(graph, tmp_path / "disk", parts=parts, stream=True) == made(graph, tmp_path / "memory", parts=parts)


def test_features_have_one_however_they_are_stored(tmp_path):
    graph = random_graph()
    dense = made(graph, tmp_path / "bytes")
    assert made(replace(graph, features=graph.features.astype(np.float32)), tmp_path / "floats") == dense
    assert made(replace(graph, features=sparse_rows(graph.features)), tmp_path / "sparse") == dense


def test_training_among_training_vertices_alone_is_on_the_same_edges(tmp_path):
    graph = random_graph()
    assert made(graph, tmp_path / "inductive", inductive=0) == made(graph, tmp_path / "whole")


def changed(graph, what):
    """The graph with one record changed."""
    vertex = int(np.flatnonzero((graph.labels > 0) & (graph.split[:, 0] == TRAIN))[0])
    if what == "edges":
        return replace(graph, dst=np.where(np.arange(len(graph.dst)) == 7, (graph.dst[7] + 1) % 30, graph.dst))
    if what == "weights":
        return replace(
            graph, weight=graph.weight * np.where(np.arange(len(graph.src)) == 7, np.float32(1.5), np.float32(1))
        )
    if what == "features":
        features = graph.features.copy()
        features[vertex, 2] += 1
        return replace(graph, features=features)
    if what == "labels":
        labels = graph.labels.copy()
        labels[vertex] -= 1
        return replace(graph, labels=labels)
    split = graph.split.copy()
    split[vertex, 0] = TEST
    return replace(graph, split=split)


@pytest.mark.parametrize("what", ["edges", "weights", "features", "labels", "splits"])
def test_it_says_which_of_them_is_another(tmp_path, what):
    graph = random_graph(weighted=True)
    one, other = made(graph, tmp_path / "one"), made(changed(graph, what), tmp_path / "other", parts=2)
    assert differences(one, other) == {"weights": "edges"}.get(what, what)
    assert differences(one, one) == ""


def test_two_vertices_that_change_places_are_seen(tmp_path):
    """Sums of what vertices say alone would not: nothing is lost or added."""
    graph = random_graph()
    one = made(graph, tmp_path / "one")
    turned = replace(graph, features=graph.features[::-1].copy(), labels=graph.labels[::-1].copy())
    turned = replace(turned, split=np.where(turned.labels[:, None] < 0, 0, graph.split).astype(np.uint8))
    assert "features, labels" in differences(one, made(turned, tmp_path / "turned"))


def test_differences_are_words():
    ours = {"edges": "1", "features": "2", "labels": "3", "splits": "4"}
    assert differences(ours, {**ours, "labels": "5"}) == "labels"
    assert differences(ours, {**ours, "labels": "5", "splits": "5"}) == "labels and splits"
    assert differences(ours, dict.fromkeys(ours, "5")) == "edges, features, labels and splits"
    assert differences({}, ours) == ""


@pytest.mark.parametrize("text", ["", "{}", '{"data": 3}', "[]"])
def test_a_manifest_that_does_not_say_is_named(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ConfigError, match=r"manifest\.json: does not say which data the run was trained on"):
        of_run(tmp_path)
