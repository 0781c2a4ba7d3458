"""An evaluation computes and sends what judged vertices read alone, and says the same to the bit (docs/adr/0040)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator.coordinator import Coordinator
from siafu import views
from siafu.config import Config
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph
from siafu.models.staged import Staged
from siafu.shards import ShardSet
from siafu.tasks import Kind, Lane
from siafu.wire import EvalReport
from tests.fleet import Faults, Fleet
from tests.integration.test_fleet import FAULTS, SETTINGS
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts", "words_first")

OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("directed", {}),
    ("undirected", {"data.parts": 1}),
    ("sparse", {"model.rows": "exact", "servers.param_servers": 2}),
    ("directed", {"model.layers": 3, "model.hidden": "6 4", "model.norm": "layer"}),
    ("directed", {"model.layers": 1}),  # the last stage reads constants alone
    ("directed", {"model.name": "sage", "lambda.fuse": False}),
    ("undirected", {"model.name": "gin"}),
    ("directed", {"model.name": "gcnii", "model.layers": 3}),
    ("directed", {"model.name": "gat", "model.hidden": 6, "model.heads": 2}),
    ("directed", {"data.inductive": True}),
    ("directed", {"data.parts": 4, "train.intervals": 9}),  # some intervals have no judged vertex
    ("directed", {"model.rows": "bfloat16"}),
]


def graph_of(name: str) -> Graph:
    """Five vertices have a role, so that few others have an edge into one."""
    graph = random_graph(5, 40, num_edges=90, directed=name != "undirected")
    split = np.full_like(graph.split, NONE)
    split[[7, 19, 31, 12, 25]] = np.array([TRAIN, TRAIN, TRAIN, VAL, TEST], split.dtype)[:, None]
    graph = replace(graph, split=split)
    return with_sparse_features(graph) if name == "sparse" else graph


@cache
def shards_of(name: str, parts: int, inductive: bool, folder: Path) -> ShardSet:
    graph = graph_of(name)
    how: dict[str, Any] = {"partitioner": "random", "order": "random", "directed": graph.directed}
    return prepare(
        graph, folder / f"{name}-{parts}-{inductive}", parts=parts, inductive=0 if inductive else None, **how
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


def run_of(
    folder: Path, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch, faults: Faults | None = None
) -> tuple[Fleet, list[Any]]:
    """A run that has ended, and the tallies of its evaluations, in one order."""
    settings = {**SETTINGS, "data.directed": name != "undirected", "train.epochs": 4, "train.eval_every": 1, **options}
    config = Config().replace(settings)
    fleet = Fleet(config, shards_of(name, config.data.parts, config.data.inductive, folder), 3, faults)
    tallies: dict[tuple[int, int], Any] = {}
    handle = Coordinator.handle

    def heard(self: Coordinator, sender: Any, message: Any, *rest: Any) -> Any:
        if isinstance(message, EvalReport):
            tallies[message.epoch, message.server] = message
        return handle(self, sender, message, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "handle", heard)
        fleet.train()
    return fleet, [tallies[key] for key in sorted(tallies)]


def eval_bytes(run: Fleet) -> float:
    """Of ghosts' rows."""
    return sum(partition.usage["eval_ghost_bytes"] for partition in run.partitions)


def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations compute everything."""
    monkeypatch.setattr(Staged, "_judged", lambda self, steps: steps)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize(("graph", "options"), OPTIONS, ids=str)
def test_evaluations_say_the_same_to_the_bit(
    folder: Path, graph: str, options: dict[str, Any], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"model.dtype": "float32", "servers.backend": backend, **options}
    faults = FAULTS if backend == "lambda" else None
    run, found = run_of(folder, graph, options, monkeypatch, faults)
    for partition in run.partitions:
        judged, seen = int((partition.split != NONE).sum()), partition._operators.seen[Lane.EVAL]
        if (ways := partition.rows._chosen.get("judged")) is not None:
            assert sum(int(which.sum()) for which, _ in ways) == judged
        else:  # most of the rows that are held at all
            assert seen.rows is not None
            assert len(seen.rows) < 2 * judged
    if options.get("data.parts") != 1 and options.get("model.layers") != 1:
        sent = eval_bytes(run)
    whole(monkeypatch)
    all_rows, expected = run_of(folder, graph, options, monkeypatch)
    assert not any({"judged", "feeding judged"} & set(p.rows._chosen) for p in all_rows.partitions)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert (one.epoch, one.server) == (other.epoch, other.server)
        assert one.counts.tobytes() == other.counts.tobytes()
    for name, W in run.final_weights().items():
        assert W.tobytes() == all_rows.final_weights()[name].tobytes()
    if options.get("data.parts") != 1 and options.get("model.layers") != 1:
        assert sent < eval_bytes(all_rows)


def test_rows_of_all_vertices_are_made_where_they_are_written(folder: Path) -> None:
    config = Config().replace({**SETTINGS, "run.write": "P1", "train.epochs": 0})
    fleet = Fleet(config, shards_of("directed", config.data.parts, False, folder), 3)
    program = fleet.partitions[0].programs[Lane.EVAL]
    assert not any(step.judged or step.of_loss or step.feeds_loss for step in program.steps)


def test_many_judged_vertices_are_not_worth_a_copy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MOST_THAT_FEED", -1.0)
    run, _ = run_of(folder, "directed", {}, monkeypatch)
    assert not any(partition.rows._chosen for partition in run.partitions)


def test_the_steps_of_an_evaluation_that_judged_vertices_alone_wait_for(folder: Path) -> None:
    fleet = Fleet(Config().replace(SETTINGS), shards_of("directed", 3, False, folder), 3)
    steps = fleet.partitions[0].programs[Lane.EVAL].steps
    assert [step.name for step in steps if step.feeds_loss] == ["AV0"]
    assert [step.name for step in steps if step.of_loss] == ["SC0", "GA1"]
    assert [step.name for step in steps if step.judged] == ["AV1"]
    assert all(step.kind in (Kind.GA, Kind.AV, Kind.SC) for step in steps)
