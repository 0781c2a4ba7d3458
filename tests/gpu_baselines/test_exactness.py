"""Vanilla partition-parallel training is what one machine computes, whatever the ranks: float64, against the oracle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from gpu_baselines.group import Group
from gpu_baselines.net import BatchNorm
from gpu_baselines.part import seen
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph, tidy
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from siafu.tasks import Lane
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, differs_by, oracle, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

EPOCHS = 4
#: name -> settings
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model__name": "gcn", "model__hidden": "6", "model__layers": 3},
    "gcn, narrow": {"model__name": "gcn", "model__hidden": "6,3", "model__layers": 3, "model__narrow": True},
    "gcn, LayerNorm, residual": {
        "model__norm": "layer",
        "model__residual": True,
        "model__layers": 3,
        "model__hidden": "6,5",
    },
    "sage": {"model__name": "sage", "model__hidden": "6", "model__layers": 3},
    "sage, tanh": {"model__name": "sage", "model__hidden": "5", "model__activation": "tanh", "model__bias": False},
    "gat": {"model__name": "gat", "model__hidden": "6", "model__heads": 2, "model__activation": "elu"},
    "gat, more": {
        "model__name": "gat",
        "model__hidden": "6",
        "model__heads": 3,
        "model__out_heads": 2,
        "model__attn_dropout": 0.4,
        "model__residual": True,
    },
    "gcnii": {"model__name": "gcnii", "model__hidden": "5", "model__layers": 4},
}
GRAPHS = {
    "directed, weighted": random_graph(1),
    "undirected": random_graph(2, directed=False, weighted=False),
    "multi-label": random_graph(3, multilabel=True),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", MODELS)
def test_vanilla_is_what_one_machine_computes(name: str, ranks: int, tmp_path: Path) -> None:
    graph = GRAPHS["directed, weighted"]
    config = config_of("vanilla", ranks, model__dropout=0.5, **MODELS[name])
    shards = prepared(graph, tmp_path, ranks)
    trained, wanted = train(config, shards, EPOCHS), oracle(config, shards, tidy(graph, directed=True), EPOCHS)
    assert differs_by(trained.losses, wanted.losses) < 1e-12
    for name, W in wanted.weights.items():
        assert np.allclose(trained.weights[name], W, rtol=0, atol=1e-9), name
    metric = METRICS["classes"]
    whole = metric.tally(wanted.logits, tidy(graph, directed=True).labels, graph.split[:, 0])
    for split, scores in metric.scores(whole).items():
        assert metric.scores(metric.merge(trained.scores))[split] == pytest.approx(scores, abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_any_graph(graph: Any, sparse: bool, model: str, tmp_path: Path) -> None:
    graph = with_sparse_features(graph) if sparse else graph
    config = config_of("vanilla", 3, model__dropout=0.3, **MODELS[model])
    shards = prepared(graph, tmp_path, 3)
    wanted = oracle(config, shards, tidy(graph, directed=graph.directed), EPOCHS)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-12


@pytest.mark.parametrize(
    "settings", [{"preaggregate": False}, {"overlap": False}, {"preaggregate": False, "overlap": False}]
)
def test_how_rows_travel_changes_no_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    graph = GRAPHS["directed, weighted"]
    config = config_of("vanilla", 3, model__dropout=0.5)
    shards = prepared(graph, tmp_path, 3)
    plain = train(config, shards, EPOCHS)
    other = train(config.replace({f"baseline.{key}": value for key, value in settings.items()}), shards, EPOCHS)
    assert other.losses == plain.losses
    assert other.bytes["halo"] >= plain.bytes["halo"]


def test_more_ranks_than_convenient(tmp_path: Path) -> None:
    """Parts of a vertex or two, some without a halo."""
    graph = replace(random_graph(4, num_vertices=7, num_edges=5), name="tiny")
    config = config_of("vanilla", 6)
    shards = prepared(graph, tmp_path, 6)
    wanted = oracle(config, shards, tidy(graph, directed=True), EPOCHS)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-12


def test_batch_norm_is_the_same_on_any_number_of_ranks(tmp_path: Path) -> None:
    graph = GRAPHS["undirected"]
    found = []
    for ranks in (1, 3):
        config = config_of(
            "vanilla", ranks, model__layers=3, model__hidden=6, baseline__norm="batch", model__dropout=0.3
        )
        found.append(train(config, prepared(graph, tmp_path, ranks), EPOCHS))
    assert differs_by(found[0].losses, found[1].losses) < 1e-12
    assert {"0.gain", "1.shift", "0.mean", "1.variance"} <= found[0].weights.keys()
    metric = METRICS["classes"]
    scores = [metric.scores(metric.merge(one.scores))["val"] for one in found]
    assert scores[0] is not None
    assert scores[0] == pytest.approx(scores[1], abs=1e-9)
    for name, W in found[0].weights.items():
        assert np.allclose(found[1].weights[name], W, rtol=0, atol=1e-9), name


def test_evaluation_normalises_by_running_statistics() -> None:
    """As PipeGCN's sync_bn.py: .1 of each epoch's mean and variance, from 0 and 1, whatever is evaluated."""
    rng = np.random.default_rng(0)
    norm = BatchNorm(lambda X: X, num_vertices=40)
    gain, shift = torch.full((3,), 2.0, dtype=torch.float64), torch.full((3,), 0.5, dtype=torch.float64)
    mean, variance = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    wanted = np.zeros(3), np.ones(3)
    for _ in range(4):
        P = rng.normal(1, 3, (40, 3))
        found = norm(torch.from_numpy(P), gain, shift, mean, variance).numpy()
        now = P.mean(0), P.var(0)
        assert np.allclose(found, 2 * (P - now[0]) / np.sqrt(now[1] + 1e-5) + 0.5, rtol=0, atol=1e-12)
        wanted = 0.9 * wanted[0] + 0.1 * now[0], 0.9 * wanted[1] + 0.1 * now[1]
    assert np.allclose(mean.numpy(), wanted[0], rtol=0, atol=1e-12)
    assert np.allclose(variance.numpy(), wanted[1], rtol=0, atol=1e-12)
    one = torch.from_numpy(rng.normal(size=(1, 3)))
    found = norm.evaluated(one, gain, shift, mean, variance).numpy()
    assert np.allclose(found, 2 * (one.numpy() - wanted[0]) / np.sqrt(wanted[1] + 1e-5) + 0.5, rtol=0, atol=1e-12)


def test_running_statistics_are_of_training_and_come_back_with_the_weights(tmp_path: Path) -> None:
    config = config_of("vanilla", 2, model__hidden=6, baseline__norm="batch")
    shards = prepared(GRAPHS["undirected"], tmp_path, 2)

    def one(group: Group) -> list[Any]:
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        first, second = made(run), made(run)
        before = first.net.weights()
        first.tally()
        untouched = np.array_equal(before["0.mean"], first.net.weights()["0.mean"])
        for epoch in range(3):
            first.epoch(epoch)
        second.net.load(first.net.weights())
        tallies = [method.tally().tolist() for method in (first, second)]
        moved = not np.array_equal(before["0.mean"], first.net.weights()["0.mean"])
        first.close()
        second.close()
        return [untouched, moved, tallies[0] == tallies[1]]

    assert on_ranks(2, one) == [[True, True, True]] * 2


@pytest.mark.parametrize("name", ["gcn", "sage"])
@pytest.mark.parametrize("num_linear", [1, 2])
def test_tail_layers_see_no_neighbours(name: str, num_linear: int, tmp_path: Path) -> None:
    """PipeGCN's n_linear, against dense products; of three layers the second's and third's rows would travel."""
    graph = GRAPHS["undirected"]
    settings: dict[str, Any] = {"model__name": name, "model__layers": 3, "model__hidden": 6}
    plain = train(config_of("vanilla", 3, **settings), prepared(graph, tmp_path, 3), EPOCHS)
    found = [
        train(
            config_of("vanilla", ranks, baseline__num_linear=num_linear, **settings),
            prepared(graph, tmp_path, ranks),
            EPOCHS,
        )
        for ranks in (1, 3)
    ]
    assert differs_by(found[0].losses, found[1].losses) < 1e-12
    assert found[1].bytes.get("halo", 0) * 2 == plain.bytes["halo"] * (2 - num_linear)
    config = config_of("vanilla", 1, **settings)
    spec = ModelSpec.of(config, prepared(graph, tmp_path, 1).manifest)
    assert found[0].losses[0] == pytest.approx(dense_loss(tidy(graph, directed=False), spec, num_linear), abs=1e-12)


def dense_loss(graph: Graph, spec: ModelSpec, num_linear: int) -> float:
    """Of the first weights, without dropout."""
    W, sage = reference.first_weights(spec), spec.name == "sage"
    A, H = reference.propagation(graph, "mean" if sage else "gcn").toarray(), reference.features(graph)
    for layer in range(spec.num_layers):
        own = W[f"{layer}.self" if sage else f"{layer}.weight"]
        if layer >= spec.num_layers - num_linear:
            P = H @ own
        else:
            P = (A @ H) @ W[f"{layer}.neighbour"] + H @ own if sage else (A @ H) @ own
        P = P + W[f"{layer}.bias"]
        H = np.maximum(P, 0)
    train = np.flatnonzero(graph.split[:, 0] == TRAIN)
    labels = torch.from_numpy(graph.labels[train])
    return float(functional.cross_entropy(torch.from_numpy(P[train]), labels))


def test_tail_layers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    shards = prepared(GRAPHS["undirected"], tmp_path, 1)
    for settings, message in (
        ({"baseline__num_linear": 2}, "baseline.num_linear = 2: must be < 2, the number of layers"),
        ({"baseline__num_linear": 1, "model__name": "gat"}, "baseline.num_linear: is for gcn and sage"),
    ):
        with pytest.raises(ConfigError, match=message):
            train(config_of("vanilla", 1, **settings), shards, 1)


@pytest.mark.parametrize("norm", ["model", "batch"])
def test_inductive_training_learns_nothing_from_other_vertices(norm: str, tmp_path: Path) -> None:
    graph = random_graph(11, 60, num_edges=150)
    moved = np.where((graph.split[:, 0] == TRAIN)[:, None], graph.features, graph.features + 5)
    config = config_of("vanilla", 2, model__hidden="6", baseline__norm=norm)
    found = []
    for features in (graph.features, moved):
        shards = prepared(replace(graph, name=f"inductive-{len(found)}", features=features), tmp_path, 2, inductive=0)
        found.append(train(config, shards, EPOCHS))
    assert found[0].losses == found[1].losses
    assert found[0].losses[-1] < found[0].losses[0]


@pytest.mark.parametrize("method", ["vanilla", "cagnet"])
@pytest.mark.parametrize("directed", [False, True])
def test_inductive_training_sends_the_rows_that_somebody_reads(directed: bool, method: str, tmp_path: Path) -> None:
    """Every ghost of the shard travelled in every layer, whatever edges training had left."""
    graph = replace(random_graph(11, 60, num_edges=150, directed=directed), name=f"inductive-{directed}")
    config, shards = config_of(method, 3, model__hidden="6", model__layers=3), prepared(graph, tmp_path, 3, inductive=0)
    found = train(config, shards, EPOCHS)
    alone = train(
        config_of("vanilla", 1, model__hidden="6", model__layers=3), prepared(graph, tmp_path, 1, inductive=0), EPOCHS
    )
    assert differs_by(found.losses, alone.losses) < 1e-12
    if method == "vanilla":
        read = [seen(shards.partition(p), "inductive", Lane.TRAIN) for p in range(3)]
        assert sum(len(part.ghosts_in) for part in read) < sum(len(shards.partition(p).ghosts_in) for p in range(3))
        for part in read:
            n, columns = len(part.vertices), np.unique(part.in_edges.indices)
            assert np.array_equal(columns[columns >= n], n + np.arange(len(part.ghosts_in)))
        layers = 2  # the features' sums are constant
        assert found.bytes["halo"] == EPOCHS * layers * sum(len(part.ghosts_in) for part in read) * 6 * 8
