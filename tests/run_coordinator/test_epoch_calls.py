"""``on_epoch``: by the rules of ``run_coordinator.epoch_calls``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import siafu
from run_coordinator import live_status
from run_coordinator.actions import Status
from run_coordinator.epoch_calls import Calls, Ends, EpochEnd, as_raised
from siafu.config import Train
from siafu.errors import ConfigError, PeerLost
from siafu.run_files import METRICS

DIR = Path("run")


def epoch(number: int) -> Any:
    return {"event": "epoch", "epoch": number, "loss": 1 / number, "epoch_s": 0.5}


def evaluation(number: int) -> Any:
    return {"event": "evaluation", "epoch": number, "train": None, "val": {"acc": number / 10}, "test": None}


def told(ends: Iterator[EpochEnd]) -> list[tuple[int, float | None]]:
    return [(end.epoch, end.val_acc) for end in ends]


def test_an_epoch_is_told_once_its_scores_are_known() -> None:
    """Rule 2."""
    ends = Ends(DIR, Train(epochs=9, eval_every=1))
    assert told(ends.take([epoch(1), epoch(2)])) == []
    assert told(ends.take([evaluation(1)])) == [(1, 0.1)]
    assert told(ends.take([epoch(3), evaluation(2), evaluation(3)])) == [(2, 0.2), (3, 0.3)]


def test_an_epoch_that_is_not_evaluated_is_told_at_once() -> None:
    """Rule 2."""
    ends = Ends(DIR, Train(epochs=9, eval_every=2))
    assert told(ends.take([epoch(1), epoch(2), epoch(3)])) == [(1, None)]
    assert told(ends.take([evaluation(2)])) == [(2, 0.2), (3, None)]


def test_epochs_whose_evaluation_never_comes_are_told_at_the_end() -> None:
    ends = Ends(DIR, Train(epochs=9, eval_every=1))
    assert told(ends.take([epoch(1), epoch(2), evaluation(1)])) == [(1, 0.1)]
    assert told(ends.rest()) == [(2, None)]


def test_epochs_that_are_run_again_are_not_told_again() -> None:
    """Rule 1: a server died after epoch 2, and the run went on from epoch 1."""
    ends = Ends(DIR, Train(epochs=9, eval_every=1))
    assert told(ends.take([epoch(1), evaluation(1), epoch(2), evaluation(2)])) == [(1, 0.1), (2, 0.2)]
    again = [epoch(1), evaluation(1), epoch(2), evaluation(2), epoch(3), evaluation(3)]
    assert told(ends.take(again)) == [(3, 0.3)]


def test_a_resumed_run_tells_its_new_epochs() -> None:
    ends = Ends(DIR, Train(epochs=9, eval_every=1), after=2)
    assert told(ends.take([epoch(number) for number in (1, 2, 3)] + [evaluation(3)])) == [(3, 0.3)]


def test_after_an_exception_nothing_is_called_any_more(tmp_path: Path) -> None:
    """Rule 3. A run that ends goes on saying where it stands."""
    seen: list[int] = []

    def fails(end: EpochEnd) -> None:
        seen.append(end.epoch)
        raise PeerLost("mine")

    calls = Calls(fails, tmp_path, Train(epochs=9, eval_every=0))
    tell = calls.beside(lambda status: None)
    (tmp_path / METRICS).write_text("".join(json.dumps(epoch(number)) + "\n" for number in (1, 2)))
    with pytest.raises(PeerLost, match="mine") as raised, as_raised():
        tell(Status(epoch=2))
    assert raised.value.__cause__ is None
    tell(Status(epoch=3))
    calls.end()
    assert seen == [1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_calls_it_for_every_epoch_and_takes_no_heed_of_what_it_returns(here: Path) -> None:
    ends: list[EpochEnd] = []

    def keeps(end: EpochEnd) -> bool:
        ends.append(end)
        return True

    run = siafu.train("digits", epochs=4, on_epoch=keeps, run_dir=here / "run", eval_every=2)
    assert [end.epoch for end in ends] == [1, 2, 3, 4]
    assert [end.loss for end in ends] == run.result["loss_history"]
    assert [end.scores is not None for end in ends] == [False, True, False, True]
    assert ends[-1].scores == run.result["final_scores"]
    assert {end.run_dir for end in ends} == {run.dir}


@pytest.mark.long
def test_an_exception_in_it_ends_the_run_and_resume_goes_on(here: Path) -> None:
    class Enough(Exception):
        pass

    def stops(end: EpochEnd) -> None:
        if end.epoch == 3:
            raise Enough

    with pytest.raises(Enough):
        siafu.train("digits", epochs=300, on_epoch=stops, run_dir=here / "run")
    assert live_status.read(here / "run") == {}
    assert not (here / "run" / "result.json").exists()
    ends: list[EpochEnd] = []
    run = siafu.resume(here / "run", epochs=310, on_epoch=ends.append)
    assert run.result["resumed_from"] >= 3
    assert [end.epoch for end in ends] == list(range(run.result["resumed_from"] + 1, 311))


def test_a_finished_run_stays_whatever_is_raised_at_its_last_epoch(here: Path) -> None:
    def stops(end: EpochEnd) -> None:
        if end.epoch == 2:
            raise ConfigError("mine")

    with pytest.raises(ConfigError, match=r"^mine$"):
        siafu.train("digits", epochs=2, on_epoch=stops)
    assert len(list((here / "runs").iterdir())) == 1


@pytest.mark.long
@pytest.mark.parametrize("jobs", [1, 2])
def test_many_seeds_are_told_apart_by_their_directories(here: Path, jobs: int) -> None:
    ends: list[EpochEnd] = []
    found = siafu.repeat("digits", runs=2, jobs=jobs, epochs=3, on_epoch=ends.append)
    for run in found.runs:
        assert [end.epoch for end in ends if end.run_dir == run.dir] == [1, 2, 3]
        assert [end.loss for end in ends if end.run_dir == run.dir] == run.result["loss_history"]


@pytest.mark.long
def test_an_exception_ends_trials_side_by_side(here: Path) -> None:
    def stops(end: EpochEnd) -> None:
        raise LookupError(end.run_dir.name)

    with pytest.raises(LookupError, match="seed-"):
        siafu.repeat("digits", runs=3, jobs=2, epochs=2000, on_epoch=stops)
    assert not list(here.glob("runs/*/seed-*/result.json"))
