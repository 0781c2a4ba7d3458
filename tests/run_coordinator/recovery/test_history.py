"""metrics.jsonl of a run that goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from run_coordinator.recovery.history import rewind
from siafu.errors import ConfigError

START, STOP = {"event": "start"}, {"event": "stop", "reason": "time"}


def epoch(number: int) -> dict[str, object]:
    return {"event": "epoch", "epoch": number + 1}


def evaluation(number: int) -> dict[str, object]:
    return {"event": "evaluation", "epoch": number + 1}


def test_what_will_be_run_again_goes_and_a_torn_line_too(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    lines = [START, epoch(0), epoch(1), evaluation(0), epoch(2), evaluation(1), epoch(3), STOP]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"event": "epo')
    rewind(path, version=2, judged=1)
    left = [json.loads(line) for line in path.read_text().splitlines()]
    assert left == [START, epoch(0), epoch(1), evaluation(0), evaluation(1), STOP]
    assert path.read_text().endswith("\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_a_run_without_metrics_begins_with_none(tmp_path: Path):
    rewind(tmp_path / "metrics.jsonl", version=2, judged=1)
    assert (tmp_path / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b'{"epoch": 2}', "line 2: lacks 'event'"),
        (b'{"event": "epoch", "loss": 0.5}', "line 2: lacks 'epoch'"),
        (b'{"event": "epo', "line 2: no JSON"),
        (b"\xff", "'utf-8' codec can't decode"),
    ],
)
def test_a_line_in_between_that_is_no_record_is_named_and_nothing_is_lost(tmp_path: Path, line: bytes, fault: str):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(before := b"".join(b"%s\n" % one for one in (json.dumps(START).encode(), line, b"{}")))
    with pytest.raises(ConfigError, match=f"metrics.jsonl: {fault}"):
        rewind(path, version=2, judged=1)
    assert path.read_bytes() == before
