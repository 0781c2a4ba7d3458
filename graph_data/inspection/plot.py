"""A report as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from graph_data.inspection.labels import MAX_MIXED
from graph_data.inspection.report import Report
from siafu import extras, outputs
from siafu.errors import ConfigError

ENDINGS = (".png", ".svg", ".pdf")
INK, MUTED, GRID = "#22303c", "#6b7885", "#e3e8ec"
BLUE, ROLE_COLOURS = "#2a6f97", {"train": "#2a6f97", "val": "#89c2d9", "test": "#f4a259", "none": "#d5dbe0"}
SIZE_INCHES, DPI = (12.0, 7.4), 150
MAX_BARS = 16  # classes
MAX_LABELLED_CELLS = 12  # classes, in a square whose cells have their number written in


def check(path: str) -> None:
    """Raises: ConfigError if nothing can be drawn there."""
    if not path.endswith(ENDINGS):
        raise ConfigError(f"plot {path!r} must end in {', '.join(ENDINGS)}")
    outputs.check_file("plot", path)
    _matplotlib("matplotlib")


def draw(report: Report, path: str) -> None:
    """Writes the picture. Raises: ConfigError if the file system refuses it, or matplotlib is not installed."""
    matplotlib, figures = _matplotlib("matplotlib"), _matplotlib("matplotlib.figure")
    style = {
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "text.color": INK,
        "axes.labelcolor": MUTED,
        "axes.edgecolor": GRID,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 10,
        "svg.fonttype": "none",
    }
    with matplotlib.rc_context(style):
        figure = figures.Figure(SIZE_INCHES, DPI)
        _headline(figure, report)
        _degrees(figure.add_axes((0.065, 0.545, 0.47, 0.255)), report)
        _components(figure.add_axes((0.715, 0.515, 0.265, 0.285)), report)
        _classes(figure.add_axes((0.065, 0.09, 0.47, 0.3)), report)
        _neighbours(figure.add_axes((0.63, 0.09, 0.335, 0.3)), report)
        save(figure, path)


def save(figure: Any, path: str) -> None:
    """Raises: ConfigError if the file system refuses it."""
    try:
        figure.savefig(path, dpi=DPI)
    except OSError as error:
        raise ConfigError(f"plot {path!r} cannot be written: {error.strerror}") from None


def _matplotlib(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        how = extras.advice(error, extras.install("plot"))
        raise ConfigError(f"plots need matplotlib: {how}") from None


# --- panels -----------------------------------------------------------------------------------------------------------


def _headline(figure: Any, report: Report) -> None:
    s, labels, h = report.structure, report.labels, report.labels.homophily
    figure.text(0.065, 0.945, report.name, fontsize=19, fontweight="bold", va="center")
    facts = [f"{s.vertices:,} vertices", f"{s.pairs:,} pairs of neighbours", f"{report.features.columns:,} features"]
    if labels.labelled:
        facts.append(f"{labels.classes:,} {labels.target}")
    edge = "overlap of neighbours' labels" if labels.target == "labels" else "homophily of edges"
    adjusted = "correlation of neighbours" if labels.target == "numbers" else "adjusted"
    for value, name in ((h.edge, edge), (h.adjusted, adjusted)):
        if value is not None:
            facts.append(f"{value:.2f} {name}")
    figure.text(0.065, 0.893, "   ·   ".join(facts), fontsize=10.5, color=MUTED, va="center")


def _degrees(axes: Any, report: Report) -> None:
    """A histogram whose bins double, one bar each."""
    bins, d = report.degrees.histogram, report.degrees
    counts = [count for *_, count in bins]
    axes.bar(range(len(bins)), counts, 0.82, color=BLUE)
    axes.set_yscale("log")
    axes.set_ylim(0.7, max(counts) * 3)
    names = [f"{low:,}" if low == high else f"{_short(low)}–{_short(high)}" for low, high, _ in bins]
    crowded = len(bins) > 8
    axes.set_xticks(
        range(len(bins)), names, rotation=35 if crowded else 0, ha="right" if crowded else "center", fontsize=8
    )
    axes.set_title("Degrees")
    axes.set_xlabel("neighbours")
    axes.set_ylabel("vertices")
    note = f"median {d.median:,.4g}   mean {d.mean:,.1f}   most {d.max:,}   Gini {d.gini:.2f}"
    axes.text(1, 1.06, note, transform=axes.transAxes, ha="right", color=MUTED, fontsize=8.5)
    for x, count in enumerate(counts):
        if count:
            axes.text(x, count * 1.15, _short(count), ha="center", va="bottom", fontsize=7.5, color=MUTED)
    _plain(axes, "y")


def _components(axes: Any, report: Report) -> None:
    """What happens to the source's edges, and to its vertices, as shares of all."""
    s = report.structure
    listed, n = max(1, s.listed_edges), s.vertices
    rows = [
        ("listed both ways", s.reciprocity),
        ("self-loops", s.self_loops / listed),
        ("repetitions", s.repeated_edges / listed),
        ("in the largest component", s.largest_component / n),
        ("isolated", s.isolated / n),
        ("labelled", report.labels.labelled / n),
        ("with a twin", report.twins.neighbours.vertices / n),
        ("features all zero", report.twins.zero_features / n),
    ]
    _shares(axes, rows, after=3)
    axes.set_title("Shares of edges, and of vertices")


def _shares(axes: Any, rows: Sequence[tuple[str, float]], after: int) -> None:
    """A bar per row on a track of 100%, with a gap after some rows."""
    places = [-(i + (0.6 if i >= after else 0)) for i in range(len(rows))]
    axes.barh(places, [1] * len(rows), 0.62, color=GRID)
    axes.barh(places, [share for _, share in rows], 0.62, color=BLUE)
    axes.set_yticks(places, [name for name, _ in rows], color=INK)
    axes.set_xlim(0, 1.19)
    for place, (_, share) in zip(places, rows, strict=True):
        text = "0" if share == 0 else f"{share:.1%}" if share >= 0.001 else "< 0.1%"
        axes.text(1.025, place - 0.02, text, va="center_baseline", fontsize=8.5, color=MUTED)
    axes.set_xticks([])
    _plain(axes, "")


def _classes(axes: Any, report: Report) -> None:
    """The most frequent classes, parted by what their vertices are for in the first split."""
    counts = report.labels.counts[:MAX_BARS]
    if not counts:
        return _nothing(axes, "Labels", "none that could be counted")
    places, start = np.arange(len(counts)), np.zeros(len(counts))
    used = np.array([[one.train, one.val, one.test] for one in counts])
    parts = dict(zip(("train", "val", "test"), used.T, strict=True))
    rest = np.array([one.vertices for one in counts]) - used.sum(axis=1)
    for role, width in {**parts, "none": rest}.items():
        if width.any():
            axes.bar(
                places, width, 0.78, bottom=start, color=ROLE_COLOURS[role], label=role if role != "none" else "in none"
            )
            start = start + width
    axes.set_xticks(places, [_cut(one.name) for one in counts], fontsize=8.5, **_tilted([one.name for one in counts]))
    more = len(report.labels.counts) - len(counts)
    what = "Labels" if report.labels.target == "labels" else "Classes"
    axes.set_title(f"{what}{f': the {MAX_BARS} most frequent, {more} more' if more else ''}")
    axes.set_ylabel("vertices")
    axes.set_ylim(0, start.max() * 1.12)
    if report.labels.splits:
        axes.legend(
            frameon=False, fontsize=8.5, ncols=4, loc="lower right", bbox_to_anchor=(1.01, 0.98), handlelength=1
        )
    _plain(axes, "y")
    return None


def _neighbours(axes: Any, report: Report) -> None:
    """Which class the neighbours of a class have."""
    mixing = np.array(report.labels.mixing)
    if not mixing.size or not mixing.any():
        why = "no edge between labelled vertices" if report.labels.classes <= MAX_MIXED else "too many classes to show"
        return _nothing(
            axes, "Classes of neighbours", why if report.labels.target == "classes" else "labels are no classes"
        )
    order = np.argsort(-mixing.diagonal(), kind="stable")
    axes.imshow(mixing[np.ix_(order, order)], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    names = _names_by_number(report, len(mixing))
    if len(mixing) <= MAX_LABELLED_CELLS:
        for (row, column), share in np.ndenumerate(mixing[np.ix_(order, order)]):
            colour = "white" if share > 0.55 else INK
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7.5, color=colour)
    small = 8 if len(mixing) <= MAX_BARS else 5
    axes.set_xticks(range(len(mixing)), [_cut(names[c]) for c in order], fontsize=small, **_tilted(names))
    axes.set_yticks(range(len(mixing)), [_cut(names[c]) for c in order], fontsize=small)
    axes.set_title("Neighbours of a class, by their class, %")
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return None


def _names_by_number(report: Report, count: int) -> list[str]:
    return [report.labels.names[c] if c < len(report.labels.names) else str(c) for c in range(count)]


def _nothing(axes: Any, title: str, why: str) -> None:
    axes.set_title(title)
    axes.text(0.5, 0.5, why, ha="center", va="center", color=MUTED, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])
    _plain(axes, "")


# --- looks ------------------------------------------------------------------------------------------------------------


def _plain(axes: Any, grid: str) -> None:
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_visible(grid == "y")
    axes.tick_params(length=0, which="both")
    axes.set_axisbelow(True)
    if grid:
        axes.grid(axis=grid, color=GRID, linewidth=0.8)


def _tilted(names: Sequence[str]) -> dict[str, Any]:
    long = max(map(len, names)) > 4 and len(names) > 4
    return {"rotation": 35, "ha": "right", "rotation_mode": "anchor"} if long else {}


def _cut(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "…"


def _short(count: int) -> str:
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size:
            return f"{count / size:.0f}{unit}"
    return str(count)
