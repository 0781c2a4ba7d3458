"""What a run says of its cost when functions outlive it: the service goes on with them
after the launcher has hung up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="needs the extra aws")

from run_coordinator import api
from tests.fake_lambda import FakeLambda, Trouble

LATE = Trouble("delay", seconds=60.0)


def usage(folder: Path, fake: FakeLambda, epochs: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the result, its usage) of a run."""
    settings = {"lambda.endpoint": fake.url, "lambda.count": count}
    made = api.train(
        "digits",
        epochs=epochs,
        mode="pipe",
        intervals=4,
        run_dir=str(folder),
        lambda_on="localstack",
        settings=settings,
    )
    return made.result, made.result["usage"]


@pytest.mark.long
def test_usage_is_not_complete_when_invocations_were_still_running(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeLambda(script=lambda number: LATE if number else None) as fake:
        result, found = usage(tmp_path / "run", fake, 3, count=3)
        assert result["usage_complete"] is False
        assert found["cut"] >= len(fake.calls) - 1 > 0  # the first one, too, if it takes longer than it is waited for
    assert "the usage is a lower bound" in caplog.text


@pytest.mark.long
def test_usage_is_complete_when_every_worker_has_left(tmp_path: Path) -> None:
    for attempt in range(5):
        with FakeLambda() as fake:
            # of several, one may start at the end
            result, found = usage(tmp_path / f"run-{attempt}", fake, 20, count=1)
        assert result["usage_complete"] is ("cut" not in found)
        if result["usage_complete"]:
            return
    pytest.fail("the worker never left within the time that it is waited for")
