"""What is learnt, and how it is stepped, through a whole fleet: each option against the textbook on one machine.

Regression, label smoothing, clipped gradients, warm starts; and inductive training,
whose two lanes see different graphs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator.reports import lanes, total
from siafu import models
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.graph import NONE, TRAIN, Graph
from siafu.metrics import METRICS
from siafu.model_file import save_model
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from siafu.tasks import TENSOR_KINDS, Lane
from tests import reference
from tests.fleet import Fleet
from tests.toy_graphs import random_graph

SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "data.parts": 2,
    "model.hidden": 5,
    "model.dropout": 0.3,
    "model.dtype": "float64",
    "train.lr": 0.05,
    "train.epochs": 5,
    "train.intervals": 3,
    "train.mode": "pipe",
    "train.eval_every": 2,
    "servers.backend": "cpu",
    "servers.param_servers": 2,
    "lambda.count": 2,
}


def with_numbers(graph: Graph, columns: int | None) -> Graph:
    """The graph with labels to regress on; one vertex has none, and is in no split then."""
    rng = np.random.default_rng(7)
    size = (graph.num_vertices,) if columns is None else (graph.num_vertices, columns)
    labels = (10 + rng.normal(size=size)).astype(np.float32)
    labels[5] = np.nan
    split = graph.split.copy()
    split[5] = NONE
    return replace(graph, labels=labels, num_classes=columns or 1, split=split)


def fleet(shards: ShardSet, seed: int = 0, **options: Any) -> Fleet:
    settings = {key.replace("__", "."): value for key, value in options.items()}
    return Fleet(Config().replace({**SETTINGS, **settings}), shards, seed)


def cut(graph: Graph, folder: Path, **options: Any) -> ShardSet:
    return prepare(graph, folder, parts=2, partitioner="random", order="random", directed=graph.directed, **options)


def close(found: dict[str, Array], expected: dict[str, Array]) -> None:
    assert set(found) == set(expected)
    for name, W in expected.items():
        np.testing.assert_allclose(found[name], W, rtol=1e-9, atol=1e-9, err_msg=name)


def scores_of(graph: Graph, spec: ModelSpec, weights: dict[str, Array]) -> dict[str, Any]:
    """Of the whole graph at once."""
    metric = METRICS[spec.target]
    return metric.scores(metric.tally(reference.predict(graph, spec, weights), graph.labels, graph.split[:, 0]))


# --- what is counted --------------------------------------------------------------------------------------------------


def test_tasks_and_bytes_are_counted_by_what_they_are_for(tmp_path: Path):
    """5 epochs and 3 evaluations of 6 intervals: as many tasks and rows as their programs say."""
    shards = cut(random_graph(1), tmp_path / "shards")
    run = fleet(shards)
    run.train()
    found = lanes(total({partition.index: partition.usage for partition in run.partitions}))
    model, ghosts = models.build(run.spec), 0
    for shard in map(
        shards.partition, range(len(shards.manifest.partitions))
    ):  # those with an edge into a judged vertex
        roles = np.repeat(np.asarray(shard.split)[:, 0], np.diff(shard.in_edges.indptr))
        ghosts += int(np.sum(np.unique(np.asarray(shard.in_edges.indices)[roles != NONE]) >= len(shard.vertices)))
    for lane, times in (Lane.TRAIN, 5), (Lane.EVAL, 3):
        program = model.program(lane)
        assert found[lane.value]["tensor_tasks"] == times * 6 * sum(s.kind in TENSOR_KINDS for s in program.steps)
    widths = sum(model.width(slot) for slot in model.program(Lane.EVAL).publisher)
    assert found["eval"]["ghost_bytes"] == 3 * ghosts * widths * 8 > 0
    assert found["train"]["ghost_bytes"] == 5 * run.coordinator.status.ghost_bytes > 0


# --- regression -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_numbers_are_learnt_and_scored_as_by_one_machine(tmp_path: Path, backend: str, columns: int | None):
    graph = with_numbers(random_graph(1), columns)
    run = fleet(cut(graph, tmp_path / "shards"), servers__backend=backend)
    result = run.train()
    expected = reference.train(graph, run.spec, epochs=5, lr=0.05)
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.final_weights(), expected.weights)
    found, wanted = result["final_scores"], scores_of(graph, run.spec, expected.weights)
    assert found == {split: pytest.approx(values, rel=1e-9) for split, values in wanted.items()}
    assert (result["metric"], result["val_acc"]) == ("r2", result["scores"]["val"]["r2"])


def test_scores_of_numbers_repeat_to_the_bit_whatever_the_order(tmp_path: Path):
    shards = cut(with_numbers(random_graph(1), 2), tmp_path / "shards")
    runs = [fleet(shards, seed, servers__backend="lambda").train() for seed in range(5)]
    assert all(run["final_scores"] == runs[0]["final_scores"] for run in runs)


def test_label_smoothing_is_for_classes(tmp_path: Path):
    shards = cut(with_numbers(random_graph(1), None), tmp_path / "shards")
    with pytest.raises(ConfigError, match=r"^train\.label_smoothing = 0\.1: is for classes, the graph has numbers$"):
        ModelSpec.of(Config().replace({"train.label_smoothing": 0.1}), shards.manifest)


# --- how it is stepped ------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize(("label_smoothing", "clip_norm"), [(0.2, 0.0), (0.0, 0.3), (0.1, 0.2)])
def test_smoothed_labels_and_clipped_gradients_equal_one_machine(
    tmp_path: Path, backend: str, label_smoothing: float, clip_norm: float
):
    graph = random_graph(1)
    run = fleet(
        cut(graph, tmp_path / "shards"),
        servers__backend=backend,
        train__label_smoothing=label_smoothing,
        train__clip_norm=clip_norm,
        train__optimizer="sgd",
    )
    result = run.train()
    expected = reference.train(graph, run.spec, epochs=5, lr=0.05, optimizer="sgd", clip_norm=clip_norm)
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.final_weights(), expected.weights)
    without = reference.train(graph, replace(run.spec, label_smoothing=0.0), epochs=5, lr=0.05, optimizer="sgd")
    assert not np.allclose(without.losses[1:], result["loss_history"][1:], rtol=1e-4)


def test_a_warm_start_goes_on_where_a_saved_model_was(tmp_path: Path):
    graph = random_graph(1)
    shards = cut(graph, tmp_path / "shards")
    first = fleet(shards)
    first.train()
    save_model(tmp_path / "model.safetensors", first.final_weights(), first.spec, {"epoch": 5})
    second = fleet(shards, train__warm_start=str(tmp_path), train__seed=3)
    result = second.train()
    expected = reference.train(graph, second.spec, epochs=5, lr=0.05, first=first.final_weights())
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(second.final_weights(), expected.weights)


# --- inductive --------------------------------------------------------------------------------------------------------


def among_training_vertices(graph: Graph) -> Graph:
    """The graph without the edges that touch any other vertex."""
    trained = graph.split[:, 0] == TRAIN
    both = trained[graph.src] & trained[graph.dst]
    weight = None if graph.weight is None else graph.weight[both]
    return replace(graph, src=graph.src[both], dst=graph.dst[both], weight=weight)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("mode", "backend"), [("pipe", "cpu"), ("pipe", "lambda"), ("async", "cpu")])
@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("directed", [True, False])
def test_inductive_training_sees_training_vertices_alone_and_evaluation_the_whole_graph(
    tmp_path: Path, directed: bool, model: str, mode: str, backend: str
):
    graph = with_numbers(random_graph(4, num_edges=110, directed=directed), 2)  # whose scores tell any two models apart
    run = fleet(
        cut(graph, tmp_path / "shards", inductive=0),
        model__name=model,
        data__directed=directed,
        train__mode=mode,
        data__inductive=True,
        model__layers=3,
        model__hidden="6 4",
        model__activation="tanh",
        train__freshness=1.0,
        servers__backend=backend,
    )
    result = run.train()
    expected = reference.train(among_training_vertices(graph), run.spec, epochs=5, lr=0.05)
    if mode == "pipe":
        np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
        close(run.final_weights(), expected.weights)
    weights = run.final_weights()
    whole, apart = (scores_of(g, run.spec, weights)["test"] for g in (graph, among_training_vertices(graph)))
    assert result["final_scores"]["test"] == pytest.approx(whole, rel=1e-9)
    assert whole != pytest.approx(apart, rel=1e-3)
