"""Sampled neighbourhoods: drawn fairly, alike on any number of ranks, and exact where everything is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from gpu_baselines.masks import Masks
from gpu_baselines.neighbourhood import Store, blocks, draw
from siafu.errors import ConfigError
from siafu.graph import tidy
from siafu.sparse import Array
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.test_allreduce import resumed
from tests.gpu_baselines.training import config_of, differs_by, oracle, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

EPOCHS = 3
GRAPH = random_graph(1, num_vertices=40, num_edges=300)
EVERYTHING = (1000, 1000)
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"model__name": "gcn"},
    "sage": {"model__name": "sage", "model__hidden": "6", "model__norm": "layer"},
    "gat": {"model__name": "gat", "model__hidden": "6", "model__heads": 2, "model__attn_dropout": 0.3},
}


def keys(seed: int, count: int) -> Any:
    return np.random.default_rng(seed).integers(0, 2**63, count).astype(np.uint64)


def test_a_draw_is_of_different_edges_and_of_all_where_there_are_few() -> None:
    counts = np.array([0, 1, 4, 5, 6, 100, 1000])
    found = np.split(draw(counts, 5, keys(0, 7)), np.cumsum(np.minimum(counts, 5))[:-1])
    for count, edges in zip(counts, found, strict=True):
        assert len(set(edges)) == len(edges) == min(count, 5)
        assert (np.diff(edges) > 0).all()
        assert ((edges >= 0) & (edges < count)).all()


def test_all_sets_of_edges_are_as_likely() -> None:
    """3 of 6: 20 sets; 5 sigma of a binomial."""
    times = 100_000
    drawn = draw(np.full(times, 6), 3, keys(1, times)).reshape(times, 3)
    sets, seen = np.unique(drawn, axis=0, return_counts=True)
    assert len(sets) == 20
    assert (np.abs(seen - times / 20) < 5 * np.sqrt(times / 20 * 19 / 20)).all()


@pytest.mark.parametrize(("model", "ranks"), [("gcn", 1), ("sage", 3), ("gat", 2)])
def test_with_all_neighbours_and_one_batch_it_is_full_graph_training(model: str, ranks: int, tmp_path: Path) -> None:
    settings = {**MODELS[model], "model__dropout": 0.5, "baseline__fanouts": EVERYTHING}
    config, shards = config_of("sampling", ranks, **settings), prepared(GRAPH, tmp_path, ranks)
    trained, wanted = train(config, shards, EPOCHS), oracle(config, shards, tidy(GRAPH, directed=True), EPOCHS)
    assert differs_by(trained.losses, wanted.losses) < 1e-12
    for name, W in wanted.weights.items():
        assert np.allclose(trained.weights[name], W, rtol=0, atol=1e-9), name


@pytest.mark.parametrize(("model", "sparse"), [("gcn", False), ("gat", False), ("sage", True)])
def test_any_number_of_ranks_draws_alike(model: str, sparse: bool, tmp_path: Path) -> None:
    graph = with_sparse_features(GRAPH) if sparse else GRAPH
    found = []
    for ranks in (1, 3):
        settings = {**MODELS[model], "model__dropout": 0.3, "baseline__fanouts": (3, 2), "baseline__batch": 4}
        found.append(train(config_of("sampling", ranks, **settings), prepared(graph, tmp_path, ranks), EPOCHS))
    assert differs_by(found[0].losses, found[1].losses) < 1e-12
    for kind in ("features", "sampling"):
        assert kind not in found[0].bytes
        assert found[1].bytes[kind] > 0


@pytest.mark.parametrize("aggregation", ["gcn", "mean"])
def test_sums_over_drawn_neighbours_are_unbiased(aggregation: str, tmp_path: Path) -> None:
    """Of one layer, over 300 draws: within 5 standard errors of the sum over all, for every vertex."""
    whole, shards = tidy(GRAPH, directed=True), prepared(GRAPH, tmp_path, 1)
    exact = reference.propagation(whole, aggregation) @ reference.features(whole)[:, :1]

    def one(group: Group) -> Array:
        shard = shards.partition(0)
        cpu, real = torch.device("cpu"), torch.float64
        store = Store(shard, np.zeros(40, np.int16), group, Clock(), device=cpu, dtype=real)
        masks, found = Masks(0.0, 3, cpu, real), []
        for step in range(300):
            (block,), X = blocks(store, np.arange(40), [2], aggregation, masks, step)
            found.append(block.gather(0, X[:, :1].contiguous()).numpy())
        return np.stack(found)

    draws = on_ranks(1, one)[0]
    error = draws.std(0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - exact) <= 5 * error + 1e-12).all()
    assert (error > 0).sum() > 20  # of 40


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    config = config_of("sampling", 2, model__dropout=0.5, baseline__fanouts=(3, 2), baseline__batch=4)
    whole, again = resumed(config, prepared(GRAPH, tmp_path, 2), epochs=3, stop=1)
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model__name": "gcnii"}, "model.name = gcnii"),
        ({"model__narrow": True}, "model.narrow = true"),
        ({"model__layers": 3, "model__hidden": 6}, r"baseline.fanouts = \[25, 10\]: the model has 3 layers"),
    ],
)
def test_what_sampling_cannot_do_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        train(config_of("sampling", 1, **settings), prepared(GRAPH, tmp_path, 1), 1)
