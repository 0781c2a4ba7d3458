from __future__ import annotations

import random

import pytest

from graph_server.lambdas.throttle import BURST, FIRST_S, LONGEST_S, PATIENCE_S, RATE_PER_S, Throttle


class Longest:
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


# --- rule 1 -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(10))
def test_invocations_per_second_are_bounded_whoever_asks(seed: int):
    rng = random.Random(seed)
    throttle = Throttle(rng)
    made: list[float] = []
    now = 1e6
    while now < 1e6 + 100:
        now += rng.expovariate(20)
        number = throttle.allows(now)
        throttle.invoked(number)
        made += [now] * number
    for first in made:
        assert sum(first <= time < first + 10 for time in made) <= BURST + 10 * RATE_PER_S + 1
    assert len(made) == pytest.approx(BURST + 100 * RATE_PER_S, rel=0.02)


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest():
    throttle, now, pauses = Throttle(Longest()), 0.0, []
    for number in range(10):
        assert throttle.allows(now) == (1 if number else BURST)
        throttle.invoked(1)
        pause_s = throttle.refused(now, now)
        assert pause_s is not None
        assert throttle.allows(now + 0.99 * pause_s) == 0
        pauses.append(pause_s)
        now += pause_s
    assert pauses == [FIRST_S * 2**n for n in range(6)] + [LONGEST_S] * 4


def test_pauses_are_drawn_at_random_from_the_whole_range():
    drawn = [Throttle(random.Random(seed)).refused(0, 0) or 0.0 for seed in range(1000)]
    assert 0 <= min(drawn) < 0.01 * FIRST_S
    assert 0.99 * FIRST_S < max(drawn) <= FIRST_S
    assert sum(drawn) / 1000 == pytest.approx(FIRST_S / 2, rel=0.05)


def test_refusals_of_one_moment_are_one():
    #  0 s  five invocations;
    #  1 s  the first is refused: a pause to 1.5 s;  the others' refusals change nothing, even later
    throttle = Throttle(Longest())
    throttle.allows(0)
    throttle.invoked(5)
    assert throttle.refused(0, 1) == FIRST_S
    assert throttle.refused(0, 1.2) is None
    assert throttle.refused(0, 5) is None
    assert throttle.refused(4, 5) == 2 * FIRST_S


def test_after_a_pause_one_is_tried_and_more_at_the_steady_rate():
    throttle = Throttle(Longest())
    throttle.refused(0, 0)
    assert [throttle.allows(FIRST_S + after_s) for after_s in (0, 0.11, 1)] == [1, 2, 11]


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_a_worker_that_gets_through_ends_the_row():
    throttle = Throttle(Longest())
    for now in (0, 10):
        throttle.refused(now, now)
    throttle.got_through()
    assert throttle.refused(20, 20) == FIRST_S


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def test_no_more_are_wanted_than_are_granted_and_one_more_after_a_while():
    throttle = Throttle(Longest())
    assert throttle.granted(0) is None
    for left in (7, 6, 5):
        throttle.shrink(left, 0)
    assert [throttle.granted(now * PATIENCE_S) for now in (0, 0.9, 1, 3)] == [5, 5, 6, 8]
    throttle.shrink(6, 3 * PATIENCE_S)
    assert throttle.granted(3.5 * PATIENCE_S) == 6


def test_one_is_always_wanted():
    throttle = Throttle(Longest())
    throttle.shrink(0, 0)
    assert throttle.granted(0) == 1
