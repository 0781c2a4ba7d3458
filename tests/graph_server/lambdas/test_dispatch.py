from __future__ import annotations

import random
from collections import Counter

import pytest

from graph_server.lambdas.dispatch import Assign, Dispatcher
from graph_server.lambdas.task_timeouts import Likeness, Timing
from siafu.errors import WorkerTimeout
from siafu.tasks import Lane, TaskId

A, B, C, D = (TaskId(Lane.TRAIN, 0, interval, 1) for interval in range(4))


def dispatcher(*tasks: TaskId, timeout_s: float = 10.0, relaunches: int = 10) -> Dispatcher:
    made = Dispatcher(Timing(timeout_s, 3, 0.95), relaunches)
    for task in tasks:
        assert made.submit(task, (task.interval,), 0) == []
    return made


# --- rule 1 -----------------------------------------------------------------------------------------------------------


def test_tasks_wait_in_order_of_priority():
    core = dispatcher()
    for task, priority in ((A, 3), (B, 1), (C, 2)):
        core.submit(task, (priority,), 0)
    assert core.pull("x", 3, 0) == [Assign("x", B, 0), Assign("x", C, 0), Assign("x", A, 0)]


def test_tasks_of_equal_priority_wait_in_the_order_of_their_submission():
    core = dispatcher()
    for task in (C, A, B):
        core.submit(task, (0,), 0)
    assert [assign.task for assign in core.pull("x", 3, 0)] == [C, A, B]


def test_a_worker_is_given_no_more_than_it_asked_for():
    core = dispatcher(A, B, C, D)
    assert [assign.task for assign in core.pull("x", 2, 0)] == [A, B]
    assert core.num_queued == 2
    assert core.pull("x", 1, 0) == [Assign("x", C, 0)]


def test_a_result_is_credit_for_another_task():
    core = dispatcher(A, B, C)
    core.pull("x", 1, 0)
    assert core.result(A, "x", 0, 1) == (True, [Assign("x", B, 0)])


def test_of_several_workers_the_least_busy_gets_the_next_task():
    core = dispatcher(A)
    core.pull("x", 3, 0)
    core.pull("y", 3, 0)
    assert core.submit(B, (0,), 0) == [Assign("y", B, 0)]
    assert core.submit(C, (0,), 0) == [Assign("x", C, 0)]


def test_tasks_that_come_at_once_are_spread():
    core = dispatcher()
    for worker in ("x", "y"):
        core.pull(worker, 2, 0)
    given = [core.submit(task, (0,), 0)[0].worker for task in (A, B, C, D)]
    assert Counter(given) == {"x": 2, "y": 2}
    assert given[:2] == ["x", "y"]


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_the_first_result_of_a_task_wins():
    #  0 s   A to x
    #  10 s  x is silent: A to y as well
    #  11 s  x answers, late but first;  12 s  y answers: a duplicate
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    assert core.tick(10) == [Assign("y", A, 1)]
    assert core.result(A, "x", 0, 11)[0]
    assert not core.result(A, "y", 1, 12)[0]
    assert (core.num_open, core.num_duplicates, core.num_relaunches) == (0, 1, 1)


def test_a_result_that_is_repeated_gives_no_second_credit():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    assert core.result(A, "x", 0, 1) == (True, [])
    assert core.result(A, "x", 0, 1) == (False, [])
    core.submit(B, (0,), 2)
    assert core.submit(C, (0,), 2) == []
    assert core.num_duplicates == 1


def test_a_result_of_a_task_that_nobody_knows_is_a_duplicate():
    core = dispatcher()
    assert core.result(A, "x", 0, 0) == (False, [])
    assert core.num_duplicates == 1


def test_a_result_closes_a_task_that_waits_to_be_given_out_again():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.tick(10)
    assert core.num_queued == 1
    assert core.result(A, "x", 0, 11) == (True, [])
    assert core.num_queued == 0
    assert core.pull("y", 1, 12) == []


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_a_task_is_relaunched_when_its_time_is_up_and_not_before():
    core = dispatcher(A)
    core.pull("x", 1, 5)
    core.pull("y", 1, 5)
    assert core.tick(14.9) == []
    assert core.tick(15) == [Assign("y", A, 1)]
    assert core.tick(24.9) == []


def test_a_silent_worker_gets_nothing_new_until_it_speaks():
    core = dispatcher(A)
    core.pull("x", 3, 0)
    assert core.tick(10) == []  # nobody else is there
    assert core.num_silent == 1
    assert core.submit(B, (1,), 11) == []
    assert core.pull("y", 1, 12) == [Assign("y", A, 1)]
    assert core.result(A, "x", 0, 13) == (True, [Assign("x", B, 0)])
    assert core.num_silent == 0


@pytest.mark.parametrize("speaks", ["pull", "result", "failed"])
def test_any_word_ends_the_silence(speaks: str):
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.tick(10)
    match speaks:
        case "pull":
            core.pull("x", 1, 11)
        case "result":
            core.result(A, "x", 0, 11)
        case "failed":
            core.failed(B, "x", 0, 11)
    assert core.num_silent == 0


def test_a_worker_that_lost_a_task_gets_it_again_for_the_same_credit():
    core = dispatcher(A)
    core.pull("x", 2, 0)
    core.tick(10)
    assert core.pull("x", 0, 11) == [Assign("x", A, 1)]
    core.submit(B, (0,), 11)
    assert core.submit(C, (0,), 11) == []  # the two credits are used
    assert core.result(A, "x", 0, 12)[0]  # the first attempt's answer came after all
    assert core.num_queued == 1  # and gave no credit: the second attempt still computes
    assert core.result(A, "x", 1, 13) == (False, [Assign("x", C, 0)])


def test_a_task_is_relaunched_at_a_multiple_of_what_others_of_its_kind_took():
    #  0-20 s   x does twenty tasks of 2 s each;  100 s  A to x: due at 106 s, not at 110 s
    core = dispatcher()
    core.pull("x", 1, 0)
    for epoch_number in range(1, 21):
        (task,) = epoch(epoch_number, 0)
        core.submit(task, (0,), 0, 100)
        core.result(task, "x", 0, 2)
    core.submit(A, (0,), 100, 100)
    core.pull("y", 1, 100)
    assert core.tick(105.9) == []
    assert core.tick(106) == [Assign("y", A, 1)]
    assert core.tick(109.9) == []  # the second attempt may take twice as long, up to the configured time
    core.pull("z", 1, 109.9)
    assert core.tick(115.9) == []
    assert core.tick(116) == [Assign("z", A, 2)]


def test_an_answer_that_comes_after_the_task_was_given_up_counts_as_a_time():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    core.tick(10)
    core.result(A, "y", 1, 11)
    assert core.timing.limit_s(Likeness.of(A, 0), 0) == 3
    core.result(A, "x", 0, 50)
    assert core.timing.limit_s(Likeness.of(A, 0), 0) == 150


def test_a_repeated_answer_and_a_failure_are_no_times():
    core = dispatcher(A, B)
    core.pull("x", 2, 0)
    core.failed(A, "x", 0, 1)
    core.result(B, "x", 0, 2)
    core.result(B, "x", 0, 90)
    assert core.timing.limit_s(Likeness.of(A, 0), 0) == 6


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def test_a_lost_worker_gives_its_tasks_back_at_once():
    core = dispatcher(A, B, C)
    core.pull("x", 2, 0)
    assert core.lost("x", 1) == []
    assert core.num_queued == 3
    assert core.pull("y", 3, 1) == [Assign("y", A, 1), Assign("y", B, 1), Assign("y", C, 0)]
    assert core.lost("x", 2) == []  # of which we know already


def test_a_lost_worker_takes_nothing_back_that_another_holds():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    core.tick(10)  # A to y as well
    assert core.lost("x", 11) == []
    assert core.num_queued == 0
    core.lost("y", 12)
    assert core.num_queued == 1


def test_a_task_that_failed_goes_to_another_worker_at_once():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.submit(B, (-1,), 0)
    assert core.failed(A, "x", 0, 1) == [Assign("x", B, 0)]
    assert core.pull("y", 1, 1) == [Assign("y", A, 1)]


def test_a_failure_that_is_repeated_changes_nothing():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    assert core.failed(A, "x", 0, 1) == [Assign("x", A, 1)]
    assert core.failed(A, "x", 0, 1) == []
    assert core.num_relaunches == 1


# --- rule 5 -----------------------------------------------------------------------------------------------------------


def test_too_many_relaunches_end_the_run():
    core = dispatcher(A, relaunches=2)
    for attempt in range(3):
        assert core.pull(f"x{attempt}", 1, 0) == [Assign(f"x{attempt}", A, attempt)]
        if attempt < 2:
            core.lost(f"x{attempt}", 0)
    with pytest.raises(WorkerTimeout, match=r"^train epoch 0 interval 0 step 1: no result after 3 attempts of 10 s"):
        core.lost("x2", 0)


# --- rule 6 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("affinity", [False, True])
def test_a_task_that_failed_goes_to_a_free_worker_that_has_not_tried_it(affinity: bool):
    core = Dispatcher(Timing(10, 3, 0.95), 10, affinity=affinity)
    core.pull("x", 2, 0)
    core.submit(A, (0,), 0)
    core.pull("y", 2, 0)
    core.submit(B, (0,), 0)  # to y: x has a credit left, and is as busy
    assert core.failed(A, "x", 0, 1) == [Assign("y", A, 1)]


def test_a_task_that_failed_waits_for_a_worker_that_has_not_tried_it():
    #  0 s  A to x, B to y;  1 s  x fails and is free, y is not;  2 s  y is done and takes A
    core = dispatcher(A, B)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    assert core.failed(A, "x", 0, 1) == []
    assert core.submit(C, (1,), 1) == [Assign("x", C, 0)]  # x may do something else meanwhile
    assert core.result(B, "y", 0, 2) == (True, [Assign("y", A, 1)])


@pytest.mark.parametrize("how", ["falls silent", "dies"])
def test_nobody_waits_for_a_worker_that_does_not_speak(how: str):
    core = dispatcher(A, B)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    assert core.failed(A, "x", 0, 1) == []
    assigned = core.tick(10) if how == "falls silent" else core.lost("y", 10)
    assert assigned == [Assign("x", A, 1)]


def test_nobody_waits_for_a_worker_whose_task_can_no_longer_time_out():
    #  0 s   A to x;  10 s  x is silent: A to y as well;  11 s  x answers, y still computes a duplicate, maybe for ever
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    core.tick(10)
    core.result(A, "x", 0, 11)
    assert core.submit(B, (0,), 11) == [Assign("x", B, 0)]
    assert core.failed(B, "x", 0, 12) == [Assign("x", B, 1)]


def test_a_task_goes_back_to_a_worker_once_all_have_tried_it():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    assert core.failed(A, "x", 0, 1) == [Assign("y", A, 1)]
    assert core.failed(A, "y", 1, 2) == [Assign("x", A, 2)]


def test_a_worker_that_speaks_again_does_not_get_back_what_it_was_silent_about():
    #  0 s  A to x;  5 s  B to y;  10 s  x is silent;  11 s  x speaks: A waits for y all the same;  12 s  y is done
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.submit(B, (0,), 5)
    core.pull("y", 1, 5)
    assert core.tick(10) == core.pull("x", 1, 11) == []
    assert core.result(B, "y", 0, 12) == (True, [Assign("y", A, 1)])


# --- rule 7, and what a worker holds at most --------------------------------------------------------------------------


def test_a_retired_worker_gets_nothing_new_and_its_last_answer_counts():
    core = dispatcher(A)
    core.pull("x", 2, 0)
    assert core.retire("x")
    assert core.submit(B, (0,), 1) == []
    assert core.result(A, "x", 0, 2) == (True, [])
    assert not core.has_tasks("x")
    assert core.pull("y", 1, 3) == [Assign("y", B, 0)]


def test_a_retired_worker_that_does_not_answer_is_not_silent_but_its_task_goes_to_another():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.retire("x")
    core.pull("y", 1, 0)
    assert core.tick(10) == [Assign("y", A, 1)]
    assert core.num_silent == 0


def test_workers_that_are_silent_or_gone_or_retired_are_not_retired():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.tick(10)
    core.pull("y", 1, 10)
    assert [core.retire(name) for name in ("x", "nobody", "y", "y")] == [False, False, True, False]


def test_a_retired_home_is_not_waited_for():
    core = at_home(x=(0, 1, 2), y=(3, 4))
    a, b, c, d = epoch(1, 0, 1, 2, 3)
    for task in (a, b, d, c):
        core.submit(task, (0,), 0)
    assert core.num_queued == 1  # c waits for x, though y has a credit
    core.retire("x")
    assert core.tick(1) == [Assign("y", c, 0)]


def test_a_worker_holds_no_more_than_it_may():
    core = dispatcher(A, B, C, D)
    core.hold_at_most(2, 0)
    assert len(core.pull("x", 8, 0)) == 2
    assert core.hold_at_most(3, 1) == [Assign("x", C, 0)]
    assert core.hold_at_most(1, 2) == []
    assert core.result(A, "x", 0, 3) == core.result(B, "x", 0, 3) == (True, [])
    assert core.result(C, "x", 0, 4) == (True, [Assign("x", D, 0)])


def test_workers_at_work_and_with_nothing_to_do_are_counted():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.pull("y", 1, 0)
    assert (core.num_busy, core.num_idle) == (1, 1)
    core.tick(10)  # x is silent, y has A as well
    assert (core.num_busy, core.num_idle) == (1, 0)
    core.result(A, "x", 0, 11)
    assert (core.num_busy, core.num_idle) == (1, 1)
    core.lost("y", 12)
    assert (core.num_busy, core.num_idle) == (0, 1)


# --- forget -----------------------------------------------------------------------------------------------------------


def test_what_is_forgotten_comes_back_to_nobody():
    core = dispatcher(A, B, C)
    core.pull("x", 2, 0)
    core.forget()
    assert (core.num_open, core.num_queued) == (0, 0)
    assert core.lost("x", 1) == core.pull("y", 3, 1) == core.tick(99) == []
    assert core.num_relaunches == 0


# --- affinity (rule 1) ------------------------------------------------------------------------------------------------


def epoch(number: int, *intervals: int) -> list[TaskId]:
    return [TaskId(Lane.TRAIN, number, interval, 1) for interval in intervals]


def at_home(**homes: tuple[int, ...]) -> Dispatcher:
    """Workers with two credits each, and the intervals that they had in epoch 0."""
    core = Dispatcher(Timing(10, 3, 0.95), 10, affinity=True)
    for name, intervals in homes.items():
        core.pull(name, 2, 0)
        for task in epoch(0, *intervals):
            assert core.submit(task, (0,), 0) == [Assign(name, task, 0)]
            core.result(task, name, 0, 0)
        core.pull(name, -2, 0)  # so that the next worker gets its own
    for name in homes:
        core.pull(name, 2, 0)
    return core


def test_a_task_goes_to_its_home():
    core = at_home(x=(0, 1), y=(2, 3))
    given = [core.submit(task, (0,), 0)[0].worker for task in epoch(1, 2, 0, 3, 1)]
    assert given == ["y", "x", "y", "x"]


def test_a_worker_with_nothing_to_do_gets_a_share_of_the_intervals():
    core = at_home(x=(0, 1, 2), y=())
    first = [core.submit(task, (0,), 0) for task in epoch(1, 0, 1, 2)]
    assert [one[0].worker for one in first] == ["x", "y", "x"]  # x is at work, and home to two more than y
    for task, one in zip(epoch(1, 0, 1, 2), first, strict=True):
        core.result(task, one[0].worker, 0, 1)
    again = [core.submit(task, (0,), 2)[0].worker for task in epoch(2, 0, 2, 1)]
    assert again == ["x", "x", "y"]  # 2 to 1: both keep theirs


def test_a_task_waits_for_its_busy_home_while_others_work():
    core = at_home(x=(0, 1, 2), y=(3, 4))
    a, b, c, d = epoch(1, 0, 1, 2, 3)
    for task in (a, b, d):
        assert len(core.submit(task, (0,), 0)) == 1
    assert core.submit(c, (0,), 0) == []  # y has a credit, and something to do
    assert core.result(a, "x", 0, 1) == (True, [Assign("x", c, 0)])


def test_a_worker_with_nothing_to_do_takes_what_waits_for_its_home():
    core = at_home(x=(0, 1, 2), y=(3, 4))
    a, b, c = epoch(1, 0, 1, 2)
    given = [assign for task in (a, b, c) for assign in core.submit(task, (0,), 0)]
    assert [assign.worker for assign in given] == ["x", "x", "y"]
    for task, name in ((a, "x"), (b, "x"), (c, "y")):
        core.result(task, name, 0, 1)
    (next_c,) = epoch(2, 2)
    assert core.submit(next_c, (0,), 2) == [Assign("y", next_c, 0)]  # which is its home now


@pytest.mark.parametrize("how", ["dies", "falls silent"])
def test_a_home_that_does_not_speak_is_not_waited_for(how: str):
    core = at_home(x=(0, 1), y=(2, 3))
    a, b, c = epoch(1, 0, 1, 2)
    for task in (a, c):
        core.submit(task, (0,), 0)
    core.result(c, "y", 0, 9)
    assert (core.lost("x", 10) if how == "dies" else core.tick(10)) == [Assign("y", a, 1)]
    assert core.submit(b, (0,), 11) == [Assign("y", b, 0)]  # though y is at work


def test_a_home_that_failed_is_not_waited_for():
    core = at_home(x=(0, 1), y=(2, 3))
    a, b, c = epoch(1, 0, 1, 2)
    for task in (a, b, c):
        core.submit(task, (0,), 0)
    assert core.failed(a, "x", 0, 1) == [Assign("y", a, 1)]  # though y is at work, and x is not without work


def test_a_task_of_a_free_home_is_found_behind_any_number_that_wait_for_theirs():
    #  x has two of its many intervals, y one of its own and a credit left: the only task for y is behind all of x's
    core = at_home(x=tuple(range(500)), y=(998, 999))
    for task in epoch(1, 998, *range(500)):
        core.submit(task, (0,), 0)
    assert core.num_queued == 498
    (late,) = epoch(1, 999)
    assert core.submit(late, (1,), 0) == [Assign("y", late, 0)]


def test_a_task_waits_for_the_worker_that_had_its_interval_since():
    #  both lanes of interval 2 wait for x; y, with nothing to do, takes the first of them and is the home of the other
    core = at_home(x=(0, 1, 2), y=(3,))
    a, b, c = epoch(1, 0, 1, 2)
    evaluates = TaskId(Lane.EVAL, 0, 2, 1)
    for task in epoch(1, 3):
        core.submit(task, (0,), 0)
    core.pull("y", -1, 0)
    for task in (a, b, c, evaluates):
        core.submit(task, (0,), 0)
    assert core.num_queued == 2
    core.result(*epoch(1, 3), "y", 0, 1)
    assert core.pull("y", 1, 2) == [Assign("y", evaluates, 0)]


def test_a_home_that_speaks_again_gets_what_waits():
    core = at_home(x=(0, 1), y=(2, 3))
    a, b, c, d = epoch(1, 0, 1, 2, 3)
    for task in (a, c, d):
        core.submit(task, (0,), 0)
    core.tick(10)  # nobody else has a credit, x and y are silent
    core.submit(b, (1,), 11)
    assert core.result(c, "y", 0, 12)[1] == [Assign("y", a, 1)]
    assert core.pull("x", 0, 13) == [Assign("x", d, 1)]


def test_without_affinity_there_are_no_homes():
    core = dispatcher(A)
    core.pull("x", 1, 0)
    core.result(A, "x", 0, 1)
    core.pull("a", 1, 1)
    (again,) = epoch(1, A.interval)
    assert core.submit(again, (0,), 1) == [Assign("a", again, 0)]


# --- all together -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_task_is_answered_once(seed: int):
    rng = random.Random(seed)
    core = Dispatcher(Timing(10, 3, 0.95), 10_000, affinity=seed % 2 == 1)
    tasks = [TaskId(Lane.TRAIN, 0, i, 0) for i in range(40)]
    on_their_way: list[Assign] = []
    answered: list[TaskId] = []
    names = iter(f"w{i}" for i in range(10_000))
    alive: list[str] = []
    now, submitted = 0.0, 0

    def take(assigned: list[Assign]) -> None:
        for assign in assigned:
            assert assign.worker in alive
            on_their_way.append(assign)

    while len(answered) < len(tasks):
        now += rng.expovariate(1)
        event = rng.choice(["submit", "worker", "result", "result", "result", "repeat", "failed", "lost", "tick"])
        if event == "submit" and submitted < len(tasks):
            submitted += 1
            take(core.submit(tasks[submitted - 1], (rng.randrange(3),), now))
        elif event == "worker" and len(alive) < 6:
            alive.append(next(names))
            take(core.pull(alive[-1], 2, now))
        elif event in ("result", "repeat") and on_their_way:
            assign = rng.choice(on_their_way)
            if event == "result":
                on_their_way.remove(assign)
            first, assigned = core.result(assign.task, assign.worker, assign.attempt, now)
            assert first == (assign.task not in answered)
            answered += [assign.task] * first
            take(assigned)
        elif event == "failed" and on_their_way:
            assign = on_their_way.pop(rng.randrange(len(on_their_way)))
            take(core.failed(assign.task, assign.worker, assign.attempt, now))
        elif event == "lost" and alive and rng.random() < 0.3:
            gone = alive.pop(rng.randrange(len(alive)))
            take(core.lost(gone, now))
        elif event == "tick":
            take(core.tick(now))
        assert core.num_busy == sum(bool(worker.holds) and not worker.silent for worker in core._workers.values())
        assert core.num_idle == sum(core._free._load[name] == 0 for name in core._free.names)
        assert core.num_queued == sum(state.queued for state in core._open.values())
        assert all(worker.credits >= 0 and worker.credits + len(worker.holds) == 2 for worker in core._workers.values())
        for task, state in core._open.items():
            assert state.queued or state.holders
            assert all(task in core._workers[name].holds for name in state.holders)
    assert sorted(answered) == tasks
    assert core.num_open == core.num_queued == 0


def test_what_somebody_else_bounds_is_not_counted_as_a_relaunch_too_many():
    core = dispatcher(A, relaunches=1)
    for number in range(5):
        core.pull(f"x{number}", 1, 0)
        assert core.lost(f"x{number}", 0, excused=True) == []
    core.pull("y", 1, 0)
    core.lost("y", 0)
    core.pull("z", 1, 0)
    with pytest.raises(WorkerTimeout, match="allows 1"):
        core.lost("z", 0)
