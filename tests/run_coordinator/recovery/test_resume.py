"""``siafu resume``: what it does to a run's directory before it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

import siafu
from graph_data.prepare import prepare
from run_coordinator import live_status, run_directory
from run_coordinator.actions import Status
from run_coordinator.prepared import fit
from siafu.config import Config
from siafu.errors import ConfigError
from tests.toy_graphs import random_graph


def test_a_run_under_way_keeps_the_checkpoint_that_it_is_writing(tmp_path: Path) -> None:
    """Another process has it: what looks left over by a crash is what it saves now."""
    shards = prepare(random_graph(1), tmp_path / "graph", directed=True)
    config = fit(Config().replace({"data.source": str(shards.path), "run.dir": str(tmp_path / "run")}), shards)
    run = run_directory.made(config, "")
    run_directory.write_manifest(run, config, shards)
    (run / "checkpoints" / ".epoch-0042.partial").mkdir(parents=True)
    with run_directory.alone(run), live_status.kept(run, lambda status: None) as tell:
        tell(Status(phase="training"))
        with pytest.raises(ConfigError, match="this run is under way"):
            siafu.resume(run)
        assert [entry.name for entry in (run / "checkpoints").iterdir()] == [".epoch-0042.partial"]
        assert live_status.read(run)["phase"] == "training"
