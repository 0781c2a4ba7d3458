"""The subject of a report: runs, how they are judged, and how each contender looks in all figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cost_planner.report.drawing import DASHES, HATCHES, LIGHT, MARKERS, SERIES
from cost_planner.report.reading import Run
from cost_planner.value.judge import StandIn
from cost_planner.value.rows import Found, Row
from siafu.metrics import TITLES


class Missing(Exception):
    """Raised if no run has the data of a figure; the text says how to get it."""


@dataclass(frozen=True)
class Compared:
    """The runs that a report compares."""

    runs: Sequence[Run]
    judged: Found
    stand_in: StandIn

    @cached_property
    def groups(self) -> dict[str, list[Run]]:
        """Repetitions of a contender, by its name."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.name, []).append(run)
        return found

    @property
    def firsts(self) -> list[Run]:
        """One run of each name, for figures of a single run."""
        return [group[0] for group in self.groups.values()]

    @cached_property
    def rows(self) -> list[Row]:
        """The judged row of each contender, the highest value first; contenders that missed the target come last."""
        return sorted(self.judged["rows"], key=lambda row: -(row["value"] or 0.0))

    @cached_property
    def score(self) -> str:
        title = next((run.result["metric"] for run in self.runs if run.result and "metric" in run.result), "accuracy")
        return f"{TITLES.get(title, title)} ({self.judged['split']})"

    def look(self, name: str) -> dict[str, Any]:
        """The style of a contender's line. Colour, marker and dashes all differ, so that any one of them identifies
        it."""
        lap, number = divmod(list(self.groups).index(name), len(SERIES))
        return {
            "color": SERIES[number],
            "marker": MARKERS[(number + lap) % len(MARKERS)],
            "linestyle": DASHES[(number + lap) % len(DASHES)],
            "linewidth": 1.5,
            "markersize": 4.5,
            "markerfacecolor": LIGHT["paper"],
            "markeredgewidth": 1.2,
        }

    def fill(self, name: str) -> dict[str, Any]:
        """The style of a contender's bars."""
        lap, number = divmod(list(self.groups).index(name), len(SERIES))
        hatch = HATCHES[(number + lap) % len(HATCHES)]
        return {"color": SERIES[number], "hatch": hatch, "edgecolor": LIGHT["paper"], "linewidth": 0.5}
