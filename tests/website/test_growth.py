"""The figures of docs/measured/growth.md are drawn from the measurements beside them."""

from __future__ import annotations

import json

import pytest

matplotlib = pytest.importorskip("matplotlib", reason="needs the extra plot")

from website import growth  # noqa: E402


@pytest.mark.parametrize("part", growth.FIGURES)
def test_a_figure_is_what_the_code_draws_of_the_measurements(part: str) -> None:
    kept = (growth.FOLDER / f"growth-{part}.svg").read_text()
    if f"matplotlib {matplotlib.__version__} " not in kept:
        pytest.skip("drawn with another matplotlib, whose bytes may differ")
    assert kept == growth.figure(part), "python -m website.growth"


@pytest.mark.parametrize("part", growth.FIGURES)
def test_every_measurement_is_a_point(part: str) -> None:
    rows = json.loads((growth.FOLDER / "growth.json").read_text())["rows"]
    found = growth.lines(part, rows)
    mine = [row for row in rows if row["part"] == part]
    assert len({name for name, _, _ in found}) == len(found) > 1
    points = {(x, y) for _, xs, ys in found for x, y in zip(xs, ys, strict=True)}
    assert {(row[growth.FIGURES[part][2]], row["value"]) for row in mine} <= points
