"""Bars of runs that train side by side."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from run_coordinator.actions import Status
from run_coordinator.bars import Bars
from run_coordinator.repeat import Trial
from siafu.config import Config

SCORES = {"train": None, "val": {"acc": 0.9777, "loss": 0.1}, "test": None}


def trial(name: str) -> Trial:
    return Trial(name, Config().replace({"train.epochs": 300}), {})


def last_frame(console: Console) -> list[str]:
    """What stands on the terminal now."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().rpartition("\x1b[2K")[2].replace("\r", "").splitlines()


@pytest.mark.parametrize("width", [80, 56])
def test_each_run_has_a_bar_and_one_counts_all(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with (
        Bars(4, console=console) as bars,
        bars.shown(trial("model.hidden=16,train.lr=0.01,seed-0")) as first,
        bars.shown(trial("model.hidden=64,train.lr=0.03,seed-0")),
    ):
        first(Status("training", 150, 0.25, SCORES))
        bars.count()
        bars._progress.refresh()
        frame = last_frame(console)
    assert all(len(line) <= width for line in frame)
    assert [line.split()[0][:17] for line in frame] == ["all", "hidden=16,lr=0.01", "hidden=64,lr=0.03"]
    for line, facts in zip(frame, ("1/4", "150/300 val 0.978", "0/300 starting"), strict=True):
        assert facts in line


def test_a_run_that_has_ended_has_no_bar() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with Bars(2, console=console) as bars:
        with bars.shown(trial("seed-0")):
            pass
        bars._progress.refresh()
        assert [line.split()[:2] for line in last_frame(console)] == [["all", "runs"]]


def test_before_the_first_score_a_bar_says_the_loss() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with Bars(2, console=console) as bars, bars.shown(trial("seed-0")) as told:
        told(Status("training", 1, 0.25))
        bars._progress.refresh()
        assert "1/300 loss 0.250" in last_frame(console)[1]


def test_without_a_terminal_there_is_none() -> None:
    console = Console(file=io.StringIO())
    with Bars(2, console=console) as bars, bars.shown(trial("seed-0")) as told:
        told(Status("training", 1, 0.25))
    assert console.file.getvalue().strip() == ""  # type: ignore[attr-defined]
