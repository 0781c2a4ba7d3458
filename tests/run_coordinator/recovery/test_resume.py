"""``siafu resume``: what it does to a run's directory before it goes on."""

from __future__ import annotations

import fcntl
import os
import resource
import threading
from pathlib import Path

import pytest

import siafu
from graph_data.prepare import prepare
from run_coordinator import live_status, run_directory
from run_coordinator.actions import Status
from run_coordinator.prepared import fit
from run_coordinator.recovery.history import rewind
from siafu.config import Config
from siafu.errors import ConfigError, DatasetError
from siafu.shards import ShardSet
from tests.toy_graphs import random_graph


def begun(folder: Path) -> tuple[Path, Config, ShardSet]:
    """A run's directory, its config and its graph."""
    shards = prepare(random_graph(1), folder / "graph", directed=True)
    config = fit(Config().replace({"data.source": str(shards.path), "run.dir": str(folder / "run")}), shards)
    run = run_directory.made(config, "")
    run_directory.write_manifest(run, config, shards)
    return run, config, shards


def test_a_run_under_way_keeps_the_checkpoint_that_it_is_writing(tmp_path: Path) -> None:
    """Another process has it: what looks left over by a crash is what it saves now."""
    run, _, _ = begun(tmp_path)
    (run / "checkpoints" / ".epoch-0042.partial").mkdir(parents=True)
    with run_directory.alone(run), live_status.kept(run, lambda status: None) as tell:
        tell(Status(phase="training"))
        with pytest.raises(ConfigError, match="this run is under way"):
            siafu.resume(run)
        assert [entry.name for entry in (run / "checkpoints").iterdir()] == [".epoch-0042.partial"]
        assert live_status.read(run)["phase"] == "training"


def test_a_disk_that_is_full_when_a_run_goes_on_leaves_its_files_as_they_were(tmp_path: Path) -> None:
    """For want of room it may have stopped before: without its config it would not go on for good."""
    run, config, shards = begun(tmp_path)
    (run / "metrics.jsonl").write_text('{"event": "epoch", "epoch": 1}\n')
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, hard))  # bytes of a file
    try:
        with pytest.raises(ConfigError, match=r"run.dir = .*: File too large"):
            run_directory.write_manifest(run, config.replace({"train.epochs": 300}), shards)
        with pytest.raises(DatasetError, match=r"metrics\.jsonl: cannot be written: File too large"):
            rewind(run / "metrics.jsonl", 1, -1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


def test_those_who_look_whether_a_run_is_under_way_keep_none_from_going_on(tmp_path: Path) -> None:
    """``siafu watch`` looks all the time, and so may ``siafu runs`` beside it."""
    looks = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    assert not run_directory.is_under_way(tmp_path)
    timer = threading.Timer(run_directory.LOOK_S / 4, os.close, [looks])
    timer.start()
    with run_directory.alone(tmp_path):
        assert run_directory.is_under_way(tmp_path)
        with pytest.raises(ConfigError, match="this run is under way"), run_directory.alone(tmp_path):
            pass
    timer.join()
    assert not run_directory.is_under_way(tmp_path)
