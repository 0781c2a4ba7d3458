"""The newest tasks of a run, one by one: the end of each server's trace (``siafu train --trace``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from run_coordinator.task_spans import TraceLine, spans
from siafu import run_files
from siafu.tasks import Lane

#: Of each trace: some thousand events. A trace grows for as long as its run.
TAIL_BYTES = 1 << 18
#: More rows would not be told apart.
MOST_SERVERS, MOST_INTERVALS = 4, 16
#: What is shown, in epochs: one may begin before the last has ended.
EPOCHS = 2

#: interval, step ("eval" of an evaluation), epoch, start and stop in ms, whether it only waits: for a thread, or on its
#: way to a Lambda and back
Bar = tuple[int, str, int, float, float, bool]


class Timeline(TypedDict):
    ms: float  # from its begin to its end
    servers: dict[str, list[Bar]]  # by number; what they compute themselves, and what Lambdas compute for them


def timeline(run_dir: Path, epoch_s: float | None) -> Timeline | None:
    """The newest tasks. ``epoch_s``: time of a usual epoch; None: not known yet. None without a trace. Raises:
    ConfigError for an unreadable trace."""
    traces = {file.stem.removeprefix("trace-"): _tail(file) for file in _files(run_dir)}
    known = {server: lines for server, lines in traces.items() if lines}
    if not known:
        return None
    ends = {server: lines[-1]["time_s"] for server, lines in known.items()}
    seconds = max(ends[server] - lines[0]["time_s"] for server, lines in known.items())
    seconds = min(seconds, EPOCHS * epoch_s) if epoch_s else seconds
    last = max(ends.values())
    if min(ends.values()) > last - seconds:  # one clock, as far as we see: one end
        ends = dict.fromkeys(ends, last)
    servers = {server: _bars(lines, ends[server] - seconds, ends[server]) for server, lines in known.items()}
    return {"ms": 1000 * seconds, "servers": servers}


def _files(run_dir: Path) -> list[Path]:
    found = [file for file in run_dir.glob("trace-*.jsonl") if file.stem.removeprefix("trace-").isdecimal()]
    return sorted(found, key=lambda file: int(file.stem.removeprefix("trace-")))[:MOST_SERVERS]


def _tail(file: Path) -> Sequence[TraceLine]:
    """The newest events of one process: a resumed run appends to the trace, perhaps with another clock."""
    lines: list[TraceLine] = []
    for line in run_files.last_lines(file, TAIL_BYTES):
        if lines and line["time_s"] < lines[-1]["time_s"]:
            lines.clear()
        lines.append(line)
    return lines


def _bars(lines: Sequence[TraceLine], begin: float, end: float) -> list[Bar]:
    shown = sorted({line["interval"] for line in lines})[:MOST_INTERVALS]
    return [
        (
            span.interval,
            Lane.EVAL.value if span.lane == Lane.EVAL.value else span.step,
            span.epoch,
            round(1000 * (span.start - begin), 3),
            round(1000 * (span.stop - begin), 3),
            span.waits,
        )
        for span in spans(lines, begin, end)
        if span.interval in shown
    ]
