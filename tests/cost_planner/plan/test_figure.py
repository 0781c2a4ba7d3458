"""The picture of a plan: what it shows, and where it cannot be drawn."""

from __future__ import annotations

import json
import sys

import pytest

from siafu import extras
from siafu.__main__ import main

pytest.importorskip("matplotlib")

COUNTS = ["--vertices", "1M", "--edges", "20M", "--features", "64", "--classes", "5", "--epochs", "50"]
FEW = ["--instance", "c8g.2xlarge,c7g.4xlarge", "--servers", "1,2", "--mode", "pipe", "--backend", "cpu,lambda"]


def test_the_front_is_numbered_and_limits_are_lines(tmp_path, capsys):
    file = tmp_path / "plan.svg"
    assert main(["plan", *COUNTS, *FEW, "--within-time", "60", "--plot", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    text = file.read_text()
    for number, place in enumerate(sorted(found["pareto"], key=lambda place: found["options"][place]["seconds"]), 1):
        option = found["options"][place]
        assert f"{number}  {option['name']} on {option['servers']} x {option['instance']}" in text
    for words in ("CPU servers alone", "CPU servers with Lambdas", "Pareto front", "equal value", "within 60 s"):
        assert words in text, words
    assert "GPUs: assumed" not in text


def test_a_png_is_written_as_well(tmp_path, capsys):
    assert main(["plan", *COUNTS, *FEW, "--plot", str(tmp_path / "plan.png")]) == 0
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert "Prices of us-east-1" in capsys.readouterr().out  # the table is there too


@pytest.mark.parametrize(("name", "words"), [("plan.txt", "must end in .png"), ("nowhere/plan.png", "no folder")])
def test_a_file_that_cannot_be_drawn_is_refused_before_anything_is_planned(tmp_path, capsys, name, words):
    assert main(["plan", *COUNTS, "--plot", str(tmp_path / name)]) == 2
    assert words in capsys.readouterr().err


def test_without_matplotlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plan", *COUNTS, "--plot", str(tmp_path / "plan.png")]) == 2
    assert extras.install("plot") in capsys.readouterr().err
