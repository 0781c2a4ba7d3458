"""Every rule of ``train.stop_on``, evaluation by evaluation: which is the best, and how long patience has waited."""

from __future__ import annotations

import math

import pytest

from siafu.stopping import Stopping

# Of each evaluation: its score and loss, then by rule (best, waited since).
#    score  loss      score      loss       both
COURSE = [
    (0.50, 2.0, (True, 0), (True, 0), (True, 0)),
    (0.60, 1.5, (True, 0), (True, 0), (True, 0)),
    (0.60, 1.5, (False, 1), (False, 1), (True, 0)),  # equalled: for "both" the later one is the best
    (0.70, 1.6, (True, 0), (False, 2), (False, 0)),  # a higher score alone starts patience again
    (0.65, 1.4, (False, 1), (True, 0), (False, 0)),  # and so does a lower loss alone
    (0.69, 1.41, (False, 2), (False, 1), (False, 1)),
    (0.70, 1.45, (False, 3), (False, 2), (False, 0)),  # the highest score equalled
    (0.69, 1.4, (False, 4), (False, 3), (False, 0)),  # the lowest loss equalled
    (0.60, 1.5, (False, 5), (False, 4), (False, 1)),  # what was once the best is not now
    (0.70, 1.4, (False, 6), (False, 5), (True, 0)),
]


@pytest.mark.parametrize("rule", ["score", "loss", "both"])
def test_the_best_and_the_patience_of_each_rule(rule: str):
    stopping = Stopping(rule)
    found = [(stopping.judge(score, loss), stopping.waited) for score, loss, *_ in COURSE]
    assert found == [line[2 + ["score", "loss", "both"].index(rule)] for line in COURSE]


@pytest.mark.parametrize("rule", ["score", "loss", "both"])
def test_the_first_is_the_best_whatever_it_is_and_a_number_is_better_than_none(rule: str):
    stopping = Stopping(rule)
    assert stopping.judge(math.nan, math.nan)
    assert not stopping.judge(math.nan, math.nan)
    assert stopping.waited == 1
    assert stopping.judge(0.1, 9.0)
    assert not stopping.judge(math.nan, math.nan)


def test_infinite_losses_are_losses():
    stopping = Stopping("both")
    assert stopping.judge(0.5, math.inf)
    assert stopping.judge(0.5, 3.0)
    assert not stopping.judge(0.5, math.inf)
    assert stopping.waited == 0  # the score was equalled
