"""Every logger in ``LOGGERS`` leaves in the run directory what it was told, readable by its
own package, and never ends a run."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from run_coordinator import loggers
from siafu import extras
from siafu.config import Config
from siafu.errors import ConfigError

NAMES = list(loggers.LOGGERS)
RECORDS = [
    {"event": "start", "siafu": "0"},
    {
        "event": "epoch",
        "epoch": 1,
        "loss": 1.5,
        "time_s": 0.1,
        "epoch_s": 0.1,
        "ghost_bytes": 800,
        "staleness": [3],
        "usage": {"gb_s": 0.25},
        "usd": 0.001,
    },
    {"event": "evaluation", "epoch": 1, "time_s": 0.2, **{s: {"acc": 0.5} for s in ("train", "val", "test")}},
    {
        "event": "epoch",
        "epoch": 2,
        "loss": 1.25,
        "time_s": 0.3,
        "epoch_s": 0.2,
        "ghost_bytes": 800,
        "staleness": [3],
        "usage": {"gb_s": 0.5},
        "usd": 0.002,
    },
    {"event": "stop", "reason": "epochs", "usd": 0.002},
]
LOSSES = [(1, 1.5), (2, 1.25)]  # after so many epochs
Read = tuple[dict[str, list[tuple[int, float]]], dict[str, str]]  # curves, hyper-parameters


def told(run_dir: Path, *names: str) -> None:
    config = Config().replace({"run.loggers": names, "model.hidden": 48})
    with loggers.opened(config, run_dir) as tell:
        for record in RECORDS:
            tell(record)


def children() -> list[str]:
    """Of this process, those that are no zombies: what a logger has left running."""
    found = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "stat=,pid=,comm="], capture_output=True, text=True
    ).stdout
    # Those of other tests are no concern of ours: a process that renders CloudFormation lives as long as we.
    return [line.split()[1] for line in found.splitlines() if not line.startswith("Z") and line.split()[-1] != "ps"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a user would be told. Packages note more where another (setuptools, absl) has lowered the root's level."""
    return [f"{record.name}: {record.message}" for record in caplog.records if record.levelno >= logging.WARNING]


# --- reading them back, by their own packages -------------------------------------------------------------------------


def tensorboard_of(run_dir: Path) -> Read:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    found = EventAccumulator(str(run_dir / "tensorboard"))
    found.Reload()
    curves = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    started = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    return curves, {key: str(getattr(value, str(value.WhichOneof("kind")))) for key, value in started.items()}


def mlflow_of(run_dir: Path) -> Read:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(run_dir / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("siafu")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    curves = {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)] for name in run.data.metrics
    }
    return curves, run.data.params


def wandb_of(run_dir: Path) -> Read:
    from wandb.proto import wandb_internal_pb2

    (file,) = run_dir.glob("wandb/offline-run-*/run-*.wandb")
    curves: dict[str, list[tuple[int, float]]] = {}
    settings: dict[str, str] = {}
    for data in leveldb_records(file.read_bytes()[7:]):  # behind ":W&B", a magic number and a version
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
            for name in row.keys() - {"_step"}:
                curves.setdefault(name, []).append((row["_step"], row[name]))
        elif record.WhichOneof("record_type") == "run":
            settings |= {
                item.key or item.nested_key[0]: str(json.loads(item.value_json)) for item in record.run.config.update
            }
    return curves, settings


def leveldb_records(log: bytes) -> list[bytes]:
    """Of LevelDB's log format: pieces of crc (4 bytes), length (2), type (full 1, first 2, middle 3, last 4), in blocks
    of 32 KiB of the file, which begins 7 bytes earlier."""
    records, pieces, at = [], b"", 0
    while at + 7 <= len(log):
        left = 32768 - (at + 7) % 32768
        if left < 7:  # a block's end too short for a piece
            at += left
            continue
        length, kind = int.from_bytes(log[at + 4 : at + 6], "little"), log[at + 6]
        pieces += log[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            records.append(pieces)
            pieces = b""
    return records


READERS: dict[str, Callable[[Path], Read]] = {"tensorboard": tensorboard_of, "mlflow": mlflow_of, "wandb": wandb_of}


# --- the contract -----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_its_own_package_reads_back_what_it_was_told(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    before = children()
    told(run_dir, name)
    assert {path.name for path in tmp_path.iterdir()} - {".cache", ".config"} == {"run"}
    assert not warnings(caplog)
    assert set(children()) <= set(before)
    curves, settings = READERS[name](run_dir)
    assert sorted(curves["loss"]) == LOSSES
    assert sorted(curves["usage/gb_s"]) == [(1, 0.25), (2, 0.5)]
    assert curves["val/acc"] == [(1, 0.5)]
    assert [value for _, value in sorted(curves["usd"])] == pytest.approx([0.001, 0.002])
    assert settings["train.epochs"] in ("200", "200.0")
    assert "48" in settings["model.hidden"]


@pytest.mark.long
def test_mlflow_goes_on_in_the_run_of_a_run_that_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("mlflow")
    config = Config().replace({"run.loggers": ("mlflow",)})
    for resumed, record in (({}, RECORDS[1]), ({"train.epochs": 300}, RECORDS[3])):
        with loggers.opened(config.replace(resumed), tmp_path) as tell:
            tell(record)
    assert not warnings(caplog)
    curves, settings = mlflow_of(tmp_path)
    assert sorted(curves["loss"]) == LOSSES
    assert settings["train.epochs"] == "200"  # as it began


@pytest.mark.parametrize("name", NAMES)
def test_one_that_fails_costs_one_warning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        def __init__(self, run_dir: Path, settings: object):
            pass

        def log(self, step: int, values: object) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            raise AssertionError("it was given up")

    monkeypatch.setitem(loggers.LOGGERS, name, f"{__name__}:Failing")
    monkeypatch.setitem(globals(), "Failing", Full)
    told(tmp_path, name)
    assert [r.message for r in caplog.records] == [
        f"run.loggers = {name}: OSError: [Errno 28] No space left on device; it is told nothing more"
    ]


# --- before a run -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_named_before_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = loggers.LOGGERS[name].partition(":")[0]
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    for loaded in [other for other in sys.modules if other.startswith(f"{name}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(
        ConfigError, match=rf"^run.loggers = {name}: .*: {re.escape(extras.pip())} install {loggers.PACKAGES[name]}$"
    ):
        loggers.check([name])


def test_an_unknown_logger_is_refused() -> None:
    with pytest.raises(ConfigError, match="'neptune' is unknown, must be one of tensorboard, mlflow, wandb"):
        loggers.check(["neptune"])


def test_records_that_are_no_measure_have_no_numbers() -> None:
    assert [loggers.scalars(record) is not None for record in RECORDS] == [False, True, True, True, False]


def test_a_run_from_elsewhere_is_told_from_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []

    class Ear:
        def __init__(self, run_dir: Path, settings: object):
            pass

        def log(self, step: int, values: object) -> None:
            heard.append(step)

        def close(self) -> None:
            heard.append(-1)

    monkeypatch.setitem(loggers.LOGGERS, "wandb", f"{__name__}:Hearing")
    monkeypatch.setitem(globals(), "Hearing", Ear)
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, RECORDS)) + "\n")
    loggers.replay(Config().replace({"run.loggers": ("wandb",)}), tmp_path)
    assert heard == [1, 1, 2, -1]
