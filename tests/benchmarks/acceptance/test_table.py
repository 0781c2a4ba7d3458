"""What all scripts of the room share: flags by their defaults, and a file of finished runs."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.acceptance import table


def test_a_flag_is_made_of_its_default(tmp_path: Path) -> None:
    made = table.parser("what", rounds=3, quick=(False, "less"), only=["a", "b"], ranks=[2, 4], set=[], save=None)
    args = made.parse_args([])
    assert (args.rounds, args.quick, args.only, args.ranks) == (3, False, ["a", "b"], [2, 4])
    assert args.save is args.json is None
    words = f"--rounds 5 --quick --only b --ranks 3 --set a.b=c=d --set e.f=1 --json {tmp_path}/x".split()
    args = made.parse_args(words)
    assert (args.rounds, args.quick, args.only, args.ranks, args.json) == (5, True, ["b"], [3], tmp_path / "x")
    assert table.settings(args) == {"a.b": "c=d", "e.f": "1"}


def test_finished_runs_are_found_again(tmp_path: Path) -> None:
    file = tmp_path / "runs" / "results.jsonl"
    table.Results(file).add("one", {"test": 0.5})
    assert table.Results(file) == {"one": {"key": "one", "test": 0.5}}


def test_a_record_and_a_table(tmp_path: Path, capsys) -> None:
    table.record(tmp_path / "x", {"at": tmp_path})
    assert json.loads((tmp_path / "x").read_text()) == {"at": str(tmp_path)}
    table.record(None, {})
    table.show([{"name": "first", "share": 0.123456, "runs": None}], "a title")
    said = capsys.readouterr().out
    assert all(word in said for word in ("a title", "share", "0.1235", "first"))
    assert "None" not in said
    table.markdown([{"a": 1, "b": "x"}])
    assert capsys.readouterr().out == "| a | b |\n| --- | --- |\n| 1 | x |\n"
