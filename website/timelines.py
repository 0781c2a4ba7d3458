"""The timelines of docs/concepts, from simulated runs: ``python -m website.timelines`` writes docs/concepts/*.svg.

``siafu plan``'s simulator runs the real scheduler of two graph servers with four intervals each, on round numbers
(``WORK``, ``LAMBDAS``). Equal code gives equal bytes, and a test compares them with the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from cost_planner.plan import parts
from cost_planner.plan.parts import LinkRate, Then, Waits
from cost_planner.plan.simulated_run import Environments, Plan, StepWork
from cost_planner.plan.simulator import Fleet, Server
from cost_planner.report import drawing, timelines
from cost_planner.report.series import Span, Timeline
from siafu import models
from siafu.models import ModelSpec
from siafu.tasks import TENSOR_KINDS, Kind, Lane, TaskId
from website import svg

FOLDER = Path(__file__).parent.parent / "docs" / "concepts"
PROGRAM = models.build(ModelSpec("gcn", in_features=64, num_classes=8, num_train=100, widths=(16,))).program(Lane.TRAIN)
#: Seconds of a graph server's thread by kind of step, and of a Lambda. Layer 0's gather was made before.
SECONDS = {Kind.GA: 0.010, Kind.GA_B: 0.010, Kind.SC: 0.002, Kind.SC_B: 0.002, Kind.WU: 0.0}
TENSOR_S = 0.012
WORK = [
    StepWork(TENSOR_S if step.kind in TENSOR_KINDS else 0.0 if index == 0 else SECONDS[step.kind], peers=1.0)
    for index, step in enumerate(PROGRAM.steps)
]
#: Four for each server. A quarter of the tasks takes three times as long.
LAMBDAS = Environments(
    count=4, cold_s=0, latency_s=0, sigma=0, prefetch=1, slow_share=0.25, slow_factor=3, link=LinkRate(1e12)
)
#: Rows of a Scatter are 3 ms on their way to the other server.
PLAN: dict[str, Any] = {
    "servers": 2,
    "threads": 1,
    "intervals": 4,
    "environments": LAMBDAS,
    "latency_s": 0.003,
    "exchange_s": 0.0,
    "sigma": 0.0,
    "together": True,
    "cores": 64,
}
#: Figure -> contender -> its settings.
FIGURES: dict[str, dict[str, dict[str, Any]]] = {
    "intervals": {"no-pipe": {"mode": "no-pipe"}, "pipe": {"mode": "pipe"}},
    "staleness": {
        "pipe": {"mode": "pipe"},
        "async, s = 0": {"mode": "async", "freshness": 0.0},
        "async, s = 1": {"mode": "async", "staleness": 1, "freshness": 0.0, "ahead": 1.0},
    },
}
EPOCHS, SHOWN = 6, 2  # simulated; the one that is drawn, of those from 0


class Traced(Server):
    """A simulated server that notes when each task could run, began and was done."""

    def __init__(self, fleet: Fleet, index: int):
        super().__init__(fleet, index, None)
        # All mutable state:
        self.since: dict[TaskId, float] = {}
        self.began: dict[TaskId, float] = {}
        self.done: dict[TaskId, float] = {}
        self._asked: TaskId | None = None

    def work(self, task: TaskId) -> StepWork:
        self._asked = task
        return super().work(task)

    def moves(self, work: StepWork) -> Waits:
        """What the pools of the simulator call when a thread or an environment begins the task that was asked for
        last."""
        task = self._asked
        assert task is not None

        def begins(over: Then) -> None:
            self.began[task] = self.timeline.now
            over()

        return begins

    def _run(self, task: TaskId) -> None:
        self.since[task] = self.timeline.now
        super()._run(task)

    def _done(self, task: TaskId) -> None:
        self.done[task] = self.timeline.now
        super()._done(task)


def simulated(settings: Mapping[str, Any]) -> tuple[list[Span], float]:
    """Tasks and waits of the first server while the shown epoch was under way, and the seconds from its first task to
    its last."""
    clock = parts.Timeline(Random(1))
    fleet = Fleet(Plan(PROGRAM, WORK, **{**PLAN, **settings}), clock, EPOCHS)
    servers = [Traced(fleet, index) for index in range(len(fleet.servers))]
    fleet.servers = [*servers]
    fleet.begin()
    while not fleet.finished:
        clock.step()
    server = servers[0]
    own = [task for task in server.done if task.epoch == SHOWN]
    begin, end = min(server.since[task] for task in own), max(server.done[task] for task in own)
    spans = []
    for task, done in server.done.items():
        since, began = server.since[task], server.began.get(task, done)
        kind, is_own = PROGRAM.steps[task.pc].kind.value, task.epoch == SHOWN
        for name, start, stop in (("", since, began), (kind, began, done)):
            start, stop = max(begin, start), min(end, stop)
            if stop > start:
                spans.append(Span(task.interval, name, start - begin, stop - begin, is_own))
    return spans, end - begin


def figure(name: str) -> str:
    """A figure as a file of its own: SVG."""
    found = {contender: simulated(settings) for contender, settings in FIGURES[name].items()}
    longest = max(seconds for _, seconds in found.values())
    shown = {contender: Timeline(SHOWN, longest, {0: spans}, True) for contender, (spans, _) in found.items()}
    with drawing.style():
        drawn, _ = timelines.draw(shown)
        title = f"Timelines of one epoch: {', '.join(found)}"
        return svg.document(drawn, name, title, "python -m website.timelines")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in FIGURES:
        (FOLDER / f"{name}.svg").write_text(figure(name), encoding="utf-8")


if __name__ == "__main__":
    main()
