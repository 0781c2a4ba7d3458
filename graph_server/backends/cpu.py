"""Runs tensor tasks in the graph server's own threads: Dorylus' CPU-only variant.

The steps are those of the Lambda worker (``siafu.tensor_task``), driven by the server's loop. The server asks the
parameter server for an interval's weights once an epoch. It does not wait for the acknowledgement of a gradient: the
gradient takes the same link as the interval's final ``IntervalDone``, and a link that loses a message ends the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from graph_server.backends import Action, Completed, Job, TensorTask
from siafu import arithmetic
from siafu.address import Address, Send, param_server
from siafu.config import Config
from siafu.machine import num_threads
from siafu.models import ModelSpec, TensorOps
from siafu.tasks import TaskId
from siafu.tensor_task import (
    PARTS,
    Answer,
    NextPart,
    Question,
    Reply,
    Request,
    TensorWorker,
    conversation,
    num_parts,
    split,
    versions_kept,
)
from siafu.wire import FetchWeights, GradientAck, Message, Task, TaskPart, TaskResult, Tensors, Weights

Run = Generator[Question, Answer | None, TaskResult]  # of one task; it asks a parameter server alone


class CpuBackend:
    invoker = ""

    def __init__(
        self,
        spec: ModelSpec,
        name: str,
        clock: Callable[[], float],
        ops: TensorOps = arithmetic,
        parts: int = PARTS,
        staleness: int = 0,
    ):
        """``parts``: the most parts that a task's rows are cut into. A Lambda gets the same parts, so results have the
        same bits."""
        self._parts = parts
        self._worker = TensorWorker(spec, name, clock, ops=ops, all_layers=True, kept_versions=versions_kept(staleness))
        # All mutable state:
        self._open: dict[TaskId, tuple[TensorTask, Run]] = {}
        self._waiting: dict[object, TaskId] = {}  # conversation with a parameter server -> task
        self._tasks = 0
        self._compute_s = 0.0
        self._stopped = False

    @classmethod
    def make(cls, config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> CpuBackend:
        ops = arithmetic.on_threads(num_threads(config))
        return cls(spec, f"cpu{index}", clock, ops, PARTS if config.lambdas.stream else 1, config.train.staleness)

    def expect(self, task: TaskId, now: float) -> list[Action]:
        return []

    def watch(self, graph_tasks: int, now: float) -> None:
        pass

    def submit(self, task: TensorTask, now: float) -> list[Action]:
        if self._stopped:
            return []
        lane, epoch, interval, pc = task.id.lane, task.id.epoch, task.id.interval, task.id.pc
        parts = split(task.rows, num_parts(task.rows, self._parts))
        first = Task(lane.value, epoch, interval, pc, 0, task.param_server, len(parts), (), parts[0])
        run = _with_parts(self._worker.perform(first), first, parts)
        self._open[task.id] = (task, run)

        # Weights are asked for when it is the task's turn, not before: an interval that is ahead of others should not
        # fix an old version while there is older work to do.
        return [self._job(task, run, None)]

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        if not isinstance(message, Weights):
            return []
        task_id = self._waiting.pop(conversation(message), None)
        return [] if task_id is None else [self._job(*self._open[task_id], message)]

    def tick(self, now: float) -> list[Action]:
        return []

    def stop(self) -> None:
        self._stopped = True
        self._open.clear()
        self._waiting.clear()

    @property
    def in_flight(self) -> int:
        return len(self._open)

    @property
    def num_workers(self) -> int:
        return 0

    @property
    def usage(self) -> dict[str, float]:
        return {"tasks": self._tasks, "compute_s": self._compute_s}

    def _job(self, task: TensorTask, run: Run, weights: Weights | None) -> Job[Question | TaskResult]:
        lane, pc, interval = task.id.lane, task.id.pc, task.id.interval
        return Job(
            task.priority,
            lambda: lambda: _resume(run, weights),
            lambda outcome: self._went_on(task.id, outcome),
            like=(lane, pc, interval, weights is None),
        )

    def _went_on(self, task_id: TaskId, outcome: Question | TaskResult) -> list[Action]:
        if task_id not in self._open:  # it was computing when we stopped
            return []
        task, run = self._open[task_id]
        sends: list[Action] = []
        if not isinstance(outcome, TaskResult):
            sends = [Send(param_server(task.param_server), outcome)]
            if isinstance(outcome, FetchWeights):
                self._waiting[conversation(outcome)] = task_id
                return sends
            outcome = _resume(run, GradientAck(outcome.epoch, outcome.interval, outcome.layer, outcome.attempt))
            assert isinstance(outcome, TaskResult), outcome
        del self._open[task_id]
        self._tasks += 1
        self._compute_s += outcome.compute_s
        return [*sends, Completed(outcome)]


def _with_parts(run: Generator[Request, Reply, TaskResult], task: Task, parts: list[Tensors]) -> Run:
    """Wraps ``run`` and answers its requests for rows; passes its other questions on."""
    reply: Reply = None
    try:
        while True:
            request = run.send(reply)
            if isinstance(request, NextPart):
                reply = TaskPart(
                    task.lane, task.epoch, task.interval, task.pc, task.attempt, request.part, parts[request.part]
                )
            else:
                reply = yield request
    except StopIteration as stop:
        result: TaskResult = stop.value
        return result


def _resume(run: Run, reply: Answer | None) -> Question | TaskResult:
    try:
        return run.send(reply)
    except StopIteration as stop:
        result: TaskResult = stop.value
        return result
