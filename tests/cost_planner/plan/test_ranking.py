"""Which options are simulated, and what is said of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cost_planner.plan import graphs
from cost_planner.plan.asked import Asked
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Limits, Ranking, front_of, thinned
from cost_planner.plan.speeds import Speeds
from siafu.config import Config

GRAPH = graphs.of_counts(200_000, 4_000_000, 32, 10)
OPTIONS = Catalogue(
    Asked(Config(), GRAPH, Epochs(100), Speeds(), instances=["c7g.2xlarge", "c8gn.4xlarge"], servers=[1, 2, 4])
).options


@pytest.fixture(scope="module")
def ranking() -> Ranking:
    return Ranking(OPTIONS, 0.15, Limits(), top=5)


def test_the_front_is_what_nobody_beats_in_both():
    seconds, usd = np.array([3.0, 1.0, 2.0, 2.0, 4.0]), np.array([2.0, 5.0, 3.0, 4.0, 2.0])
    assert front_of(seconds, usd) == [1, 2, 0]


def test_a_long_front_is_thinned_and_keeps_its_ends():
    seconds = np.geomspace(1, 1000, 50)
    found = thinned(list(range(50)), seconds, 4)
    assert (found[0], found[-1], len(found)) == (0, 49, 4)


def test_every_kind_is_simulated_and_the_best_is_first(ranking):
    assert {one.option.kind for one in ranking.predicted} == {option.kind for option in OPTIONS}
    values = [one.value for one in ranking.shown]
    assert values == sorted(values, reverse=True)
    assert len(ranking.predicted) < len(OPTIONS)


def test_the_front_is_shown_whatever_its_value(ranking):
    assert set(map(id, ranking.front)) <= set(map(id, ranking.shown))
    for one in ranking.front:
        assert not any(o.seconds < one.seconds and o.cost.usd < one.cost.usd for o in ranking.predicted)


def test_a_prediction_adds_up(ranking):
    one = ranking.predicted[0]
    assert one.seconds == pytest.approx(one.option.setup_s + one.first_s + (one.option.epochs - 1) * one.epoch_s)
    low, high = one.seconds_range
    assert low < one.seconds < high == pytest.approx(one.seconds * (1 + one.error))
    assert one.error >= math.hypot(0.15, 0.2)
    assert one.cost.usd == pytest.approx(sum(one.cost.parts.values()))


def test_what_has_a_gpu_is_less_certain_and_vanilla_pays_for_its_machine_alone():
    asked = Asked(Config(), GRAPH, Epochs(100), Speeds(), instances=["g6.xlarge", "c7g.2xlarge"], servers=[1])
    found = Ranking(Catalogue(asked).options, 0.15, Limits(), top=5)
    by_backend = {one.option.backend: one for one in found.predicted}
    assert by_backend.keys() == {"cpu", "lambda", "gpu", "vanilla"}
    for name, one in by_backend.items():
        assert (one.error > 1) == (name in ("gpu", "vanilla"))
        assert one.error >= found.error
    vanilla = by_backend["vanilla"]
    assert vanilla.cost.parts.keys() == {"gpu", "volumes"}
    assert vanilla.option.kind == ("vanilla", "", 0)
    assert by_backend["gpu"].cost.parts.keys() >= {"graph_servers", "param_servers"}


def test_limits_are_answered(ranking):
    middle = sorted(one.seconds for one in ranking.predicted)[len(ranking.predicted) // 2]
    found = Ranking(OPTIONS, 0.15, Limits(seconds=middle, usd=math.inf), top=1)
    assert found.cheapest_within is not None
    assert found.cheapest_within.seconds <= middle
    assert found.cheapest_within in found.shown
    nothing = Ranking(OPTIONS[:4], 0.15, Limits(seconds=0.1, usd=1e-9), top=1)
    assert nothing.cheapest_within is None is nothing.fastest_within


def test_a_small_budget_simulates_few():
    found = Ranking(OPTIONS, 0.15, Limits(), top=5, budget=1)
    assert len(found.predicted) == 1
