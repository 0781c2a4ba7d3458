"""The figures of docs/measured/growth.md, from growth.json beside it: ``python -m website.growth`` writes them.

growth.json is what ``python -m benchmarks measure scaling --json`` printed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cost_planner.report import drawing
from website import svg

FOLDER = Path(__file__).parent.parent / "docs" / "measured"
HEIGHT_IN = 2.6
#: part -> label of the x axis, label of the y axis, the key of a row's x value
FIGURES = {
    "gather": ("edges", "ns per edge", "edges"),
    "intervals": ("intervals of a partition", "ms per epoch", "intervals"),
    "parts": ("partitions", "ms per epoch", "parts"),
}
#: Of the gather's two lines: whose values they are.
GATHER = {"value": "gather of 64 columns", "limit": "reading its rows alone"}

Line = tuple[str, list[float], list[float]]  # name, xs, ys


def lines(part: str, rows: Sequence[Mapping[str, Any]]) -> list[Line]:
    mine, x = [row for row in rows if row["part"] == part], FIGURES[part][2]
    if part == "gather":
        return [(name, [row[x] for row in mine], [row[key] for row in mine]) for key, name in GATHER.items()]
    ways = dict.fromkeys(row["way"] for row in mine)
    return [
        (way, [row[x] for row in mine if row["way"] == way], [row["value"] for row in mine if row["way"] == way])
        for way in ways
    ]


def figure(part: str) -> str:
    """As a file of its own: SVG."""
    x_label, y_label, _ = FIGURES[part]
    with drawing.style():
        drawn = drawing.figure(HEIGHT_IN)
        axes = drawn.subplots()
        found = lines(part, json.loads((FOLDER / "growth.json").read_text())["rows"])
        for number, (name, xs, ys) in enumerate(found):
            style: dict[str, Any] = {
                "color": drawing.SERIES[number],
                "marker": drawing.MARKERS[number],
                "markersize": 4,
            }
            axes.plot(xs, ys, linestyle=drawing.DASHES[number], label=name, **style)
        xs = found[0][1]
        axes.set_xscale("log")
        axes.set_xticks(xs, [f"{x / 1e6:g}M" if x >= 1e6 else f"{x:g}" for x in xs])
        axes.set_xticks([], minor=True)
        axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        drawing.legend(drawn, axes)
        return svg.document(drawn, f"growth-{part}", f"{y_label} by {x_label}", "python -m website.growth")


def main() -> None:
    for part in FIGURES:
        (FOLDER / f"growth-{part}.svg").write_text(figure(part), encoding="utf-8")


if __name__ == "__main__":
    main()
