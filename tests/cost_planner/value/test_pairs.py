"""Ratios of values over paired seeds. Numbers of rules are those of ``cost_planner.value.pairs``."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import mean, stdev

import pytest
from scipy import stats

from cost_planner.value import value
from cost_planner.value.pairs import Attempt, log_speed, ratio


def attempts(*seconds: float, missed: tuple[int, ...] = ()) -> list[Attempt]:
    """A run of each seed that costs a cent a second; ``missed``: seeds that did not reach the target."""
    return [Attempt(seed, seed not in missed, took, took / 100) for seed, took in enumerate(seconds)]


def test_a_ratio_is_that_of_what_is_expected_of_a_success():
    """Rule 1: two of three reach the target, and pay for the third."""
    found = ratio(attempts(10, 20, 60, missed=(2,)), attempts(30, 30, 30))
    assert found is not None
    assert found.times == pytest.approx(value(45.0, 0.45) / value(30.0, 0.3))


def test_only_seeds_that_both_have_are_paired():
    """Rule 2."""
    found = ratio(attempts(10, 20, 1000), attempts(20, 40))
    assert found is not None
    assert (found.times, found.seeds) == (pytest.approx(4.0), 2)


def test_few_seeds_and_few_successes_give_no_interval():
    """Rule 5."""
    four, five = (10.0, 11.0, 12.0, 13.0), (10.0, 11.0, 12.0, 13.0, 14.0)
    for mine in (attempts(*four), attempts(*five, missed=(0, 1, 2, 3))):
        found = ratio(mine, attempts(*five))
        assert found is not None
        assert (found.low, found.certain) == (None, None)
    assert ratio(attempts(*five, missed=(0, 1, 2, 3, 4)), attempts(*five)) is None
    whole = ratio(attempts(*five, missed=(0, 1, 2)), attempts(*five))
    assert whole is not None
    assert whole.low is not None


def test_without_failures_it_is_nearly_the_t_interval_of_the_seeds_log_ratios():
    """Rule 3: where all seeds take about as long."""
    mine, others = [100.0, 104, 98, 101, 97, 103], [120.0, 118, 125, 121, 116, 127]
    logs = [2 * math.log(b / a) for a, b in zip(mine, others, strict=True)]
    around = stats.t.ppf(0.975, 5) * stdev(logs) / math.sqrt(6)
    found = ratio(attempts(*mine), attempts(*others))
    assert found is not None
    assert found.low == pytest.approx(math.exp(mean(logs) - around), rel=0.01)
    assert found.high == pytest.approx(math.exp(mean(logs) + around), rel=0.01)
    assert found.certain


def test_a_choice_among_pairs_widens_it():
    one, other = attempts(10, 12, 11, 10, 13), attempts(11, 12.5, 13, 11, 14)
    alone, chosen = ratio(one, other), ratio(one, other, choices=8)
    assert alone is not None
    assert chosen is not None
    assert (alone.certain, chosen.certain) == (True, False)
    assert chosen.times == alone.times


@pytest.mark.parametrize("failing", [0.0, 0.1, 0.3])
def test_intervals_of_five_seeds_contain_what_they_are_of(failing):
    """19 of 20, or more: of two contenders that are worth as much, whose seeds have more in common than not."""
    rng, inside, count = random.Random(38), 0, 0
    for _ in range(600):
        both = [rng.gauss(0, 0.3) for _ in range(5)]
        tries = [
            [
                Attempt(seed, reached, took * (1 if reached else 2), took / 100 * (1 if reached else 2))
                for seed, common in enumerate(both)
                for took, reached in [(100 * math.exp(common + rng.gauss(0, 0.2)), rng.random() >= failing)]
            ]
            for _ in range(2)
        ]
        found = ratio(*tries)
        if found is not None and found.low is not None and found.high is not None:
            count += 1
            inside += found.low <= 1 <= found.high
    assert count > 500
    assert inside / count > 0.92


def test_speeds_are_compared_by_time_alone():
    """Rule 4: two of three reach the target, and pay for the third; dollars do not count."""
    dear = [replace(one, usd=100 * one.usd) for one in attempts(10, 20, 60, missed=(2,))]
    found = ratio(dear, attempts(30, 30, 30), log_of=log_speed)
    assert found is not None
    assert found.times == pytest.approx(30 / 45)
    assert found.interval is None
    assert ratio(attempts(10, missed=(0,)), attempts(10), log_of=log_speed) is None


def test_the_interval_of_a_speed_is_half_that_of_a_value_where_dollars_follow_time():
    """Rule 4, in the logarithm."""
    mine, others = attempts(100, 104, 98, 101, 97, 103), attempts(120, 118, 125, 121, 116, 127)
    of_value, of_speed = ratio(mine, others), ratio(mine, others, log_of=log_speed)
    assert of_value is not None
    assert of_speed is not None
    assert [one**2 for one in of_speed.interval] == pytest.approx(of_value.interval)
