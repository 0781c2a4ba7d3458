"""``siafu baseline`` with processes: what it leaves, and what becomes of ranks that
die, and of a launcher that does."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import siafu
from graph_data.prepare import prepare
from infra.verbs import cost
from run_coordinator.baseline import launch, train_baseline
from run_coordinator.export import export
from run_coordinator.past_runs import PastRun
from run_coordinator.predict import predict
from siafu import model_file, run_files
from siafu.errors import ConfigError, Diverged
from tests.integration.processes import Training, rank_of
from tests.toy_graphs import random_graph

pytest.importorskip("torch", reason="needs the extra gpu")

GRAPH = random_graph(5, 300, num_edges=1500, num_features=20)
RANK = "gpu_baselines"
#: A rank that was killed must have ended the run by then.
ENDS_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("baselines") / "shards"
    prepare(GRAPH, folder, parts=2, directed=True)
    return str(folder)


@pytest.fixture(scope="module")
def run(shards: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("run") / "run"
    settings = {"cloud.gpu_instance": "g4dn.xlarge"}
    return train_baseline("vanilla", shards, run_dir=str(folder), epochs=6, hidden=8, dropout=0.5, settings=settings)


@pytest.mark.long
def test_a_run_leaves_what_siafu_train_does(run: Any) -> None:
    files = {path.name for path in run.dir.iterdir()}
    assert {
        "config.toml",
        "manifest.json",
        "metrics.jsonl",
        "model.safetensors",
        "final.safetensors",
        "result.json",
        "logs",
    } <= files
    assert {path.name for path in (run.dir / "logs").iterdir()} == {"rank-0.log", "rank-1.log"}
    assert [line["epoch"] for line in run.metrics() if line["event"] == "epoch"] == list(range(1, 7))
    result = run.result
    assert json.loads((run.dir / "result.json").read_text()) == result
    assert (result["method"], result["ranks"], result["epochs"], result["transport"]) == ("vanilla", 2, 6, "gloo")
    assert result["bytes_per_epoch"].keys() >= {"halo", "gradient", "reduce"}
    assert sum(result["seconds_per_epoch"].values()) > 0
    weights, _ = model_file.load_model(run.dir / "final.safetensors")
    assert model_file.digest(weights) == result["weights_digest"]
    assert siafu.train_baseline is train_baseline


@pytest.mark.long
def test_what_it_cost_is_its_machine_by_the_second(run: Any) -> None:
    found = cost.examine(run.dir, "run")
    assert found["usd"] == run.result["cost"]["usd"] > 0
    assert found["servers"]["gpu"]["type"] == "g4dn.xlarge"


@pytest.mark.long
def test_graph_servers_predict_with_its_weights(run: Any) -> None:
    found = predict(run.dir)
    assert len(found.ids) == GRAPH.num_vertices
    assert found.result["scores"]["test"]["acc"] == run.test_acc


@pytest.mark.long
def test_its_model_is_exported(run: Any, tmp_path: Path) -> None:
    assert export(run.dir, to="torch", out=tmp_path / "out")["max_abs_logit_difference"] < 1e-4


@pytest.mark.long
def test_a_mistake_that_only_ranks_see_is_one_line_and_leaves_no_directory(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^baseline.norm = batch: is for gcn and sage"):
        train_baseline("vanilla", shards, model="gat", norm="batch", epochs=1)
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.long
def test_a_killed_rank_ends_the_run_with_its_name_and_resume_comes_to_the_same_weights(
    shards: str, tmp_path: Path
) -> None:
    settings = [
        "--epochs",
        "400",
        "--eval-every",
        "50",
        "--checkpoint-every",
        "10",
        "--hidden",
        "8",
        "--dropout",
        "0.5",
    ]
    with Training(tmp_path / "whole", "vanilla", shards, *settings, verb="baseline") as whole:
        wanted = whole.result
    with Training(tmp_path / "killed", "vanilla", shards, *settings, verb="baseline") as training:
        training.until(lambda: training.epochs() >= 15, "epoch 15")
        victim = max(training.pids(RANK), key=rank_of)
        os.kill(victim, signal.SIGKILL)
        assert training.wait(ENDS_WITHIN_S) == 1
        assert training.errors.splitlines()[-1] == "siafu baseline: rank 1 died: killed by SIGKILL"
        assert training.all_gone(60)
    with Training(tmp_path / "killed", "--resume", str(tmp_path / "killed"), verb="baseline") as resumed:
        result = resumed.result
    assert result["weights_digest"] == wanted["weights_digest"]
    assert result["loss_history"] == wanted["loss_history"]
    with Training(tmp_path / "killed", "--resume", str(tmp_path / "killed"), verb="baseline") as again:
        assert again.wait() == 2
        assert again.errors.splitlines()[-1].endswith("it is finished")


@pytest.mark.long
def test_a_run_that_is_under_way_is_not_gone_on_with(shards: str, tmp_path: Path) -> None:
    arguments = ("vanilla", shards, "--epochs", "100000", "--eval-every", "0", "--checkpoint-every", "1")
    with Training(tmp_path / "run", *arguments, verb="baseline") as training:
        training.until(lambda: any((tmp_path / "run").glob("checkpoint-*/whole.json")), "checkpoint")
        with Training(tmp_path / "again", "--resume", str(tmp_path / "run"), verb="baseline") as again:
            assert again.wait() == 2
            assert again.errors.splitlines()[-1] == f"siafu baseline: {tmp_path / 'run'}: this run is under way"
        assert training.process.poll() is None


@pytest.mark.long
def test_torchrun_is_told_all_it_needs(shards: str, tmp_path: Path) -> None:
    prepared = [sys.executable, "-m", "siafu", "baseline", "vanilla", shards, "--epochs", "3", "--torchrun", "--quiet"]
    run = tmp_path / "run"
    said = subprocess.run([*prepared, "--run-dir", str(run)], check=True, capture_output=True, text=True).stdout
    torchrun, *words = shlex.split(said)
    assert torchrun == "torchrun"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *words]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, capture_output=True, env=variables)
    assert json.loads((run / "result.json").read_text())["epochs"] == 3
    assert len(predict(run).ids) == GRAPH.num_vertices
    again = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
    assert again.returncode
    # Whichever rank looks first: torchrun ends the others.
    assert re.search(
        rf"gpu_baselines: rank [01]: --run-dir {run}: a run was there; --resume goes on with it", again.stderr
    )


@pytest.mark.parametrize("how", ["raised", pytest.param("real", marks=pytest.mark.long)])
def test_a_baseline_that_diverges_says_so_in_its_directory(
    shards: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    if how == "raised":
        monkeypatch.setattr(launch, "run", Mock(side_effect=Diverged("epoch 1: the loss is nan")))
    with pytest.raises(Diverged, match="the loss is") as told:
        train_baseline("vanilla", shards, run_dir=str(tmp_path / "run"), epochs=9, hidden=8, lr=1e30)
    assert run_files.divergence(tmp_path / "run") == str(told.value)
    found = siafu.runs(tmp_path)[0]
    assert isinstance(found, PastRun)
    assert found.state == "diverged"


@pytest.mark.long
def test_a_killed_launcher_leaves_no_rank(shards: str, tmp_path: Path) -> None:
    with Training(
        tmp_path / "run", "vanilla", shards, "--epochs", "100000", "--eval-every", "0", verb="baseline"
    ) as training:
        training.until(lambda: training.epochs() >= 1, "epoch")
        assert len(training.pids(RANK)) == 2
        training.process.kill()
        training.wait()
        assert training.all_gone(60)


@pytest.mark.long
def test_ctrl_c_ends_every_rank(shards: str, tmp_path: Path) -> None:
    with Training(
        tmp_path / "run", "vanilla", shards, "--epochs", "100000", "--eval-every", "0", verb="baseline"
    ) as training:
        training.until(lambda: training.epochs() >= 1, "epoch")
        training.process.send_signal(signal.SIGINT)
        assert training.wait(60) == 130
        assert training.all_gone(60)
