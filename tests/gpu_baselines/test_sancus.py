"""SANCUS skips a broadcast when it would say little that is new: never wrongly, and never for too long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.blocks import Grid
from gpu_baselines.clock import Clock
from gpu_baselines.group import Group
from gpu_baselines.methods.sancus import Skipping
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from siafu.models import ModelSpec
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.test_exactness import GRAPHS, MODELS
from tests.gpu_baselines.training import config_of, prepared, train

EPOCHS = 6
GRAPH = GRAPHS["directed, weighted"]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return prepared(GRAPH, tmp_path_factory.mktemp("cut"), 3)


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preaggregate", [True, False])
@pytest.mark.parametrize("name", ["gcn", "sage", "gat, more", "gcnii"])
def test_who_skips_nothing_is_cagnet(name: str, preaggregate: bool, shards: Any) -> None:
    settings: dict[str, Any] = {"model__dropout": 0.5, "baseline__preaggregate": preaggregate, **MODELS[name]}
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    sancus = train(config_of("sancus", 3, baseline__skip=0, **settings), shards, EPOCHS)
    assert sancus.losses == cagnet.losses
    assert all(np.array_equal(sancus.weights[name], W) for name, W in cagnet.weights.items())
    assert sancus.bytes["gradient"] == cagnet.bytes["gradient"]


def test_constant_rows_are_broadcast_once(shards: Any) -> None:
    """Of layer 0, when its sum is made anew in every epoch."""
    settings: dict[str, Any] = {"baseline__preaggregate": False, "model__hidden": 6}
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    sancus = train(config_of("sancus", 3, baseline__skip=0, **settings), shards, EPOCHS)
    width = np.asarray(GRAPH.features).shape[1]
    again = (EPOCHS - 1) * 2 * GRAPH.num_vertices * width * 8
    assert cagnet.bytes["halo"] - sancus.bytes["halo"] == again
    assert sancus.facts["broadcasts_skipped"] == 3 * (EPOCHS - 1)


def test_skipping_saves_bytes_forward_alone(shards: Any) -> None:
    runs = [
        train(config_of("sancus", 3, model__layers=3, baseline__skip=skip, baseline__max_skips=100), shards, EPOCHS)
        for skip in (0, 0.2, 1e9)
    ]
    halo = [run.bytes["halo"] for run in runs]
    assert halo[0] > halo[1] > halo[2]
    assert halo[0] == EPOCHS * halo[2]  # the first epoch's alone
    assert len({run.bytes["gradient"] for run in runs}) == 1
    assert len({run.losses[0] for run in runs}) == 1
    assert runs[2].losses[1:] != runs[0].losses[1:]


def test_agreeing_is_counted(shards: Any) -> None:
    trained = train(config_of("sancus", 3, model__layers=3), shards, EPOCHS)
    assert trained.bytes["control"] == EPOCHS * 2 * 3 * (2 * 2 * 3 * 4 // 3)  # layers, ranks, a ring's share of 3 int32


def test_a_checkpoint_goes_on_with_the_same_bits(shards: Any) -> None:
    config = config_of("sancus", 3, model__layers=3, model__dropout=0.3, baseline__skip=0.9)

    def through(group: Group) -> tuple[list[float], list[float], Any, Any]:
        def method() -> Any:
            return made(Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu")))

        first = method()
        for epoch in range(3):
            first.epoch(epoch)
        state = {name: value.clone() for name, value in first.state().items()}
        second = method()
        second.net.load(first.net.weights())
        second.restore(state)
        losses = [[one.epoch(epoch) for epoch in range(3, 9)] for one in (first, second)]
        return losses[0], losses[1], first.facts(), second.facts()

    for went_on, restored, facts, again in on_ranks(3, through):
        assert restored == went_on
        assert again == facts
        assert again["broadcasts_skipped"] > 0


# --- the rule ---------------------------------------------------------------------------------------------------------


def seen(rows: list[float], skip: float, max_skips: int) -> list[float]:
    """What rank 1 has of rank 0's one number after each epoch."""

    def one(group: Group) -> list[float]:
        grid = Grid(group, 1)
        skipping = Skipping(grid, [1, 1], Clock(), torch.device("cpu"), skip=skip, max_skips=max_skips)
        wanted = [torch.zeros(int(k != group.rank), dtype=torch.int64) for k in range(2)]
        return [float(skipping("forward", 0, torch.full((1, 1), value), wanted)) for value in rows]

    return on_ranks(2, one)[1]


@pytest.mark.parametrize(
    ("rows", "skip", "max_skips", "expected"),
    [
        #  relative to what was broadcast last, not to the epoch before: small steps add up
        ([1.0, 1.25, 1.5, 1.75, 2.0], 0.5, 9, [1.0, 1.0, 1.0, 1.75, 1.75]),
        ([1.0, 1.25, 1.5, 1.75, 2.0], 0.0, 9, [1.0, 1.25, 1.5, 1.75, 2.0]),
        #  after two skips in a row rows go, however little they have changed
        ([1.0, 1.25, 1.25, 1.25, 1.5, 1.5], 9.0, 2, [1.0, 1.0, 1.0, 1.25, 1.25, 1.25]),
        ([1.0, 1.25, 1.5], 9.0, 0, [1.0, 1.25, 1.5]),
        #  from zero any change is a large one
        ([0.0, 0.125, 0.125], 0.5, 9, [0.0, 0.125, 0.125]),
    ],
)
def test_what_others_see(rows: list[float], skip: float, max_skips: int, expected: list[float]) -> None:
    assert seen(rows, skip, max_skips) == expected


def test_rows_that_are_no_numbers_are_not_kept_back() -> None:
    assert np.isnan(seen([1.0, float("nan")], 9.0, 9)[1])
