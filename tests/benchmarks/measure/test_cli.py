"""``python -m benchmarks measure``: a table of measures, a table or one JSON object for each."""

from __future__ import annotations

import json
import sys
import types

import pytest

from benchmarks.__main__ import main
from benchmarks.measure import Measurement, cli

FOUND = Measurement(
    "a title", ("width", "ms"), [{"width": 1_000, "ms": 12.345, "hidden": 1}], {"ratio": 1.5, "no": None}
)


@pytest.fixture
def stand_in(monkeypatch):
    """A measure with one flag of its own; what it was called with is kept."""
    module = types.ModuleType("stand_in")
    module.calls = []

    def measure(args):
        module.calls.append(args)
        return FOUND

    module.add_arguments = lambda parser: parser.add_argument("--speed", type=int, default=3)
    module.measure = measure
    monkeypatch.setitem(sys.modules, "stand_in", module)
    monkeypatch.setitem(cli.MEASURES, "gather", "stand_in")
    return module


def test_every_measure_has_help_and_an_example():
    assert set(cli.MEASURES) == set(cli.HELP)
    assert all(f"python -m benchmarks measure {name}" in cli.EXAMPLES for name in cli.MEASURES)


def test_help_names_every_measure(capsys):
    assert main(["measure", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in cli.MEASURES)


def test_measure_gets_its_own_flags(stand_in, capsys):
    assert main(["measure", "gather", "--speed", "7"]) == 0
    assert stand_in.calls[0].speed == 7
    assert "ratio: 1.5" in capsys.readouterr().out


def test_json_is_one_object_with_the_summary_beside_the_rows(stand_in, capsys):
    assert main(["measure", "gather", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"title": "a title", "rows": FOUND.rows, "ratio": 1.5, "no": None}


@pytest.mark.parametrize("words", [["measure"], ["measure", "nothing"], ["measure", "gather", "--speeed", "1"]])
def test_mistakes_are_one_line_and_exit_code_2(stand_in, capsys, words):
    assert main(words) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (True, "yes"),
        (1234, "1,234"),
        (12.345, "12.3"),
        (0.5, "0.5"),
        (12345.6, "12,346"),
        ("x", "x"),
        ({"16": 2.0, "64": None}, "16 2, 64 –"),
        ([1.0, 2.5], "1, 2.5"),
    ],
)
def test_cells_show_three_digits(value, shown):
    assert cli.shown(value) == shown
