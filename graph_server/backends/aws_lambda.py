"""Tensor tasks on Lambda functions: workers dial in, pull many tasks in one invocation, and report each when it is done.

This is the pure half: who gets which task (``graph_server.dispatch``), when to invoke the function again, what was
billed. The launcher that invokes it (local environments, or an endpoint) is the server's.

Rules:
1. While tasks wait, up to ``count`` workers are kept at work: an invocation is asked for whenever fewer are. A silent
   worker (rule 3 of the dispatcher) is not at work, but no more than ``2 * count`` are ever alive.
2. A worker whose invocation ended, for whatever reason, is lost: its tasks go to others, and what it still said before
   is heard, but it is given nothing.
3. ``MAX_FAILED_LAUNCHES`` invocations in a row that end before their worker ever pulled end the run: the function itself
   is broken, and invoking it again only costs money.
"""

from __future__ import annotations

import json
from typing import Protocol

from graph_server.backends import Action, Completed, Launch, TensorTask
from graph_server.dispatch import Assign, Dispatcher
from siafu.address import Address, Send
from siafu.address import worker as worker_address
from siafu.config import Lambda
from siafu.errors import WorkerError
from siafu.tasks import TaskId
from siafu.tensor_task import split
from siafu.wire import Bye, Message, Pull, Task, TaskFailed, TaskPart, TaskResult

MAX_FAILED_LAUNCHES = 3
#: Rows below this are not worth a second message.
MIN_ROWS_PER_PART = 64


class Ended(Protocol):
    """What became of an invocation (``lambda_funcs.pool.Invocation``)."""

    request_id: str
    error: str | None
    payload: bytes  # the handler's JSON, or that of the error
    billed_ms: int
    log_tail: str


class LambdaBackend:
    def __init__(self, config: Lambda, count: int, name: str):
        self.config, self.count, self.name = config, count, name
        # All mutable state:
        self._dispatcher = Dispatcher(config.task_timeout_s, config.relaunches)
        self._open: dict[TaskId, TensorTask] = {}
        self._alive: dict[str, bool] = {}  # worker -> whether it has pulled
        self._failed_launches = 0
        self._failed_attempts: dict[TaskId, set[int]] = {}
        self._totals = {"invocations": 0, "billed_ms": 0, "tasks": 0, "compute_s": 0.0, "lost_workers": 0}
        self._bytes = {"bytes_out": 0, "bytes_in": 0}

    # --- the contract of backends -----------------------------------------------------------------------------------

    def submit(self, task: TensorTask, now: float) -> list[Action]:
        self._open[task.id] = task
        return self._send(self._dispatcher.submit(task.id, task.priority, now))

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        match message:
            case Pull() if message.worker in self._alive:
                self._alive[message.worker] = True
                self._failed_launches = 0
                return self._send(self._dispatcher.pull(message.worker, message.credits, now))
            case TaskResult():
                first, assigned = self._dispatcher.result(message.id, message.worker, message.attempt, now)
                actions = self._send(assigned)
                if first:
                    del self._open[message.id]
                    self._failed_attempts.pop(message.id, None)
                    self._totals["tasks"] += 1
                    self._totals["compute_s"] += message.compute_s
                    self._bytes["bytes_in"] += sum(rows.nbytes for rows in message.rows.values())
                    actions.insert(0, Completed(message))
                return actions
            case TaskFailed():
                return self._failed(message, now)
            case Bye():
                return self._send(self._dispatcher.lost(message.worker, now))
        return []

    def tick(self, now: float) -> list[Action]:
        return self._send(self._dispatcher.tick(now))

    @property
    def in_flight(self) -> int:
        return self._dispatcher.num_open

    @property
    def usage(self) -> dict[str, float]:
        gb_s = self._totals["billed_ms"] / 1000 * self.config.memory_mb / 1024
        return {
            **self._totals, **self._bytes, "gb_s": gb_s, "relaunches": self._dispatcher.num_relaunches,
            "duplicates": self._dispatcher.num_duplicates,
        }  # fmt: skip

    # --- what else happens to Lambdas -------------------------------------------------------------------------------

    @property
    def num_workers(self) -> int:
        return len(self._alive)

    @property
    def workers(self) -> list[str]:
        return list(self._alive)

    def close(self) -> None:
        """No more invocations: whoever leaves now is not replaced."""
        self.count = 0

    def ended(self, invocation: Ended, now: float) -> list[Action]:
        """An invocation is over: billed, and its worker gone."""
        self._totals["billed_ms"] += invocation.billed_ms
        had_pulled = self._alive.pop(invocation.request_id, True)
        self._totals["lost_workers"] += invocation.error is not None
        self._failed_launches += not had_pulled
        if self._failed_launches >= MAX_FAILED_LAUNCHES and self.count:
            raise WorkerError(
                f"{MAX_FAILED_LAUNCHES} invocations of {self.config.handler} in a row ended before they took a task: "
                f"{_outcome(invocation)}"
            )
        return self._send(self._dispatcher.lost(invocation.request_id, now))

    def _failed(self, message: TaskFailed, now: float) -> list[Action]:
        """A task that raises will raise again elsewhere, unless the worker was at fault: one more try tells."""
        task_id = message.id
        failed = self._failed_attempts.setdefault(task_id, set()) if task_id in self._open else set()
        failed.add(message.attempt)
        if len(failed) > 1:
            raise WorkerError(f"{task_id} failed on {message.worker}:\n{message.trace}")
        return self._send(self._dispatcher.failed(task_id, message.worker, message.attempt, now))

    def _send(self, assigned: list[Assign]) -> list[Action]:
        actions: list[Action] = []
        for assign in assigned:
            task = self._open[assign.task]
            lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
            to = worker_address(assign.worker)
            num_rows = min((len(rows) for rows in task.rows.values()), default=0)
            num_parts = 2 if self.config.stream and num_rows >= 2 * MIN_ROWS_PER_PART else 1
            parts = split(task.rows, num_parts)
            for number, rows in enumerate(parts):
                self._bytes["bytes_out"] += sum(value.nbytes for value in rows.values())
                message: Message = (
                    TaskPart(lane, epoch, interval, pc, assign.attempt, number, rows)
                    if number
                    else Task(lane, epoch, interval, pc, assign.attempt, task.param_server, num_parts, rows)
                )
                actions.append(Send(to, message))
        return actions + self._launches()

    def _launches(self) -> list[Action]:
        """Rule 1."""
        alive = len(self._alive)
        wanted = min(
            self.count - (alive - self._dispatcher.num_silent), 2 * self.count - alive, self._dispatcher.num_queued
        )
        actions: list[Action] = []
        for _ in range(wanted):
            worker = f"{self.name}-{self._totals['invocations']}"
            self._totals["invocations"] += 1
            self._alive[worker] = False
            actions.append(Launch(worker))
        return actions


def _outcome(invocation: Ended) -> str:
    """How it ended, in one line."""
    if invocation.error is None:
        return "the handler returned without an error"
    try:
        message = str(json.loads(invocation.payload)["errorMessage"])
    except (ValueError, KeyError, TypeError):
        message = (invocation.log_tail.strip().splitlines() or ["its log is empty"])[-1]
    return f"{invocation.error}: {' '.join(message.split())[:500]}"
