"""What the function wrote, from CloudWatch into a run directory: by stream, within bounds,
and never at the run's expense."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra import service
from infra.machines import functionlogs


def event(stream: int, text: str) -> dict[str, str]:
    return {"logStreamName": f"2026/11/21/[$LATEST]{stream:032x}", "message": f"{text}\n"}


def cloudwatch(monkeypatch: pytest.MonkeyPatch, *pages: list[dict[str, str]]) -> None:
    def paginate(**_: Any) -> Iterator[dict[str, Any]]:
        return ({"events": page} for page in pages)

    client = SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=paginate))
    monkeypatch.setattr(service, "client", lambda *_: client)


def file(folder: Path, stream: int) -> Path:
    return folder / f"2026-11-21-LATEST-{stream:032x}.log"


def test_each_environment_has_a_file_and_pages_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file(tmp_path, 1).write_text("of an attach before\n")
    cloudwatch(monkeypatch, [event(1, "a"), event(2, "b"), event(1, "c")], [], [event(2, "d"), event(1, "e")])
    assert functionlogs.bring("f", "us-east-1", 0, tmp_path) == 5
    assert [file(tmp_path, i).read_text() for i in (1, 2)] == ["a\nc\ne\n", "b\nd\n"]


def test_there_may_be_more_environments_than_files_that_may_be_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    cloudwatch(monkeypatch, [event(i, "START") for i in range(400)])
    # A worker of the test run may have hundreds open already: what other tests mapped.
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 50, limits[1]))
    try:
        assert functionlogs.bring("f", "us-east-1", 0, tmp_path) == 400
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(list(tmp_path.iterdir())) == 400


def test_enough_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(functionlogs, "MAX_LINES", 3)
    cloudwatch(monkeypatch, [event(1, "a"), event(1, "b")], [event(1, "c"), event(1, "d")], [event(1, "e")])
    assert functionlogs.bring("f", "us-east-1", 0, tmp_path) == 3
    assert file(tmp_path, 1).read_text() == "a\nb\nc\n"
    assert "its first 3 lines are enough" in caplog.text


def test_a_folder_that_cannot_be_written_is_no_reason_to_lose_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "logs").write_text("a file")
    cloudwatch(monkeypatch, [event(1, "a")])
    assert functionlogs.bring("f", "us-east-1", 0, tmp_path / "logs") == 0
    assert "function f: its logs stay in CloudWatch: " in caplog.text
