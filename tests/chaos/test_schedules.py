"""A few schedules of ``tests.chaos.schedules``, and that its checks see what they should."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from param_server.replica import Replica
from siafu.message_numbers import Links
from tests.chaos.failing import ServerFaults
from tests.chaos.schedules import Lab, tally


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(600)
def test_servers_die_and_messages_get_lost_and_nothing_is_lost_of_the_run(tmp_path: Path) -> None:
    counts = tally(range(60), Lab(tmp_path))
    assert counts["failed"] == 0
    for what in ("server", "launcher", "message lost", "message twice", "message late", "kill", "lose"):
        assert counts[f"fault: {what}"] > 0, counts
    assert counts["restored"] > counts["resumes"] > 0


@pytest.mark.long
def test_the_command_runs_schedules_in_processes_of_its_own() -> None:
    command = [sys.executable, "-m", "tests.chaos.schedules", "--count", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_seed_is_the_same_run_every_time(tmp_path: Path) -> None:
    first, second = (Lab(tmp_path / name).run(4) for name in ("first", "second"))
    assert first.result["weights_digest"] == second.result["weights_digest"]
    assert (first.deliveries, first.restarts, first.injected) == (second.deliveries, second.restarts, second.injected)


def one_fails(lab: Lab) -> bool:
    """Of a few; a deadlock takes long to be seen, so the first is enough."""
    for seed in range(30):
        try:
            lab.run(seed)
        except AssertionError:
            return True
    return False


def test_without_numbers_on_links_runs_do_not_end_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost messages are then never missed: the checks see a deadlock."""
    monkeypatch.setattr(Links, "check", lambda links: None)
    # a server that dies saves the run
    assert one_fails(Lab(tmp_path, ServerFaults(kill=0, kill_launcher=0, lose=0.01)))


def test_a_gradient_that_counts_twice_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "duplicates", property(lambda replica: dict(Counter())))
    assert one_fails(Lab(tmp_path))
