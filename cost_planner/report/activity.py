"""Figures of what servers, Lambdas and ranks did during the run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cost_planner.report import bars, series, timelines
from cost_planner.report.compared import Compared, Missing
from cost_planner.report.drawing import LIGHT, SERIES, figure, legend
from siafu.progress import size

#: More matrices of links than that are not legible; nor are more numbers in one.
MOST_MATRICES, MOST_NUMBERED = 6, 8


def time_by_kind(found: Compared) -> tuple[Figure, str]:
    ours = {run.name: by for run in found.firsts if (by := series.by_kind(run))}
    theirs = {run.name: by for run in found.firsts if (by := series.by_phase(run))}
    if not ours and not theirs:
        raise Missing("these runs do not say it: train again with this version of siafu")
    panels = [(stacks, unit) for stacks, unit in ((ours, OURS), (theirs, THEIRS)) if stacks]
    heights = [bars.AROUND_IN + bars.BAR_IN * len(stacks) for stacks, _ in panels]
    drawn = figure(sum(heights))
    for axes, (stacks, unit) in zip(
        drawn.subplots(len(panels), 1, height_ratios=[len(stacks) + 1 for stacks, _ in panels], squeeze=False)[:, 0],
        panels,
        strict=True,
    ):
        names = list(dict.fromkeys(name for by in stacks.values() for name in by))
        order = [name for name in timelines.KINDS if name in names] + [
            name for name in names if name not in timelines.KINDS
        ]
        bars.stack(
            axes, stacks, order, unit, lambda seconds: f"{seconds:.3g} s", timelines.KINDS if stacks is ours else {}
        )
    return drawn, (
        "By kind of step (Dorylus, Fig. 10a), of all servers and workers together: more than an epoch lasts where they "
        "work side by side, and without waiting or transfers. A prime marks the backward of a step."
    ) * bool(ours) + " Of baselines, the mean of the ranks: what each does or waits for, one after the other." * bool(
        theirs
    )


OURS, THEIRS = "seconds of computing in an epoch", "seconds of an epoch"


def timeline(found: Compared) -> tuple[Figure, str]:
    shown = {run.name: line for run in found.firsts if (line := series.timeline(run))}
    if not shown:
        raise Missing("train with --trace (graph servers alone write traces)")
    return timelines.draw(shown)


def staleness(found: Compared) -> tuple[Figure, str]:
    shown = {run.name: by for run in found.firsts if (by := series.staleness(run))}
    if not shown:
        raise Missing("only graph servers count it, and there is no run of theirs")
    drawn = figure(3.0)
    axes = drawn.add_subplot()
    oldest, width = max(len(by) for by in shown.values()), 0.8 / len(shown)
    for number, (name, by) in enumerate(shown.items()):
        places = [age + (number - (len(shown) - 1) / 2) * width for age in range(len(by))]
        drawn_bars = axes.bar(places, [100 * share for share in by], width * 0.92, **found.fill(name), label=name)
        axes.bar_label(
            drawn_bars, [f"{100 * share:.0f}" if share >= 0.005 else "" for share in by], fontsize=7, padding=1
        )
    axes.set_xticks(range(oldest))
    axes.set_xlabel("age of the oldest row that a gather reads, in epochs")
    axes.set_ylabel("% of gathers")
    legend(drawn, axes)
    return (
        drawn,
        "0 is this epoch's: all of them in pipe and no-pipe. In async, rows that are late are read as they were.",
    )


def bytes_by_link(found: Compared) -> tuple[Figure, str]:
    shown = {run.name: matrix for run in found.firsts if (matrix := series.links(run))}
    if not shown:
        raise Missing("it takes a finished run of this version of siafu with two parts or ranks")
    left_out, shown = len(shown) - MOST_MATRICES, dict(list(shown.items())[:MOST_MATRICES])
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    drawn = figure(0.35 + 2.1 * lines)
    most = max(nbytes for matrix in shown.values() for row in matrix for nbytes in row)
    unit = size(most).partition(" ")[2]
    panels = drawn.subplots(lines, columns, squeeze=False).flat
    for axes, (name, matrix) in zip(panels, shown.items(), strict=False):
        _matrix(axes, matrix, most, most / float(size(most).partition(" ")[0]))
        axes.set_title(f"{name} ({unit})")
    for axes in list(panels)[len(shown) :]:
        axes.set_visible(False)
    caption = (
        "Halo rows and their gradients in an epoch of training, from the server of a row to that of a column; "
        "a fuller square is more."
    )
    return drawn, caption + (f" {left_out} more {'is' if left_out == 1 else 'are'} left out." if left_out > 0 else "")


def _matrix(axes: Axes, matrix: Sequence[Sequence[int]], most: int, unit: float) -> None:
    """Draws a matrix whose squares have areas in proportion to bytes: no colour scale is needed. unit: bytes per unit
    of the numbers shown."""
    count = len(matrix)
    for a, row in enumerate(matrix):
        for b, nbytes in enumerate(row):
            if not nbytes:
                continue
            side = 0.94 * math.sqrt(nbytes / most)
            axes.bar(b, side, side, a - side / 2, color=LIGHT["tint"], edgecolor=SERIES[0], linewidth=0.8)
            if count <= MOST_NUMBERED:
                axes.text(b, a, f"{nbytes / unit:.3g}", ha="center", va="center", fontsize=9 - count / 2)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(min(count, MOST_NUMBERED), integer=True))
    axes.set_xlabel("to")
    axes.set_ylabel("from")
