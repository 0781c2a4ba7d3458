"""CAGNET computes what one machine does, whatever the grid, and sends what the paper says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from siafu.errors import ConfigError
from siafu.graph import tidy
from siafu.metrics import METRICS
from tests.gpu_baselines.test_exactness import GRAPHS, MODELS
from tests.gpu_baselines.training import config_of, differs_by, oracle, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

EPOCHS = 4
GRIDS = [(2, 1), (3, 1), (4, 1), (2, 2), (4, 2)]  # ranks, replicas
DOUBLE = 8  # bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of graphs that several tests want cut alike."""
    return tmp_path_factory.mktemp("cut")


def cut(graph: Any, config: Any, folder: Path) -> Any:
    return prepared(graph, folder, config.partitions)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("ranks", "replicas"), GRIDS)
@pytest.mark.parametrize("name", ["gcn", "gcn, narrow", "sage", "gat, more", "gcnii"])
def test_any_grid_is_what_one_machine_computes(name: str, ranks: int, replicas: int, folder: Path) -> None:
    graph = GRAPHS["directed, weighted"]
    config = config_of("cagnet", ranks, baseline__replicas=replicas, model__dropout=0.5, **MODELS[name])
    shards = cut(graph, config, folder)
    trained, wanted = train(config, shards, EPOCHS), oracle(config, shards, tidy(graph, directed=True), EPOCHS)
    assert differs_by(trained.losses, wanted.losses) < 1e-12
    for weight, W in wanted.weights.items():
        assert np.allclose(trained.weights[weight], W, rtol=0, atol=1e-9), weight
    metric = METRICS["classes"]
    whole = metric.tally(wanted.logits, tidy(graph, directed=True).labels, graph.split[:, 0])
    for split, scores in metric.scores(whole).items():
        assert metric.scores(metric.merge(trained.scores))[split] == pytest.approx(scores, abs=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "sparse", "preaggregate", "model", "replicas"),
    [
        ("directed, weighted", True, True, "gcn", 2),
        ("directed, weighted", False, False, "sage", 2),
        ("undirected", True, False, "sage", 1),
        ("undirected", True, True, "gat", 2),
        ("undirected", False, False, "gat", 1),
        ("multi-label", False, True, "gcn", 1),
        ("multi-label", True, False, "gat", 2),
    ],
)
def test_any_graph(name: str, sparse: bool, preaggregate: bool, model: str, replicas: int, folder: Path) -> None:
    graph = with_sparse_features(replace(GRAPHS[name], name=f"{name}, sparse")) if sparse else GRAPHS[name]
    config = config_of(
        "cagnet",
        4,
        baseline__replicas=replicas,
        baseline__preaggregate=preaggregate,
        model__dropout=0.3,
        **MODELS[model],
    )
    shards = cut(graph, config, folder)
    wanted = oracle(config, shards, tidy(graph, directed=graph.directed), EPOCHS)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-12


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("ranks", "replicas"), [(7, 1), (6, 3), (3, 3)])
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_more_ranks_than_convenient(model: str, ranks: int, replicas: int, folder: Path) -> None:
    """Blocks of a vertex, blocks without an edge to others, more replicas than blocks."""
    graph = random_graph(4, num_vertices=7, num_edges=5)
    config = config_of("cagnet", ranks, baseline__replicas=replicas, model__dropout=0.5, **MODELS[model])
    shards = cut(graph, config, folder)
    wanted = oracle(config, shards, tidy(graph, directed=True), EPOCHS)
    assert differs_by(train(config, shards, EPOCHS).losses, wanted.losses) < 1e-12


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_inductive_training_sees_training_vertices_alone(name: str, folder: Path) -> None:
    graph = GRAPHS["directed, weighted"]
    shards = prepared(replace(graph, name="inductive"), folder, 3, inductive=0)
    settings: dict[str, Any] = {"model__dropout": 0.5, **MODELS[name]}
    vanilla = train(config_of("vanilla", 3, **settings), shards, EPOCHS)
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    assert differs_by(cagnet.losses, vanilla.losses) < 1e-12
    for mine, other in zip(cagnet.scores, vanilla.scores, strict=True):
        assert np.allclose(mine, other, atol=1e-9)


@pytest.mark.parametrize(("ranks", "replicas"), GRIDS)
def test_bytes_are_those_of_the_papers_formula(ranks: int, replicas: int, folder: Path) -> None:
    graph, hidden = GRAPHS["undirected"], 6
    config = config_of("cagnet", ranks, baseline__replicas=replicas, model__layers=3, model__hidden=hidden)
    trained = train(config, cut(graph, config, folder), EPOCHS)
    blocks, n = ranks // replicas, graph.num_vertices
    broadcasts = (blocks - 1) * n * hidden  # of all ranks: every row goes to every block but its own
    partial_sums = blocks * 2 * (replicas - 1) * (n // blocks) * hidden  # each all-reduced in a ring of replicas
    slack = 2 * (replicas - 1) * blocks * hidden if n % blocks else 0  # blocks are of equal size but for a row
    for kind in ("halo", "gradient"):  # of two layers; that of the features is summed once
        assert (
            abs(trained.bytes[kind] - 2 * EPOCHS * DOUBLE * (broadcasts + partial_sums)) <= 2 * EPOCHS * DOUBLE * slack
        )


def test_features_that_are_summed_in_every_epoch_travel_in_every_epoch(folder: Path) -> None:
    graph = GRAPHS["undirected"]
    config = config_of("cagnet", 2, baseline__preaggregate=False, model__hidden=6)
    trained = train(config, cut(graph, config, folder), EPOCHS)
    features = np.asarray(graph.features).shape[1]
    assert trained.bytes["halo"] == EPOCHS * DOUBLE * graph.num_vertices * (features + 6)


def test_replicas_must_divide_ranks() -> None:
    with pytest.raises(ConfigError, match=r"baseline\.replicas = 2: must divide baseline\.ranks = 3"):
        config_of("cagnet", 3, baseline__replicas=2)


def test_a_vertex_counts_once_however_many_ranks_hold_it(folder: Path) -> None:
    graph, metric = GRAPHS["undirected"], METRICS["classes"]
    scores = []
    for ranks, replicas in ((2, 1), (4, 2)):
        config = config_of("cagnet", ranks, baseline__replicas=replicas)
        trained = train(config, cut(graph, config, folder), 1)
        tally = metric.merge(trained.scores)
        scores.append((trained.losses[0], metric.scores(tally)["train"]["loss"], float(tally.sum())))
    assert scores[1] == pytest.approx(scores[0], abs=1e-12)
