"""A run that begins with the weights of another: found by its servers, refused where that cannot be."""

from __future__ import annotations

from dataclasses import replace
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


def test_a_class_without_a_name_is_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of classes 0 to 3 the weights of 3 would begin as those of 7, where a graph has 7 and no 3."""
    monkeypatch.chdir(tmp_path)
    graph = random_graph(1)
    others = [replace(graph, names={"classes": names}) for names in (("0", "1", "2", "7"), ("a", "b", "c", "d"))]
    for name, one in zip(("first", "codes", "words"), (graph, *others), strict=True):
        siafu.prepare(one, name, directed=True)
    siafu.train("first", epochs=1, run_dir="run", **OPTIONS)
    with pytest.raises(ConfigError, match=r"/codes: classes .* are .*'7', those that run was trained on .*'3': "):
        siafu.train("codes", epochs=1, warm_start="run", **OPTIONS)
    siafu.train("words", epochs=0, warm_start="run", run_dir="second", **OPTIONS)
