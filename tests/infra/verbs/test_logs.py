"""siafu logs of a run directory needs no AWS package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from siafu import extras
from siafu.__main__ import main


@pytest.fixture
def no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("infra.machines", "infra.verbs.logs"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("boto3", "botocore"):
        monkeypatch.setitem(sys.modules, name, None)


def test_logs_of_a_run_directory_need_no_boto3(
    tmp_path: Path, no_boto3: None, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/graph_server-0.log").write_text("gathers\n")
    (tmp_path / "logs/param_server-0.log").write_text("updates\n")
    assert main(["logs", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "graph_server 0  | gathers\nparam_server 0  | updates\n"
    assert main(["logs", str(tmp_path), "--role", "param_server"]) == 0
    assert capsys.readouterr().out == "param_server 0  | updates\n"


def test_a_run_without_a_word_in_its_logs_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/graph_server-0.log").write_text("")
    assert main(["logs", str(tmp_path)]) == 0
    assert main(["logs", str(tmp_path), "--role", "param_server"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [f"{tmp_path}: nothing in logs/graph_server-0.log", f"{tmp_path}: nothing in logs/"]


def test_of_a_deployment_one_line_says_what_is_missing(no_boto3: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "20261121-digits"]) == 2
    needs = f"it needs boto3, which is not installed: {extras.install('aws')}"
    said = capsys.readouterr().err
    assert said == f"siafu logs: 20261121-digits: no such directory; as a run of a deployment: {needs}\n"
    assert main(["logs"]) == 2
    assert capsys.readouterr().err == f"siafu logs: {needs}\n"
