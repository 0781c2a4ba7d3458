"""What spot machines that AWS takes back add to a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cost_planner.plan import graphs, interruptions
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import Catalogue, Option
from cost_planner.plan.ranking import Predicted, Simulated
from cost_planner.plan.speeds import Speeds
from siafu.config import Config
from siafu.pricing.prices import instance

TEN_HOURS_S = 36_000.0


def option(backend: str = "cpu", name: str = "c7g.2xlarge", servers: int = 2, **settings: object) -> Option:
    """Without a set-up."""
    config = Config().replace(
        {"cloud.spot": True, **{key.replace("__", "."): value for key, value in settings.items()}}
    )
    graph = graphs.of_counts(200_000, 4_000_000, 32, 10)
    asked = Asked(config, graph, Epochs(100), Speeds(), instances=[name], servers=[servers], backends=[backend])
    return replace(Catalogue(asked).options[0], setup_s=0.0)


def test_a_band_is_counted_at_its_upper_end():
    bands = {name: instance(name).spot_interrupted for name in ("c7g.2xlarge", "c5.2xlarge", "c5n.4xlarge")}
    assert bands == {"c7g.2xlarge": 0.05, "c5.2xlarge": 0.10, "c5n.4xlarge": 0.15}
    assert (instance("c6i.4xlarge").spot_interrupted, instance("c8g.2xlarge").spot_interrupted) == (0.2, 1.0)
    assert instance("c8i.2xlarge").spot_interrupted is None


@pytest.mark.parametrize(
    ("settings", "lost_s"),
    [
        ({}, 150),  # half of run.checkpoint_seconds
        ({"run__checkpoint_every": 10}, 100),  # 20 s an epoch
        ({"run__checkpoint_every": 100}, 150),
        ({"run__checkpoint_seconds": 0}, 18_000),  # half the training
    ],
)
def test_machines_hours_and_checkpoints_decide(settings, lost_s):
    found = interruptions.of(option(**settings), TEN_HOURS_S, epoch_s=20.0)
    assert found.expected == pytest.approx((2 * 0.05 + 1 * 0.05) * 10 / 730)  # one parameter server
    assert found.each_s == pytest.approx(lost_s + 25.8)


def test_the_start_of_a_run_is_lost_again_and_a_short_one_loses_half_of_itself():
    found = interruptions.of(replace(option(), setup_s=40.0), 100.0, epoch_s=1.0)
    assert found.each_s == pytest.approx(50 + 25.8 + 40)
    assert found.expected == pytest.approx(0.15 * 140 / 3600 / 730)


def test_on_demand_has_none_and_types_without_a_figure_are_named():
    found = interruptions.of(option(cloud__spot=False), TEN_HOURS_S, epoch_s=20.0)
    assert (found.expected, found.seconds) == (0, 0)
    unknown = option(name="c8i.2xlarge")
    assert interruptions.unknown(unknown) == ["c8i.2xlarge"]
    assert interruptions.of(unknown, TEN_HOURS_S, epoch_s=20.0).expected == pytest.approx(0.05 * 10 / 730)


def test_a_baseline_has_one_machine_and_no_checkpoints_by_time():
    found = interruptions.of(option("vanilla", "g6.xlarge", 1), TEN_HOURS_S, epoch_s=20.0)
    assert found.expected == pytest.approx(10 / 730)
    assert found.each_s == pytest.approx(18_000 + 25.8)


def test_time_and_dollars_of_a_plan_have_them():
    spot = option(name="c8g.2xlarge", run__checkpoint_seconds=0)
    one = Predicted(spot, Simulated(epoch_s=3600.0, first_s=3600.0, environments=0), 0.0)
    hours = spot.epochs
    expected = (2 * 1.0 + 1 * 0.05) * hours / 730
    assert one.seconds == pytest.approx(3600 * hours + expected * (1800 * hours + 25.8))
    servers = next(item for item in one.cost.items if item.part == "graph_servers")
    assert servers.quantity == pytest.approx(2 * one.seconds / 3600)
