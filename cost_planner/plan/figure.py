"""A plan as a figure: time and money of the options, with the Pareto front joined and numbered.

A line of equal value goes through the best option: time x dollars is constant along it, so a point below it would have
more value. Limits that the user set are lines too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from cost_planner.plan.finding import NAMES, words
from cost_planner.plan.ranking import Predicted, Ranking
from cost_planner.report import drawing, time_money
from siafu.errors import ConfigError
from siafu.progress import dollars, duration

HEIGHT_IN, LINE_IN, DPI = 4.2, 0.17, 160
#: Letters in a line below the figure.
LETTERS = 100


def draw(ranking: Ranking, title: str, file: Path) -> None:
    """Writes PNG, SVG or PDF, by the file's ending. ConfigError if the file cannot be written."""
    front = ranking.front
    with drawing.style():
        listed = [drawing.folded(f"{number}  {words(one)}", LETTERS) for number, one in enumerate(front, 1)]
        assumed = " GPUs: assumed, half to twice the time." * any(one.option.card for one in ranking.predicted)
        note = f"Predicted, times to within about {ranking.error:.0%}.{assumed}"
        below = "\n".join([*listed, note])
        figure = drawing.figure(HEIGHT_IN + LINE_IN * (below.count("\n") + 1))
        axes = figure.subplots()
        _options(axes, ranking.predicted)
        limits, best = ranking.limits, ranking.predicted[0]
        seconds, usd = ([one.seconds for one in ranking.predicted], [one.cost.usd for one in ranking.predicted])
        time_money.scale(
            axes, [*seconds, *_near(limits.seconds, seconds)], [*usd, *_near(limits.usd, usd)], "of the whole run"
        )
        time_money.front(axes, [(one.seconds, one.cost.usd) for one in front])
        for number, one in enumerate(front, 1):
            axes.annotate(
                f"{number}", (one.seconds, one.cost.usd), (5, 4), textcoords="offset points", fontsize=8, zorder=4
            )
        time_money.equal_value(axes, best.seconds, best.cost.usd)
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


def _near(limit: float, values: Sequence[float]) -> list[float]:
    """The limit; nothing if it is so far from all values that they would be drawn in a corner."""
    return [limit] if min(values) / 10 < limit < max(values) * 10 else []


def _limits(axes: Axes, ranking: Ranking) -> None:
    style: dict[str, Any] = {"color": drawing.SERIES[1], "linewidth": 0.9, "linestyle": "--", "zorder": 1}
    if ranking.limits.seconds < math.inf:
        axes.axvline(ranking.limits.seconds, label=f"within {duration(ranking.limits.seconds)}", **style)
    if ranking.limits.usd < math.inf:
        axes.axhline(ranking.limits.usd, label=f"within {dollars(ranking.limits.usd)}", **style)
