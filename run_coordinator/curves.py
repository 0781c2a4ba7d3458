"""Plots a run's loss and scores over the epochs: HTML for a notebook, or a matplotlib figure."""

from __future__ import annotations

import html as escape
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from siafu import extras
from siafu.errors import ConfigError
from siafu.metrics import SPLITS, TITLES
from siafu.progress import dollars
from siafu.run_files import Record, Result

WIDTH, HEIGHT, MARGIN = 360, 120, 6
DOTS_PER_INCH = 110
#: Colour-blind safe (Wong 2011), and readable on white and on black.
COLOURS = {"loss": "#d55e00", "train": "#999999", "val": "#0072b2", "test": "#009e73"}
#: More points than pixels are not seen.
MOST_POINTS = 2 * WIDTH

Point = tuple[float, float]


def series(metrics: Sequence[Record]) -> dict[str, list[Point]]:
    """(epoch, value) of the loss and of each split's score, from the lines of metrics.jsonl; without curves that have
    no value."""
    found: dict[str, list[Point]] = {"loss": [(r["epoch"], r["loss"]) for r in metrics if r["event"] == "epoch"]}
    evaluations = [r for r in metrics if r["event"] == "evaluation"]
    for split in SPLITS:
        found[split] = [(r["epoch"], scores["acc"]) for r in evaluations if (scores := r[split])]
    return {name: points for name, points in found.items() if points}


def html(result: Result, metrics: Sequence[Record]) -> str:
    """A small table of the result beside its curve."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape.escape(what)}</th><td "
        f"style='text-align:left'>{escape.escape(value)}</td></tr>"
        for what, value in _facts(result)
    )
    return f"<div style='display:flex;gap:1.5em;align-items:center'><table>{cells}</table>{svg(series(metrics))}</div>"


def _facts(result: Result) -> list[tuple[str, str]]:
    title, best, kept = TITLES[result["metric"]], result["scores"], result["kept"]
    facts = [("epochs", f"{result['epochs']} in {result['train_seconds']:.1f} s, stopped by {result['stopped']}")]
    if best and kept:
        facts += [(f"{split} {title}", f"{scores['acc']:.4f}") for split in SPLITS if (scores := best[split])]
        facts += [
            ("best epoch", str(kept["epoch"])) if best["val"] else ("last epoch", f"{kept['epoch']}: {kept['why']}")
        ]
    if result["cost"] and result["cost"]["usd"]:
        facts += [("cost", dollars(result["cost"]["usd"]))]
    return [*facts, ("saved in", str(result["run_dir"]))]


def svg(curves: Mapping[str, Sequence[Point]]) -> str:
    """The loss, scaled to the height, and scores on one scale; "" if there is nothing to see."""
    if not curves:
        return ""
    last = max(x for points in curves.values() for x, _ in points)
    scores = [y for name, points in curves.items() if name != "loss" for _, y in points]
    lines, legend = [], []
    for number, (name, points) in enumerate(curves.items()):
        low, high = _limits([y for _, y in points] if name == "loss" else scores)
        placed = [_placed(x, y, last, low, high) for x, y in thinned(points) if math.isfinite(y)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
        lines.append(f"<polyline points='{path}' fill='none' stroke='{COLOURS[name]}' stroke-width='1.5'/>")
        left = MARGIN + number * 85
        legend.append(
            f"<text x='{left}' y='{HEIGHT + 14}' font-size='11' fill='{COLOURS[name]}'>{name} "
            f"{points[-1][1]:.3f}</text>"
        )
    return (
        f"<svg width='{WIDTH}' height='{HEIGHT + 20}' xmlns='http://www.w3.org/2000/svg' font-family='sans-serif'>"
        f"<rect width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#999999' stroke-width='0.5'/>"
        f"{''.join(lines)}{''.join(legend)}</svg>"
    )


def _limits(values: Sequence[float]) -> tuple[float, float]:
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _placed(x: float, y: float, last: float, low: float, high: float) -> Point:
    across = (x - 1) / max(last - 1, 1)
    return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN)


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most ``MOST_POINTS``, the first and the last among them."""
    if len(points) <= MOST_POINTS:
        return list(points)
    places = [round(i * (len(points) - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)]
    return [points[place] for place in places]


def plot(result: Result, metrics: Sequence[Record]) -> Any:
    """A matplotlib Figure: the loss to the left axis, scores to the right. Draws on no screen: a notebook shows it, and
    ``savefig`` writes it. ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ModuleNotFoundError:
        raise ConfigError(f"Run.plot needs matplotlib: {extras.install('plot')}") from None

    class Shown(Figure):
        """Without pyplot, which would keep it open, a notebook knows a figure by this alone."""

        def _repr_png_(self) -> bytes:
            picture = io.BytesIO()
            self.savefig(picture, format="png", dpi=DOTS_PER_INCH)
            return picture.getvalue()

    figure = Shown(figsize=(6.4, 3.2), layout="constrained")
    left = figure.add_subplot()
    right = left.twinx()
    for name, points in series(metrics).items():
        axes = left if name == "loss" else right
        axes.plot(*zip(*points, strict=True), color=COLOURS[name], label=name, linewidth=1.5)
    if result["best_epoch"]:
        left.axvline(result["best_epoch"], color="#999999", linewidth=0.8, linestyle=":")
    left.set_xlabel("epoch")
    left.set_ylabel("loss", color=COLOURS["loss"])
    right.set_ylabel(TITLES[result["metric"]])
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(frameon=False, loc="outside upper center", ncols=4)
    for axes in (left, right):
        axes.spines["top"].set_visible(False)
    return figure
