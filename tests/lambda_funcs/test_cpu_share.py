"""What an environment gets of a core for its memory. The clocks are the test's."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lambda_funcs.cpu_share import CpuShare


@dataclass
class Clocks:
    """One of the wall, one of the processor."""

    wall_s: float = 100.0
    cpu_s: float = 7.0

    def works(self, seconds: float, *, waits: float = 0.0) -> None:
        self.cpu_s += seconds
        self.wall_s += seconds + waits

    def sleeps(self, seconds: float) -> None:
        assert seconds > 0
        self.wall_s += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    found = Clocks()
    monkeypatch.setattr("time.perf_counter", lambda: found.wall_s)
    monkeypatch.setattr("time.process_time", lambda: found.cpu_s)
    monkeypatch.setattr("time.sleep", found.sleeps)
    return found


def test_what_is_computed_takes_as_long_as_on_such_a_share(clocks):
    share = CpuShare(0.25)
    for _ in range(3):
        begun = clocks.wall_s
        with share:
            clocks.works(0.5)
        assert clocks.wall_s - begun == pytest.approx(2.0)


def test_waiting_while_computing_counts_and_waiting_before_does_not(clocks):
    share = CpuShare(0.5)
    clocks.works(0.0, waits=50)
    begun = clocks.wall_s
    with share:
        clocks.works(1.0, waits=0.4)
    assert clocks.wall_s - begun == pytest.approx(2.0)
    begun = clocks.wall_s
    with share:
        clocks.works(1.0, waits=3.0)
    assert clocks.wall_s - begun == pytest.approx(4.0)  # slower than its share already


def test_what_other_threads_compute_meanwhile_is_paid_for(clocks):
    share = CpuShare(0.5)
    clocks.works(0.25)  # sending, before the next task
    begun = clocks.wall_s
    with share:
        clocks.works(0.75)
    assert clocks.wall_s - begun == pytest.approx(2.0)


def test_the_clock_of_tasks_is_that_of_the_share(clocks):
    share = CpuShare(0.2)
    before = share.clock()
    clocks.works(0.1, waits=9)
    assert share.clock() - before == pytest.approx(0.5)


@pytest.mark.parametrize("core", [1.0, 1.7])
def test_a_whole_core_is_not_limited(clocks, core):
    share = CpuShare(core)
    with share:
        clocks.works(3.0)
    assert clocks.wall_s == 103.0
    before = share.clock()
    clocks.works(0.1, waits=0.2)
    assert share.clock() - before == pytest.approx(0.3)
