"""Training epochs whose rows of peers are all here."""

from __future__ import annotations

import pytest

from graph_server.arrivals import Arrivals


@pytest.fixture
def arrivals() -> Arrivals:
    made = Arrivals()
    made.due = 2
    return made


def test_an_epoch_is_in_with_its_last_rows_and_the_same_ones_count_once(arrivals):
    assert [arrivals.add(0, 3, 7), arrivals.add(0, 3, 7), arrivals.add(0, 3, 8)] == [False, False, True]
    assert arrivals.epochs == 1


def test_epochs_are_in_in_order(arrivals):
    assert [arrivals.add(1, 3, 7), arrivals.add(1, 3, 8), arrivals.add(0, 3, 7)] == [False, False, False]
    assert arrivals.add(0, 5, 7)
    assert arrivals.epochs == 2
    assert not arrivals.add(0, 5, 8)  # over


def test_a_run_that_goes_on_begins_later_even_if_rows_came_before_we_heard_of_it(arrivals):
    assert [arrivals.add(4, 3, 7), arrivals.add(4, 3, 8)] == [False, False]
    arrivals.begin(4)
    assert arrivals.epochs == 5
    arrivals.begin(4)
    assert arrivals.epochs == 5


def test_without_peers_nothing_is_waited_for():
    alone = Arrivals()
    alone.begin(3)
    assert alone.epochs == 3
