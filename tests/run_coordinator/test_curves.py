"""What a run looks like in a notebook, and as a figure."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from run_coordinator import curves
from run_coordinator.run import Run
from siafu import extras
from siafu.errors import ConfigError

RESULT: dict[str, Any] = {
    "metric": "r2",
    "epochs": 3,
    "train_seconds": 1.25,
    "stopped": "epochs",
    "best_epoch": 3,
    "kept": {"epoch": 3},
    "cost": {"usd": 0.0123},
    "scores": {"train": {"acc": 0.9}, "val": {"acc": 0.8}, "test": {"acc": 0.71239}},
    "run_dir": "/runs/<mine>",
}


def metrics(epochs: int = 3) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"event": "start"}]
    for epoch in range(epochs):
        lines.append({"event": "epoch", "epoch": epoch + 1, "loss": 1 / (epoch + 1)})
        if epoch % 2 == 0:
            scores = {split: {"acc": 0.5 + 0.1 * epoch} for split in ("train", "val", "test")}
            lines.append({"event": "evaluation", "epoch": epoch + 1, **scores})
    return lines


def test_series_are_the_loss_of_every_epoch_and_the_scores_of_evaluated_ones():
    found = curves.series(metrics())
    assert found["loss"] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert found["val"] == found["test"] == [(1, 0.5), (3, 0.7)]


def test_a_split_that_is_never_scored_has_no_series():
    lines = [{**line, "train": None} if line["event"] == "evaluation" else line for line in metrics()]
    assert curves.series(lines).keys() == {"loss", "val", "test"}


def test_a_run_shows_itself_as_a_table_and_a_curve():
    shown = curves.html(RESULT, metrics())
    parsed = ElementTree.fromstring(shown)  # well-formed, the run's name escaped
    text = "".join(parsed.itertext())
    assert all(words in text for words in ("3 in 1.2 s, stopped by epochs", "test R²0.7124", "$0.0123", "/runs/<mine>"))
    lines = parsed.findall(".//{*}polyline")
    assert len(lines) == 4
    for line in lines:
        points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        assert all(0 <= x <= curves.WIDTH and 0 <= y <= curves.HEIGHT for x, y in points)
        assert points[0][0] < points[-1][0]


def test_a_run_that_a_limit_stopped_at_once_has_no_curve():
    result = {**RESULT, "scores": None, "best_epoch": None, "epochs": 0, "cost": {"usd": 0.0}}
    ElementTree.fromstring(curves.html(result, [{"event": "start"}]))
    assert curves.svg({}) == ""


def test_a_loss_that_is_no_number_is_left_out():
    shown = curves.svg({"loss": [(1, 1.0), (2, math.nan), (3, 0.5)]})
    assert "nan" not in shown.partition("<text")[0]


def test_a_long_curve_has_no_more_points_than_pixels():
    shown = curves.svg(curves.series(metrics(50_000)))
    assert len(shown) < 60_000
    assert "0.000" in shown  # the last loss


def test_a_figure_has_the_loss_on_one_axis_and_scores_on_the_other(tmp_path: Path):
    figure = curves.plot(RESULT, metrics())
    left, right = figure.axes
    assert ([line.get_label() for line in left.lines[:1]], len(right.lines)) == (["loss"], 3)
    assert (left.get_xlabel(), right.get_ylabel()) == ("epoch", "R²")
    assert figure._repr_png_().startswith(b"\x89PNG")  # what a notebook shows
    figure.savefig(tmp_path / "run.svg")
    assert "epoch" in (tmp_path / "run.svg").read_text()


def test_without_matplotlib_a_figure_says_what_it_needs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=rf"^Run\.plot needs matplotlib: {re.escape(extras.install('plot'))}$"):
        curves.plot(RESULT, metrics())


def test_a_run_reads_its_own_metrics(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"event": "epoch", "epoch": 1, "loss": 2.0}\n')
    run = Run(tmp_path, {**RESULT, "val_acc": 0.8, "test_acc": 0.71239})
    assert repr(run) == f"Run({tmp_path}, val 0.8000, test 0.7124)"
    assert "loss 2.000" in run._repr_html_()
    assert run.plot().axes[0].lines[0].get_ydata().tolist() == [2.0]
