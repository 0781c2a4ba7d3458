"""Which rank is named when a run fails, and what is read of one that goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from run_coordinator.actions import Status
from run_coordinator.baseline import launch
from run_coordinator.baseline.launch import Ranks, _read
from siafu.baseline import BaselineConfig
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.run_files import BySplit, Epoch

LOST = {"type": "PeerLost", "message": "rank 0: rank 1 is lost: connection closed", "code": 1, "lost": True}
OWN = {"type": "RuntimeError", "message": "RuntimeError: out of memory\nmore", "code": 1, "lost": False}
MISTAKE = {"type": "ConfigError", "message": "baseline.norm = batch: is for gcn", "code": 2, "lost": False}


class Process:
    """A rank's process that ended with a code, or lives."""

    def __init__(self, code: int | None, log: str = ""):
        self._code, self._log = code, log

    def poll(self) -> int | None:
        return self._code

    def last_line(self) -> str:
        return "ImportError: libsomething.so"

    def tail(self, nbytes: int) -> str:
        return self._log[-nbytes:]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "LAST_WORDS_S", 0.0)
    monkeypatch.setattr(launch, "POLL_S", 0.0)


def failure(
    folder: Path, codes: list[int | None], said: dict[int, Any], *, nccl: bool = False, log: str = ""
) -> GnnError:
    """What ``check`` raises; ``said``: by rank, in the order of time; ``log``: of each."""
    for when, (rank, words) in enumerate(said.items()):
        file = folder / f"failed-{rank}.json"
        file.write_text(json.dumps(words))
        os.utime(file, ns=(when, when))
    with pytest.raises(GnnError) as caught:
        Ranks([Process(code, log) for code in codes], folder, 20, nccl=nccl).check()  # type: ignore[misc]
    return caught.value


@pytest.mark.parametrize(
    ("codes", "said", "words"),
    [
        ([1, None, -9], {0: LOST}, "rank 2 died: killed by SIGKILL"),
        ([1, 1], {0: OWN, 1: LOST}, "rank 0: RuntimeError: out of memory"),
        (
            [1, 1, 1],
            {0: LOST, 2: OWN, 1: {**OWN, "message": "ValueError: later"}},
            "rank 2: RuntimeError: out of memory",
        ),
        ([2, 2], {1: MISTAKE, 0: MISTAKE}, "baseline.norm = batch: is for gcn"),
        ([1, None], {0: LOST}, "rank 1 is silent for more than 20 s (--timeout-s)"),
        ([1, None, None], {0: LOST}, "ranks 1, 2 are silent for more than 20 s (--timeout-s)"),
        ([1, 1], {0: LOST, 1: {**LOST, "message": "rank 1: the others did not come"}}, LOST["message"]),
        ([None, 1], {}, "rank 1 died: exit code 1; ImportError: libsomething.so"),
    ],
)
def test_the_rank_that_failed_first_for_its_own_reason_is_named(
    codes: list[int | None], said: dict[int, Any], words: str, tmp_path: Path
) -> None:
    assert str(failure(tmp_path, codes, said)) == words


@pytest.mark.parametrize(
    ("codes", "said", "words"),
    [
        ([-6, None], {}, "rank 1 is silent for more than 20 s (--timeout-s)"),
        ([-6, 1, None], {1: LOST}, "rank 2 is silent for more than 20 s (--timeout-s)"),
        ([-6, -9], {}, "rank 1 died: killed by SIGKILL"),
        ([-6, 1], {1: OWN}, "rank 1: RuntimeError: out of memory"),
        ([-6, 1], {1: LOST}, "rank 0 died: killed by SIGABRT"),
        ([-6, -6], {}, "rank 0 died: killed by SIGABRT"),
    ],
)
def test_over_nccl_it_is_who_waits_that_is_aborted(
    codes: list[int | None], said: dict[int, Any], words: str, tmp_path: Path
) -> None:
    log = (
        "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, ...)\n"
        "C++ CapturedTraceback:\n"
    )
    assert str(failure(tmp_path, codes, said, nccl=True, log=log)) == words


def test_a_rank_that_aborts_for_its_own_reason_is_named(tmp_path: Path) -> None:
    assert (
        str(failure(tmp_path, [-6, None], {}, nccl=True, log="device-side assert")) == "rank 0 died: killed by SIGABRT"
    )


def test_elsewhere_an_aborted_rank_is_named(tmp_path: Path) -> None:
    assert str(failure(tmp_path, [-6, None], {})) == "rank 0 died: killed by SIGABRT"


def test_a_mistake_of_the_user_is_one_here_too(tmp_path: Path) -> None:
    assert type(failure(tmp_path, [2], {0: MISTAKE})) is ConfigError
    assert failure(tmp_path, [2], {0: MISTAKE}).exit_code == 2
    assert type(failure(tmp_path, [1, None], {0: LOST})) is PeerLost


def test_nothing_is_raised_while_all_live_or_end_well(tmp_path: Path) -> None:
    ranks = Ranks([Process(None), Process(0)], tmp_path, 20)  # type: ignore[list-item]
    ranks.check()
    assert not ranks.ended
    assert Ranks([Process(0), Process(0)], tmp_path, 20).ended  # type: ignore[list-item]


def epoch(number: int, time_s: float) -> Epoch:
    return {
        "event": "epoch",
        "epoch": number,
        "loss": 0.5,
        "time_s": time_s,
        "evaluation_s": 0.5 * time_s,
        "epoch_s": 0.1,
        "ghost_bytes": 12,
        "usd": 0.0,
    }


def test_status_is_what_the_lines_say() -> None:
    status = Status(tasks_in_flight=None)
    _read(status, {"event": "start"}, BaselineConfig())
    assert (status.phase, status.epoch) == ("training", 0)
    _read(status, epoch(5, 1.0), BaselineConfig())
    scores = BySplit(train=None, val={"acc": 0.9}, test=None)
    _read(status, {"event": "evaluation", "epoch": 5, "time_s": 2.0, "evaluation_s": 1.0, **scores}, BaselineConfig())
    assert (status.epoch, status.loss, status.epoch_s, status.ghost_bytes) == (5, 0.5, 0.1, 12)
    assert status.evaluation == scores


def test_dollars_go_on_where_a_machine_is_named() -> None:
    """A minute at least: of a g4dn.xlarge ($0.526 an hour) and 120 GiB of disk."""
    config = BaselineConfig().replace({"cloud.gpu_instance": "g4dn.xlarge"})
    per_hour = 0.526 + 120 * 0.08 / 730
    status = Status()
    _read(status, {"event": "start"}, config)
    assert status.usd == 0
    _read(status, epoch(1, 5.0), config)
    assert status.usd == pytest.approx(per_hour / 60)
    _read(status, epoch(2, 7200.0), config)
    assert status.usd == pytest.approx(3 * per_hour)  # evaluations too: the machine is rented meanwhile
    _read(status, epoch(1, 5.0), BaselineConfig())
    assert status.usd == 0
