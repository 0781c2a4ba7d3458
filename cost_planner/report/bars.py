"""Stacked bars of contenders: segments in one order, told apart by colour and by hatch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from cost_planner.report.drawing import HATCHES, LIGHT, LINE_IN, SERIES, folded

THICK = 0.62
#: Inches that a bar takes, and all that is around bars: axis and legend.
BAR_IN, AROUND_IN = 0.32, 1.15
#: In a line of a bar's name.
NAME_LETTERS = 36


def stack(
    axes: Axes,
    stacks: Mapping[str, Mapping[str, float]],
    order: Sequence[str],
    label: str,
    shown: Callable[[float], str],
    looks: Mapping[str, tuple[str, str]] | None = None,
) -> None:
    """Draws a bar for each contender, of segments in that order, with its total behind it. looks: segment -> colour,
    hatch."""
    names = [name for name in order if any(one.get(name) for one in stacks.values())]
    places, ends = range(len(stacks)), [0.0] * len(stacks)
    for number, name in enumerate(names):
        default = SERIES[number % len(SERIES)], HATCHES[number % len(HATCHES)]
        colour, hatch = (looks or {}).get(name, default)
        amounts = [one.get(name, 0.0) for one in stacks.values()]
        axes.barh(
            places,
            amounts,
            left=ends,
            color=colour,
            hatch=hatch,
            edgecolor=LIGHT["paper"],
            linewidth=0.5,
            height=THICK,
            label=name,
        )
        ends = [end + amount for end, amount in zip(ends, amounts, strict=True)]
    for place, end in zip(places, ends, strict=True):
        axes.annotate(shown(end), (end, place), (4, 0), textcoords="offset points", va="center")
    rows(axes, list(stacks))
    axes.margins(x=0.14)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value) if value else "0"))
    axes.set_xlabel(label)
    across = blended_transform_factory(axes.figure.transFigure, axes.transAxes)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1.02),
        bbox_transform=across,
        ncols=4 if max(map(len, names)) > 10 else 9,
        fontsize=8,
        handlelength=1.4,
        columnspacing=1.2,
    )


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Lays out contenders from top to bottom. The figure grows if a name has more lines than a bar is thick."""
    labels = [folded(name, NAME_LETTERS) for name in names]
    most = max(label.count("\n") + 1 for label in labels)
    drawn = axes.figure.get_figure(root=True)
    assert drawn is not None
    drawn.set_figheight(drawn.get_figheight() + len(names) * max(0.0, most * LINE_IN - BAR_IN))
    axes.set_yticks(range(len(names)), labels)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
