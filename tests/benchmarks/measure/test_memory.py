from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.measure import memory
from benchmarks.measure.footprint import PROC, Footprint, Pages
from cost_planner.memory import GRAPH_SERVERS, LAUNCHER, Part, Prediction
from siafu.errors import ConfigError


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    memory.add_arguments(parser)
    return parser.parse_args(given)


def test_flags_are_those_of_train():
    config = memory.config_of(arguments("--graph", "cora", "--hidden", "32", "--parts", "2", "--set", "train.lr=0.1"))
    assert (config.data.source, config.model.hidden, config.data.parts, config.train.lr) == ("cora", (32,), 2, 0.1)
    assert config.train.epochs == 6  # few are enough
    assert memory.config_of(arguments("--epochs", "3")).train.epochs == 3
    with pytest.raises(ConfigError, match=r"--set lr: must be SECTION\.KEY=VALUE"):
        memory.config_of(arguments("--set", "lr"))


def test_every_role_has_its_figures_and_the_last_line_is_the_total():
    prediction = Prediction((Part(GRAPH_SERVERS, "rows", 80_000_000), Part(LAUNCHER, "interpreter", 20_000_000)))
    found = Footprint()
    found.add({GRAPH_SERVERS: [Pages(60_000_000, 20_000_000)], LAUNCHER: [Pages(40_000_000)]})
    lines = memory.rows(prediction, found)
    assert [(line["role"], line["ratio"]) for line in lines] == [
        (GRAPH_SERVERS, 1.0),
        (LAUNCHER, 0.5),
        ("all", 100 / 120),
    ]
    assert lines[0]["made_of"] == {"rows": 80}
    assert memory.summary(prediction, found)["ratio"] == pytest.approx(100 / 120)


@pytest.mark.long
@pytest.mark.skipif(not (PROC / "self" / "smaps_rollup").exists(), reason="memory is read from Linux' /proc")
def test_a_small_run_is_predicted_and_measured(tmp_path: Path):
    found = memory.measure(
        arguments(
            "--graph",
            "digits",
            "--backend",
            "cpu",
            "--epochs",
            "2",
            "--set",
            f"data.cache_dir={tmp_path}",
            "--set",
            "train.intervals=4",
        )
    )
    roles = [row["role"] for row in found.rows]
    assert roles == ["graph servers", "parameter servers", "launcher", "all"]
    assert all(row["measured_mb"] > 10 for row in found.rows)
    assert 0.5 < found.summary["ratio"] < 2  # a run of this size is all interpreters and libraries


def test_a_prediction_alone_runs_nothing(tmp_path: Path):
    found = memory.measure(arguments("--graph", "digits", "--predict-only", "--set", f"data.cache_dir={tmp_path}"))
    assert set(found.summary) == {"predicted_bytes"}
    assert all(row["measured_mb"] is None for row in found.rows)
