"""docs/adding-a-model.md: what it says is run. Its blocks are a model file, and that file trains."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator import known_answer
from siafu import kernels, models
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import ModelSpec, build
from siafu.tasks import Lane
from tests import reference, tape
from tests.contracts import test_models as contract
from tests.contracts.test_models import Epoch, same, weights_of, written_out
from tests.fleet import Fleet
from tests.reference import dropped, features, propagation
from tests.tape import Node
from tests.toy_graphs import random_graph

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-model.md"
GRAPH = random_graph(5)
SPEC = ModelSpec(
    "tagcn",
    GRAPH.num_features,
    GRAPH.num_classes,
    int((GRAPH.split[:, 0] == 1).sum()),
    widths=(6,),
    dropout=0.3,
    norm="layer",
    activation="tanh",
    seed=2,
    dtype="float64",
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def tagcn(tmp_path, monkeypatch):
    """The model of the page, in the table; and the oracle that the page has for it."""
    (tmp_path / "tagcn.py").write_text("".join(blocks("python")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tagcn", raising=False)
    monkeypatch.setitem(models.MODELS, "tagcn", "tagcn:TAGCN")
    (source,) = re.findall(r"^    (def tagcn\(.*?)\n\n", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = {"propagation": propagation, "dropped": dropped, "Node": Node, "features": features, "tape": tape}
    exec(source.replace("\n    ", "\n"), found)
    monkeypatch.setitem(reference.MODELS, "tagcn", found["tagcn"])


def test_the_model_has_as_many_lines_as_the_page_says():
    (said,) = re.findall(r"`siafu/models/tagcn.py`: (\d+) lines", PAGE.read_text())
    assert "".join(blocks("python")).count("\n") == int(said) < 80


def test_its_program_is_the_one_on_the_page():
    program = build(ModelSpec("tagcn", 7, 4, 9)).program(Lane.TRAIN)
    (listed,) = blocks("text")
    expected = [" ".join(line.split()) for line in listed.splitlines()]
    assert [line.removesuffix(" fused") for line in written_out(program)] == expected


def test_its_gradients_equal_finite_differences():
    weights, step, rng = weights_of(SPEC), 1e-6, np.random.default_rng(4)
    gradients = Epoch(GRAPH, SPEC, weights).gradients
    assert gradients.keys() == weights.keys()
    for name, W in weights.items():
        direction = rng.normal(size=W.shape)
        above, below = (Epoch(GRAPH, SPEC, weights | {name: W + sign * step * direction}).loss for sign in (1, -1))
        assert (gradients[name] * direction).sum() == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("variant", contract.VARIANTS)
def test_the_contract_of_all_models_has_cases_for_it(variant):
    contract.test_gradients_equal_the_reference(contract.variant_of("tagcn", variant))


@pytest.mark.parametrize("widths", [(), (6, 6)])
def test_it_refuses_more_or_fewer_than_two_layers(widths):
    with pytest.raises(ConfigError, match=f"^model.layers = {len(widths) + 1}: tagcn has 2$"):
        build(replace(SPEC, widths=widths))


def test_doctor_knows_the_answer_of_this_machine_still():
    assert (known_answer.digest() == known_answer.KNOWN) == (kernels.ISA != "numpy")


def test_recomputation_and_fusion_change_nothing():
    weights = weights_of(SPEC)
    plainest = Epoch(GRAPH, SPEC.__class__(**{**vars(SPEC), "fuse": False, "rematerialise": False}), weights)
    same(plainest, Epoch(GRAPH, SPEC, weights))


@pytest.mark.parametrize("backend", ["cpu", "lambda"])
def test_it_trains_on_two_servers_as_on_one_machine(tmp_path, backend):
    shards = prepare(GRAPH, tmp_path / "shards", parts=2, partitioner="random", order="random", directed=True)
    config = Config().replace(
        {
            "data.directed": True,
            "data.parts": 2,
            "model.name": "tagcn",
            "model.hidden": 6,
            "model.dropout": 0.3,
            "model.dtype": "float64",
            "train.epochs": 4,
            "train.intervals": 2,
            "train.mode": "pipe",
            "train.lr": 0.05,
            "servers.backend": backend,
            "lambda.count": 2,
        }
    )
    fleet = Fleet(config, shards, seed=1)
    expected = reference.train(GRAPH, fleet.spec, epochs=4, lr=0.05)
    np.testing.assert_allclose(fleet.train()["loss_history"], expected.losses, rtol=1e-9)
    for name, W in expected.weights.items():
        np.testing.assert_allclose(fleet.final_weights()[name], W, rtol=1e-9, atol=1e-9, err_msg=name)
