"""Trouble with Lambda's service: what it does to a run. The whole table is
``python -m benchmarks.acceptance.endpoint``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="needs the extra aws")

from benchmarks.acceptance.endpoint import (
    CONCURRENCY,
    EVERYTHING,
    LAMBDAS,
    PARTS,
    Scenario,
    Setting,
    hopeless,
    run,
    run_locally,
)
from tests.fake_lambda import Trouble, throttle

SETTING = Setting(epochs=30)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint asks for none; without any, boto3 looks for a machine's own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.mark.long
def test_throttles_delays_doubles_losses_and_failures_change_no_bit(tmp_path: Path) -> None:
    expected = run_locally(SETTING, tmp_path / "local")["weights_digest"]
    row = run(SETTING, EVERYTHING, tmp_path / "troubled", expected)
    assert row["wrong"] == [], row
    assert row["troubled"] >= 3


@pytest.mark.long
def test_throttled_start_is_waited_out(tmp_path: Path) -> None:
    scenario = Scenario("ten throttles", first=(throttle(CONCURRENCY),) * 10)
    row = run(Setting(epochs=2), scenario, tmp_path / "run", expected="")
    assert (row["code"], row["answers"][f"TooManyRequestsException {CONCURRENCY}"]) == (0, 10), row


@pytest.mark.long
def test_answers_that_never_come_keep_no_place(tmp_path: Path) -> None:
    #  those of the first workers of both servers; the calls are given up only after the
    #  function's timeout and 30 s more
    scenario = Scenario("answers that never come", first=(Trouble("no answer"),) * (PARTS * LAMBDAS))
    row = run(Setting(epochs=40), scenario, tmp_path / "run", expected="")
    assert row["code"] == 0, row
    assert row["calls"] > row["troubled"] == PARTS * LAMBDAS, row
    assert row["called_at"][PARTS * LAMBDAS] < 30, row


@pytest.mark.long
def test_refusal_that_waiting_does_not_help_ends_the_run_with_what_to_do(tmp_path: Path) -> None:
    scenario = hopeless("ResourceNotFoundException", 404, "there is no such function: check lambda.function")
    row = run(Setting(epochs=100_000), scenario, tmp_path / "run", expected="")
    assert row["wrong"] == [], row
    assert row["last"].startswith("siafu train: graph_server ")
