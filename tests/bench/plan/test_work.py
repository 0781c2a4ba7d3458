"""Work of a run's steps against other counts of the same: bench.scale's traffic, and by hand."""

from __future__ import annotations

from random import Random

import pytest

from bench import scale
from bench.plan.parts import LinkRate
from bench.plan.simulator import Environments, simulated
from bench.plan.work import Counts, Speeds, plan_of, work_of
from siafu import models
from siafu.models import ModelSpec
from siafu.tasks import TENSOR_KINDS, Lane

SETTING = scale.Setting("small", servers=4, intervals=10, graph_instance="c5n.4xlarge")
MODEL = models.build(ModelSpec.of(SETTING.config, SETTING.manifest))
STEPS = MODEL.program(Lane.TRAIN).steps
WORK = work_of(SETTING.config, MODEL, Counts.of(SETTING.manifest), Speeds())


def test_bytes_are_those_of_the_table_of_scale():
    moved = scale.traffic(SETTING)
    assert sum(one.down for one in WORK) * SETTING.intervals == pytest.approx(moved.down, rel=1e-6)
    assert sum(one.up for one in WORK) * SETTING.intervals == pytest.approx(moved.up, rel=1e-6)
    sent = sum(one.peers for one in WORK) * SETTING.intervals * (SETTING.servers - 1)
    assert sent == pytest.approx(moved.ghosts, rel=1e-6)


def test_products_by_hand():
    """GCN 32-48-50: the first forward, then the fused last layer and its backward, then the first layer's backward."""
    n = SETTING.graph.vertices / 4 / 10
    first, last = 2 * n * 32 * 48, 2 * n * 48 * 50
    found = [
        one.seconds * Speeds().lambda_flops for step, one in zip(STEPS, WORK, strict=True) if step.kind in TENSOR_KINDS
    ]
    assert sum(found) == pytest.approx(first + 3 * last + 3 * first, rel=1e-6)


def test_what_is_gathered_once_takes_nothing():
    assert (STEPS[0].gathers, WORK[0].seconds) == ("H0", 0.0)


def test_twice_the_intervals_are_half_the_work_each():
    config = SETTING.config.replace({"train.intervals": 20})
    halves = work_of(config, MODEL, Counts.of(SETTING.manifest), Speeds(task_s=0.0))
    wholes = work_of(SETTING.config, MODEL, Counts.of(SETTING.manifest), Speeds(task_s=0.0))
    for half, whole in zip(halves, wholes, strict=True):
        assert 2 * half.seconds == pytest.approx(whole.seconds)
        assert 2 * half.down == pytest.approx(whole.down)
        assert 2 * half.peers == pytest.approx(whole.peers)


def test_a_plan_is_never_faster_than_its_links():
    """The floor of the busiest link in docs/scale.md, and not much above it where it is what limits."""
    link = LinkRate(10e9 / 8)
    plan = plan_of(
        SETTING.config, SETTING.manifest, Speeds(value_ns=0.001, edge_ns=0.0, copy_ns=0.0), threads=16, link=link,
        environments=Environments(count=200),
    )  # fmt: skip
    floor = scale.traffic(SETTING).busiest() / link.bytes_per_s
    assert floor <= simulated(plan, 3, Random(0)).epoch_s * 1.001 < 1.6 * floor
