"""A report as tables in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_data.estimate import show_time
from graph_data.inspection.report import Report
from graph_data.inspection.structure import TOP_SHARE
from graph_data.memory import show_bytes

MAX_CLASSES = 20  # that are shown
BAR_WIDTH = 24
WIDTH = 100
EIGHTHS = " ▏▎▍▌▋▊▉"


def show(report: Report, console: Console | None = None) -> None:
    console = console or Console(highlight=False, markup=False, width=None if _is_terminal() else WIDTH)
    console.print(Text(_headline(report), "bold"))
    for note in report.notes:
        console.print(Text(note))
    for title, rows in _sections(report).items():
        console.print(_facts(title, rows))
    console.print(_degrees(report))
    if report.labels.counts:
        console.print(_classes(report))
    if report.labels.splits:
        console.print(_splits(report))
    if report.warnings:
        console.print(_warnings(report))


def _is_terminal() -> bool:
    return Console().is_terminal


def _headline(report: Report) -> str:
    s = report.structure
    return f"{report.name}: {s.vertices:,} vertices, {s.pairs:,} pairs of neighbours"


# --- facts ------------------------------------------------------------------------------------------------------------


def _sections(report: Report) -> dict[str, list[tuple[str, str]]]:
    s, d, f, t = report.structure, report.degrees, report.features, report.twins
    types = f" of {s.edge_types} types" if s.edge_types > 1 else ""
    return {
        "Edges": [
            ("as listed", f"{s.listed_edges:,}{types}, {'weighted' if s.weighted else 'without weights'}"),
            ("self-loops, repetitions", f"{s.self_loops:,}, {s.repeated_edges:,}"),
            ("listed both ways", f"{s.reciprocity:.1%}"),
            ("isolated vertices", f"{s.isolated:,}"),
            (
                "components",
                f"{s.components:,}; the largest has {s.largest_component:,} ({s.largest_component / s.vertices:.1%})",
            ),
            ("degree", f"{d.min:,} least, {d.median:,.4g} median, {d.mean:,.1f} mean, {d.max:,} most"),
            ("inequality", f"Gini {d.gini:.2f}; {d.top_share:.0%} of the ends at {TOP_SHARE:.0%} of the vertices"),
        ],
        "Labels": _label_facts(report),
        "Features": [
            ("columns", f"{f.columns:,} of {f.dtype}{', stored as CSR' if f.stored_sparse else ''}; {f.kind}"),
            (
                "values",
                f"{f.zeros:.1%} are zero; {f.min:.4g} to {f.max:.4g}; {f.constant_columns:,} columns are constant",
            ),
            ("standard deviation of columns", f"{f.smallest_deviation:.3g} to {f.largest_deviation:.3g}"),
        ],
        "Duplicates": [
            ("same label and targets", _copies(t.neighbours.vertices, t.neighbours.in_train)),
            ("same features", _copies(t.features.vertices, t.features.in_train)),
            ("same features and targets", _copies(t.both.vertices, t.both.in_train)),
        ],
        **({"Preparing, in one part": _preparation(report)} if report.preparation else {}),
    }


def _label_facts(report: Report) -> list[tuple[str, str]]:
    labels, h = report.labels, report.labels.homophily
    many = {
        "classes": "classes, one per vertex",
        "labels": "labels, any number per vertex",
        "numbers": "number(s) per vertex",
    }
    found = [("type", f"{labels.classes:,} {many[labels.target]}; {labels.labelled:,} vertices have one")]
    for number, (least, mean, most, deviation) in enumerate(labels.numbers):
        found.append((f"column {number}", f"{least:.4g} to {most:.4g}, mean {mean:.4g}, deviation {deviation:.4g}"))
    terms = [
        f"{value:.3f} {name}"
        for value, name in ((h.edge, "of edges"), (h.insensitive, "class-insensitive"), (h.adjusted, "adjusted"))
        if value is not None
    ]
    name = {"classes": "homophily", "labels": "overlap of neighbours", "numbers": "correlation of neighbours"}
    return [*found, (name[labels.target], ", ".join(terms) or "no edge between labelled vertices")]


def _copies(vertices: int, in_train: tuple[int, ...]) -> str:
    leaked = f"; {in_train[0]:,} test vertices duplicate a training vertex" if in_train else ""
    return f"{vertices:,} vertices{leaked if vertices else ''}"


def _preparation(report: Report) -> list[tuple[str, str]]:
    guess = report.preparation
    assert guess is not None
    return [
        (
            "estimate",
            (
                f"{show_time(guess.seconds)}, {show_bytes(guess.memory_in_memory)} of memory, "
                f"{show_bytes(guess.disk_bytes)} of disk"
            ),
        )
    ]


def _facts(title: str, rows: list[tuple[str, str]]) -> Table:
    table = _table(title)
    table.add_column(style="dim", width=26)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, value)
    table.show_header = False
    return table


# --- tables -----------------------------------------------------------------------------------------------------------


def _degrees(report: Report) -> Table:
    table = _table("Degrees")
    table.add_column("from", justify="right")
    table.add_column("to", justify="right")
    table.add_column("vertices", justify="right", style="cyan")
    table.add_column("")
    most = max(count for *_, count in report.degrees.histogram)
    for low, high, count in report.degrees.histogram:
        table.add_row(f"{low:,}", f"{high:,}", f"{count:,}", Text(_bar(count / most), "cyan"))
    return table


def _classes(report: Report) -> Table:
    counts = report.labels.counts
    more = f", the {MAX_CLASSES} most frequent of {len(counts)}" if len(counts) > MAX_CLASSES else ""
    kind = "Labels" if report.labels.target == "labels" else "Classes"
    table = _table(f"{kind}{' in split 0' if report.labels.splits else ''}{more}")
    table.add_column("", overflow="ellipsis", max_width=30)
    for name, style in (("vertices", ""), ("train", "cyan"), ("val", "magenta"), ("test", "yellow")):
        table.add_column(name, justify="right", style=style)
    table.add_column("")
    for one in counts[:MAX_CLASSES]:
        bar = Text(_bar(one.vertices / counts[0].vertices), "dim")
        table.add_row(Text(one.name), f"{one.vertices:,}", f"{one.train:,}", f"{one.val:,}", f"{one.test:,}", bar)
    return table


def _splits(report: Report) -> Table:
    table = _table("Splits")
    for name in ("", "train", "val", "test", "in none", "classes without train", "duplicates in train"):
        table.add_column(name, justify="right")
    for number, split in enumerate(report.labels.splits):
        cells = (split.train, split.val, split.test, split.unused, split.classes_without_train)
        table.add_row(str(number), *(f"{cell:,}" for cell in cells), f"{report.twins.neighbours.in_train[number]:,}")
    return table


def _warnings(report: Report) -> Table:
    table = _table("Warnings")
    table.title_style = "bold yellow"
    table.show_header = False
    table.add_column(style="yellow", width=1)
    table.add_column()
    for warning in report.warnings:
        table.add_row("!", Text(warning))
    return table


def _table(title: str) -> Table:
    return Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )


def _bar(share: float) -> str:
    eighths = round(share * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
