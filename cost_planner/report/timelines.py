"""The timeline of one epoch: what each interval of each graph server did, and what it waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from cost_planner.report.drawing import LIGHT, SERIES, figure
from cost_planner.report.series import EVALUATION, Span, Timeline

#: Kind of step -> colour, hatch: a backward has its forward's colour, hatched. In the order of an epoch.
KINDS = {
    "GA": (SERIES[0], ""),
    "AE": (SERIES[3], ""),
    "AV": (SERIES[1], ""),
    "SC": (SERIES[2], ""),
    "GA'": (SERIES[0], "////"),
    "AE'": (SERIES[3], "////"),
    "AV'": (SERIES[1], "////"),
    "SC'": (SERIES[2], "////"),
    "WU": (LIGHT["ink"], ""),
    EVALUATION: (LIGHT["faint"], ""),
}
#: In the timeline itself, whose bars are too thin for hatches, a backward is hollow.
LOOKS: dict[str, dict[str, Any]] = {
    kind: {"facecolor": LIGHT["paper"] if hatch else colour, "edgecolor": colour, "linewidth": 0.7}
    for kind, (colour, hatch) in KINDS.items()
}
THICK = 0.7
#: More would not be told apart: servers of a run, intervals of a server.
MOST_RUNS, MOST_SERVERS, MOST_INTERVALS = 4, 4, 16
ROW_IN = 0.085
#: Of a panel of few intervals: its label needs that much.
LEAST_IN = 0.5
OTHER_EPOCH = 0.4  # opacity


def draw(shown: Mapping[str, Timeline]) -> tuple[Figure, str]:
    """Draws an epoch of each contender: (the figure, its caption). shown: contender -> its epoch."""
    panels = [
        (f"{name}, server {server}, epoch {line.epoch + 1}", line, spans)
        for name, line in list(shown.items())[:MOST_RUNS]
        for server, spans in list(line.servers.items())[:MOST_SERVERS]
    ]
    intervals = [_intervals(spans) for *_, spans in panels]
    heights = [0.42 + max(LEAST_IN, ROW_IN * len(one)) for one in intervals]
    drawn = figure(0.75 + sum(heights))
    kinds: set[str] = set()
    for axes, (title, line, spans), rows in zip(
        drawn.subplots(len(panels), 1, height_ratios=heights, squeeze=False)[:, 0], panels, intervals, strict=True
    ):
        _server(axes, spans, rows)
        kinds |= {span.kind for span in spans}
        axes.set_title(title)
        axes.set_xlim(0, line.seconds)
    axes.set_xlabel("seconds")
    handles = [Patch(**look, label=kind) for kind, look in LOOKS.items() if kind in kinds]
    drawn.legend(handles=handles, loc="outside upper left", ncols=9, fontsize=8, handlelength=1.6, columnspacing=1.2)
    return drawn, _caption(shown, [len(_all_intervals(spans)) for *_, spans in panels])


def _server(axes: Axes, spans: Sequence[Span], intervals: Sequence[int]) -> None:
    """Draws a row for each interval; thin while it waits."""
    rows = {interval: row for row, interval in enumerate(intervals)}
    placed = [span for span in spans if span.interval in rows]
    waits = [span for span in placed if not span.kind]
    _paint(axes, [(span, rows[span.interval], 0.0) for span in waits], edgecolor=LIGHT["faint"], linewidth=0.8)
    for kind, look in LOOKS.items():
        for own, opacity in ((False, OTHER_EPOCH), (True, 1.0)):
            of_kind = [(span, rows[span.interval], THICK) for span in placed if span.kind == kind and span.own is own]
            _paint(axes, of_kind, **look, alpha=opacity)
    axes.set_ylim(len(intervals) - 0.4, -0.6)
    axes.set_yticks([])
    axes.set_ylabel("intervals", fontsize=8)
    axes.spines["left"].set_visible(False)


def _paint(axes: Axes, placed: Sequence[tuple[Span, int, float]], **look: Any) -> None:
    """Draws spans in their rows as one path: a page with thousands of spans stays small."""
    if placed:
        boxes = [Path.unit_rectangle().transformed(_box(*one)) for one in placed]
        axes.add_patch(PathPatch(Path.make_compound_path(*boxes), **look))


def _box(span: Span, row: int, height: float) -> Affine2D:
    return Affine2D().scale(span.stop - span.start, height).translate(span.start, row - height / 2)


def _all_intervals(spans: Sequence[Span]) -> list[int]:
    return sorted({span.interval for span in spans})


def _intervals(spans: Sequence[Span]) -> list[int]:
    """As many intervals as fit, evenly chosen."""
    every = _all_intervals(spans)
    stride = -(-len(every) // MOST_INTERVALS) or 1
    return every[::stride]


def _caption(shown: Mapping[str, Timeline], counts: Sequence[int]) -> str:
    words = [
        (
            "A row is an interval, from when its first task of the epoch may run until its last is done. Thin: waiting "
            "for a thread, a worker or a transfer. Pale: another epoch."
        ),
    ]
    if any(not line.aligned for line in shown.values()):
        words.append("Servers' clocks differ: each begins at its own first task.")
    if max(counts) > MOST_INTERVALS:
        words.append(f"Of {max(counts)} intervals of a server about {MOST_INTERVALS} are shown.")
    if len(shown) > MOST_RUNS or any(len(line.servers) > MOST_SERVERS for line in shown.values()):
        words.append(f"Shown are {MOST_RUNS} contenders and {MOST_SERVERS} servers of each at most.")
    return " ".join(words)
