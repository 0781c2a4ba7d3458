"""Servers send the rows that a lane reads along its own edges, and learn and judge the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from graph_data.prepare import prepare
from graph_server.operators.table import OperatorTable
from siafu import views
from siafu.config import Config
from siafu.shards import Shard, ShardSet
from siafu.tasks import Lane
from tests.fleet import Faults, Fleet
from tests.integration.test_fleet import FAULTS, SETTINGS
from tests.toy_graphs import random_graph

LINKS = {"val_edges": 0.1, "test_edges": 0.2, "negatives": 3, "eval_negatives": 4}
Build = Callable[..., Fleet]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, bool], ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(task: str, parts: int, directed: bool) -> ShardSet:
        graph = random_graph(5, 60, num_edges=150, directed=directed)
        how: dict[str, Any] = LINKS | {"task": "link"} if task == "link" else {"inductive": 0, "directed": directed}
        path = folder / f"{task}-{parts}-{directed}"
        return prepare(graph, path, parts=parts, partitioner="random", order="random", **how)

    return shards


@pytest.fixture
def fleet(prepared: Callable[[str, int, bool], ShardSet]) -> Build:
    def build(task: str, options: dict[str, Any], seed: int = 0, faults: Faults | None = None) -> Fleet:
        kind = {"data.task": "link"} if task == "link" else {"data.inductive": True}
        settings = {**SETTINGS, "data.directed": False, "model.dtype": "float32", "train.eval_every": 1, **kind}
        config = Config().replace({**settings, **options})
        shards = prepared(task, config.data.parts, config.data.directed)
        return Fleet(config, shards, seed, faults)

    return build


def sent(run: Fleet, lane: Lane) -> float:
    """Bytes of ghosts' rows."""
    return sum(partition.usage[f"{lane.value}_ghost_bytes"] for partition in run.partitions)


def along_all(table: OperatorTable, lane: Lane, operator: str) -> Shard:
    return table._shard


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("node", {"model.layers": 3, "model.hidden": "6 4"}),
        ("node", {"data.directed": True, "model.layers": 3, "model.hidden": "6 4", "model.name": "sage"}),
        ("node", {"data.directed": True, "model.name": "gat", "model.hidden": 6, "model.heads": 2, "data.parts": 4}),
        (
            "node",
            {"model.name": "gat", "model.layers": 3, "model.hidden": "6 4", "model.heads": 2, "model.rows": "bfloat16"},
        ),
        ("link", {"data.parts": 4}),
        ("link", {"model.name": "gat", "model.hidden": 6, "model.heads": 2, "model.layers": 3}),
        ("link", {"model.decoder": "mlp"}),
    ],
    ids=str,
)
def test_rows_that_a_lane_does_not_read_stay_at_home(
    fleet: Build, task: str, options: dict[str, Any], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**options, "servers.backend": backend}
    faults = FAULTS if backend == "lambda" else None
    narrow = fleet(task, options, 3, faults)  # inductive training holds training vertices' rows alone
    narrow.train()
    monkeypatch.setattr(views, "LEAST_LEFT_OUT", 1.0)
    run = fleet(task, options, 3, faults)
    found = run.train()
    assert sent(narrow, Lane.TRAIN) == sent(run, Lane.TRAIN)
    with monkeypatch.context() as patched:
        patched.setattr(OperatorTable, "read_along", along_all)
        whole = fleet(task, options)
        expected = whole.train()
    assert found["weights_digest"] == expected["weights_digest"]
    assert found["final_scores"] == expected["final_scores"]
    assert 0 < sent(run, Lane.TRAIN) < sent(whole, Lane.TRAIN)
    both = sent(run, Lane.EVAL), sent(whole, Lane.EVAL)
    assert both[0] < both[1] if task == "link" else both[0] == both[1]  # an inductive evaluation sees all edges


@pytest.mark.parametrize("task", ["node", "link"])
def test_stale_rows_are_read_along_the_same_edges(fleet: Build, task: str) -> None:
    for staleness in (0, 1):
        options = {"train.mode": "async", "train.staleness": staleness, "servers.backend": "lambda"}
        result = fleet(task, options, 7, FAULTS).train()
        assert all(0 < loss < 100 for loss in result["loss_history"])
