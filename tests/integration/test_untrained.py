"""A run of no epoch (``train.epochs`` = 0) evaluates its first weights once, and its servers write the rows that
``run.write`` asks for: what ``siafu predict`` is made of, on one thread and in any order of delivery."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.backends import Action, Keep
from siafu import models
from siafu.config import Config
from siafu.metrics import counts, scores
from siafu.shards import ShardSet
from siafu.sparse import Array
from siafu.tasks import Lane
from tests import reference
from tests.fleet import Faults, Fleet
from tests.toy_graphs import random_graph, with_sparse_features

GRAPH = random_graph(1)
SETTINGS: dict[str, Any] = {
    "data.directed": True,
    "model.hidden": 5,
    "model.dtype": "float64",
    "train.epochs": 0,
    "train.intervals": 3,
    "servers.backend": "lambda",
    "lambda.count": 2,
    "lambda.relaunches": 100,
    "run.write": "H2",
}


class Writing(Fleet):
    """A fleet that puts what its servers keep together, by vertex."""

    def __init__(self, *given: Any):
        self.rows: dict[int, Array] = {}
        super().__init__(*given)

    def _do(self, index: int, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Keep):
                first = self.partitions[index].shard.vertices[action.start :]
                new = dict(zip(map(int, first), action.rows, strict=False))
                assert not new.keys() & self.rows.keys(), "a row is written once"
                self.rows |= new
        super()._do(index, actions)

    def written(self) -> Array:
        assert sorted(self.rows) == list(range(GRAPH.num_vertices))
        return np.stack([self.rows[vertex] for vertex in range(GRAPH.num_vertices)])


def shards_of(folder: Path, parts: int, words: bool = False) -> ShardSet:
    graph = with_sparse_features(GRAPH) if words else GRAPH
    return prepare(graph, folder, parts=parts, partitioner="random", directed=True)


def untrained(
    folder: Path, parts: int, seed: int, faults: Faults | None = None, words: bool = False, **settings: Any
) -> Writing:
    config = Config().replace({**SETTINGS, "data.parts": parts, **settings})
    fleet = Writing(config, shards_of(folder, parts, words), seed, faults)
    fleet.train()
    return fleet


@pytest.mark.parametrize(
    ("model", "parts", "backend", "mode"),
    [
        ("gcn", 1, "cpu", "async"),
        ("gcn", 3, "lambda", "pipe"),
        ("sage", 2, "cpu", "no-pipe"),
        ("gin", 2, "lambda", "async"),
        ("gcnii", 2, "cpu", "async"),
        ("appnp", 2, "cpu", "pipe"),
    ],
)
def test_the_first_weights_logits_are_the_textbooks(
    tmp_path: Path, model: str, parts: int, backend: str, mode: str
) -> None:
    slot = {"gcnii": "H4"}.get(model, "H2")
    fleet = untrained(
        tmp_path / "shards",
        parts,
        7,
        **{"model.name": model, "servers.backend": backend, "train.mode": mode, "run.write": slot},
    )
    expected = reference.predict(GRAPH, fleet.spec, reference.first_weights(fleet.spec))
    np.testing.assert_allclose(fleet.written(), expected, rtol=1e-9, atol=1e-12)
    result = fleet.coordinator.result()
    assert (result["epochs"], result["best_epoch"], result["loss_history"]) == (0, 0, [])
    wanted = scores(counts(expected, GRAPH.labels, GRAPH.split[:, 0]), multilabel=False)
    assert result["scores"] == {split: pytest.approx(values, rel=1e-12) for split, values in wanted.items()}


@pytest.mark.parametrize("seed", range(3))
def test_faults_change_no_bit(tmp_path: Path, seed: int) -> None:
    faults = Faults(kill=0.05, hang=0.02, stillborn=0.1, refuse=0.1, twice=0.1, lose=0.05)
    calm = untrained(tmp_path / "shards", 2, 0, **{"model.name": "gcn"})
    wild = untrained(tmp_path / "shards", 2, seed, faults, **{"model.name": "gcn"})
    np.testing.assert_array_equal(calm.written(), wild.written())


@pytest.mark.usefixtures("words_first")
@pytest.mark.parametrize("words", [False, True], ids=["dense", "words"])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_a_hidden_layers_rows_are_written_though_no_step_reads_them(tmp_path: Path, backend: str, words: bool) -> None:
    fleet = untrained(tmp_path / "shards", 2, 3, words=words, **{"run.write": "H1", "servers.backend": backend})
    assert any(step.writes == ("T0",) for step in fleet.partitions[0].programs[Lane.EVAL].steps) == words
    W = models.build(fleet.spec).init()
    logits = reference.propagation(GRAPH, "gcn") @ fleet.written() @ W["1.weight"] + W["1.bias"]
    expected = reference.predict(GRAPH, fleet.spec, W)
    np.testing.assert_allclose(logits, expected, rtol=1e-9)


def test_training_writes_the_rows_of_its_evaluation_alone(tmp_path: Path) -> None:
    options = {"run.write": "H1", "servers.backend": "cpu", "train.epochs": 3, "train.eval_every": 0}
    fleet = untrained(tmp_path / "shards", 2, 3, **options)
    W = fleet.final_weights()
    logits = reference.propagation(GRAPH, "gcn") @ fleet.written() @ W["1.weight"] + W["1.bias"]
    np.testing.assert_allclose(logits, reference.predict(GRAPH, fleet.spec, W), rtol=1e-9)


def test_nothing_is_made_for_training(tmp_path: Path) -> None:
    fleet = untrained(tmp_path / "shards", 2, 1, **{"servers.backend": "cpu"})
    for partition in fleet.partitions:
        assert {lane.value for lane, _ in partition.published} == {"eval"}
        assert {lane.value for lane in partition.schedulers} == {"eval"}
