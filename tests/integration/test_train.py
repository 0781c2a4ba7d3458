"""The central promise: in ``pipe`` mode a run on many servers is full-batch training, loss for loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator import api
from siafu import config as configs
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from tests import reference
from tests.toy_graphs import random_graph, with_sparse_features

GRAPH = random_graph(5, 300, num_edges=1500, num_features=20)
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}


@pytest.mark.parametrize(
    ("backend", "model", "parts", "param_servers", "dtype", "settings"),
    [
        ("cpu", "sage", 4, 3, "float64", {}),
        pytest.param("cpu", "gcn", 2, 2, "float32", {"train.mode": "no-pipe"}, marks=pytest.mark.long),
        ("lambda", "gcn", 2, 3, "float64", {"train.intervals": 1}),  # long enough to be streamed in halves
        pytest.param("cpu", "gcn", 1, 1, "float64", {}, marks=pytest.mark.long),
        pytest.param("lambda", "sage", 1, 1, "float32", {}, marks=pytest.mark.long),
        pytest.param("lambda", "gcn", 2, 1, "float64", {"model.layers": 1}, marks=pytest.mark.long),
        pytest.param("cpu", "gin", 1, 1, "float64", {"model.layers": 1}, marks=pytest.mark.long),
        pytest.param(
            "lambda",
            "sage",
            2,
            1,
            "float64",
            {"lambda.fuse": False, "lambda.rematerialise": "never"},
            marks=pytest.mark.long,
        ),
    ],
)
def test_losses_are_those_of_full_batch_training(
    tmp_path: Path, backend: str, model: str, parts: int, param_servers: int, dtype: str, settings: dict[str, object]
) -> None:
    graph = with_sparse_features(GRAPH) if model == "gcn" else GRAPH
    prepare(graph, tmp_path / "shards", parts=parts, directed=True)
    run = api.train(
        str(tmp_path / "shards"),
        run_dir=str(tmp_path / "run"),
        backend=backend,
        model=model,
        layers=3,
        hidden=8,
        epochs=10,
        dropout=0.5,
        weight_decay=5e-4,
        parts=parts,
        param_servers=param_servers,
        intervals=4,
        settings={"model.dtype": dtype, "train.mode": "pipe", **settings},
    )
    spec = ModelSpec.of(configs.load(run.dir / "config.toml"), ShardSet.open(tmp_path / "shards").manifest)
    expected = reference.train(graph, spec, epochs=10, weight_decay=5e-4)
    np.testing.assert_allclose(run.result["loss_history"], expected.losses, rtol=TOLERANCE[dtype])


@pytest.mark.long
def test_results_may_be_as_wide_as_there_are_classes(tmp_path: Path) -> None:
    """A server drops what no worker can have said; one result here is 25 MB of logits, and hidden layers are narrow."""
    n = 2_500
    graph = replace(random_graph(6, n, num_edges=n, num_features=4), labels=np.arange(n), num_classes=n)
    prepare(graph, tmp_path / "shards", directed=True)
    run = api.train(
        str(tmp_path / "shards"), run_dir=str(tmp_path / "run"), backend="lambda", hidden=4, epochs=1, intervals=1
    )
    assert run.result["epochs"] == 1
