"""The judge of an hour: what it calls flat, and what it does not."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from benchmarks.acceptance import soak
from benchmarks.chaos.trial import Born

MINUTES = 12


def watched(memory_mb: Callable[[float], float], fds: Callable[[float], int] = lambda minute: 20) -> soak.Watched:
    """A process that has been looked at every 5 s."""
    samples = [soak.Sample(5.0 * i, memory_mb(i / 12), fds(i / 12)) for i in range(12 * MINUTES)]
    return soak.Watched(Born(1, "0", ("-m", "graph_server", "--index", "1")), samples)


def test_a_level_is_flat_whatever_single_looks_show():
    peaks = watched(lambda minute: 100.0 + 80.0 * (minute * 12 % 7 == 3))
    assert soak.judged(peaks, 120.0) == (0.0, 0)


def test_a_leak_is_found_and_the_warm_up_is_forgiven():
    off, more = soak.judged(watched(lambda minute: 100.0 + minute, lambda minute: 20 + int(minute / 3)), 120.0)
    assert off == pytest.approx(9 / 102.5, abs=0.005)
    assert more == 3
    assert soak.judged(watched(lambda minute: min(minute, 2.0)), 120.0) == (0.0, 0)


def test_what_comes_and_goes_within_the_hour_is_not_flat():
    assert soak.judged(watched(lambda minute: 150.0 if 5 <= minute < 6 else 100.0), 120.0) == (0.5, 0)
    assert soak.judged(watched(lambda minute: 80.0 if 5 <= minute < 6 else 100.0), 120.0) == (pytest.approx(-0.2), 0)


def test_processes_are_named_as_users_know_them():
    assert watched(lambda minute: 1.0).name == "graph server 1"
    assert soak.Watched(Born(1, "0", ("-m", "awslambdaric", "handler"))).name == "Lambda"
    assert soak.Watched(Born(1, "0", ("-m", "benchmarks.chaos.launcher"))).name == "launcher"


def test_it_looks_at_memory_and_files_of_those_who_live():
    watch, gone = soak.Watch(), Born(2**22 + 1, "0", ())
    watch.look([Born(os.getpid(), "0", ("-m", "param_server", "--index", "0")), gone])
    assert gone not in watch.seen
    (sample,) = watch.seen[Born(os.getpid(), "0", ("-m", "param_server", "--index", "0"))].samples
    assert sample.memory_mb > 10
    assert sample.fds >= 3


def test_the_warm_up_holds_the_one_death_of_a_server_and_old_lambdas_are_spared():
    schedule = soak.schedule(3600.0, "async")
    assert [fault.at_s for fault in schedule.faults] == sorted(fault.at_s for fault in schedule.faults)
    (death,) = [fault for fault in schedule.faults if fault.kind == "kill graph server"]
    assert 0 < death.at_s < soak.WARM_UP * 3600 - 60
    lambdas = [fault.luck for fault in schedule.faults if fault.kind == "kill Lambda"]
    assert len(lambdas) > 150
    assert 0.5 <= min(lambdas) < max(lambdas) < 1
