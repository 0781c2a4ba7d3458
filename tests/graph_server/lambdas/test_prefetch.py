"""How many tasks a worker holds: on workers that are computed by hand."""

from __future__ import annotations

import pytest

from graph_server.lambdas.prefetch import MOST_PREFETCH, PREFETCH, Prefetch


def worked(
    made: Prefetch, *, compute_s: float, task_s: float, tasks: int = 40, queued: int = 3, nbytes: int = 1000
) -> int:
    """One worker whose tasks come back every ``task_s``, of which it computes ``compute_s``."""
    for number in range(tasks):
        made.watch(number * task_s, queued, 1)
        made.answered(compute_s, nbytes)
    made.watch(tasks * task_s, queued, 1)
    return made.decide(100)


@pytest.mark.parametrize(
    ("compute_s", "task_s", "number"),
    [
        (0.020, 0.020, PREFETCH),  # it computes all the time
        (0.018, 0.020, PREFETCH),  # nearly
        (0.010, 0.020, 2 * PREFETCH),  # half of it
        (0.008, 0.020, 5),
        (0.001, 0.020, MOST_PREFETCH),
    ],
)
def test_what_a_worker_does_not_compute_is_filled(compute_s: float, task_s: float, number: int):
    assert worked(Prefetch(1024), compute_s=compute_s, task_s=task_s) == number


def test_it_goes_on_until_the_worker_is_full():
    """With n tasks in hand a round trip of 30 ms and 5 ms of computing gives n results in
    35 ms, until it computes always."""
    made, number = Prefetch(1024), PREFETCH
    for _ in range(5):
        number = worked(made, compute_s=0.005, task_s=max(0.005, 0.035 / number))
    assert number == 7


def test_time_in_which_no_task_waits_says_nothing():
    assert worked(Prefetch(1024), compute_s=0.001, task_s=0.020, queued=0) == PREFETCH


def test_a_few_tasks_say_nothing_yet():
    made = Prefetch(1024)
    assert worked(made, compute_s=0.001, task_s=0.020, tasks=5) == PREFETCH
    assert worked(made, compute_s=0.001, task_s=0.020) == MOST_PREFETCH


def test_never_more_than_the_share_of_the_intervals_and_than_memory_holds():
    made = Prefetch(192)
    worked(made, compute_s=0.001, task_s=0.020)
    assert [made.decide(share) for share in (1, 2, 3, 100)] == [2, 2, 3, MOST_PREFETCH]
    made.answered(0.001, 8 << 20)  # an eighth of the memory holds three of these
    assert made.decide(100) == 3
    made.answered(0.001, 1 << 30)
    assert made.decide(100) == PREFETCH
