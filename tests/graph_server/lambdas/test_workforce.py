from __future__ import annotations

import random
from unittest.mock import Mock

import pytest

from graph_server.lambdas.autotune import Autotuner
from graph_server.lambdas.workforce import LEAST_COHORT, START_S, Workforce


def test_workers_asked_for_before_the_first_failure_are_one_cohort():
    workforce = Workforce("w", 4 * LEAST_COHORT, None, random.Random(0))
    first, more = workforce.ask(LEAST_COHORT, 0, 0.0), workforce.ask(2, 0, 0.0)
    for name in first:
        workforce.ended(name, 1.0, ran=True)
    assert workforce.hopeless() == 0  # two of the cohort may come up still
    for name in more:
        workforce.ended(name, 1.0, ran=True)
    assert workforce.hopeless() == LEAST_COHORT + 2


def test_workers_asked_for_after_a_failed_cohort_are_another():
    workforce = Workforce("w", 4 * LEAST_COHORT, None, random.Random(0))
    first = workforce.ask(LEAST_COHORT, 0, 0.0)
    workforce.ended(first[0], 1.0, ran=True)
    workforce.ask(1, 0, 1.0)  # it may come up, but says nothing of those before it
    for name in first[1:]:
        workforce.ended(name, 1.0, ran=True)
    assert workforce.hopeless() == LEAST_COHORT


def test_one_that_is_overdue_and_then_refused_takes_nobodys_place_among_those_that_may_come_up():
    workforce = Workforce("w", 4 * LEAST_COHORT, None, random.Random(0))
    late = workforce.ask(LEAST_COHORT + 1, 0, 0.0)
    workforce.tick(START_S)
    workforce.ended(late.pop(), START_S, ran=False)
    (fresh,) = workforce.ask(1, 0, START_S)
    for name in late:
        workforce.ended(name, START_S + 1, ran=True)
    assert workforce.hopeless() == 0  # the fresh one may come up
    workforce.ended(fresh, START_S + 2, ran=True)
    assert workforce.hopeless() == LEAST_COHORT + 1


def test_invocations_are_in_vain_only_since_the_service_last_let_one_run():
    workforce = Workforce("w", 4, None, random.Random(0))
    name, *_ = workforce.ask(2, 0, 0.0)
    workforce.refused(0.0, 10.0, shrink=False)
    assert workforce.in_vain_for(110.0) == 100.0
    workforce.ended(name, 100.0, ran=True)
    assert workforce.in_vain_for(110.0) == 10.0


@pytest.mark.parametrize("seed", range(20))
def test_tallies_are_what_counting_the_workers_gives(seed: int) -> None:
    rng = random.Random(seed)
    workforce = Workforce("w", 12, None, random.Random(seed))
    for step in range(200):
        now, known = float(step), workforce.names
        if not known or rng.random() < 0.3:
            workforce.ask(rng.randint(1, 3), 0, now)
        else:
            name, event = rng.choice(known), rng.randrange(5)
            if event == 0:
                workforce.pulled(name)
            elif event == 1:
                workforce.retire(name)
            elif event == 2:
                workforce.left(name, now)
            elif event == 3:
                workforce.ended(name, now, ran=rng.random() < 0.5)
            else:
                workforce.tick(now + rng.choice([0.0, START_S]))
        alive = list(workforce._alive.values())
        assert workforce.num_starting == sum(state.is_starting for state in alive)
        assert workforce._num_off == sum(state.is_off for state in alive)
        assert workforce._num_leaving == sum(state.is_leaving for state in alive)
        assert workforce._num_working == sum(state.works for state in alive)


def test_what_is_seen_counts_once_half_of_the_workers_wanted_have_started() -> None:
    tuner = Mock(spec=Autotuner, wanted=10)
    tuner.decide.return_value = True
    workforce = Workforce("w", 10, tuner, random.Random(0))
    starting = workforce.ask(10, 0, 0.0)
    for name in starting[:4]:
        workforce.pulled(name)
    assert not workforce.tune(1.0)  # six of ten are to come
    tuner.start_over.assert_called_once_with(1.0)
    workforce.pulled(starting[4])
    assert workforce.tune(2.0)  # half have started
    tuner.decide.assert_called_once_with(2.0)
