"""Stages before the loss's gather compute on the rows that it reads alone (docs/adr/0039)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.partition import Partition
from siafu import views
from siafu.config import Config
from siafu.graph import NONE, TRAIN, Graph
from siafu.shards import ShardSet
from siafu.tasks import Lane
from tests.fleet import Faults, Fleet
from tests.integration.test_fleet import FAULTS, SETTINGS, close
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts", "words_first")

Build = Callable[..., Fleet]


def graph_of(name: str) -> Graph:
    """Three vertices train, so that few others have an edge into one."""
    graph = random_graph(5, 40, num_edges=90, directed=name != "undirected")
    split = np.where(graph.split == TRAIN, np.uint8(NONE), graph.split)
    split[[7, 19, 31]] = TRAIN
    graph = replace(graph, split=split)
    return with_sparse_features(graph) if name == "sparse" else graph


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int, bool], ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(name: str, parts: int, inductive: bool) -> ShardSet:
        graph = graph_of(name)
        how: dict[str, Any] = {"partitioner": "random", "order": "random", "directed": graph.directed}
        how["inductive"] = 0 if inductive else None
        return prepare(graph, folder / f"{name}-{parts}-{inductive}", parts=parts, **how)

    return shards


@pytest.fixture
def fleet(prepared: Callable[[str, int, bool], ShardSet]) -> Build:
    def build(options: dict[str, Any], seed: int = 0, faults: Faults | None = None, graph: str = "directed") -> Fleet:
        config = Config().replace({**SETTINGS, "data.directed": graph != "undirected", "train.epochs": 4, **options})
        return Fleet(config, prepared(graph, config.data.parts, config.data.inductive), seed, faults)

    return build


def steps_that_feed(run: Fleet) -> list[str]:
    program = run.partitions[0].programs[Lane.TRAIN]
    return [step.name for step in program.steps if step.feeds_loss]


def rows_that_feed(partition: Partition) -> int | None:
    """On how many rows stages before the loss's gather compute; None: on all."""
    found = partition.rows._chosen.get("feeding")
    if found is not None:
        return sum(int(which.sum()) for which, _ in found)
    rows = partition._operators.seen[Lane.TRAIN].rows
    return None if rows is None else len(rows)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("directed", {}),
        ("undirected", {"data.parts": 1}),
        ("sparse", {"model.rows": "exact", "servers.param_servers": 2}),
        ("directed", {"model.layers": 3, "model.hidden": "6 4", "model.norm": "layer"}),
        ("directed", {"model.name": "sage", "lambda.fuse": False, "lambda.rematerialise": "never"}),
        ("undirected", {"model.name": "gin"}),
        ("directed", {"model.name": "gcnii", "model.layers": 3}),
        ("directed", {"model.name": "gat", "model.hidden": 6, "model.heads": 2, "model.residual": True}),
        ("directed", {"data.inductive": True}),
        ("directed", {"data.parts": 4, "train.intervals": 9}),  # some intervals have no such row
    ],
    ids=str,
)
def test_computing_on_the_rows_that_the_loss_reads_learns_the_same(
    fleet: Build, graph: str, options: dict[str, Any], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fleet({"servers.backend": backend, **options}, graph=graph)
    result = run.train()
    assert steps_that_feed(run)
    computed = [rows_that_feed(partition) for partition in run.partitions]
    assert all(rows is not None for rows in computed)
    assert sum(len(partition.split) for partition in run.partitions) - sum(filter(None, computed)) > 10
    monkeypatch.setattr(views, "MOST_THAT_FEED", -1.0)
    monkeypatch.setattr(views, "LEAST_LEFT_OUT", 2.0)
    whole = fleet({"servers.backend": backend, **options}, graph=graph)
    expected = whole.train()
    assert all(rows_that_feed(partition) is None for partition in whole.partitions)
    np.testing.assert_allclose(result["loss_history"], expected["loss_history"], rtol=1e-11)
    close(run.weights("final"), whole.weights("final"), 1e-11)
    for split, found in result["final_scores"].items():
        assert found["acc"] == expected["final_scores"][split]["acc"]


def test_bits_are_those_of_any_backend_and_any_order_of_events(fleet: Build) -> None:
    """Lambdas get chosen rows as a server's threads do, and keep their constants apart from evaluation's."""
    options = {"model.dtype": "float32", "train.eval_every": 1, "train.epochs": 5}
    wanted = fleet({**options, "servers.backend": "cpu"}).train()["weights_digest"]
    for seed, stream in ((1, True), (2, False), (3, True)):
        lambdas = {"servers.backend": "lambda", "lambda.stream": stream}
        calm = fleet({**options, **lambdas, "train.intervals": 3 if not stream else 2}, seed).train()
        if stream:
            assert calm["weights_digest"] == wanted
            assert fleet({**options, **lambdas}, seed, FAULTS).train()["weights_digest"] == wanted


def test_every_instruction_set_makes_the_same_bits(fleet: Build) -> None:
    found = {}
    for isa in INSTRUCTION_SETS:
        if isa != "numpy":
            with using(isa):
                found[isa] = fleet({"model.dtype": "float32"}).train()["weights_digest"]
    assert len(set(found.values())) <= 1, found


def test_a_gradient_that_is_late_changes_nothing_of_the_rules(fleet: Build) -> None:
    for staleness in (0, 1):
        settings = {"train.mode": "async", "train.staleness": staleness}
        result = fleet({**settings, "servers.backend": "lambda"}, 7, FAULTS).train()
        assert np.isfinite(result["loss_history"]).all()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, ["AV0", "AV'0"]),
        ({"model.layers": 3, "model.hidden": "6 4"}, ["AV1", "AV'1"]),
        ({"model.layers": 1}, []),
        ({"model.name": "sgc", "model.hops": 2}, []),  # nothing is computed between its gathers
        ({"model.jump": "cat"}, ["AV0", "AV'0"]),  # what jumps is read by the loss alone
    ],
    ids=str,
)
def test_stages_are_named_that_the_loss_alone_waits_for(
    fleet: Build, options: dict[str, Any], named: list[str]
) -> None:
    run = fleet(options)
    assert steps_that_feed(run) == named
    evaluated = run.partitions[0].programs[Lane.EVAL].steps
    assert [step.name for step in evaluated if step.feeds_loss] == [name for name in named if "'" not in name]
