"""Fleets on graphs whose edges have types, as relations (R-GCN) and as what is predicted, against their oracles."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.link_split import Shares, hold_out
from graph_data.prepare import prepare
from siafu.config import Config
from siafu.graph import Graph, tidy
from siafu.models import build
from siafu.models.link_prediction import Links
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests import reference, reference_links
from tests.fleet import Faults, Fleet
from tests.siafu.models.test_rgcn import typed_graph
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts")

FAULTS = Faults(kill=0.02, hang=0.01, stillborn=0.1, refuse=0.1, twice=0.05, lose=0.02)
SHARES = Shares(val=0.1, test=0.2, negatives=3, eval_negatives=4)
SETTINGS: dict[str, Any] = {
    "data.parts": 2,
    "model.hidden": 5,
    "model.dropout": 0.3,
    "model.dtype": "float64",
    "train.lr": 0.05,
    "train.weight_decay": 5e-4,
    "train.epochs": 4,
    "train.intervals": 3,
    "train.mode": "pipe",
    "train.eval_every": 2,
    "servers.backend": "cpu",
    "lambda.count": 2,
    "lambda.relaunches": 100,
}
ONE_EDGE_TYPE_GRAPHS: dict[str, Callable[[], Graph]] = {
    "weighted": lambda: random_graph(5, 40, num_edges=90, directed=False),
    "sparse": lambda: with_sparse_features(random_graph(6, 40, num_edges=90, directed=False, weighted=False)),
}

Build = Callable[..., Fleet]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(name: str, parts: int) -> ShardSet:
        how: dict[str, Any] = {"parts": parts, "partitioner": "random", "order": "random"}
        if name == "typed":
            return prepare(typed_graph(), folder / f"{name}-{parts}", directed=True, **how)
        links = {"val_edges": SHARES.val, "test_edges": SHARES.test, "negatives": SHARES.negatives}
        links["eval_negatives"] = SHARES.eval_negatives
        return prepare(ONE_EDGE_TYPE_GRAPHS[name](), folder / f"{name}-{parts}", task="link", **links, **how)

    return shards


@pytest.fixture
def fleet(prepared: Callable[[str, int], ShardSet]) -> Build:
    def built(name: str, options: dict[str, Any], seed: int = 0, faults: Faults | None = None) -> Fleet:
        task = {"data.directed": True} if name == "typed" else {"data.task": "link"}
        config = Config().replace({**SETTINGS, **task, **options})
        return Fleet(config, prepared(name, config.data.parts), seed, faults)

    return built


def close(actual: dict[str, Array], expected: dict[str, Array]) -> None:
    assert set(actual) == set(expected)
    for name, W in expected.items():
        np.testing.assert_allclose(actual[name], W, rtol=1e-9, atol=1e-9, err_msg=name)


# --- relations --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize(
    "options",
    [
        {"data.parts": 1},
        {"data.parts": 2, "model.bases": 2},
        {"data.parts": 4, "model.layers": 3, "model.hidden": "9 2"},
    ],
    ids=["1", "2, bases", "4, three layers"],
)
def test_relations_equal_full_batch_training(fleet: Build, options: dict[str, Any], backend: str):
    run = fleet("typed", {"model.name": "rgcn", "servers.backend": backend, **options})
    assert run.spec.num_edge_types == 4
    result = run.train()
    train = run.config.train
    expected = reference.train(
        tidy(typed_graph(), directed=True), run.spec, epochs=train.epochs, lr=train.lr, weight_decay=train.weight_decay
    )
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.weights("final"), expected.weights)


def test_relations_in_async_mode_finish(fleet: Build):
    options = {"train.mode": "async", "train.freshness": 0.5, "train.epochs": 8}
    run = fleet("typed", {"model.name": "rgcn", "model.rows": "bfloat16", "model.dtype": "float32", **options}, seed=3)
    assert np.isfinite(run.train()["loss_history"]).all()


# --- links ------------------------------------------------------------------------------------------------------------


def held_to_oracle(run: Fleet, graph: str) -> None:
    result = run.train()
    held = hold_out(tidy(ONE_EDGE_TYPE_GRAPHS[graph]()), SHARES, seed=0)
    train, model = run.config.train, build(run.spec)
    assert isinstance(model, Links)
    expected = reference_links.train(
        held, run.spec, model.number, epochs=train.epochs, lr=train.lr, weight_decay=train.weight_decay
    )
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.weights("final"), expected.weights)
    scores = reference_links.scores(held, run.spec, expected.weights, model.number)
    for role, names in scores.items():
        for name, score in names.items():
            assert result["final_scores"][role][name] == pytest.approx(score, abs=1e-12), (role, name)
    assert result["final_scores"]["train"] is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("decoder", ["dot", "mlp"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_links_equal_full_batch_training(fleet: Build, parts: int, decoder: str, backend: str):
    options = {"data.parts": parts, "model.decoder": decoder, "servers.backend": backend, "servers.param_servers": 2}
    held_to_oracle(fleet("weighted", options), "weighted")


@pytest.mark.parametrize(
    "options",
    [
        {"model.name": "sage", "model.layers": 3, "model.hidden": "7 4", "model.norm": "layer"},
        {"model.name": "gin", "model.jump": "cat", "model.outputs": 3, "model.decoder": "mlp"},
        {"model.name": "gcnii", "model.layers": 3},
        {"model.name": "appnp", "model.hops": 2, "model.bias": False, "model.decoder": "mlp"},
        {"model.name": "sgc", "model.hops": 2},
        {"model.name": "rgcn", "lambda.fuse": False},
        {"model.name": "gcn", "lambda.fuse": False, "lambda.rematerialise": "never", "servers.backend": "lambda"},
    ],
    ids=lambda options: options["model.name"],
)
def test_every_encoder_gets_links_by_one_mechanism(fleet: Build, options: dict[str, Any]):
    held_to_oracle(fleet("sparse", {"train.epochs": 2, **options}), "sparse")


def test_links_through_all_faults_give_the_same_bits(fleet: Build):
    options = {"servers.backend": "lambda", "model.decoder": "mlp"}
    calm, stormy = fleet("weighted", options), fleet("weighted", options, seed=7, faults=FAULTS)
    assert calm.train()["loss_history"] == stormy.train()["loss_history"]
    assert stormy.injected["kill"] + stormy.injected["hang"] > 0


def test_attention_can_embed_too(fleet: Build):
    """No oracle of its own on the tape: one server and four agree, in both placements of ApplyEdge."""
    losses = []
    for parts, place in ((1, "server"), (4, "server"), (2, "lambda")):
        options = {"data.parts": parts, "lambda.apply_edge": place, "model.heads": 1, "model.name": "gat"}
        losses.append(fleet("weighted", options).train()["loss_history"])
    np.testing.assert_allclose(losses[1:], losses[:1] * 2, rtol=1e-9)


def test_links_in_async_mode_finish(fleet: Build):
    run = fleet("weighted", {"train.mode": "async", "train.staleness": 1, "train.epochs": 6}, seed=5)
    result = run.train()
    assert np.isfinite(result["loss_history"]).all()
    assert 0 < result["final_scores"]["test"]["mrr"] <= 1
