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
from siafu.baseline import Baseline
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


LEAST: dict[str, Any] = {"baseline__skip": 1e-12}  # skips rows that have not changed, and no others


@pytest.mark.sampled(2)
@pytest.mark.parametrize("preaggregate", [True, False])
@pytest.mark.parametrize("name", ["gcn", "sage", "gat, more", "gcnii"])
@pytest.mark.parametrize("rule", [{"baseline__fresh": 0, "baseline__every": 1}, LEAST], ids=["schedule", "change"])
def test_who_skips_nothing_is_cagnet(rule: dict[str, Any], name: str, preaggregate: bool, shards: Any) -> None:
    settings: dict[str, Any] = {"model__dropout": 0.5, "baseline__preaggregate": preaggregate, **MODELS[name]}
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    sancus = train(config_of("sancus", 3, **rule, **settings), shards, EPOCHS)
    assert sancus.losses == cagnet.losses
    assert all(np.array_equal(sancus.weights[name], W) for name, W in cagnet.weights.items())
    assert sancus.bytes["gradient"] == cagnet.bytes["gradient"]


def test_constant_rows_are_broadcast_once(shards: Any) -> None:
    """Of layer 0, when its sum is made anew in every epoch."""
    settings: dict[str, Any] = {"baseline__preaggregate": False, "model__hidden": 6}
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    sancus = train(config_of("sancus", 3, **LEAST, **settings), shards, EPOCHS)
    width = np.asarray(GRAPH.features).shape[1]
    again = (EPOCHS - 1) * 2 * GRAPH.num_vertices * width * 8
    assert cagnet.bytes["halo"] - sancus.bytes["halo"] == again
    assert sancus.facts["broadcasts_skipped"] == 3 * (EPOCHS - 1)


def test_skipping_saves_bytes_forward_alone(shards: Any) -> None:
    runs = [
        train(config_of("sancus", 3, model__layers=3, baseline__skip=skip, baseline__max_skips=100), shards, EPOCHS)
        for skip in (1e-12, 0.2, 1e9)
    ]
    halo = [run.bytes["halo"] for run in runs]
    assert halo[0] > halo[1] > halo[2]
    assert halo[0] == EPOCHS * halo[2]  # the first epoch's alone
    assert len({run.bytes["gradient"] for run in runs}) == 1
    assert len({run.losses[0] for run in runs}) == 1
    assert runs[2].losses[1:] != runs[0].losses[1:]


@pytest.mark.parametrize(("fresh", "every", "sent"), [(2, 2, 4), (2, 3, 4), (0, 4, 2), (50, 2, EPOCHS)])
def test_the_published_schedule(fresh: int, every: int, sent: int, shards: Any) -> None:
    """Of 6 epochs 0, 1, 2 and 4 are sent; or 0, 1, 2 and 5; or 0 and 4; or all. Nothing is agreed on."""
    settings: dict[str, Any] = {"model__layers": 3}
    cagnet = train(config_of("cagnet", 3, **settings), shards, EPOCHS)
    own = {"baseline__fresh": fresh, "baseline__every": every}
    sancus = train(config_of("sancus", 3, **own, **settings), shards, EPOCHS)
    assert sancus.bytes["halo"] * EPOCHS == cagnet.bytes["halo"] * sent
    assert "control" not in sancus.bytes
    layers_and_ranks = 2 * 3
    assert sancus.facts["broadcasts"] == sent * layers_and_ranks
    assert sancus.facts["broadcasts_skipped"] == (EPOCHS - sent) * layers_and_ranks
    assert ("warnings" in sancus.facts) == (sent == EPOCHS)


def test_a_run_that_skips_nothing_says_why(shards: Any) -> None:
    for own, advice in (
        ({}, "it skips after epoch 51: train for longer, or lower baseline.fresh = 50"),
        ({"baseline__every": 1}, "baseline.every = 1 skips nothing"),
        (LEAST, "raise baseline.skip = 1e-12, or train without dropout"),
    ):
        facts = train(config_of("sancus", 3, model__dropout=0.5, **own), shards, 2).facts
        assert facts["warnings"] == [f"none of 6 broadcasts was skipped: this is CAGNET 1D; {advice}"]


def test_agreeing_is_counted(shards: Any) -> None:
    trained = train(config_of("sancus", 3, model__layers=3, baseline__skip=0.05), shards, EPOCHS)
    assert trained.bytes["control"] == EPOCHS * 2 * 3 * (2 * 2 * 3 * 4 // 3)  # layers, ranks, a ring's share of 3 int32


@pytest.mark.parametrize("rule", [{"baseline__fresh": 1, "baseline__every": 3}, {"baseline__skip": 0.9}])
def test_a_checkpoint_goes_on_with_the_same_bits(rule: dict[str, Any], shards: Any) -> None:
    config = config_of("sancus", 3, model__layers=3, model__dropout=0.3, **rule)

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
        asked = Baseline(method="sancus", skip=skip, max_skips=max_skips)
        skipping = Skipping(grid, [1, 1], Clock(), torch.device("cpu"), asked)
        wanted = [torch.zeros(int(k != group.rank), dtype=torch.int64) for k in range(2)]
        return [float(skipping("forward", 0, torch.full((1, 1), value), wanted)) for value in rows]

    return on_ranks(2, one)[1]


@pytest.mark.parametrize(
    ("rows", "skip", "max_skips", "expected"),
    [
        #  relative to what was broadcast last, not to the epoch before: small steps add up
        ([1.0, 1.25, 1.5, 1.75, 2.0], 0.5, 9, [1.0, 1.0, 1.0, 1.75, 1.75]),
        ([1.0, 1.25, 1.5, 1.75, 2.0], 1e-12, 9, [1.0, 1.25, 1.5, 1.75, 2.0]),
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
