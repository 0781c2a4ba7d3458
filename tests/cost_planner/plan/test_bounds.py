"""Floors against simulations: below them, and not far; and by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from cost_planner.plan import graphs
from cost_planner.plan.bounds import CORES, Floors
from cost_planner.plan.parts import LinkRate
from cost_planner.plan.simulated_run import Environments, Plan
from cost_planner.plan.simulator import simulated
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import Counts, plan_of
from siafu.config import Config
from siafu.models import ModelSpec

GRAPH = graphs.of_counts(1_000_000, 20_000_000, 32, 10)


def plan(backend: str, **changes: object) -> Plan:
    config = Config().replace(
        {
            "data.parts": 3,
            "servers.backend": backend,
            "lambda.on": "aws",
            "train.mode": "pipe",
            "train.intervals": 16,
            "train.eval_every": 1,
        }
    )
    manifest = GRAPH.manifest(3)
    found = plan_of(
        config,
        ModelSpec.of(config, manifest),
        Counts.of(manifest),
        Speeds(),
        threads=4,
        link=LinkRate(1e9),
        environments=Environments(count=6, core=0.5) if backend == "lambda" else None,
    )
    return replace(found, **changes)  # type: ignore[arg-type]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("mode", ["pipe", "async"])
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("rate", [1e8, 1e10])
def test_no_simulated_epoch_is_much_shorter_than_its_floor(backend, mode, rate):
    """Noise of the simulated threads aside; and of a run that one thing limits, not much longer."""
    found = plan(backend, mode=mode, link=LinkRate(rate))
    floors = Floors.of(found)
    if backend == "lambda":
        floors = floors.with_environments(6, 0.5)
    epoch_s = simulated(found, 4, Random(0)).epoch_s
    assert 0.95 * floors.epoch_s(mode) < epoch_s < 3 * floors.epoch_s(mode)


def test_no_pipe_adds_up_what_pipe_overlaps():
    floors = Floors.of(plan("cpu"))
    assert floors.epoch_s("no-pipe") > floors.epoch_s("pipe") == floors.epoch_s("async")


def test_environments_share_the_work_as_far_as_there_are_intervals():
    floors = Floors.of(plan("lambda"))
    alone = floors.table[:, CORES].sum()
    assert floors.with_environments(4, 0.5).table[:, CORES].sum() == pytest.approx(alone / 4 / 0.5)
    assert floors.with_environments(99, 1.0).table[:, CORES].sum() == pytest.approx(alone / 16)


def test_with_enough_environments_they_do_not_limit():
    floors = Floors.of(plan("lambda"))
    count = floors.enough(1.0)
    found = replace(floors, intervals=10**6).with_environments(int(count + 1), 1.0)
    assert not found.limit.startswith("Lambda")


def test_a_run_without_enough_work_for_any_resource_is_limited_by_its_critical_path():
    floors = replace(Floors.of(plan("lambda")), travel_s=1e3)
    assert floors.limit == "critical path"


def test_rare_evaluations_cost_their_share():
    always, rarely, never = (Floors.of(plan("cpu", eval_every=every)).epoch_s("pipe") for every in (1, 10, 0))
    assert rarely == pytest.approx(never + (always - never) / 10)
