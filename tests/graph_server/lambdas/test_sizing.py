from __future__ import annotations

import random

import pytest

from graph_server.lambdas.sizing import ENOUGH, LEAST_MB, MOST_PARTS, Sizing
from siafu.places import CORE_MB
from siafu.tensor_task import PARTS

MB = 1e6


def sizing(
    *,
    latency_s: float,
    mb_per_s: float,
    compute_s: float,
    sizes: tuple[float, ...] = (1.0, 2.0, 4.0),
    memory_mb: int = 192,
    core: float = 1.0,
    on_lambda: bool = True,
    seed: int | None = None,
    tasks: int = 300,
) -> Sizing:
    """After tasks of these sizes (MB) on such a link, with 10% noise if there is a seed."""
    made, rng = Sizing(memory_mb, core, on_lambda=on_lambda), random.Random(seed)
    for number in range(tasks):
        size = sizes[number % len(sizes)]
        travel_s = (latency_s + size / mb_per_s) * (1.0 if seed is None else rng.uniform(0.9, 1.1))
        made.observe(int(size * MB), compute_s, travel_s + compute_s)
    return made


# --- rule 1 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(("latency_s", "mb_per_s"), [(0.002, 75), (0.05, 75), (0.004, 25), (0.02, 600)])
def test_a_link_is_known_by_its_tasks(latency_s: float, mb_per_s: float, seed: int | None):
    link = sizing(latency_s=latency_s, mb_per_s=mb_per_s, compute_s=0.01, seed=seed).link
    tolerance = 1e-6 if seed is None else 0.2
    assert link.bytes_per_s == pytest.approx(mb_per_s * MB, rel=tolerance)
    if latency_s > 0.01:
        assert link.latency_s == pytest.approx(latency_s, rel=max(tolerance, 1e-6), abs=1e-9)


def test_tasks_of_one_size_tell_a_rate_alone():
    link = sizing(latency_s=0.01, mb_per_s=100, compute_s=0.01, sizes=(1.0,)).link
    assert link.latency_s == 0
    assert link.bytes_per_s == pytest.approx(50 * MB)


def test_a_link_that_changes_is_followed():
    made = sizing(latency_s=0.002, mb_per_s=75, compute_s=0.01)
    for number in range(500):
        size = 1 + number % 3
        made.observe(int(size * MB), 0.01, 0.002 + size / 25 + 0.01)
    assert made.link.bytes_per_s == pytest.approx(25 * MB, rel=0.05)


def test_an_answer_faster_than_its_own_computing_is_no_error():
    made = Sizing(192, 1.0, on_lambda=True)
    for _ in range(ENOUGH):
        made.observe(0, 1.0, 0.5)
    assert made.parts() >= 1
    assert made.parts() >= 1
    assert made.recommended_mb <= CORE_MB + 64


# --- rule 2 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mb_per_s", "compute_s", "parts"), [(75, 0.002, 2), (75, 0.0001, 1), (1e6, 1.0, 1), (75, 1.0, MOST_PARTS)]
)
def test_rows_travel_in_as_many_parts_as_pay(mb_per_s: float, compute_s: float, parts: int):
    assert sizing(latency_s=0.001, mb_per_s=mb_per_s, compute_s=compute_s).parts() == parts


def test_another_number_of_parts_must_be_clearly_better():
    made = sizing(latency_s=0.001, mb_per_s=75, compute_s=0.0029)  # sqrt(5.8) = 2.4
    assert [made.parts(now) for now in (1, 2, 3, 4)] == [2, 2, 3, 2]


def test_before_anything_is_known_all_is_as_ever():
    made = sizing(latency_s=0.5, mb_per_s=1, compute_s=1, tasks=ENOUGH - 1)
    assert (made.parts(), made.recommended_mb) == (PARTS, 0)


# --- rule 4 -----------------------------------------------------------------------------------------------------------


def test_a_step_that_the_link_limits_wants_little_memory():
    #  2.3 MB take 33 ms of travelling and 1 ms of a whole core
    assert sizing(latency_s=0.002, mb_per_s=75, compute_s=0.001).recommended_mb == LEAST_MB


def test_a_step_that_the_core_limits_wants_a_whole_core_and_no_more():
    assert sizing(latency_s=0.002, mb_per_s=75, compute_s=1.0).recommended_mb == 1792


def test_computing_is_to_take_as_long_as_travelling():
    made = sizing(latency_s=0.0, mb_per_s=75, compute_s=0.01, sizes=(1.0, 2.0, 3.0))
    share = made.recommended_mb / CORE_MB
    assert 0.01 / share == pytest.approx(2 / 75, rel=0.1)


def test_what_is_measured_with_a_part_of_a_core_leads_to_the_same():
    whole = sizing(latency_s=0.002, mb_per_s=75, compute_s=0.01)
    part = sizing(latency_s=0.002, mb_per_s=75, compute_s=0.1, core=0.1)
    assert whole.recommended_mb == part.recommended_mb


def test_a_fast_link_of_this_machine_is_not_that_of_a_lambda():
    here = sizing(latency_s=0.0, mb_per_s=5000, compute_s=0.01, on_lambda=False)
    there = sizing(latency_s=0.0, mb_per_s=75, compute_s=0.01)
    assert here.recommended_mb == there.recommended_mb


def test_what_environments_use_is_always_there():
    made = sizing(latency_s=0.002, mb_per_s=75, compute_s=0.001)
    made.used(300)
    made.used(200)
    assert made.recommended_mb == 384  # 375 and up to the next step
