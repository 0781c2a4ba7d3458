"""A plan as a picture: time and money of the options. The Pareto front is joined and numbered.

A line of equal value goes through the best option: time x dollars is the same along it, so what lies below it would
have more value. Limits that the user set are lines too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter

from cost_planner.plan.finding import NAMES, words
from cost_planner.plan.ranking import Predicted, Ranking
from cost_planner.report import drawing
from siafu.errors import ConfigError
from siafu.progress import dollars, duration

HEIGHT_IN, LINE_IN, DPI = 4.2, 0.17, 160
#: Of the range of each axis, in the logarithm: room beside the outermost options.
ROOM = 0.12
#: Letters in a line below the figure.
LETTERS = 100
#: Marks of the axis of times, in seconds: those that people count in.
TIMES_S = [unit * count for unit in (1, 60, 3600) for count in (1, 2, 5, 10, 20, 30)]
TIMES_S += [3600 * count for count in (48, 120, 240, 480, 1200)]


def draw(ranking: Ranking, title: str, file: Path) -> None:
    """PNG, SVG or PDF, by the name. ConfigError if the file cannot be written."""
    front = ranking.front
    with drawing.style():
        listed = [drawing.folded(f"{number}  {words(one)}", LETTERS) for number, one in enumerate(front, 1)]
        assumed = " GPUs: assumed, half to twice the time." * any(one.option.card for one in ranking.predicted)
        note = f"Predicted, times to within about {ranking.error:.0%}.{assumed}"
        below = "\n".join([*listed, note])
        figure = drawing.figure(HEIGHT_IN + LINE_IN * (below.count("\n") + 1))
        axes = figure.subplots()
        _options(axes, ranking.predicted)
        _front(axes, front)
        _axes(axes, ranking)
        _equal_value(axes, ranking.predicted[0])
        _limits(axes, ranking)
        axes.set_title(title)
        drawing.legend(figure, axes)
        figure.supxlabel(below, x=0.02, ha="left", fontsize=7.5)
        try:
            figure.savefig(file, dpi=DPI, facecolor=drawing.LIGHT["paper"])
        except OSError as error:
            raise ConfigError(f"--plot {file}: {error}") from None


def _options(axes: Axes, predicted: Sequence[Predicted]) -> None:
    for number, backend in enumerate(NAMES):
        mine = [one for one in predicted if one.option.backend == backend]
        if mine:
            axes.scatter(
                [one.seconds for one in mine],
                [one.cost.usd for one in mine],
                s=26,
                marker=drawing.MARKERS[number],
                color=drawing.SERIES[number],
                alpha=0.75,
                linewidths=0,
                label=NAMES[backend][0],
                zorder=3,
            )


def _front(axes: Axes, front: Sequence[Predicted]) -> None:
    axes.plot(
        [one.seconds for one in front],
        [one.cost.usd for one in front],
        drawstyle="steps-post",
        color=drawing.LIGHT["quiet"],
        linewidth=1,
        label="Pareto front",
        zorder=2,
    )
    for number, one in enumerate(front, 1):
        axes.annotate(
            f"{number}", (one.seconds, one.cost.usd), (5, 4), textcoords="offset points", fontsize=8, zorder=4
        )


def _axes(axes: Axes, ranking: Ranking) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    seconds, usd = zip(*((one.seconds, one.cost.usd) for one in ranking.predicted), strict=True)
    limits = ranking.limits
    axes.set_xlim(*_range([*seconds, *_near(limits.seconds, seconds)]))
    axes.set_ylim(*_range([*usd, *_near(limits.usd, usd)]))
    axes.xaxis.set_major_locator(FixedLocator(TIMES_S))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.set_xlabel("time of the whole run")
    axes.set_ylabel("US dollars of the whole run")


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log(min(values)), math.log(max(values))
    room = ROOM * max(high - low, 0.5)
    return math.exp(low - room), math.exp(high + room)


def _near(limit: float, values: Sequence[float]) -> list[float]:
    """The limit, unless it is so far from all of them that they would be drawn in a corner."""
    return [limit] if min(values) / 10 < limit < max(values) * 10 else []


def _equal_value(axes: Axes, best: Predicted) -> None:
    product, ends = best.seconds * best.cost.usd, axes.get_xlim()
    axes.plot(
        ends,
        [product / seconds for seconds in ends],
        color=drawing.LIGHT["ink"],
        linewidth=0.9,
        linestyle=":",
        label="equal value; below: more",
        zorder=1,
        scalex=False,
        scaley=False,
    )


def _limits(axes: Axes, ranking: Ranking) -> None:
    style: dict[str, Any] = {"color": drawing.SERIES[1], "linewidth": 0.9, "linestyle": "--", "zorder": 1}
    if ranking.limits.seconds < math.inf:
        axes.axvline(ranking.limits.seconds, label=f"within {duration(ranking.limits.seconds)}", **style)
    if ranking.limits.usd < math.inf:
        axes.axhline(ranking.limits.usd, label=f"within {dollars(ranking.limits.usd)}", **style)
