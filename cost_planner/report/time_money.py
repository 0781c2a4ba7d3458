"""Time against money, both logarithmic: axes, Pareto front, line of equal value. Plans and reports draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, LogLocator, MaxNLocator, NullFormatter

from cost_planner.report import drawing
from siafu.progress import duration

#: Of the range of each axis, in the logarithm: room beside the outermost points.
ROOM = 0.12
#: Marks of the axis of times, in seconds: usual units of time.
TIMES_S = [unit * count for unit in (1, 60, 3600) for count in (1, 2, 5, 10, 20, 30)]
TIMES_S += [3600 * count for count in (48, 120, 240, 480, 1200)]


def scale(axes: Axes, seconds: Sequence[float], usd: Sequence[float], what: str) -> None:
    """Scales axes to hold all points, in seconds and US dollars. ``what``: added to the axes' labels."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*_range(seconds))
    axes.set_ylim(*_range(usd))
    axes.xaxis.set_major_locator(_marked(FixedLocator(TIMES_S), axes.get_xlim()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.yaxis.set_major_locator(_marked(LogLocator(subs=(1.0, 2.0, 5.0)), axes.get_ylim()))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"${value:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True)
    axes.set_xlabel(f"time {what}")
    axes.set_ylabel(f"US dollars {what}")


def front(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Joins the points (seconds, US dollars) that no other beats in both, fastest first. A single point gives no
    line."""
    if len(points) < 2:
        return
    axes.plot(
        *zip(*points, strict=True),
        drawstyle="steps-post",
        color=drawing.LIGHT["quiet"],
        linewidth=1,
        label="Pareto front",
        zorder=2,
    )


def equal_value(axes: Axes, seconds: float, usd: float) -> None:
    """Draws a line through this point on which time x dollars is constant."""
    product, ends = seconds * usd, axes.get_xlim()
    axes.plot(
        ends,
        [product / one for one in ends],
        color=drawing.LIGHT["ink"],
        linewidth=0.9,
        linestyle=":",
        label="equal value; below: more",
        zorder=1,
        scalex=False,
        scaley=False,
    )


def _marked(usual: Locator, ends: tuple[float, float]) -> Locator:
    """``usual``, unless it has fewer than two marks between the ends."""
    marks = [one for one in usual.tick_values(*ends) if ends[0] <= one <= ends[1]]
    return usual if len(marks) > 1 else MaxNLocator(4)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = math.log(min(values)), math.log(max(values))
    room = ROOM * max(high - low, 0.5)
    return math.exp(low - room), math.exp(high + room)
