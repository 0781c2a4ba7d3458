"""What a run survives, and how it ends when it cannot: real processes, killed, stopped and misled."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.integration.processes import ENVIRONMENT, Training

DIGITS = ("digits", "--mode", "pipe", "--parts", "2", "--param-servers", "2", "--lambdas", "3", "--intervals", "8")
ENDLESS = (*DIGITS, "--epochs", "100000")
HANDLERS = "lambda.handler=tests.integration.handlers"


@pytest.mark.long
def test_killed_environments_and_double_answers_change_nothing_but_counters(tmp_path: Path) -> None:
    arguments = (*DIGITS, "--epochs", "30", "--dropout", "0.5")
    with Training(tmp_path / "quiet", *arguments, "--set", "lambda.relaunch_factor=1000") as training:
        quiet = training.result
    with Training(tmp_path / "troubled", *arguments, "--set", f"{HANDLERS}.every_third_dies") as training:
        assert training.wait() == 0, training.errors
        troubled = training.result
    assert troubled["lambda"]["relaunches"] > 0
    assert troubled["lambda"]["duplicates"] > 0
    assert quiet["lambda"]["relaunches"] == quiet["lambda"]["duplicates"] == 0
    assert troubled["loss_history"] == quiet["loss_history"]
    assert troubled["weights_digest"] == quiet["weights_digest"]


@pytest.mark.long
def test_worker_that_hangs_is_replaced(tmp_path: Path) -> None:
    alone = ("--lambdas", "1", "--set", "lambda.task_timeout_s=3")  # so that each server's first has the first task
    with Training(tmp_path / "run", *DIGITS, "--epochs", "3", *alone, "--set", f"{HANDLERS}.first_hangs") as training:
        assert training.wait() == 0, training.errors
        assert training.result["lambda"]["relaunches"] >= 2  # one worker of each graph server hangs
        assert training.all_gone(0)


@pytest.mark.long
@pytest.mark.parametrize("role", ["graph_server", "param_server"])
def test_death_of_a_server_ends_the_run_with_its_name(tmp_path: Path, role: str) -> None:
    with Training(tmp_path / "run", *ENDLESS, "--restarts", "0") as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        os.kill(training.pids(role)[1], signal.SIGKILL)
        assert training.wait() == 1
        assert training.all_gone(60)
        assert f"siafu train: {role} 1 died: killed by SIGKILL" in training.errors.splitlines()[-1]
        assert "Traceback" not in training.errors


@pytest.mark.long
@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        ("no_such_module.handler", "Runtime.ImportModuleError: Unable to import module 'no_such_module'"),
        ("tests.integration.handlers.does_nothing", "the handler returned without an error"),
    ],
)
def test_handler_that_never_works_ends_the_run(tmp_path: Path, handler: str, reason: str) -> None:
    with Training(tmp_path / "run", *ENDLESS, "--set", f"lambda.handler={handler}") as training:
        assert training.wait() == 1
        assert training.all_gone(60)
        last = training.errors.splitlines()[-1]
        assert last.startswith("siafu train: graph_server ")
        assert f"invocations of {handler} in a row ended before they took a task: {reason}" in last


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "training_already", "terminal"),
    [
        (signal.SIGINT, False, False),
        (signal.SIGINT, True, True),
        (signal.SIGTERM, False, True),
        (signal.SIGTERM, True, False),
    ],
)
def test_ctrl_c_and_polite_kill_leave_nothing(
    tmp_path: Path, number: signal.Signals, training_already: bool, terminal: bool
) -> None:
    with Training(tmp_path / "run", *ENDLESS, terminal=terminal) as training:
        if training_already:
            training.until(lambda: training.epochs() >= 2, "two epochs")
        else:
            training.until(lambda: training.pids("graph_server"), "graph server")
        begun = time.monotonic()
        training.process.send_signal(number)
        assert training.wait() == 128 + number
        assert time.monotonic() - begun < 30  # the run has no end of its own
        assert training.all_gone(60)
        resume = f"; siafu resume {tmp_path / 'run'} goes on from epoch "  # said once there is something to go on from
        last = training.errors.splitlines()[-1]
        assert re.search(rf"siafu: stopped({re.escape(resume)}\d+)?$", last), last
        assert (resume in last) == training_already
        assert "Traceback" not in training.errors


@pytest.mark.long
def test_launcher_killed_takes_everybody_with_it(tmp_path: Path) -> None:
    with Training(tmp_path / "run", *ENDLESS) as training:
        training.until(lambda: training.epochs() >= 2, "two epochs")
        assert len(training.pids(ENVIRONMENT)) >= 2
        training.process.kill()
        assert training.all_gone(30)


@pytest.mark.long
def test_tasks_that_an_environment_has_no_memory_for_are_split(tmp_path: Path):
    """A task's rows are 67 MB, and its environment takes half of 128 MB before it has any."""
    arguments = (
        "synthetic:reddit-small?scale=0.12",
        "--backend",
        "lambda",
        "--lambdas",
        "1",
        "--intervals",
        "1",
        "--epochs",
        "2",
        "--hidden",
        "128",
        "--mode",
        "pipe",
    )
    results = []
    for megabytes in (128, 1024):
        with Training(tmp_path / str(megabytes), *arguments, "--lambda-memory", str(megabytes)) as training:
            assert training.wait(240) == 0, training.errors
            results.append(training.result)
    small, large = results
    assert small["usage"]["split_in"] >= 2
    assert large["usage"]["split_in"] == 0
    assert small["loss_history"] == pytest.approx(large["loss_history"], rel=1e-5)
