"""AllReduce-GCN and Cluster-GCN against the thesis' Algorithms 1, 3 and 4, simulated on one machine in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.batches import KEPT, MIXED, Batches, drawn
from gpu_baselines.group import Group
from gpu_baselines.run import Method, Run
from gpu_baselines.runner import made
from gpu_baselines.worker import warning
from siafu.baseline import BaselineConfig
from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph, tidy
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.test_subgraphs import induced
from tests.gpu_baselines.training import LR, WEIGHT_DECAY, config_of, differs_by, oracle, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

EPOCHS, SUBGRAPHS = 3, 7
GRAPH = random_graph(1, num_vertices=40, num_edges=300)
WHOLE = tidy(GRAPH, directed=True)


def resumed(config: BaselineConfig, shards: ShardSet, epochs: int, stop: int) -> list[dict[str, Array]]:
    """The weights after so many epochs, without a stop, and with everything made anew after ``stop`` of them."""

    def one(group: Group) -> list[dict[str, Array]]:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        found = []
        for stops in ((), (stop,)):
            method: Method = made(run)
            for epoch in range(epochs):
                if epoch in stops:
                    state, weights = method.state(), method.net.weights()
                    method.close()
                    method = made(run)
                    method.net.load(weights)
                    method.restore(state)
                method.epoch(epoch)
            method.tally()
            found.append(method.net.weights())
            method.close()
        return found

    return on_ranks(config.baseline.ranks, one)[0]


def batches_of(shards: ShardSet, per_batch: int, seed: int, epoch: int) -> list[Graph]:
    """Induced in the whole graph: with the edges between a batch's subgraphs."""
    vertices = [np.asarray(shards.partition(number).vertices) for number in range(SUBGRAPHS)]
    found = [
        induced(WHOLE, np.concatenate([vertices[number] for number in subgraphs]))
        for subgraphs in drawn(SUBGRAPHS, per_batch, seed, epoch)
    ]
    return [batch for batch in found if (batch.split[:, 0] == TRAIN).any()]


def simulated(
    shards: ShardSet, spec: ModelSpec, workers: int, interval: int, per_batch: int
) -> tuple[list[float], list[dict[str, Array]]]:
    """Algorithm 4, its workers one after the other: losses by epoch, each worker's weights."""
    optimisers = [reference.Adam() for _ in range(workers)]
    models = [reference.first_weights(spec) for _ in range(workers)]
    losses, count = [], 0
    for epoch in range(EPOCHS):
        total = 0.0
        batches = batches_of(shards, per_batch, spec.seed, epoch)
        for step in range(0, len(batches), workers):
            count += 1
            gradients: dict[int, dict[str, Array]] = {}
            for worker, batch in enumerate(batches[step : step + workers]):
                rows = int((batch.split[:, 0] == TRAIN).sum())
                own = replace(spec, num_train=rows)  # the mean is the batch's
                loss, gradients[worker] = reference.loss_and_gradients(batch, own, models[worker], epoch=epoch)
                total += loss * rows
            if count % interval == 0:
                mean = {name: np.mean([g[name] for g in gradients.values()], axis=0) for name in models[0]}
                gradients = dict.fromkeys(range(workers), mean)
            for worker, gradient in gradients.items():
                for name, W in models[worker].items():
                    models[worker][name] = optimisers[worker].step(name, W, gradient[name] + WEIGHT_DECAY * W, LR)
        losses.append(total / spec.num_train)
    return losses, models


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("workers", "interval", "per_batch"), [(3, 1, 1), (3, 2, 1), (2, 3, 1), (1, 1, 3), (2, 1, 2), (2, 2, 2)]
)
def test_training_is_the_thesis_algorithm(workers: int, interval: int, per_batch: int, tmp_path: Path) -> None:
    """On batches of one subgraph, and on Cluster-GCN's of several with the edges between them."""
    own = {"baseline__subgraphs": SUBGRAPHS, "baseline__per_batch": per_batch, "baseline__interval": interval}
    config = config_of("allreduce", workers, **own)
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)
    spec = ModelSpec.of(config, shards.manifest)
    losses, models = simulated(shards, spec, workers, interval, per_batch)
    trained = train(config, shards, EPOCHS)
    assert differs_by(trained.losses, losses) < 1e-12
    metric = METRICS["classes"]
    scores = [
        metric.scores(metric.tally(reference.predict(WHOLE, spec, model), WHOLE.labels, WHOLE.split[:, 0]))
        for model in models
    ]
    best = max(range(workers), key=lambda one: (scores[one]["val"]["acc"], -scores[one]["val"]["loss"], -one))
    assert trained.facts["elected"] == (best if interval > 1 else 0)
    for name, W in models[best].items():
        assert np.allclose(trained.weights[name], W, rtol=0, atol=1e-9), name
    for split, score in scores[best].items():
        assert metric.scores(metric.merge(trained.scores))[split] == pytest.approx(score, abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("model", "sparse"), [("gcn", False), ("sage", False), ("gat", False), ("gcnii", False), ("sage", True)]
)
@pytest.mark.parametrize("subgraphs", [1, SUBGRAPHS])
def test_a_batch_of_all_subgraphs_is_full_graph_training(
    subgraphs: int, model: str, sparse: bool, tmp_path: Path
) -> None:
    graph = with_sparse_features(GRAPH) if sparse else GRAPH
    settings: dict[str, Any] = {
        "model__name": model,
        "model__hidden": "6",
        "model__dropout": 0.5,
        "baseline__subgraphs": subgraphs,
        "baseline__per_batch": subgraphs,
    }
    if model == "gat":
        settings |= {"model__heads": 2}
    config = config_of("cluster", 1, **settings)
    shards = prepared(graph, tmp_path, subgraphs)
    trained, wanted = train(config, shards, EPOCHS), oracle(config, shards, tidy(graph, directed=True), EPOCHS)
    assert differs_by(trained.losses, wanted.losses) < 1e-12
    for name, W in wanted.weights.items():
        assert np.allclose(trained.weights[name], W, rtol=0, atol=1e-9), name


def test_bytes_are_those_of_a_ring_for_each_average(tmp_path: Path) -> None:
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)
    splits = [np.asarray(shards.partition(number).split)[:, 0] for number in range(SUBGRAPHS)]
    num_batches = sum(bool((split == TRAIN).any()) for split in splits)
    for interval in (1, 2, 3):
        own = {"baseline__subgraphs": SUBGRAPHS, "baseline__per_batch": 1, "baseline__interval": interval}
        config = config_of("allreduce", 2, **own)
        trained = train(config, shards, EPOCHS)
        size = sum(W.size for W in trained.weights.values()) + 1  # and for how many batches it stands
        steps = -(-num_batches // 2) * EPOCHS // interval
        assert trained.bytes["reduce"] == steps * 2 * (2 * 1 * size * 8 // 2)


def test_subgraphs_without_a_training_vertex_are_no_batches(tmp_path: Path) -> None:
    split = GRAPH.split.copy()
    split[5:] = np.where(split[5:] == TRAIN, 0, split[5:])
    split[:5] = TRAIN
    graph = replace(GRAPH, name="few", split=split)
    config = config_of("allreduce", 2, baseline__subgraphs=20, baseline__per_batch=1)
    trained = train(config, prepared(graph, tmp_path, 20), 4)
    assert np.isfinite(trained.losses).all()
    assert trained.losses[-1] < trained.losses[0]


@pytest.mark.parametrize(("interval", "per_batch"), [(1, 1), (2, 2)])
def test_a_resumed_run_has_the_same_bits(interval: int, per_batch: int, tmp_path: Path) -> None:
    own = {"baseline__subgraphs": SUBGRAPHS, "baseline__per_batch": per_batch, "baseline__interval": interval}
    config = config_of("allreduce", 2, model__dropout=0.5, **own)
    whole, again = resumed(config, prepared(GRAPH, tmp_path, SUBGRAPHS), epochs=3, stop=1)
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


def test_batches_that_say_little_of_the_graph_are_warned_of(tmp_path: Path) -> None:
    trains = np.ones(SUBGRAPHS, bool)
    assert warning(Batches(3, MIXED, KEPT, trains, 0)) == ""
    assert warning(Batches(1, 0.15, 0.9, trains, 0)).startswith(
        "batches of 1 of 7 subgraphs see few classes (their labels' entropy is 15% of the graph's): training may "
    )
    assert warning(Batches(2, 0.9, 0.31, trains, 0)).startswith("batches of 2 of 7 subgraphs keep 31% of their edges")
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)
    for per_batch, warned in ((1, True), (SUBGRAPHS, False)):
        own = {"baseline__subgraphs": SUBGRAPHS, "baseline__per_batch": per_batch}
        facts = train(config_of("cluster", 1, **own), shards, 1).facts
        assert facts["per_batch"] == per_batch
        assert ("warnings" in facts) == warned


def test_settings_that_cannot_be_are_refused(tmp_path: Path) -> None:
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)
    for settings, message in (
        ({"baseline__slow_rank": 2}, "baseline.slow_rank = 2: must be < 2"),
        ({"baseline__subgraphs": 1}, "baseline.subgraphs = 1: must be >= 2"),
        (
            {"baseline__subgraphs": SUBGRAPHS, "baseline__per_batch": 7},
            "baseline.per_batch = 7: 7 subgraphs are 1 batches, must be >= 2",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            train(config_of("allreduce", 2, **settings), shards, 1)
    with pytest.raises(ConfigError, match="cluster has one worker"):
        train(config_of("cluster", 2), shards, 1)
