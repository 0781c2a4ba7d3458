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
4. A task that raises, or whose result is not of the task's shape, is tried once more, elsewhere if there is anybody else:
   a second failure is the task's own and ends the run.
5. After ``stop`` nobody is given or sent anything, and nothing counts but what invocations are billed.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from collections.abc import Callable

from graph_server.backends import Action, Completed, Launch, TensorTask
from graph_server.dispatch import Assign, Dispatcher
from graph_server.launchers import Ended
from siafu.address import Address, Send
from siafu.address import worker as worker_address
from siafu.config import Config, Lambda
from siafu.errors import WorkerError
from siafu.models import Model, ModelSpec
from siafu.models import build as build_model
from siafu.sparse import Rows, SparseRows
from siafu.tasks import TaskId
from siafu.tensor_task import split
from siafu.wire import Bye, Message, Pull, RowsMissing, Task, TaskFailed, TaskPart, TaskResult, Tensors

logger = logging.getLogger(__name__)

MAX_FAILED_LAUNCHES = 3
#: Rows below this are not worth a second message.
MIN_ROWS_PER_PART = 64


class LambdaBackend:
    def __init__(self, config: Lambda, model: Model, count: int, name: str):
        """``count``: environments wanted; ``name``: what the names of its workers begin with."""
        self.config, self.model, self.count, self.name = config, model, count, name
        # All mutable state:
        self._dispatcher = Dispatcher(config.task_timeout_s, config.relaunches, affinity=config.keep_constants)
        self._open: dict[TaskId, TensorTask] = {}
        self._alive: dict[str, bool] = {}  # worker -> whether it has pulled
        self._given: dict[str, set[tuple[int, str]]] = {}  # worker -> (interval, slot) of constants that it was sent
        self._failed_launches = 0
        self._failed_attempts: dict[TaskId, set[int]] = {}
        self._totals = {
            "invocations": 0, "billed_ms": 0, "tasks": 0, "compute_s": 0.0, "lost_workers": 0,
            "failures": 0, "ignored": 0,
        }  # fmt: skip
        self._bytes = {"bytes_out": 0, "bytes_in": 0}
        self._stopped = False

    @classmethod
    def make(cls, config: Config, spec: ModelSpec, index: int, clock: Callable[[], float]) -> LambdaBackend:
        lambdas = dataclasses.replace(config.lambdas, stream=config.lambdas.stream and config.overlaps)
        count = lambdas.count or max(2, min(8, (os.cpu_count() or 1) * 2 // config.data.parts))
        return cls(lambdas, build_model(spec), count, f"w{index}")

    # --- the contract of backends -----------------------------------------------------------------------------------

    def submit(self, task: TensorTask, now: float) -> list[Action]:
        if self._stopped:
            return []
        self._open[task.id] = task
        return self._send(self._dispatcher.submit(task.id, task.priority, now))

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        if self._stopped:
            return []
        match message:
            case Pull() if message.worker in self._alive:
                self._alive[message.worker] = True
                self._failed_launches = 0
                return self._send(self._dispatcher.pull(message.worker, message.credits, now))
            case TaskResult() if (fault := self._fault(message)) is not None:
                logger.warning("%s of worker %s: %s", message.id, message.worker, fault)
                return self._failed(message, fault, now)
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
                return self._failed(message, message.trace, now)
            case RowsMissing():
                return self._resend(message)
            case Bye():
                return self._send(self._dispatcher.lost(message.worker, now))
        return []

    def tick(self, now: float) -> list[Action]:
        return self._send(self._dispatcher.tick(now))

    def stop(self) -> None:
        self._stopped = True
        self._open.clear()
        self._failed_attempts.clear()
        self._dispatcher.forget()

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

    def ended(self, invocation: Ended, now: float) -> list[Action]:
        """An invocation is over: billed, and its worker gone."""
        self._totals["billed_ms"] += invocation.billed_ms
        had_pulled = self._alive.pop(invocation.request_id, True)
        self._given.pop(invocation.request_id, None)
        if self._stopped:
            return []
        self._totals["lost_workers"] += invocation.error is not None
        self._failed_launches += not had_pulled
        if self._failed_launches >= MAX_FAILED_LAUNCHES:
            raise WorkerError(
                f"{MAX_FAILED_LAUNCHES} invocations of {self.config.handler} in a row ended before they took a task: "
                f"{_outcome(invocation)}"
            )
        return self._send(self._dispatcher.lost(invocation.request_id, now))

    def _fault(self, result: TaskResult) -> str | None:
        """What is wrong with the rows of an open task's result."""
        task = self._open.get(result.id)
        if task is None:
            return None
        dtype, num_rows = self.model.spec.dtype, _num_rows(task)
        expected = {slot: f"{dtype} [{num_rows}, {self.model.width(slot)}]" for slot in task.step.writes}
        found = {slot: _kind(rows) for slot, rows in result.rows.items()}
        return None if found == expected else f"the result is {found}, must be {expected}"

    def _failed(self, message: TaskFailed | TaskResult, why: str, now: float) -> list[Action]:
        """Rule 4."""
        task_id = message.id
        if task_id in self._open:
            failed = self._failed_attempts.setdefault(task_id, set())
            self._totals["failures"] += message.attempt not in failed
            failed.add(message.attempt)
            if len(failed) > 1:
                raise WorkerError(f"{task_id} failed on {message.worker}:\n{why}")
        return self._send(self._dispatcher.failed(task_id, message.worker, message.attempt, now))

    def _send(self, assigned: list[Assign]) -> list[Action]:
        actions: list[Action] = []
        for assign in assigned:
            task = self._open[assign.task]
            constants = task.constants if self.config.keep_constants else ()
            given = self._given.setdefault(assign.worker, set())
            known = {slot for slot in constants if (task.id.interval, slot) in given}
            given.update((task.id.interval, slot) for slot in constants)
            parts = self._parts(task)
            for number, rows in enumerate(parts):
                sent = {slot: value for slot, value in rows.items() if slot not in known}
                actions.append(self._part(task, assign, number, len(parts), sent, constants))
        return actions + self._launches()

    def _resend(self, message: RowsMissing) -> list[Action]:
        """A worker has had to let go of what it was sent: the part again, whole."""
        task = self._open.get(message.id)
        parts = self._parts(task) if task is not None else []
        if message.worker not in self._alive or not 0 <= message.part < len(parts):
            self._totals["ignored"] += 1
            return []
        given = self._given.get(message.worker, set())
        self._given[message.worker] = {key for key in given if key[0] != message.interval}
        rows = parts[message.part]
        again = TaskPart(message.lane, message.epoch, message.interval, message.pc, message.attempt, message.part, rows)
        self._bytes["bytes_out"] += sum(value.nbytes for value in rows.values())
        return [Send(worker_address(message.worker), again)]

    def _parts(self, task: TensorTask) -> list[Tensors]:
        return split(task.rows, 2 if self.config.stream and _num_rows(task) >= 2 * MIN_ROWS_PER_PART else 1)

    def _part(
        self, task: TensorTask, assign: Assign, number: int, num_parts: int, rows: Tensors, constants: tuple[str, ...]
    ) -> Send:
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        self._bytes["bytes_out"] += sum(value.nbytes for value in rows.values())
        message: Message = (
            TaskPart(lane, epoch, interval, pc, assign.attempt, number, rows)
            if number
            else Task(lane, epoch, interval, pc, assign.attempt, task.param_server, num_parts, constants, rows)
        )
        return Send(worker_address(assign.worker), message)

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


def _num_rows(task: TensorTask) -> int:
    return min(len(rows) for rows in task.rows.values())


def _kind(rows: Rows) -> str:
    return f"{'sparse ' if isinstance(rows, SparseRows) else ''}{rows.dtype} {list(rows.shape)}"


def _outcome(invocation: Ended) -> str:
    """How it ended, in one line."""
    if invocation.error is None:
        return "the handler returned without an error"
    try:
        message = str(json.loads(invocation.payload)["errorMessage"])
    except (ValueError, KeyError, TypeError):
        message = (invocation.log_tail.strip().splitlines() or ["its log is empty"])[-1]
    return f"{invocation.error}: {' '.join(message.split())[:500]}"
