"""``python -m benchmarks measure checkpoint``: states are as large as asked for, and every figure is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.measure.checkpoint import COLUMNS, state_of


@pytest.mark.parametrize("nbytes", [1_000_000, 20_000_000])
def test_a_state_has_the_size_that_was_asked_for(nbytes: int):
    state = state_of(nbytes)
    arrays = [W for weights in state.weights.values() for W in weights.values()] + list(state.optimiser.values())
    assert sum(array.nbytes for array in arrays) == pytest.approx(nbytes, abs=64)


def test_every_size_is_measured_and_nothing_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked = ["measure", "checkpoint", "--sizes", "1,2", "--rounds", "1", "--folder", str(tmp_path), "--json"]
    assert main(asked) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["state_mb"] for row in rows] == [1, 2]
    assert all(row[column] > 0 for row in rows for column in COLUMNS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flag", ["--sizes=0", "--sizes=1,x", "--rounds=0"])
def test_sizes_that_are_none_are_refused(flag: str):
    assert main(["measure", "checkpoint", flag]) == 2
