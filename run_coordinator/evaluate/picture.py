"""An evaluation as a picture: the confusion matrix, F1 of each class, and the calibration of probabilities."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from run_coordinator.evaluate.scores import Scored
from siafu import extras
from siafu.errors import ConfigError

#: Classes of a confusion matrix with numbers in its cells, and of one with names: of more, they would be a blur.
MOST_NUMBERS, MOST_NAMES = 15, 40
BLUE, GREY = "#0072b2", "#999999"
DPI = 150


def drawn(found: Scored, title: str) -> Any:
    """A matplotlib Figure. Raises: ConfigError without matplotlib, or of numbers."""
    if not found.classes:
        raise ConfigError("numbers have no classes to draw")
    try:
        figures = import_module("matplotlib.figure")
    except ModuleNotFoundError:
        raise ConfigError(f"a picture needs matplotlib: {extras.install('plot')}") from None
    side = min(12.0, max(4.0, 0.32 * len(found.classes) + 2.0))
    has_matrix = found.confusion is not None
    figure = figures.Figure(figsize=(side * (1.15 if has_matrix else 0.0) + 6.6, max(4.2, side)), layout="constrained")
    widths = ([1.15 * side] if has_matrix else []) + [3.3, 3.3]
    axes = list(figure.subplots(1, len(widths), width_ratios=widths))
    if has_matrix:
        _matrix(axes.pop(0), found)
    _bars(axes[0], found)
    _reliability(axes[1], found)
    figure.suptitle(title, fontsize=10)
    return figure


def save(figure: Any, path: str) -> None:
    """Raises: ConfigError if the file system refuses it."""
    try:
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise ConfigError(f"plot {path!r} cannot be written: {error.strerror}") from None


def _matrix(axes: Any, found: Scored) -> None:
    """Draws the confusion matrix. Rows are shares of the true class, so rare classes are as visible as frequent
    ones."""
    counts = found.confusion
    assert counts is not None
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [_short(one["name"]) for one in found.classes]
    if len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axes.set_yticks(range(len(names)), names, fontsize=8)
    if len(names) <= MOST_NUMBERS:
        for i, j in np.argwhere(counts > 0):
            colour = "white" if shares[i, j] > 0.5 else "black"
            axes.text(j, i, f"{counts[i, j]}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    axes.set_title("what is taken for what (share of the true class)", fontsize=9, loc="left")


def _bars(axes: Any, found: Scored) -> None:
    names = [_short(one["name"]) for one in found.classes]
    places = np.arange(len(names))
    axes.barh(places, [one["f1"] for one in found.classes], color=BLUE, height=0.7)
    axes.set_yticks(places if len(names) <= MOST_NAMES else [], names if len(names) <= MOST_NAMES else [], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_title("F1 of each class", fontsize=9, loc="left")
    _plain(axes)


def _reliability(axes: Any, found: Scored) -> None:
    """Draws the reliability diagram. A dot's area is its share of the vertices."""
    bins = found.calibration
    total = sum(one["count"] for one in bins)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
    sizes = [10 + 240 * one["count"] / total for one in bins]
    points = [one["confidence"] for one in bins], [one["accuracy"] for one in bins]
    axes.scatter(*points, s=sizes, color=BLUE, alpha=0.8, linewidth=0, clip_on=False)
    axes.set_xlim(0, 1.05)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("probability of what is predicted")
    axes.set_ylabel("share that is right")
    error = found.scores["calibration_error"]
    axes.set_title(f"calibration (error {error:.3f})", fontsize=9, loc="left")
    axes.set_aspect("equal")
    axes.set_anchor("N")
    _plain(axes)


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _short(name: str, most: int = 24) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
