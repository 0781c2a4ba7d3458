"""ApplyEdge's place is settled before a run starts, from the graph's own edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator import apply_edge
from run_coordinator.placement import Seconds
from siafu.config import Config
from siafu.shards import Edges, ShardSet
from tests.toy_graphs import random_graph


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return prepare(
        random_graph(1), tmp_path_factory.mktemp("shards") / "s", parts=2, partitioner="random", directed=True
    )


Settled = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def settled(shards: ShardSet) -> Settled:
    def settle(**options: Any) -> tuple[str, dict[str, Any]]:
        named = {key.replace("__", "."): value for key, value in options.items()}
        usual = {"servers.backend": "lambda", "data.parts": 2, "model.name": "gat", "model.hidden": 16}
        config = Config().replace({**usual, **named})
        after, said = apply_edge.placed(config, shards)
        assert after.replace({"lambda.apply_edge": config.lambdas.apply_edge}) == config
        return after.lambdas.apply_edge, said.get("apply_edge", {})

    return settle


def test_auto_becomes_what_is_measured_to_be_faster(settled: Settled, monkeypatch: pytest.MonkeyPatch):
    for seconds, expected in ((Seconds(1e-2, 1e-3, 1e-3), "lambda"), (Seconds(1e-3, 1e-2, 1e-3), "server")):
        monkeypatch.setattr(apply_edge, "measured", lambda *_, seconds=seconds: seconds)
        monkeypatch.setattr(apply_edge, "copied_per_s", lambda: 1e12)
        chosen, said = settled()
        assert (chosen, said["chosen"], said["asked"]) == (expected, expected, "auto")
        faster = min(("server", "lambda"), key=lambda place: said[place]["epoch_s"])
        assert faster == expected
        assert said["lambda"]["bytes_per_epoch"] > 0 == said["server"]["bytes_per_epoch"]


def test_without_lambdas_there_is_nothing_to_place(settled: Settled, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apply_edge, "measured", None)  # nobody asks
    assert settled(servers__backend="cpu")[0] == "server"
    for asked in ("server", "lambda"):
        chosen, said = settled(lambda__apply_edge=asked)
        assert chosen == asked == said["chosen"]
        assert "epoch_s" not in said["server"]
    assert settled(model__name="gcn") == ("auto", {})


@pytest.mark.parametrize(
    "options", [{}, {"model__attn_dropout": 0.5, "model__rows": "bfloat16"}, {"model__dtype": "float64"}]
)
def test_what_is_measured_is_a_time(settled: Settled, options: dict[str, Any]):
    _, said = settled(**options)
    assert 0 < said["server"]["epoch_s"] < math.inf
    assert 0 < said["lambda"]["epoch_s"] < math.inf


@pytest.mark.parametrize("num_rows", [1, 50, 1000])
def test_the_sample_is_rows_of_the_graph_and_bounded(num_rows: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apply_edge, "SAMPLE_EDGES", 300)
    rng = np.random.default_rng(3)
    indptr = np.concatenate([[0], np.cumsum(rng.integers(0, 20, 400))]).astype(np.int64)
    edges = Edges(indptr, rng.integers(0, 1000, indptr[-1]).astype(np.int32), None)
    sample = apply_edge.sample_of(edges, num_rows)
    assert 0 < len(sample.indptr) - 1 <= num_rows
    assert sample.indptr[0] == 0
    assert sample.indptr[-1] == len(sample.indices) <= 300
    assert sample.indices.max(initial=0) < num_rows
    empty = apply_edge.sample_of(Edges(np.zeros(6, np.int64), np.zeros(0, np.int32), None), 5)
    assert not len(empty.indices)
