from __future__ import annotations

import random

import pytest

from graph_server.lambdas.waiting import Entry, FreeWorkers, Tasks
from siafu.tasks import Lane, TaskId


def entry(interval: int, priority: int, arrival: int, lane: Lane = Lane.TRAIN) -> Entry:
    return (priority,), arrival, TaskId(lane, 0, interval, 0)


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_the_first_is_that_of_lowest_priority_then_that_which_came_first():
    tasks = Tasks()
    late, early, low = entry(0, 1, 2), entry(1, 1, 1), entry(2, 0, 3)
    for one in (late, early):
        tasks.add(one, "x")
    assert tasks.first("x") == tasks.first_of_all() == early
    tasks.add(low, "y")
    assert (tasks.first("x"), tasks.first("y"), tasks.first_of_all()) == (early, low, low)


def test_a_task_that_moves_is_found_at_its_new_home_alone():
    tasks = Tasks()
    only = entry(0, 0, 0)
    tasks.add(only, "x")
    tasks.move(only[2], "y")
    assert (tasks.first("x"), tasks.first("y"), tasks.of("x"), tasks.of("y")) == (None, only, [], [only[2]])
    tasks.move(only[2], "x")
    assert (tasks.first("x"), tasks.first("y"), len(tasks)) == (only, None, 1)


def test_nothing_is_kept_once_no_task_waits():
    """Else what no longer holds would stay for the whole run, where nobody asks who is first."""
    tasks = Tasks()
    for number in range(3):
        tasks.add(entry(number, 0, number), "x")
    for number in range(3):
        tasks.remove(entry(number, 0, number)[2])
    assert not any(vars(tasks).values())


def test_what_is_removed_is_found_nowhere():
    tasks = Tasks()
    one, other = entry(7, 0, 0), entry(7, 1, 1, Lane.EVAL)
    tasks.add(one, "")
    tasks.add(other, "")
    assert set(tasks.of_interval(7)) == {one[2], other[2]}
    tasks.remove(one[2])
    assert (tasks.first(""), tasks.first_of_all(), tasks.of_interval(7)) == (other, other, [other[2]])
    tasks.remove(other[2])
    assert (tasks.first(""), tasks.first_of_all(), tasks.of_interval(7), len(tasks)) == (None, None, [], 0)


def test_a_task_that_comes_again_stands_where_it_came_last():
    tasks = Tasks()
    first, again, between = entry(0, 0, 0), entry(0, 0, 2), entry(1, 0, 1)
    for one in (first, between):
        tasks.add(one, "")
    tasks.remove(first[2])
    tasks.add(again, "")
    assert tasks.first("") == tasks.first_of_all() == between


# --- workers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_the_least_busy_is_what_a_search_would_find(seed: int):
    rng = random.Random(seed)
    free, known = FreeWorkers(), dict[str, int]()
    for _ in range(400):
        name = f"w{rng.randrange(6)}"
        if rng.random() < 0.6:
            known[name] = rng.randrange(3)
            free.put(name, known[name])
        else:
            known.pop(name, None)
            free.drop(name)
        assert free.least_busy() == min(((load, name) for name, load in known.items()), default=None)
        assert free.names == set(known)
        assert all((name in free) == (name in known) for name in ("w0", "w5"))
    assert len(free._heap) <= 6 * 3  # no entry twice
