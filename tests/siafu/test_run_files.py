"""What stands in a run's directory is read by one reader: siafu/run_files.py."""

from __future__ import annotations

import copy
import json
import os
import pickle
from dataclasses import asdict, make_dataclass
from pathlib import Path

import pytest

from siafu import run_files
from siafu.errors import ConfigError


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"event": "start", "setup_s": 0.5}\n{"event": "ep')
    assert run_files.records(tmp_path) == [{"event": "start", "setup_s": 0.5}]


@pytest.mark.parametrize(
    ("text", "what"), [("{\n", "line 2"), ("[]\n", "line 2: not a JSON object"), ("\xff\n", "line 2"), ("\n", "line 2")]
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"event": "start"}\n' + text + '{"event": "start"}\n', encoding="utf-8")
    with pytest.raises(ConfigError, match=f"metrics.jsonl: {what}"):
        run_files.records(tmp_path)


def test_bytes_that_are_no_text_and_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"metrics.jsonl: No such file"):
        run_files.records(tmp_path)
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"metrics.jsonl: .*decode"):
        run_files.records(tmp_path)
    (tmp_path / "result.json").mkdir()
    with pytest.raises(ConfigError, match=r"result.json: Is a directory"):
        run_files.result(tmp_path)


def test_a_run_that_goes_on_has_no_result_and_a_broken_one_is_named(tmp_path: Path) -> None:
    assert run_files.result(tmp_path) is None
    assert run_files.manifest(tmp_path) == {}
    (tmp_path / "result.json").write_text('{"stopped": "epo')
    with pytest.raises(ConfigError, match=r"result.json: "):
        run_files.result(tmp_path)
    (tmp_path / "manifest.json").write_text("3")
    with pytest.raises(ConfigError, match=r"manifest.json: not a JSON object"):
        run_files.manifest(tmp_path)


def test_a_key_that_a_file_lacks_is_named_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"event": "start"}\n{"event": "epoch", "val": {"loss": 1}}\n')
    (tmp_path / "result.json").write_text('{"cost": {"parts": {}}}')
    (tmp_path / "manifest.json").write_text("{}")
    records, result = run_files.records(tmp_path), run_files.result(tmp_path)
    with pytest.raises(ConfigError, match=r"metrics.jsonl: line 2: lacks 'epoch': damaged, or written by another"):
        records[1]["epoch"]  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match=r"metrics.jsonl: line 2: lacks 'acc'"):
        records[1]["val"]["acc"]  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match=r"result.json: lacks 'stopped'"):
        result["stopped"]  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"result.json: lacks 'usd'"):
        result["cost"]["usd"]  # type: ignore[index]
    with pytest.raises(ConfigError, match=r"manifest.json: lacks 'graph'"):
        run_files.manifest(tmp_path)["graph"]
    assert records[1].get("epoch") is None  # what older runs may lack is asked for like this
    lines = run_files.GrowingLines(tmp_path).new()
    with pytest.raises(ConfigError, match=r"metrics.jsonl: a line: lacks 'loss'"):
        lines[1]["loss"]  # type: ignore[typeddict-item]


def test_a_result_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_files.write_result(tmp_path, {"stopped": "epochs"})  # type: ignore[typeddict-item]

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        run_files.write_result(tmp_path, {"stopped": "target"})  # type: ignore[typeddict-item]
    assert json.loads((tmp_path / "result.json").read_bytes()) == {"stopped": "epochs"}
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]


def test_a_file_gets_its_name_once_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut may leave the name and nothing behind it."""
    file, at_sync = tmp_path / "metrics.jsonl", list[tuple[bytes, bytes]]()
    file.write_bytes(b"old\n")

    def fsync(descriptor: int) -> None:
        at_sync.append((Path(f"/proc/self/fd/{descriptor}").read_bytes(), file.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    run_files.write_whole(file, b"new\n")
    assert at_sync == [(b"new\n", b"old\n")]
    assert file.read_bytes() == b"new\n"


def test_lines_are_read_once_they_are_whole_and_again_when_the_file_was_cut(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    lines = run_files.GrowingLines(tmp_path)
    assert lines.new() == []
    file.write_text('{"n": 1}\n{"n"')
    assert lines.new() == [{"n": 1}]
    file.write_text('{"n": 1}\n{"n": 2}\n')
    assert lines.new() == [{"n": 2}]
    assert not lines.began_anew
    file.write_text('{"n": 1}\n')
    assert lines.new() == [{"n": 1}]
    assert lines.began_anew
    file.write_text('{"n": 1}\n[]\n')
    with pytest.raises(ConfigError, match=r"metrics.jsonl: a line: not a JSON object"):
        lines.new()
    assert run_files.GrowingLines(tmp_path, from_end=True).new() == []


def test_lines_of_a_file_that_took_anothers_place_are_read_anew(tmp_path: Path) -> None:
    """It may have become longer than what was read of the other, before anybody looked."""
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"n": 1}\n{"n": 2}\n')
    lines = run_files.GrowingLines(tmp_path, from_end=True)
    (tmp_path / "beside").write_text('{"n": 1}\n{"n": 33}\n{"n": 34}\n')
    os.replace(tmp_path / "beside", file)
    assert [line["n"] for line in lines.new()] == [1, 33, 34]


def test_a_record_can_be_copied_in_every_way(tmp_path: Path) -> None:
    """A status is written with ``asdict``, which makes an object of the same class."""
    (tmp_path / "metrics.jsonl").write_text('{"event": "evaluation", "val": {"acc": 0.5}}\n')
    (record,) = run_files.records(tmp_path)
    for same in (copy.copy(record), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert same == record
    status = make_dataclass("Status", ["evaluation"])
    assert asdict(status(record)) == {"evaluation": record}


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("epochs", "ten", 'epochs is "ten", must be a number'),
        ("epochs", True, "epochs is true, must be a number"),
        ("stopped", 3, "stopped is 3, must be a text"),
        ("usage_complete", 1, "usage_complete is 1, must be true or false"),
        ("loss_history", "0.5", 'loss_history is "0.5", must be a list'),
        ("loss_history", [0.5, None], "loss_history.1 is null, must be a number"),
        ("bytes_per_link", [[0, "a"]], 'bytes_per_link.0.1 is "a", must be a number'),
        ("usage", [], r"usage is \[\], must be an object"),
        ("usage", {"tasks": "many"}, 'usage.tasks is "many", must be a number'),
        ("cost", 3, "cost is 3, must be an object"),
        ("scores", {"test": {"acc": "good"}}, 'scores.test.acc is "good", must be a number'),
        ("kept", {"epoch": {}, "why": ""}, "kept.epoch is {}, must be a number"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_named_with_the_file(tmp_path: Path, key: str, value: object, what: str) -> None:
    (tmp_path / "result.json").write_text(json.dumps({"epochs": 3.0, "test_acc": None, "new": "unknown", key: value}))
    with pytest.raises(ConfigError, match=rf"result.json: {what}: damaged, or written by another version"):
        run_files.result(tmp_path)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"event": "epoch", "loss": "low"}, 'loss is "low", must be a number'),
        ({"event": "epoch", "staleness": [1, "2"]}, 'staleness.1 is "2", must be a number'),
        ({"event": "evaluation", "train": None, "val": 1}, "val is 1, must be an object"),
        ({"event": "restart", "reason": None}, "reason is null, must be a text"),
        ({"event": 3, "epoch": 1}, None),  # of a siafu that is not ours, maybe
        ({"event": "another", "epoch": "x"}, None),
    ],
    ids=str,
)
def test_a_record_with_a_value_of_another_type_is_named_by_its_line(
    tmp_path: Path, line: dict[str, object], what: str | None
) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"event": "start"}}\n{json.dumps(line)}\n')
    growing = run_files.GrowingLines(tmp_path)
    if what is None:
        assert run_files.records(tmp_path)[1] == growing.new()[1] == line
        return
    with pytest.raises(ConfigError, match=rf"metrics.jsonl: line 2: {what}: damaged"):
        run_files.records(tmp_path)
    with pytest.raises(ConfigError, match=what):
        growing.new()
