"""A link in virtual time."""

from __future__ import annotations

import pytest

from gpu_baselines.network_links import PACKET_S, Link


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def time() -> Time:
    return Time()


def test_message_takes_its_bytes_over_the_rate_and_the_delay(time):
    Link(1000.0, 0.25, time, time.sleep).pass_through(500)
    assert time.now == pytest.approx(100.75)


def test_delay_alone(time):
    Link(0.0, 0.25, time, time.sleep).pass_through(10**9)
    assert time.now == pytest.approx(100.25)


def test_nothing_is_slowed_without_a_limit(time):
    link = Link(0.0, 0.0, time, time.sleep)
    link.pass_through(10**9)
    assert (link.slows, time.now) == (False, 100.0)


def test_delays_of_messages_that_leave_one_after_the_other_overlap(time):
    link = Link(1000.0, 0.25, time, time.sleep)
    arrivals = [link.leave(500), link.leave(500)]
    assert arrivals == pytest.approx([100.75, 101.25])
    assert time.now <= 101.0


def test_late_wake_ups_lose_no_rate(time):
    def oversleeps(seconds: float) -> None:
        time.now += seconds + PACKET_S / 2

    link = Link(10_000.0, 0.0, time, oversleeps)
    for _ in range(10):
        arrives = link.leave(1000)
    assert arrives == pytest.approx(101.0)


def test_what_is_sent_meanwhile_waits_for_packets_not_for_messages(time):
    """A sleep of the first sender is where another thread has its turn."""
    found: list[float] = []

    def other_thread_runs(seconds: float) -> None:
        time.now += seconds
        if not found and time.now > 100.1:
            found.append(-time.now)
            found.append(link.leave(10))

    link = Link(1000.0, 0.0, time, other_thread_runs)
    link.leave(1000)
    assert found[1] + found[0] < 0.01 + 3 * PACKET_S
