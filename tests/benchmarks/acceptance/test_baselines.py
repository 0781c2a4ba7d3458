"""What the tables of baselines ask of a line, beside showing it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.acceptance.baselines.gpu import _kind
from benchmarks.acceptance.baselines.measured import Measured
from benchmarks.acceptance.baselines.throughput import SHARES, Peer, Row, row_of

ROOT = Path(__file__).parents[3]
LINE = Row("halo", "g", 2, "x", 1.0, 2.0, 0.7, 1000, 0.8, 1.7, 0.75, 1e6, [2.0], 1.9, SHARES, 1000)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, []),
        ({"ratio": 1.6}, ["1.60x, the bar is 1.7x"]),
        ({"mean_ratio": 1.6}, ["1.60x by mean epochs, the bar is 1.7x"]),
        ({"fewer_bytes": 0.7}, ["70% fewer bytes, the bar is 75%"]),
        ({"share": 0.6}, ["waits for 60%, not 65% to 80%"]),
        ({"share": 0.81}, ["waits for 81%, not 65% to 80%"]),
        ({"nbytes": 1001}, ["1001 bytes, the formula has 1000"]),
        ({"nbytes": 1001, "formula": 0}, []),
    ],
)
def test_a_line_misses_what_it_does_not_hold(change: dict[str, Any], why: list[str]) -> None:
    line = replace(LINE, **change)
    assert line.misses == why
    assert line.holds == (not why)


def test_epochs_that_are_long_now_and_then_count_in_the_mean() -> None:
    def runs(median_s: float, mean_s: float) -> list[Measured]:
        return [Measured(median_s, mean_s, 0.7, {"halo": 64}, 64.0, 10, {})] * 3

    row = row_of("halo", "g", 2, "adaqp", Peer("adaqp", {}, 2.2), runs(1.0, 1.0), runs(0.4, 0.5), {})
    assert (row.ratio, row.mean_ratio) == (2.5, 2.0)
    assert row.misses == ["2.00x by mean epochs, the bar is 2.2x"]


def test_pipelines_are_held_to_their_formula() -> None:
    settings = {"baseline.ranks": 2, "model.hidden": 8}
    one = Measured(1.0, 1.0, 0.7, {"forward": 640, "backward": 640, "reduce": 7}, 64.0, 10, {})
    row = row_of("gnnpipe", "g", 2, "gnnpipe", Peer("gnnpipe"), [one], [one], settings)
    assert (row.formula, row.misses) == (4 * 4 * 10 * 8, [])
    less = one._replace(nbytes={"forward": 640})
    row = row_of("gnnpipe", "g", 2, "gnnpipe", Peer("gnnpipe"), [one], [less], settings)
    assert row.misses == ["640 bytes, the formula has 1280"]


def test_too_little_memory_is_missed_whosever_it_is() -> None:
    assert _kind("rank 0: OutOfMemoryError: CUDA out of memory. Tried to allocate 59 GiB") == "missed"
    assert _kind("torch.OutOfMemoryError: CUDA out of memory.") == "missed"
    assert _kind("rank 0: RuntimeError: shapes") == "failed"


@pytest.mark.long
def test_all_checks_of_a_gpu_are_tried_out_without_one(tmp_path: Path) -> None:
    """Two of the five parts: the others train for minutes."""
    environment = {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}

    def run(*parts: str) -> subprocess.CompletedProcess[str]:
        command = ["benchmarks/gpu.sh", str(tmp_path), *parts]
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250, check=False
        )

    ended = run("tests", "kernels")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "no GPU here: a dry run on the CPU" in ended.stdout
    assert json.loads((tmp_path / "tests.json").read_text())["skipped"] == ["pytest -m gpu: --device cpu"]
    assert json.loads((tmp_path / "kernels.json").read_text())["kernels"]["digits"]["copy"] > 0
    unknown = run("kernel")
    assert unknown.returncode == 1
    assert "failed: kernel (exit code 2)" in unknown.stdout
