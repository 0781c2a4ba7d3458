"""When training counts as collapsed; rules are those of ``gpu_baselines.collapse``."""

from __future__ import annotations

import math

import pytest

from gpu_baselines.collapse import PATIENCE, WINDOW, Setting, Watch, constant_loss


def told(watch: Watch, losses: list[float]) -> list[str]:
    """What is said at the end of each window, each of one loss."""
    found = []
    for loss in losses:
        verdicts = [watch.saw(loss) for _ in range(WINDOW)]
        assert all(not verdict.collapsed and not verdict.best for verdict in verdicts[:-1])
        found.append("collapsed" if verdicts[-1].collapsed else "best" if verdicts[-1].best else "")
    return found


def test_a_loss_that_is_no_number_is_a_collapse_at_once() -> None:
    """Rule 1."""
    watch = Watch(constant=2.0)
    assert not watch.saw(1.0).collapsed
    assert watch.saw(math.nan).collapsed == "the loss is nan"
    assert watch.saw(math.inf).collapsed == "the loss is inf"


def test_to_lose_half_of_what_was_learnt_is_a_collapse() -> None:
    """Rule 2: half way between 1.0, the best, and 2.0, a constant."""
    assert told(Watch(constant=2.0), [1.5, 1.0, 1.49, 1.51]) == ["best", "best", "", "collapsed"]


def test_a_loss_that_was_hardly_below_a_constants_cannot_be_lost() -> None:
    """Rule 2: 1.99 of 2 is not learnt. Rule 3 has the rest."""
    assert told(Watch(constant=2.0), [1.99, 3.0, 1.5]) == ["best", "", "best"]


def test_to_have_learnt_nothing_for_long_is_a_collapse() -> None:
    """Rule 3."""
    losses = [2.0 - 0.001 * i for i in range(PATIENCE)]
    assert told(Watch(constant=2.0), losses) == ["best"] * (PATIENCE - 1) + ["collapsed"]


def test_patience_begins_anew_after_a_recovery() -> None:
    watch = Watch(constant=2.0)
    assert told(watch, [2.0] * PATIENCE)[-1] == "collapsed"
    watch.recovered()
    assert told(watch, [2.0] * (PATIENCE - 1) + [1.0]) == [""] * (PATIENCE - 1) + ["best"]


def test_training_that_gets_better_slowly_and_noisily_is_left_alone() -> None:
    losses = [2.5, 1.9, 1.92, 1.7, 1.75, 1.4, 1.5, 1.2, 1.0, 1.1]
    assert "collapsed" not in told(Watch(constant=2.0), losses)


def test_a_watch_goes_on_where_it_was() -> None:
    one, other = Watch(constant=2.0), Watch(constant=2.0)
    told(one, [1.5, 1.0])
    one.saw(1.2)
    other.resume(one.numbers())
    assert vars(one) == vars(other)


def test_settings_get_milder_until_nothing_is_stale() -> None:
    setting, found = Setting(freeze=23, chunks=5), []
    while (milder := setting.milder()) is not None:
        found.append(tuple(setting := milder))
    assert found == [(1, 5), (1, 3), (1, 2), (1, 1)]


def test_the_loss_of_a_constant_answer() -> None:
    assert constant_loss("classes", 4, [3, 1], [3, 1]) == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    )
    smoothed = constant_loss("classes", 4, [4, 0], [4, 0], smoothing=0.2)
    assert smoothed == pytest.approx(-(0.9 * math.log(0.9) + 0.1 * math.log(0.1)))
    assert constant_loss("labels", 4, [2, 4], [2, 4]) == pytest.approx(math.log(2) / 2)
    assert constant_loss("numbers", 4, [8, 0], [20, 4]) == pytest.approx((1 + 1) / 2)
    assert constant_loss("classes", 0, [0, 0], [0, 0]) == 0
