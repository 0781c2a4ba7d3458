"""What ``test_fleet`` says of GCN and GraphSAGE, of the other models: several servers train as one machine does.

(GAT and R-GCN, whose graph steps are operators of their own, have tests beside those.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from siafu.config import Config
from siafu.shards import ShardSet
from siafu.tasks import Lane
from tests import reference
from tests.fleet import Faults, Fleet
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts", "words_first")

EPOCHS = 2
SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "model.hidden": 6,
    "model.dropout": 0.3,
    "model.dtype": "float64",
    "train.lr": 0.05,
    "train.weight_decay": 5e-4,
    "train.epochs": EPOCHS,
    "train.intervals": 2,
    "train.mode": "pipe",
    "servers.backend": "lambda",
    "lambda.count": 2,
    "lambda.relaunches": 100,
}
MODELS: dict[str, dict[str, Any]] = {
    "gin": {"model.name": "gin", "model.eps": 0.1},
    "gin with everything": {
        "model.name": "gin",
        "model.layers": 3,
        "model.train_eps": True,
        "model.jump": "cat",
        "model.residual": True,
        "model.norm": "layer",
    },
    "gcn, jump and residual": {"model.layers": 3, "model.jump": "max", "model.residual": True},
    "sage, jump": {"model.name": "sage", "model.layers": 3, "model.hidden": "7 5 3", "model.jump": "cat"},
    "gcnii": {"model.name": "gcnii", "model.layers": 5, "train.weight_decay_rest": 0.01},
    "appnp": {"model.name": "appnp", "model.hops": 3, "model.norm": "layer"},
    "sgc": {"model.name": "sgc", "model.hops": 2},
}
GRAPH = random_graph(1)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(parts: int, sparse: bool = False) -> ShardSet:
        graph = with_sparse_features(GRAPH) if sparse else GRAPH
        path = folder / f"{parts}-{sparse}"
        return prepare(graph, path, parts=parts, partitioner="random", order="random", directed=True)

    return shards


def trained(shards: ShardSet, parts: int, seed: int = 0, faults: Faults | None = None, **options: Any) -> Fleet:
    fleet = Fleet(Config().replace({**SETTINGS, "data.parts": parts, **options}), shards, seed, faults)
    fleet.train()
    return fleet


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("parts", "backend", "param_servers", "sparse"),
    [(1, "lambda", 1, True), (2, "lambda", 1, False), (4, "cpu", 3, False)],
)
@pytest.mark.parametrize("model", MODELS)
def test_pipe_equals_full_batch_training(prepared, model, parts, backend, param_servers, sparse):
    options = {**MODELS[model], "servers.backend": backend, "servers.param_servers": param_servers}
    fleet = trained(prepared(parts, sparse), parts, **options)
    train = fleet.config.train
    expected = reference.train(
        GRAPH,
        fleet.spec,
        epochs=EPOCHS,
        lr=train.lr,
        weight_decay=train.weight_decay,
        weight_decay_rest=train.weight_decay_rest,
    )
    np.testing.assert_allclose(fleet.coordinator.result()["loss_history"], expected.losses, rtol=1e-9)
    final = fleet.weights("final")
    assert set(final) == set(expected.weights)
    for name, W in expected.weights.items():
        np.testing.assert_allclose(final[name], W, rtol=1e-9, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("model", ["gin with everything", "gcnii", "appnp"])
def test_bits_depend_on_the_configuration_alone(prepared, model):
    runs = [
        trained(prepared(2), 2, seed, faults, **MODELS[model], **{"model.dtype": "float32"})
        for seed, faults in ((0, None), (1, Faults(kill=0.02, twice=0.05, lose=0.02)))
    ]
    first, second = (run.weights("final") for run in runs)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rows", ["exact", "bfloat16"])
@pytest.mark.parametrize("model", MODELS)
def test_async_ends_and_leaves_nothing_over(prepared, model, rows):
    options = {
        "train.mode": "async",
        "train.staleness": 1,
        "model.rows": rows,
        "model.dtype": "float32",
        "train.epochs": 3,
    }
    fleet = trained(prepared(2), 2, **MODELS[model], **options)
    assert all(np.isfinite(W).all() for W in fleet.weights("final").values())
    for partition in fleet.partitions:
        assert all(scheduler.finished for scheduler in partition.schedulers.values())
        assert not any(partition.rows._slots[Lane.TRAIN, interval] for interval in partition.intervals)
