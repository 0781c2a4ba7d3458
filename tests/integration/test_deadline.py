"""Workers leave before their function's deadline, and others go on in their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.processes import Training

DIGITS = ("digits", "--mode", "pipe", "--lambdas", "2", "--intervals", "8", "--epochs", "20", "--dropout", "0.5")
LONG = ("--set", "lambda.idle_s=60")
SHORT = ("--set", "lambda.handler=tests.integration.handlers.sees_its_end_after_five_tasks")


@pytest.mark.long
def test_a_run_goes_through_many_generations_of_workers_with_the_same_bits(tmp_path: Path) -> None:
    with Training(tmp_path / "long", *DIGITS, *LONG) as training:
        assert training.wait() == 0, training.errors
        long = training.result
    with Training(tmp_path / "short", *DIGITS, *SHORT) as training:
        assert training.wait() == 0, training.errors
        short = training.result
    assert long["usage"]["invocations"] == 2
    assert short["usage"]["invocations"] > 30
    assert short["usage"]["lost_workers"] == 0  # nobody ran into the deadline
    assert "Timedout" not in training.errors
    assert short["weights_digest"] == long["weights_digest"]
    assert short["loss_history"] == long["loss_history"]
