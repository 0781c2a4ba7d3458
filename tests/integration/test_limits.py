"""Runs that come to their limits: they end in time, with weights, a result that says
why, and an exit code of their own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from run_coordinator import api
from run_coordinator.launch import _Attempt
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.model_file import digest, load_model
from siafu.models import build
from siafu.setting import SECONDS
from siafu.training_state import load

ARGUMENTS = ["train", "digits", "--json", "--quiet", "--epochs", "100000", "--mode", "pipe", "--intervals", "4"]


def run(capsys: pytest.CaptureFixture[str], run_dir: Path, *more: str) -> tuple[int, dict[str, Any], list[str]]:
    """(exit code, the result that was printed, the lines on stderr)."""
    code = main([*ARGUMENTS, "--run-dir", str(run_dir), *more])
    said = capsys.readouterr()
    return code, json.loads(said.out), said.err.splitlines()


def events(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.long
@pytest.mark.usefixtures("not_before_five_epochs")
def test_a_run_ends_within_its_time_with_the_weights_of_its_last_epoch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    code, result, said = run(capsys, tmp_path / "run", "--max-time", "4s")
    assert code == 3
    assert time.monotonic() - begun < 120  # 100,000 epochs take hours
    assert result["epochs"] >= 5
    assert (result["stopped"], result["epochs"]) == ("time", len(result["loss_history"]))
    assert result == json.loads((tmp_path / "run/result.json").read_text())
    assert len(said) == 1
    assert said[0].startswith(f"siafu train: stopped at its limit of 4 s after {result['epochs']} epochs, $0.00")
    final, _ = load_model(tmp_path / "run/final.safetensors")
    assert digest(final) == result["weights_digest"]
    assert [event["event"] for event in events(tmp_path / "run")].count("stop") == 1
    (folder,) = (tmp_path / "run/checkpoints").iterdir()
    kept = load(folder)
    assert kept.version >= result["epochs"]  # servers may have stepped on before they heard of the limit

    # The weights are those of so many epochs, whole: training for just as long gives the same bits.
    again = api.train(
        "digits",
        epochs=kept.version,
        mode="pipe",
        intervals=4,
        run_dir=str(tmp_path / "again"),
        eval_every=0,
        checkpoint_every=result["epochs"],
    )
    assert again.result["weights_digest"] == digest(kept.weights[kept.version])
    passed, _ = load_model(tmp_path / f"again/checkpoints/epoch-{result['epochs']:04}/model.safetensors")
    assert digest(passed) == result["weights_digest"]
    assert again.stopped == "epochs"


@pytest.mark.long
def test_a_run_ends_before_its_budget_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # two environments cost $0.0003 in it: 4 s are left for training
    monkeypatch.setattr("run_coordinator.meter.WIND_DOWN_S", 60.0)
    code, result, said = run(capsys, tmp_path / "run", "--budget", "0.00032", "--set", "lambda.count=2")
    assert (code, result["stopped"]) == (3, "budget")
    assert 0 < result["cost"]["usd"] <= 0.00032
    assert result["usage_complete"] is True
    assert len(said) == 1
    assert said[0].startswith("siafu train: stopped at its budget of $0.00032 after")
    assert (tmp_path / "run/model.safetensors").exists()
    spent = [line["usd"] for line in events(tmp_path / "run") if line["event"] == "epoch"]
    assert spent == sorted(spent)


@pytest.mark.long
def test_a_limit_that_comes_before_training_saves_what_it_would_have_begun_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result, _ = run(capsys, tmp_path / "run", "--max-time", "0.01")
    assert (code, result["epochs"], result["test_acc"], result["loss_history"]) == (3, 0, None, [])
    weights, spec = load_model(tmp_path / "run/model.safetensors")
    assert digest(weights) == digest(build(spec).init()) == result["weights_digest"]


@pytest.mark.long
def test_weights_that_never_come_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_coordinator.launch.WEIGHTS_S", 0.3)
    monkeypatch.setattr(
        "run_coordinator.coordinator.Coordinator._ask", lambda self, models: self._wanted.update(models) or []
    )
    made = api.train("digits", epochs=100_000, max_time=2, run_dir=str(tmp_path / "run"), backend="cpu", eval_every=0)
    assert (made.stopped, made.result["epochs"]) == ("time", 0)


@pytest.mark.long
def test_a_member_that_dies_after_the_limit_does_not_make_a_failure_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(session: _Attempt) -> bool:
        heard = turn(session)
        if session.coordinator.at_limit and not session.coordinator.complete:
            raise PeerLost("graph_server 0 died")
        return heard

    turn = _Attempt._turn
    monkeypatch.setattr(_Attempt, "_turn", dies)
    made = api.train("digits", epochs=100_000, max_time="2s", run_dir=str(tmp_path / "run"), backend="cpu")
    assert made.stopped == "time"


@pytest.mark.long
def test_a_run_within_its_limits_is_not_touched_by_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result, said = run(capsys, tmp_path / "run", "--epochs", "3", "--budget", "1", "--max-time", "2h")
    assert (code, result["stopped"], result["epochs"], said) == (0, "epochs", 3, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-time", "soon"], f"run.max_seconds = 'soon': must be {SECONDS.words}"),
        (["--max-time", "-1"], "run.max_seconds = -1.0: must be >= 0"),
        (["--max-time", "30M"], f"run.max_seconds = '30M': must be {SECONDS.words}"),
        (["--max-time", "30m/s"], f"run.max_seconds = '30m/s': must be {SECONDS.words}"),
        (["--budget", "-1"], "run.budget_usd = -1.0: must be >= 0"),
    ],
)
def test_a_limit_that_is_none_is_the_users_mistake(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result, said = run(capsys, tmp_path / "run", *arguments)
    assert (code, result["error"]) == (2, message)
    assert said == [f"siafu train: {message}"]


@pytest.mark.parametrize(
    ("text", "expected"), [("90", 90), (90, 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1.5d", 129_600)]
)
def test_seconds(text: str | float, expected: float) -> None:
    assert Config().replace({"run.max_seconds": text}).run.max_seconds == expected
