"""Watt-hours of an option."""

from __future__ import annotations

import pytest

from cost_planner.plan import energy, graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Predicted, Simulated
from cost_planner.plan.speeds import Speeds
from siafu.config import Config


def predicted(backend: str = "cpu", name: str = "c6i.2xlarge", environments: int = 0, **settings: object) -> Predicted:
    config = Config().replace({key.replace("__", "."): value for key, value in settings.items()})
    graph = graphs.of_counts(200_000, 4_000_000, 32, 10)
    asked = Asked(
        config, graph, Epochs(100), Speeds(), instances=[name], servers=[2], backends=[backend], memories_mb=[1769]
    )
    return Predicted(Catalogue(asked).options[0], Simulated(36.0, 36.0, environments), 0.0)


def test_every_vcpu_works_at_its_watts_for_as_long_as_the_run():
    one = predicted()
    watts = 2 * 8 * 3.76 + 1 * 4 * 1.69  # two c6i.2xlarge, and a c7g.xlarge for the parameter server
    assert energy.watt_hours(one) == pytest.approx(watts * one.seconds / 3600)


def test_lambdas_count_by_their_share_of_a_vcpu():
    one = predicted("lambda", environments=10)
    watts = 2 * 8 * 3.76 + 1 * 4 * 1.69 + 10 * 1.69  # ten of 1,769 MB, on Graviton2
    assert energy.watt_hours(one) == pytest.approx(watts * one.seconds / 3600)


@pytest.mark.parametrize(
    ("backend", "name", "settings"),
    [("cpu", "c8a.2xlarge", {}), ("gpu", "g6.xlarge", {}), ("lambda", "c6i.2xlarge", {"cloud__arch": "x86_64"})],
)
def test_without_published_watts_nothing_is_said(backend, name, settings):
    assert energy.watt_hours(predicted(backend, name, 10, **settings)) is None
