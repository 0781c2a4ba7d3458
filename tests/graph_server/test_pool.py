"""What waits for a pool thread begins by priority, as threads are free."""

from __future__ import annotations

from graph_server.backends import Job
from graph_server.pool import Pool
from siafu.tasks import Lane, TaskId

TASK = TaskId(Lane.TRAIN, 0, 0, 3)


def job(name: str, *priority: int, **more) -> Job:
    return Job(priority, lambda: lambda: name, lambda value: [], **more)


def begun(pool: Pool) -> list[str]:
    return [compute.work() for compute, _ in pool.begin()]


def test_the_lowest_priority_begins_first_and_of_equal_ones_the_first_that_came():
    pool = Pool(8)
    for one in (job("late", 2), job("a", 1, 0), job("b", 1, 0), job("first", 0)):
        pool.add(one)
    assert begun(pool) == ["first", "a", "b", "late"]


def test_as_many_begin_as_threads_are_free():
    pool = Pool(2)
    for name in "abc":
        pool.add(job(name, 0))
    assert begun(pool) == ["a", "b"]
    assert len(pool) == 3
    assert begun(pool) == []
    pool.finished()
    assert begun(pool) == ["c"]
    assert len(pool) == 2


def test_one_that_may_not_begin_waits_and_lets_others_pass():
    pool, allowed = Pool(2), False
    pool.add(job("held", 0, may_begin=lambda: allowed))
    pool.add(job("free", 1))
    assert begun(pool) == ["free"]
    allowed = True
    assert begun(pool) == ["held"]


def test_the_task_that_follows_is_told_with_the_computation():
    pool = Pool(2)
    pool.add(job("followed", 0, leads_to=TASK))
    pool.add(job("alone", 1))
    assert [following for _, following in pool.begin()] == [TASK, None]


def test_nothing_begins_once_it_is_stopped():
    pool = Pool(2)
    pool.add(job("waits", 0))
    pool.stop()
    assert len(pool) == 0
    pool.add(job("comes", 0))
    assert begun(pool) == []
