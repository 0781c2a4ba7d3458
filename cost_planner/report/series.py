"""The numbers behind a report's figures, from the records of one run. Pure.

Values that a record lacks are left out: runs of older versions and baselines lack some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from cost_planner.report.reading import Run
from run_coordinator import task_spans
from run_coordinator.task_spans import TraceLine
from siafu.tasks import Kind, Lane

#: More steps of a line than that are not seen.
MOST_BLOCKS = 200
EVALUATION = "evaluation"


def thinned(rows: Sequence[TraceLine], most: int = MOST_BLOCKS) -> list[TraceLine]:
    """About every k-th row, and the last."""
    stride = -(-len(rows) // most) or 1
    return [*rows[::-1][::stride]][::-1]


def by_kind(run: Run) -> dict[str, float]:
    """Computing seconds of an epoch by kind of step, in the order of an epoch, and of the evaluations beside it. Sums
    over all servers and workers."""
    if not run.epochs:
        return {}
    usage, count = run.epochs[-1].get("usage", {}), len(run.epochs)
    found = {kind.value: usage.get(f"{kind.name}_s", 0.0) / count for kind in Kind}
    found[EVALUATION] = usage.get("eval_s", 0.0) / count
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def by_phase(run: Run) -> dict[str, float]:
    """Seconds of a baseline's epoch by phase of a rank's main thread, waiting included: the mean of ranks and
    epochs."""
    told = [epoch["seconds"] for epoch in run.epochs if epoch.get("seconds")]
    found = {phase: sum(one.get(phase, 0.0) for one in told) / len(told) for phase in (told[0] if told else ())}
    return {phase: seconds for phase, seconds in found.items() if seconds > 0}


def staleness(run: Run) -> list[float]:
    """The share of gathers whose oldest row was 0, 1, ... epochs old."""
    counts: list[int] = []
    for epoch in run.epochs:
        ages = epoch.get("staleness", [])
        counts += [0] * (len(ages) - len(counts))
        for age, count in enumerate(ages):
            counts[age] += count
    while counts and not counts[-1]:
        counts.pop()
    return [count / sum(counts) for count in counts]


def links(run: Run) -> list[list[int]]:
    """Bytes of halo rows in an epoch, from each server (a row) to each; empty for a run with one server."""
    found = run.result.get("bytes_per_link", []) if run.result else []
    return found if len(found) > 1 and any(map(any, found)) else []


def epoch_s(run: Run) -> float:
    """The median epoch. The first, which waits for cold starts, counts only if there is no other."""
    seconds = [epoch["epoch_s"] for epoch in run.epochs]
    return float(median(seconds[1:] or seconds))


# --- the timeline of one epoch ----------------------------------------------------------------------------------------


class Span(NamedTuple):
    """A task, or its wait, in seconds since the window began."""

    interval: int
    kind: str  # "" while it waits
    start: float
    stop: float
    own: bool  # whether it is of the epoch that is shown


@dataclass(frozen=True)
class Timeline:
    epoch: int
    seconds: float
    servers: Mapping[int, Sequence[Span]]
    aligned: bool  # whether the servers' clocks are one: else each begins at its own first task


def timeline(run: Run) -> Timeline | None:
    """Every task that ran during a typical epoch, the one of median length. None without a trace."""
    if not run.traces:
        return None
    middle = epoch_s(run)
    of_training = {
        server: [line for line in lines if line["lane"] == Lane.TRAIN.value] for server, lines in run.traces.items()
    }
    complete = set.intersection(*({line["epoch"] for line in lines} for lines in of_training.values()))
    typical = [epoch for epoch in run.epochs[1:] or run.epochs if epoch["epoch"] in complete]
    if not typical:
        return None
    shown = min(typical, key=lambda epoch: abs(epoch["epoch_s"] - middle))["epoch"]
    windows = {server: _window(lines, shown) for server, lines in of_training.items()}
    begin, end = max(start for start, _ in windows.values()), min(stop for _, stop in windows.values())
    aligned = begin < end  # on machines with clocks of their own, they do not even overlap
    first = min(start for start, _ in windows.values())
    servers = {
        server: _spans(run.traces[server], shown, *windows[server], first if aligned else windows[server][0])
        for server in windows
    }
    last = max(stop if aligned else stop - start + first for start, stop in windows.values())
    return Timeline(shown, last - first, servers, aligned)


def _window(lines: Sequence[TraceLine], epoch: int) -> tuple[float, float]:
    times = [line["time_s"] for line in lines if line["epoch"] == epoch]
    return min(times), max(times)


def _spans(lines: Sequence[TraceLine], epoch: int, begin: float, end: float, zero: float) -> list[Span]:
    """Spans within the window."""
    found = []
    for span in task_spans.spans(lines, begin, end):
        is_eval = span.lane == Lane.EVAL.value
        kind = "" if span.waits else EVALUATION if is_eval else span.step.rstrip("0123456789")
        own = not is_eval and span.epoch == epoch
        found.append(Span(span.interval, kind, span.start - zero, span.stop - zero, own))
    return found
