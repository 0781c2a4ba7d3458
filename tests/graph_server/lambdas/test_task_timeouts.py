from __future__ import annotations

import random

import pytest

from graph_server.lambdas.task_timeouts import FLOOR_S, WINDOW, Likeness, Quantile, Timing
from siafu.tasks import Lane, TaskId

KIND = Likeness("train", 1, 7)


def timing(*seconds: float, first_s: float = 10.0, quantile: float = 0.95) -> Timing:
    times = Timing(first_s, 3.0, quantile)
    for each in seconds:
        times.observe(KIND, each)
    return times


# --- rule 2 -----------------------------------------------------------------------------------------------------------


def test_tasks_are_alike_by_lane_step_and_power_of_two_of_their_rows():
    def likeness(lane: Lane, epoch: int, interval: int, pc: int, num_rows: int) -> Likeness:
        return Likeness.of(TaskId(lane, epoch, interval, pc), num_rows)

    first = likeness(Lane.TRAIN, 0, 0, 1, 64)
    assert first == likeness(Lane.TRAIN, 7, 3, 1, 127)
    assert first not in [
        likeness(Lane.EVAL, 0, 0, 1, 64),
        likeness(Lane.TRAIN, 0, 0, 2, 64),
        likeness(Lane.TRAIN, 0, 0, 1, 128),
    ]


# --- rule 3 -----------------------------------------------------------------------------------------------------------


def test_a_task_of_which_nothing_is_known_may_take_the_configured_time():
    assert timing().limit_s(KIND, 0) == 10
    assert timing(1.5).limit_s(Likeness("train", 2, 7), 0) == 10


def test_the_limit_is_a_multiple_of_what_is_usual():
    assert timing(4.0).limit_s(KIND, 0) == 12  # also beyond the configured time: they do take long
    assert timing(*[1.0] * 95, *[2.0] * 5, first_s=1.0).limit_s(KIND, 0) == 3
    assert timing(*[1.0] * 94, *[2.0] * 6, first_s=1.0).limit_s(KIND, 0) == 6


def test_the_limit_of_quick_tasks_is_the_floor():
    assert timing(*[0.001] * 50).limit_s(KIND, 0) == FLOOR_S


# --- rule 4 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "limits"),
    [
        ([], [10, 10, 10, 10, 10]),
        ([0.01], [2, 4, 8, 10, 10]),
        ([5.0], [15, 15, 15, 15, 15]),
    ],
)
def test_later_attempts_may_take_longer(seconds: list[float], limits: list[float]):
    assert [timing(*seconds).limit_s(KIND, attempt) for attempt in range(5)] == limits


# --- quantiles --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_quantile_is_that_of_the_last_values(seed: int, quantile: float):
    rng = random.Random(seed)
    values = [round(rng.lognormvariate(0, 1), 1) for _ in range(3 * WINDOW)]  # some of them equal
    times = Quantile(quantile)
    for number, value in enumerate(values, 1):
        times.add(value)
        latest = sorted(values[max(0, number - WINDOW) : number])
        below = sum(other <= times.value for other in latest)
        assert below >= quantile * len(latest)
        assert sum(other < times.value for other in latest) < quantile * len(latest)


def test_a_machine_that_slows_down_is_believed_after_a_few_tasks():
    times = timing(*[1.0] * 1000)
    for _ in range(WINDOW // 10):
        times.observe(KIND, 30.0)
    assert times.limit_s(KIND, 0) == 90


@pytest.mark.parametrize("seed", range(5))
def test_a_noisy_machine_relaunches_almost_nothing(seed: int):
    #  half of the tasks take 2 to 7 s, one in a hundred more than 18 s; then all take five times as long
    rng = random.Random(seed)
    times = timing()
    given_up = [0, 0]
    for slower in (1, 5):
        for _ in range(2000):
            seconds = slower * rng.lognormvariate(1.3, 0.7)
            given_up[slower == 5] += seconds > times.limit_s(KIND, 0)
            times.observe(KIND, seconds)  # also those that were given up: rule 1
    assert given_up[0] <= 0.01 * 2000
    assert given_up[1] <= 0.02 * 2000
