"""siafu runs lists runs of deployments beside those of the folder, and asks nobody where no deployment is known."""

from __future__ import annotations

import importlib
import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from run_coordinator.past_runs import clean, deployments
from run_coordinator.past_runs.deployments import Deployment
from siafu import extras
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import PeerLost
from tests.run_coordinator.past_runs.test_past_runs import written

NOW = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)
THERE = Deployment("siafu", "us-east-1", "bucket", (datetime.now(timezone.utc) + timedelta(days=1)).isoformat())
AWAY = Config().replace({"run.on": "aws"})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def told(run: str, state: str = "done", **more: Any) -> dict[str, Any]:
    return {"run": run, "graph": "cora", "epochs": 9, "asked": "2026-11-26T10:00:00+00:00", "state": state, **more}


def listed(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> list[list[str]]:
    assert main(["runs", str(folder), *words]) == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_a_deployment_is_known_until_it_is_removed_or_removes_itself() -> None:
    first = Deployment("a", "us-east-1", "one", NOW.isoformat())
    second = Deployment("b", "us-east-1", "two", (NOW + timedelta(hours=1)).isoformat())
    for one in (first, second):
        deployments.note(one)
    assert deployments.known(NOW - timedelta(hours=1)) == [first, second]
    assert deployments.known(NOW) == [second]
    deployments.forget("b", "eu-west-1")
    assert deployments.known(NOW) == [second]
    deployments.forget("b", "us-east-1")
    deployments.forget("b", "us-east-1")
    assert deployments.known(NOW) == []


def test_a_broken_note_is_none_and_notes_stay_when_the_cache_is_cleaned(tmp_path: Path) -> None:
    deployments.note(THERE)
    for number, text in enumerate(("{", "[]", '{"name": "a"}', json.dumps({**THERE.__dict__, "expires": "soon"}))):
        (tmp_path / "cache/siafu" / f"deployment-{number}.json").write_text(text)
    assert deployments.known(NOW) == [THERE]
    assert clean.entries(tmp_path / "none", 0.0, None) == []


def test_nobody_is_asked_where_no_deployment_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "infra.machines.runs", None)
    written(tmp_path / "runs/one")
    assert main(["runs", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr()
    assert "where" not in said.out  # all are local
    assert said.err == ""


def test_without_aws_packages_one_line_says_what_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = importlib.import_module

    def lacking(name: str) -> ModuleType:
        if name == "infra.machines.runs":
            raise ModuleNotFoundError("No module named 'boto3'", name="boto3")
        return load(name)

    monkeypatch.setattr(importlib, "import_module", lacking)
    deployments.note(THERE)
    written(tmp_path / "runs/one")
    assert main(["runs", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[1].startswith("one ")
    assert said.err == (
        f"runs of deployment siafu in us-east-1 are not listed: it needs boto3: {extras.install('aws')}\n"
    )


def test_a_deployment_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(deployment: Deployment) -> list[dict[str, Any]]:
        raise PeerLost(f"bucket {deployment.bucket}: no route")

    monkeypatch.setattr(deployments, "_ask", fail)
    deployments.note(THERE)
    written(tmp_path / "one")
    assert main(["runs", str(tmp_path)]) == 0
    assert capsys.readouterr().err == (
        "runs of deployment siafu in us-east-1 are not listed: bucket bucket: no route\n"
    )


def test_deployed_runs_stand_behind_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployments.note(THERE)
    there = [
        told("young", "running", epoch=4, usd=0.25, loss=0.5, phase="training"),
        told("followed-00", "running", epoch=1, usd=0.1, loss=0.5, phase="training"),
        told("fetched"),
        told("old"),
    ]
    monkeypatch.setattr(deployments, "_ask", lambda deployment: there)
    folder = tmp_path / "runs"
    written(folder / "here")
    written(folder / "fetched", config=AWAY)
    left = written(folder / "followed", config=AWAY, ended=False)
    (left / "remote.json").write_text(json.dumps({"bucket": "bucket", "run": "followed-00"}))
    monkeypatch.setenv("COLUMNS", "160")
    head, *rows, advice = listed(capsys, folder)
    assert head[:4] == ["run", "date", "where", "graph"]
    assert [row[:5] for row in rows] == [
        ["fetched", "2026-11-26", "19:00", "aws", "digits"],
        ["here", "2026-11-26", "19:00", "local", "digits"],
        ["old", "2026-11-26", "10:00", "aws", "cora"],
        ["followed", "2026-11-26", "19:00", "aws", "cora"],
        ["young", "2026-11-26", "10:00", "aws", "cora"],
    ]
    assert rows[2][6:8] == ["not", "fetched"]
    assert rows[3][7:9] == ["running", "1"]  # its directory alone would say: broken off
    assert rows[4][6:8] == ["running", "4"]
    assert advice == ["siafu", "attach", "old", "fetches", "a", "run"]
    assert [row[0] for row in listed(capsys, folder, "--graph", "cora")[1:-1]] == ["old", "followed", "young"]


def test_json_has_them_and_a_folder_that_is_not_there_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deployments.note(THERE)
    monkeypatch.setattr(deployments, "_ask", lambda deployment: [told("lost", "lost")])
    assert main(["runs", str(tmp_path / "none"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["deployed"]) == ([], [{"deployment": "siafu", **told("lost", "lost")}])
    assert listed(capsys, tmp_path / "none")[1][:4] == ["lost", "2026-11-26", "10:00", "aws"]
