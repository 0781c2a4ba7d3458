"""Finished runs beside their predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cost_planner import memory
from cost_planner.plan import check, here
from cost_planner.plan.calibration import Calibration
from run_coordinator import api, prepared
from siafu import config as configs
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import ShardSet

LOCAL = {"servers.backend": "cpu", "train.mode": "pipe", "data.parts": 2, "train.intervals": 3, "train.eval_every": 1}
AWS = {"run.on": "aws", "lambda.on": "aws", "servers.backend": "lambda", "cloud.graph_instance": "c8g.2xlarge"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    config = Config().replace(
        {"data.source": "digits", "data.parts": 2, "data.cache_dir": str(tmp_path_factory.mktemp("cache"))}
    )
    return str(prepared.shards_of(config))


def run(folder: Path, shards: str, usd: float = 0.0, usage: dict[str, float] | None = None, **settings: object) -> Path:
    """A finished run's directory, of ten epochs."""
    folder.mkdir()
    config = Config().replace({"data.source": "digits", **LOCAL, **settings})
    (folder / "config.toml").write_text(configs.dump(config))
    (folder / "manifest.json").write_text(json.dumps({"cores": 2, "shards": shards}))
    told = {"epochs": 10, "epoch_seconds_median": 0.02, "train_seconds": 0.3, "ghost_bytes_per_epoch": 5000}
    (folder / "result.json").write_text(json.dumps({**told, "cost": {"usd": usd}, "usage": usage or {}}))
    return folder


def test_a_run_is_compared_with_what_its_own_settings_and_shards_predict(tmp_path, shards):
    found = check.of_run(run(tmp_path / "run", shards), Calibration()).quantities
    manifest = ShardSet.open(shards).manifest
    config = Config().replace({"data.source": "digits", **LOCAL, "train.epochs": 10})
    wanted = here.predicted(config, manifest, Calibration().speeds, Calibration().memory, cores=2)
    assert found["epoch_s"] == check.Quantity(wanted.simulated.epoch_s, 0.02)
    assert found["epoch_s"].ratio == pytest.approx(wanted.simulated.epoch_s / 0.02)
    assert found["train_s"] == check.Quantity(wanted.seconds, 0.3)
    assert found["ghost_bytes"] == check.Quantity(wanted.ghost_bytes, 5000)
    held = memory.of_graph_server(wanted.config, manifest, cores=2)
    assert found["memory_bytes"] == check.Quantity(held, None)  # of a run from before siafu measured it
    assert found["memory_bytes"].ratio is None
    measured = check.of_run(run(tmp_path / "new", shards, usage={"peak_memory_bytes": 2 * held}), Calibration())
    assert measured.quantities["memory_bytes"].ratio == 0.5
    assert found["usd"] == check.Quantity(None, None)  # servers of this machine are not priced


def test_what_lambdas_would_have_cost_is_compared(tmp_path, shards):
    settings = {"servers.backend": "lambda", "lambda.count": 2}
    found = check.of_run(run(tmp_path / "run", shards, 1e-5, **settings), Calibration()).quantities["usd"]
    assert found.measured == 1e-5
    assert found.predicted is not None
    assert found.predicted > 0


def test_a_run_on_aws_is_predicted_as_the_option_of_its_cluster(tmp_path, shards):
    folder = run(tmp_path / "run", shards, 0.02, **AWS)
    found = check.of_run(folder, Calibration()).quantities
    assert all(one.predicted is not None and one.predicted > 0 for one in found.values())
    slower = replace(Calibration().speeds, main_task_s=1.0)
    assert check.of_run(folder, replace(Calibration(), speeds=slower)).quantities["epoch_s"].predicted > 1


@pytest.mark.parametrize(
    ("settings", "missing", "words"),
    [
        ({}, "result.json", "not a finished run: it has no result.json"),
        ({}, "config.toml", "not a run directory: it has no config.toml"),
        ({"servers.backend": "lambda", "lambda.on": "ray"}, "", "backend lambda on ray"),
        ({"servers.backend": "gpu"}, "", "backend gpu"),
    ],
)
def test_what_cannot_be_checked_is_said_in_one_line(tmp_path, shards, settings, missing, words):
    folder = run(tmp_path / "run", shards, **settings)
    if missing:
        (folder / missing).unlink()
    with pytest.raises(ConfigError, match=words) as refused:
        check.of_run(folder, Calibration())
    assert "\n" not in str(refused.value)


def test_a_run_whose_files_lack_something_is_one_line(tmp_path, shards):
    folder = run(tmp_path / "run", shards)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"its result\.json and manifest\.json do not say shards"):
        check.of_run(folder, Calibration())


def test_plan_check_prints_a_table_and_json(tmp_path, shards, capsys):
    folder = str(run(tmp_path / "run", shards))
    assert main(["plan", "--check", folder]) == 0
    out = capsys.readouterr().out
    for words in ("an epoch", "20 ms", "training", "peak memory", "not measured", "ghost bytes", "5.0 KB"):
        assert words in out, words
    assert main(["plan", "--check", folder, "--check", folder, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["checks"]
    assert first == second
    assert first["epoch_s"]["measured"] == 0.02


@pytest.mark.parametrize(
    ("settings", "share", "told"),
    [
        ({"servers.backend": "lambda"}, "free", True),
        ({"servers.backend": "lambda", "lambda.cpu_share": "real"}, "real", False),
        ({"servers.backend": "lambda", "lambda.memory_mb": 1769}, "free", False),  # a whole core on AWS, too
        ({}, None, False),
        (AWS, None, False),
    ],
)
def test_whole_cores_of_lambdas_on_this_machine_are_said(tmp_path, shards, settings, share, told, capsys):
    folder = run(tmp_path / "run", shards, 0.01, **settings)
    assert main(["plan", "--check", str(folder)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("Lambdas computed on whole cores (lambda.cpu_share = free)" in said) == told
    assert main(["plan", "--check", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checks"][0]["lambda_cpu_share"] == share


@pytest.mark.parametrize(("settings", "told"), [({}, True), ({"data.keep_aggregate": False}, False)])
def test_memory_is_said_to_be_a_first_runs_where_later_ones_hold_less(tmp_path, shards, settings, told, capsys):
    folder = run(tmp_path / "run", shards, usage={"peak_memory_bytes": 1e8}, **settings)
    assert main(["plan", "--check", str(folder)]) == 0
    assert ("predicted for a first run on its shards" in " ".join(capsys.readouterr().out.split())) == told


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [{}, {"data.inductive": True}, {"model.name": "gat", "data.inductive": True}, {"data.task": "link"}],
    ids=str,
)
def test_ghost_bytes_of_a_real_run_are_those_that_were_predicted(tmp_path, options):
    """METIS leaves 26 ghosts, too few for a share of them to be foretold (``reach``); a random cut has 1,662."""
    settings = {**LOCAL, "train.epochs": 6, "data.partitioner": "random", **options}
    api.train("digits", run_dir=str(tmp_path / "run"), settings=settings)
    found = check.of_run(tmp_path / "run", Calibration()).quantities
    assert found["ghost_bytes"].ratio == pytest.approx(1, rel=0.1)
    assert 0.01 < found["epoch_s"].ratio < 100
    assert 0.5 < found["memory_bytes"].ratio < 2  # most of it is Python and libraries
