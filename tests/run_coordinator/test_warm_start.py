"""A run that begins with the weights of another: found by its servers, refused where that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import siafu
from siafu.config import load
from siafu.errors import ConfigError, DatasetError
from tests.toy_graphs import random_graph

OPTIONS: dict[str, Any] = {"mode": "pipe", "backend": "cpu", "intervals": 2, "hidden": 4}


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    siafu.prepare(random_graph(1), "shards", directed=True)
    return "shards"


def test_a_run_begins_with_the_weights_of_another_by_a_relative_path(shards: str):
    first = siafu.train(shards, epochs=1, run_dir="first", **OPTIONS)
    second = siafu.train(shards, epochs=1, warm_start="first", lr=0.0, run_dir="second", **OPTIONS)
    expected = first.weights()
    for name, W in second.weights().items():
        np.testing.assert_array_equal(W, expected[name])
    assert load("second/config.toml").train.warm_start == str(Path("first").resolve())


@pytest.mark.parametrize("where", ["ray", "aws"])
def test_servers_elsewhere_do_not_see_the_file(shards: str, where: str):
    Path("model.safetensors").write_text("anything")
    with pytest.raises(ConfigError, match=rf"elsewhere \(run\.on = {where}\): it needs run\.on = local$"):
        siafu.train(shards, warm_start="model.safetensors", on=where, **OPTIONS)


def test_what_is_no_model_costs_no_run_directory(shards: str):
    with pytest.raises(DatasetError, match=r"^nowhere: not a model of siafu"):
        siafu.train(shards, warm_start="nowhere", run_dir="run", **OPTIONS)
    assert not Path("run").exists()
