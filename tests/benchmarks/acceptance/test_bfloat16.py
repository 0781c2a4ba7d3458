"""Pairs of runs that differ in nothing but the type of rows, and what is said of their differences."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.acceptance import bfloat16
from benchmarks.acceptance.table import Results
from run_coordinator import run_config


@pytest.mark.parametrize("graph", bfloat16.GRAPHS)
@pytest.mark.parametrize("rows", bfloat16.ROWS.values())
def test_siafu_takes_the_settings_of_every_graph(graph: str, rows: str) -> None:
    settings = {**bfloat16.SHARED, **bfloat16.GRAPHS[graph], "model.rows": rows}
    assert run_config.resolve(graph, None, settings, {}).model.rows == rows


def test_a_difference_is_the_mean_of_pairs_and_finished_runs_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = {("exact", 0): 0.8, ("exact", 1): 0.7, ("bfloat16", 0): 0.79, ("bfloat16", 1): 0.71}
    asked: list[tuple[str, int]] = []

    def train(graph: str, settings: dict[str, Any], run_dir: str) -> Any:
        assert settings["train.seed"] == settings["data.seed"]
        asked.append((settings["model.rows"], settings["train.seed"]))
        return SimpleNamespace(result={"test_acc": scores[asked[-1]], "epoch_seconds_median": 0.1})

    monkeypatch.setattr(bfloat16.api, "train", train)
    found = bfloat16.line("cora", "gcn", Results(tmp_path / "runs.jsonl"), 2)
    assert found["float32"] == "75.00 ± 7.07"
    assert found["bfloat16 minus float32, points"] == "+0.00 ± 1.00"
    assert asked == list(scores)
    assert bfloat16.line("cora", "gcn", Results(tmp_path / "runs.jsonl"), 2) == found
    assert len(asked) == 4
