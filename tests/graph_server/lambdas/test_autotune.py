from __future__ import annotations

import pytest

from benchmarks.measure.autotune import DECISIONS, RATIOS, best, sweep, tuned
from benchmarks.measure.pipeline_model import Load, PipelineModel
from graph_server.lambdas.autotune import ROUND_S, START, Autotuner

THREADS, TASKS = 4, 10
#: The other ratios of seconds take as long each: make test-long.
SIMULATED = [pytest.param(ratio, marks=[pytest.mark.long] * (ratio != min(RATIOS))) for ratio in RATIOS]


def tuner(wanted: int = 8, most: int = 64, *, in_layers: bool = False) -> Autotuner:
    made = Autotuner(wanted, most, THREADS, TASKS, in_layers=in_layers)
    made.watch(0.0, THREADS, wanted, wanted)
    a_round(made, 0, wanted)  # environments started cold
    return made


def a_round(of: Autotuner, starved: float, working: int, waiting: int = 1000) -> int:
    """A round in which all threads had nothing to do for that share of the time, while tasks waited, and so many
    environments had one. Returns the number wanted then."""
    start = of._at or 0.0
    of.watch(start, 0, working + waiting, working)
    of.watch(start + starved * ROUND_S, THREADS, working, working)
    of.watch(start + ROUND_S, THREADS, working, working)
    for _ in range(TASKS):
        of.answered()
    of.decide(start + ROUND_S)
    return of.wanted


def settled(of: Autotuner, starved: float, working: int, waiting: int = 1000) -> int:
    """The same, and the time after a change in which nothing is decided."""
    a_round(of, starved, working, waiting)
    if of._settling:
        a_round(of, starved, working, waiting)
    return of.wanted


# --- rule 1 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intervals", "most", "wanted"),
    [(16, 64, 16), (500, 1000, START), (500, 20, 20), (500, 1, 1), (0, 0, 1), (500, 500, START)],
)
def test_it_starts_at_the_intervals_or_a_hundred(intervals: int, most: int, wanted: int):
    assert Autotuner(intervals, most, 1, 1, in_layers=False).wanted == wanted


def test_a_limit_that_becomes_known_later_holds():
    made = tuner(wanted=20)
    made.limit(5)
    assert made.wanted == 5
    assert [settled(made, 0.5, 5) for _ in range(4)] == [5, 5, 5, 5]
    made.limit(50)
    assert settled(made, 0.5, 5) == 5


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_nothing_is_decided_before_a_round_is_over():
    made = tuner()
    now = made._at or 0.0
    for _ in range(TASKS - 1):
        made.answered()
    assert not made.decide(now + 100 * ROUND_S)  # a task is missing
    made = tuner()
    for _ in range(100 * TASKS):
        made.answered()
    assert not made.decide(now + 0.9 * ROUND_S)
    assert made.num_decisions == 0
    assert made.decide(now + ROUND_S)
    assert made.num_decisions == 1


def test_the_first_round_after_a_change_decides_nothing():
    made = tuner(wanted=8)
    assert a_round(made, 0.5, 8) == 16
    assert a_round(made, 0.9, 8) == 16
    assert made.num_decisions == 1


def test_what_is_seen_with_fewer_than_are_wanted_does_not_count_as_too_few():
    made = tuner(wanted=8)
    now = made._at or 0.0
    assert not made.make_do(2, now)
    for _ in range(3):
        made.watch(now, 0, 1000, 2)
        now += ROUND_S
        made.watch(now, THREADS, 2, 2)
        for _ in range(TASKS):
            made.answered()
        made._starved_s = THREADS * ROUND_S  # all the time
        assert not made.make_do(2, now)
    for _ in range(TASKS):
        made.answered()
    assert not made.decide(now + ROUND_S)
    assert made.wanted == 8
    settled(made, 0.0, 6)
    assert settled(made, 0.0, 6) == 6  # 2 are not known to be too few


def test_fewer_than_are_wanted_are_enough_if_threads_hardly_starve_with_them():
    made = tuner(wanted=8)
    now = made._at or 0.0
    made.make_do(5, now)
    made.watch(now, THREADS, 5, 5)
    made.watch(now + ROUND_S, THREADS, 5, 5)
    for _ in range(TASKS):
        made.answered()
    assert made.make_do(5, now + ROUND_S)
    assert made.wanted == 5
    assert made.num_decisions == 1


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_threads_that_starve_get_as_many_more_as_the_share_says():
    assert a_round(tuner(wanted=20), 0.25, 20) == 27  # 20 / 0.75
    assert a_round(tuner(wanted=20), 0.9, 20) == 40  # no more than twice as many
    assert a_round(tuner(wanted=1), 0.25, 1) == 2
    assert a_round(tuner(wanted=60), 0.5, 60) == 64


def test_threads_that_starve_a_little_are_believed_the_second_time():
    made = tuner(wanted=20)
    assert [a_round(made, 0.1, 20) for _ in range(2)] == [20, 23]
    made = tuner(wanted=20)
    assert [a_round(made, starved, 20) for starved in (0.1, 0.03, 0.1, 0.03)] == [20] * 4


def test_a_queue_that_never_empties_means_fewer_down_to_those_at_work():
    assert a_round(tuner(wanted=50), 0, 10) == 10
    assert a_round(tuner(wanted=50), 0, 49) == 45  # at least a tenth
    assert a_round(tuner(wanted=50), 0.03, 10) == 50  # not quite never


def test_idle_threads_starve_only_while_tensor_tasks_wait():
    assert a_round(tuner(wanted=20), 0.5, 20, waiting=0) < 20


def test_a_task_that_waits_holds_all_threads_back_only_where_all_wait_for_the_last():
    #  half of the time four threads are idle and one task waits: the mean of 1 and 4
    #  threads is 2, a quarter of the time
    assert a_round(tuner(wanted=20, in_layers=True), 0.5, 20, waiting=1) == 40
    assert a_round(tuner(wanted=20), 0.5, 20, waiting=1) == 27


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def test_it_closes_in_between_too_few_and_enough_and_stays():
    #  27 and more are enough
    made, seen = tuner(wanted=64), []
    for _ in range(20):
        seen.append(settled(made, 0.0 if made.wanted >= 27 else 0.3, min(made.wanted, 20)))
    assert seen[:6] == [20, 29, 25, 29, 27, 27]
    assert set(seen[6:]) == {27}


# --- rule 5 -----------------------------------------------------------------------------------------------------------


def test_a_number_that_was_enough_and_no_longer_is_is_left():
    made = tuner(wanted=20)
    assert settled(made, 0.3, 20) == 29
    assert [settled(made, 0, 25) for _ in range(3)] == [25, 23, 23]
    assert [settled(made, 0.15, 23) for _ in range(3)] == [23, 23, 28]


def test_numbers_that_were_too_few_for_heavier_work_may_do_again():
    made = tuner(wanted=20)
    assert settled(made, 0.3, 20) == 29
    assert settled(made, 0, 12) == 12


# --- on the simulated fleet -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", SIMULATED)
def test_it_settles_within_15_percent_of_the_best_fixed_number(ratio: float):
    threads = 8 if ratio == 1 else 4  # of 5 environments, one more or less would be too much
    load = Load(threads=threads, intervals=16 * threads, ratio=ratio)
    fixed = sweep(load, seeds=3, epochs=16)
    number, runs = best(fixed), [tuned(load, seed) for seed in range(3)]
    for run in runs:
        assert abs(run.wanted - number) <= 0.15 * number, (number, run)
        assert abs(run.latest - number) <= 0.15 * number, (number, run)
        assert run.changes <= 2, run
        assert run.queue_drift <= 0.1 * load.intervals, run
    assert sum(run.epoch_s for run in runs) / len(runs) <= 1.08 * min(fixed.values()), (fixed, runs)


@pytest.mark.parametrize("ratio", SIMULATED)
def test_where_all_wait_for_the_last_its_epochs_are_about_as_short_as_those_of_the_best(ratio: float):
    load = Load(threads=4, intervals=64, ratio=ratio, in_layers=True)
    fixed, runs = sweep(load, seeds=2, epochs=10), [tuned(load, seed) for seed in range(2)]
    assert sum(run.epoch_s for run in runs) / len(runs) <= 1.1 * min(fixed.values()), (fixed, runs)


class Throttled(PipelineModel):
    """Has no more than ``cap`` environments from 60 to 120 s."""

    cap = 2

    def _watch(self) -> None:
        assert self.tuner is not None
        now = self.time_s
        granted = min(self.tuner.wanted, self.cap) if 60 <= now < 120 else self.tuner.wanted
        self.tuner.watch(
            now, len(self._graph) + self._busy, len(self._tensor) + self._num_held, self._busy_environments
        )
        if 2 * self._starting > granted:
            self.tuner.start_over(now)
        elif granted < self.tuner.wanted:
            self.tuner.make_do(granted, now)
        elif self.tuner.decide(now):
            granted = self.tuner.wanted
        if granted != self.wanted:
            self.wanted = granted
            self._launch()


@pytest.mark.parametrize("in_layers", [False, True])
def test_a_time_with_fewer_leaves_the_number_as_it_was(in_layers: bool):
    load = Load(ratio=1.0, in_layers=in_layers)
    made = Autotuner(load.intervals, load.intervals, load.threads, load.intervals * load.layers, in_layers=in_layers)
    model = Throttled(load, made.wanted, 1, made)
    while model.time_s < 59:
        model.run(1)
    before = made.wanted
    while model.time_s < 200:
        model.run(1)
    assert before < 40
    assert abs(made.wanted - before) <= max(1, 0.15 * before)


def test_it_follows_work_that_changes():
    load = Load(threads=4, intervals=64, ratio=5.0)
    made = Autotuner(64, 64, 4, 256, in_layers=False)
    heavy = PipelineModel(load, made.wanted, 0, made)
    while made.num_decisions < DECISIONS:
        heavy.run(1)
    before = made.wanted
    heavy.load = Load(threads=4, intervals=64, ratio=0.5)
    while made.num_decisions < 2 * DECISIONS:
        heavy.run(1)
    assert before > 20
    assert made.wanted <= 4
