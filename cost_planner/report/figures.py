"""The figures of a report, in order. Each draws what the runs recorded, or says in one line which setting would have
recorded it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from cost_planner.report import activity, drawing, outcome
from cost_planner.report.compared import Compared, Missing


@dataclass(frozen=True)
class Drawn:
    """A figure, in the page's colours."""

    name: str
    title: str
    caption: str
    svg: str


def draw(found: Compared) -> tuple[list[Drawn], dict[str, str]]:
    """Draws all figures: (figures, title -> the reason why it is left out)."""
    made, left_out = [], {}
    for name, (title, draw_one) in FIGURES.items():
        with drawing.style():
            try:
                drawn, caption = draw_one(found)
            except Missing as why:
                left_out[title] = str(why)
                continue
            made.append(Drawn(name, title, caption, drawing.svg(drawn, name, title)))
    return made, left_out


#: Name -> title, what draws it.
FIGURES: dict[str, tuple[str, Callable[[Compared], tuple[Figure, str]]]] = {
    "accuracy-time": ("Score against time", outcome.accuracy_by_time),
    "accuracy-dollars": ("Score against dollars", outcome.accuracy_by_dollars),
    "loss": ("Loss", outcome.loss_by_epoch),
    "value": ("Value", outcome.values),
    "time-money": ("Time against money", outcome.money_by_time),
    "cost": ("Cost by part", outcome.cost_by_part),
    "time": ("Time by kind of step", activity.time_by_kind),
    "scaling": ("Scaling", outcome.scaling),
    "timeline": ("Timeline of one epoch", activity.timeline),
    "staleness": ("Staleness", activity.staleness),
    "links": ("Bytes by link", activity.bytes_by_link),
}
