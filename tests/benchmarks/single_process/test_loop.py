"""The single-process loop trains as the oracle does, in every form of a layer."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.single_process import loop as single
from benchmarks.single_process.layers import AggregateFirst, Cached, TransformFirst
from benchmarks.single_process.loop import Loop
from graph_data.prepare import prepare
from siafu.errors import ConfigError
from siafu.graph import TEST, TRAIN, tidy
from siafu.models import ModelSpec
from tests import reference
from tests.toy_graphs import random_graph, with_sparse_features

EPOCHS = 20
GRAPHS = {
    "undirected": {"directed": False, "weighted": False},
    "directed": {"directed": True, "weighted": False},
    "weighted": {"directed": True, "weighted": True},
}


def prepared(tmp_path, parts=1, sparse=False, **options):
    """The graph that is trained on, and its shards."""
    graph = random_graph(5, **options)
    graph = tidy(with_sparse_features(graph) if sparse else graph, options.get("directed", True))
    shards = prepare(
        graph, tmp_path / "shards", parts=parts, partitioner="chunk", order="given", directed=graph.directed
    )
    return graph, shards.partition(0)


def spec_of(graph, name, widths=(6, 5)):
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    return ModelSpec(name, graph.num_features, graph.num_classes, num_train, widths=widths, seed=3)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(single, "BLOCK_ROWS", 5)  # several blocks, the last one shorter


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", GRAPHS)
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "not cached"])
@pytest.mark.parametrize("widths", [(), (6, 5), (9, 12, 3)], ids=str)
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_losses_and_accuracy_are_the_oracles(tmp_path, name, widths, cache, kind):
    graph, shard = prepared(tmp_path, **GRAPHS[kind])
    spec = spec_of(graph, name, widths)
    expected = reference.train(graph, spec, epochs=EPOCHS)
    with Loop(shard, spec, threads=2, cache=cache) as loop:
        losses = [loop.epoch() for _ in range(EPOCHS)]
        np.testing.assert_allclose(losses, expected.losses, rtol=2e-4)
        test = graph.split[:, 0] == TEST
        accuracy = (expected.logits[test].argmax(1) == graph.labels[test]).mean()
        assert loop.test_accuracy() == pytest.approx(accuracy)


def test_layer_gathers_the_narrower_side_and_layer_0_nothing(tmp_path):
    graph, shard = prepared(tmp_path)
    cached = Loop(shard, spec_of(graph, "gcn", (6, 9)))
    assert [type(layer) for layer in cached.layers] == [Cached, AggregateFirst, TransformFirst]
    plain = Loop(shard, spec_of(graph, "gcn", (6, 9)), cache=False)
    assert [type(layer) for layer in plain.layers] == [TransformFirst, AggregateFirst, TransformFirst]


@pytest.mark.parametrize("cache", [True, False], ids=["cached", "not cached"])
def test_every_shared_buffer_is_made_before_threads_run(tmp_path, cache):
    """A table made on first use was made twice when two threads came at once: rows of one of them were lost."""
    graph, shard = prepared(tmp_path)
    with Loop(shard, spec_of(graph, "sage", (9, 12, 3)), cache=cache) as loop:
        memory = loop.layers[0].memory
        before = {**memory._tables}, {**memory._buffers}
        loop.epoch()
        assert (memory._tables, memory._buffers) == before


def test_losses_do_not_depend_on_who_is_faster(tmp_path):
    graph, shard = prepared(tmp_path)
    runs = []
    for _ in range(3):
        loop = Loop(shard, spec_of(graph, "sage"), threads=3)
        runs.append([loop.epoch() for _ in range(5)])
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("name", ["gcn", "sage"])
@pytest.mark.parametrize("cache", [True, False], ids=["cached", "not cached"])
def test_16_bits_lose_little(tmp_path, name, cache):
    graph, shard = prepared(tmp_path, directed=False, weighted=False)
    spec = spec_of(graph, name, (9, 5))
    expected = reference.train(graph, spec, epochs=EPOCHS).losses
    loop = Loop(shard, spec, dtype="bfloat16", cache=cache)
    np.testing.assert_allclose([loop.epoch() for _ in range(EPOCHS)], expected, rtol=0.02)


def test_bag_of_words_is_trained_on_too(tmp_path):
    graph, shard = prepared(tmp_path, sparse=True)
    spec = spec_of(graph, "gcn")
    loop = Loop(shard, spec)
    np.testing.assert_allclose(
        [loop.epoch() for _ in range(3)], reference.train(graph, spec, epochs=3).losses, rtol=1e-4
    )


def test_what_it_is_not_made_for_is_refused(tmp_path):
    graph, shard = prepared(tmp_path, parts=2)
    with pytest.raises(ConfigError, match="one partition with one label per vertex, not 2 partitions"):
        Loop(shard, spec_of(graph, "gcn"))


def test_every_phase_is_timed(tmp_path):
    graph, shard = prepared(tmp_path)
    loop = Loop(shard, spec_of(graph, "gcn", (6,)))
    loop.epoch()
    assert list(loop.phases) == ["rows 1", "gather 1", "loss", "gather 1'", "rows 1'", "adam"]
