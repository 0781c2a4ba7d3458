"""Reads from a server's trace when each task waited and ran (``siafu train --trace``). Pure.

The events of a task, in order: start (it may run), begin (a thread has taken it), answered (a worker's result is in,
which took it ``compute_s``), done (with all that follows from it). A tensor task works during the last seconds before
its answer; before that it waits or travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

TraceLine = Mapping[str, Any]
Task = tuple[str, int, int, int]  # lane, epoch, interval, pc


class Span(NamedTuple):
    """A time in which a task ran or waited."""

    lane: str
    epoch: int  # from 1
    interval: int
    step: str  # "AV0"
    waits: bool
    start: float  # in the trace's seconds, as stop
    stop: float


def spans(lines: Iterable[TraceLine], begin: float, end: float) -> Iterator[Span]:
    """Spans of the finished tasks, cut to the time from ``begin`` to ``end``; none is empty."""
    since: dict[Task, float] = {}
    began: dict[Task, float] = {}
    answered: dict[Task, float] = {}
    for line in lines:
        task: Task = line["lane"], line["epoch"], line["interval"], line["pc"]
        at: float = line["time_s"]
        event = line["event"]
        if event == "start":
            since[task] = at
        elif event == "begin":
            began[task] = at
        elif event == "answered":
            began[task], answered[task] = max(since.get(task, at), at - line["compute_s"]), at
        elif event == "done" and task in since and began.get(task, since[task]) < end and at > begin:
            start, work = max(begin, since[task]), max(begin, began.get(task, since[task]))
            over, stop = min(end, answered.get(task, at)), min(end, at)
            for waits, a, b in ((True, start, work), (False, work, over), (True, over, stop)):
                if b > a:
                    yield Span(line["lane"], line["epoch"], line["interval"], line["step"], waits, a, b)
