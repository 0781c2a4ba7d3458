"""Figures of results: score, time, money, value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from cost_planner.plan.ranking import front_of
from cost_planner.report import bars, series, time_money
from cost_planner.report.compared import Compared, Missing
from cost_planner.report.drawing import LIGHT, figure, legend
from cost_planner.report.reading import Run
from cost_planner.value import judge
from cost_planner.value.rows import REACHED, reached
from siafu.progress import dollars

#: Part of a bill -> its name.
PARTS = {
    "lambda": "Lambdas",
    "graph_servers": "graph servers",
    "param_servers": "parameter servers",
    "gpu": "GPU machine",
    "volumes": "disks",
    "endpoints": "endpoints",
    "s3": "S3",
    "traffic": "traffic",
}
#: A logarithmic axis where the longest of what is shown is so many times the shortest.
LOG_FROM = 8.0


def accuracy_by_time(found: Compared) -> tuple[Figure, str]:
    return _curves(found, lambda run, at: at.seconds, "seconds of training"), (
        "Evaluations as they came; a baseline stops for them, which is left out. The dotted line is the score that all "
        "are judged by; a filled mark is where a run reaches it."
    )


def accuracy_by_dollars(found: Compared) -> tuple[Figure, str]:
    drawn = _curves(
        found, lambda run, at: judge.spent(run.contender, at, found.stand_in).usd, "US dollars spent", _exactly
    )
    short = any(run.contender.evaluated[-1].seconds < 60 for run in found.runs)
    return drawn, "What was spent until each evaluation." + (
        " EC2 bills a machine for 60 s at least: until then only Lambdas' dollars grow." if short else ""
    )


def _curves(
    found: Compared, across: Callable[[Run, Any], float], label: str, shown: Callable[[float], str] | None = None
) -> Figure:
    drawn = figure(3.5)
    axes = drawn.add_subplot()
    split, target = found.judged["split"], found.judged["target"]
    longest = []
    for name, group in found.groups.items():
        look = found.look(name)
        for number, run in enumerate(group):
            scored = [at for at in run.contender.evaluated if split in at.scores]
            marked = max(1, len(scored) // 8)
            step = max(1, len(scored) // series.MOST_BLOCKS)
            kept = scored[::-1][::step][::-1]
            x, y = [across(run, at) for at in kept], [at.scores[split] for at in kept]
            longest += x[-1:]
            axes.plot(x, y, **look, markevery=max(1, marked // step), label=name if not number else "_again")
            there = None if target is None else run.contender.reaches(target, split)
            if there is not None:
                axes.plot(
                    across(run, there),
                    there.scores[split],
                    marker=look["marker"],
                    color=look["color"],
                    markersize=8,
                    markeredgecolor=LIGHT["ink"],
                    linestyle="none",
                    zorder=5,
                )
    if target is not None:
        axes.axhline(target, color=LIGHT["quiet"], linewidth=0.9, linestyle=":")
    axes.set_ylabel(found.score)
    if min(longest, default=0) > 0 and max(longest) / min(longest) >= LOG_FROM:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        label = f"{label}, logarithmic"
    else:  # from 0: an axis that begins at the least of them makes differences of a cent look large
        axes.set_xlim(left=0)
    axes.set_xlabel(label)
    if shown is not None:
        if axes.get_xscale() == "linear":
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(max(0.0, value))))
    axes.grid(axis="y")
    legend(drawn, axes)
    return drawn


def _exactly(usd: float) -> str:
    """A label of an axis whose ticks may be close to each other."""
    return f"${usd:.6g}"


def loss_by_epoch(found: Compared) -> tuple[Figure, str]:
    drawn = figure(3.5)
    axes = drawn.add_subplot()
    for name, group in found.groups.items():
        for number, run in enumerate(group):
            kept = series.thinned(run.epochs)
            x, y = [epoch["epoch"] + 1 for epoch in kept], [epoch["loss"] for epoch in kept]
            look = found.look(name) | {"markevery": max(1, len(kept) // 8)}
            axes.plot(x, y, **look, label=name if not number else "_again")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel("training loss")
    axes.grid(axis="y")
    legend(drawn, axes)
    return drawn, "The mean loss of the training vertices in each epoch, before that epoch's step."


def cost_by_part(found: Compared) -> tuple[Figure, str]:
    bills = {row["name"]: row["cost"]["parts"] for row in found.rows if row["cost"]}
    if not bills:
        raise Missing("no run has reached the target: choose a lower --target")
    known = dict.fromkeys([*PARTS, *(part for one in bills.values() for part in one)])
    said = {part: PARTS.get(part, part.replace("_", " ")) for part in known}
    stacks = {name: {said[part]: usd for part, usd in parts.items()} for name, parts in bills.items()}
    drawn = figure(bars.AROUND_IN + bars.BAR_IN * len(stacks))
    bars.stack(drawn.add_subplot(), stacks, list(said.values()), "US dollars until the target", dollars)
    return drawn, "What it took to reach the target, by part of the bill (Dorylus, Fig. 10b)."


def values(found: Compared) -> tuple[Figure, str]:
    rows = [(row, ratio) for row in reached(found.rows) if (ratio := row["relative_value"])]
    if len(rows) < 2:
        raise Missing("it takes two contenders that have reached the target")
    drawn = figure(0.75 + bars.BAR_IN * len(rows))
    axes = drawn.add_subplot()
    for place, (row, ratio) in enumerate(rows):
        axes.barh(place, ratio, **found.fill(row["name"]), height=bars.THICK)
        low, high = (one * ratio / row["value"] for one in row["spread"]["value"])
        if low < high:
            axes.hlines(place, low, high, color=LIGHT["ink"], linewidth=1.4)
            axes.plot([low, high], [place, place], "|", color=LIGHT["ink"], markersize=8)
        end = max(ratio, high)
        axes.annotate(f"{ratio:.3g}", (end, place), (6, 0), textcoords="offset points", va="center")
    axes.axvline(1, color=LIGHT["quiet"], linewidth=0.9, linestyle=":")
    bars.rows(axes, [row["name"] for row, _ in rows])
    axes.margins(x=0.12)
    axes.set_xlabel(f"value, {found.judged['relative_to']} = 1")
    spread = " The thin lines span the single runs." if any(row["reached"] > 1 for row, _ in rows) else ""
    return drawn, f"1 / (time x dollars) to the target; longer is better (Dorylus, Fig. 7).{spread}"


def money_by_time(found: Compared) -> tuple[Figure, str]:
    """Draws a point for each contender, the highest value first, and a small one for each of its runs."""
    rows = reached(found.rows)
    if len(rows) < 2:
        raise Missing("it takes two contenders that have reached the target")
    drawn = figure(3.5)
    axes = drawn.add_subplot()
    points = [(row["seconds"], row["cost"]["usd"]) for row in rows]
    every = list(points)
    for row, (seconds, usd) in zip(rows, points, strict=True):
        look = found.look(row["name"]) | {"linestyle": "none"}
        runs = [(one["seconds"], one["usd"]) for one in row["attempts"] if one["outcome"] == REACHED]
        if len(runs) > 1:
            axes.plot(*zip(*runs, strict=True), **look | {"markersize": 3.5, "alpha": 0.6}, label="_runs")
            every += runs
        axes.plot(seconds, usd, **look | {"markersize": 8, "markeredgewidth": 1.8}, label=row["name"], zorder=4)
    time_money.scale(axes, [seconds for seconds, _ in every], [usd for _, usd in every], "until the target")
    time_money.front(axes, [points[place] for place in front_of(*map(np.array, zip(*points, strict=True)))])
    time_money.equal_value(axes, *points[0])
    legend(drawn, axes)
    return drawn, (
        "Time and dollars until the target, failed runs included; to the left is faster, further down cheaper. Each "
        f"point of the dotted line has the value of {rows[0]['name']}, the best: below the line would be more."
        + " Small marks are single runs."
        * any(row["reached"] > 1 for row in rows)
    )


def scaling(found: Compared) -> tuple[Figure, str]:
    """Draws runs that differ only in their number of parts."""
    lines: dict[str, dict[int, list[Run]]] = {}
    for run in found.runs:
        base = " ".join(word for word in run.name.split(" ") if not word.startswith(("parts=", "ranks=")))
        lines.setdefault(base, {}).setdefault(run.parts, []).append(run)
    lines = {base: by for base, by in lines.items() if len(by) > 1}
    if not lines:
        raise Missing("it takes runs that differ in --parts (or --ranks) alone")
    worth = {row["name"]: row["value"] for row in found.judged["rows"] if row["value"]}
    drawn = figure(3.2)
    left, right = drawn.subplots(1, 2)
    every = sorted({parts for by in lines.values() for parts in by})
    for base, by in lines.items():
        parts = sorted(by)
        look = found.look(by[parts[0]][0].name)
        seconds = [min(series.epoch_s(run) for run in by[p]) for p in parts]
        left.plot(parts, [seconds[0] / one for one in seconds], **look, label=base)
        valued = [p for p in parts if by[p][0].name in worth]
        if len(valued) > 1:
            base_worth = worth[by[valued[0]][0].name]
            right.plot(valued, [worth[by[p][0].name] / base_worth for p in valued], **look)
    left.plot(every, [p / every[0] for p in every], color=LIGHT["quiet"], linestyle=":", linewidth=0.9, label="linear")
    for axes, title in ((left, "epochs per second"), (right, "value")):
        axes.set_title(f"{title}, fewest parts = 1")
        axes.set_xlabel("graph servers or ranks")
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [str(p) for p in every])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
    legend(drawn, left)
    return drawn, "Speed by the median epoch, and value to the target, as servers are added (Dorylus, Fig. 8)."
