"""Predicted widths beside measured values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cost_planner.value import judge, trained, widths
from cost_planner.value.judge import StandIn
from cost_planner.value.rows import PredictedWidths
from run_coordinator import prepared
from siafu.__main__ import main
from siafu.config import Config
from tests.cost_planner.value.runs import write

AS = StandIn(graph="c7g.xlarge", param="c7g.xlarge")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    cache = str(tmp_path_factory.mktemp("cache"))
    return str(prepared.shards_of(Config().replace({"data.source": "digits", "data.cache_dir": cache})))


def run(folder: Path, shards: str, backend: str, score: float = 0.9) -> Path:
    made = write(folder, Config().replace({"servers.backend": backend, "train.mode": "pipe"}), [0.5, score], cores=2)
    (made / "manifest.json").write_text(json.dumps({"cores": 2, "machine": "Linux", "shards": shards}))
    return made


def predicted(folders: list[Path], target: float | None = None) -> PredictedWidths | None:
    runs = [trained.read(folder) for folder in folders]
    return widths.predicted(runs, judge.judged(runs, AS, target=target)["rows"], AS)


def test_what_a_plan_predicts_for_the_runs_machine_stands_beside_their_values(tmp_path, shards, capsys):
    folders = [run(tmp_path / backend, shards, backend) for backend in ("cpu", "lambda")]
    found = predicted(folders)
    assert found is not None
    assert (found["instance"], found["servers"]) == ("c7g.xlarge", 1)
    assert list(found["by_hidden"]) == [2**power for power in range(4, 13)]
    assert "Predicted by siafu plan, not measured: on 1 x c7g.xlarge, Lambdas are faster " in found["text"]
    argv = ["plan", shards, "--backend", "cpu,lambda", "--instance", "c7g.xlarge", "--servers", "1", "--mode", "pipe"]
    assert main([*argv, "--epochs", "2", "--set", "train.eval_every=1", "--json"]) == 0
    by_plan = json.loads(capsys.readouterr().out)["lambdas"]["by_hidden"]
    for width, one in found["by_hidden"].items():
        assert by_plan[str(width)]["faster"] == pytest.approx(one["faster"], rel=0.01)
    assert main(["value", *map(str, folders), "--as", "c7g.xlarge"]) == 0
    assert found["text"] in " ".join(capsys.readouterr().out.split())


def test_nothing_is_predicted_where_there_is_nothing_beside(tmp_path, shards):
    cpu, lambdas = run(tmp_path / "cpu", shards, "cpu"), run(tmp_path / "lambda", shards, "lambda", score=0.8)
    assert predicted([cpu]) is None
    assert predicted([lambdas]) is None
    assert predicted([cpu, lambdas], target=0.85) is None  # Lambdas have not reached it


def test_why_nothing_can_be_predicted_is_said(tmp_path, shards, monkeypatch):
    cpu, gone = run(tmp_path / "cpu", shards, "cpu"), run(tmp_path / "gone", str(tmp_path / "nowhere"), "lambda")
    found = predicted([cpu, gone])
    assert found is not None
    assert not found["by_hidden"]
    assert "cannot predict at which hidden widths Lambdas are faster on 1 x c7g.xlarge: " in found["text"]
    assert str(tmp_path / "nowhere") in found["text"]
    monkeypatch.setattr(widths, "lambdas_on", lambda *_: None)
    found = predicted([cpu, run(tmp_path / "lambda", shards, "lambda")])
    assert found is not None
    assert found["text"].endswith(": these machines do not hold the graph.")
