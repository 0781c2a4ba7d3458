"""A tensor worker: dials its graph server, pulls tasks, and performs them one after the other.

While it computes one task the rows of the next are already on their way (``prefetch``). Sockets are opened inside the
invocation: a frozen environment loses them silently.
"""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from siafu.address import Address, graph_server, param_server
from siafu.address import worker as worker_address
from siafu.errors import ConfigError, GnnError, PeerLost
from siafu.models import ModelSpec
from siafu.sockets import Hub
from siafu.tensor_task import NextPart, Reply, Request, TensorWorker, conversation
from siafu.wire import Bye, Hello, Leave, Message, Pull, Refused, Task, TaskFailed, TaskPart, TaskResult


@dataclass(frozen=True)
class Assignment:
    """What an invocation tells its worker."""

    worker: str
    graph_server: str  # endpoint
    index: int  # of the graph server
    param_servers: tuple[str, ...]  # endpoints
    run_id: bytes
    config_digest: str
    spec: ModelSpec
    idle_s: float
    margin_s: float
    prefetch: int
    proxy: str
    wait_s: float  # for an answer, at most

    @classmethod
    def from_event(cls, event: dict[str, Any]) -> Assignment:
        """Raises ConfigError if the event does not name what a worker needs."""
        try:
            spec = {**event["spec"], "widths": tuple(event["spec"]["widths"])}
            return cls(
                **{
                    **event,
                    "run_id": bytes.fromhex(event["run_id"]),
                    "param_servers": tuple(event["param_servers"]),
                    "spec": ModelSpec(**spec),
                }
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"not the event of an invocation: {error!r}") from error


class Worker:
    """Use in a ``with`` block; ``run`` returns when there is nothing more to do."""

    def __init__(self, assignment: Assignment, remaining_s: Callable[[], float]):
        self.assignment, self._remaining_s = assignment, remaining_s
        self._home = graph_server(assignment.index)
        self._hub = Hub(worker_address(assignment.worker), assignment.run_id)
        self._tensor = TensorWorker(assignment.spec, assignment.worker, time.perf_counter)
        # All mutable state:
        self._tasks: deque[Task] = deque()
        self._parts: dict[tuple[object, ...], TaskPart] = {}
        self._told_to_leave = False
        self._num_done = 0

    def run(self) -> dict[str, Any]:
        self._hub.dial(self._home, self.assignment.graph_server, self.assignment.proxy)
        self._hub.send(self._home, Hello("worker", self.assignment.index, self.assignment.config_digest, ""))
        self._hub.send(self._home, Pull(self.assignment.worker, self.assignment.prefetch))
        reason = self._work()
        self._hub.send(self._home, Bye(self.assignment.worker))
        return {"worker": self.assignment.worker, "tasks": self._num_done, "reason": reason}

    def _work(self) -> str:
        """Performs tasks; returns why it stopped."""
        idle_since = time.monotonic()
        while not self._told_to_leave:
            if self._remaining_s() < self.assignment.margin_s:
                return "deadline"
            if self._tasks:
                self._perform(self._tasks.popleft())
                idle_since = time.monotonic()
                continue
            left = self.assignment.idle_s - (time.monotonic() - idle_since)
            if left <= 0:
                return "idle"
            self._receive(left)
        return "told to leave"

    def _perform(self, task: Task) -> None:
        try:
            result = self._drive(task)
        except PeerLost:
            raise
        except Exception:  # the edge of the process: the graph server must see the traceback
            trace = traceback.format_exc()[-8000:]
            failed = TaskFailed(
                task.lane, task.epoch, task.interval, task.pc, task.attempt, self.assignment.worker, trace
            )
            self._hub.send(self._home, failed)
            return
        self._num_done += 1
        self._hub.send(self._home, result)

    def _drive(self, task: Task) -> TaskResult:
        """Gives the task what it asks for until it has its result."""
        run = self._tensor.perform(task)
        reply: Reply = None
        while True:
            try:
                request = run.send(reply)
            except StopIteration as stop:
                result: TaskResult = stop.value
                return result
            reply = self._fulfil(task, request)

    def _fulfil(self, task: Task, request: Request) -> Reply:
        if isinstance(request, NextPart):
            key = (task.id, task.attempt, request.part)
            self._wait(lambda: key in self._parts, self._home, f"part {request.part} of {task.id}")
            return self._parts.pop(key)
        server = self._param_server(task.param_server)
        self._hub.send(server, request)
        answers: list[Reply] = []
        self._wait(
            lambda: bool(answers), server, f"{task.id}: {type(request).__name__}", conversation(request), answers
        )
        return answers[0]

    def _wait(
        self,
        done: Callable[[], bool],
        whom: Address,
        what: str,
        talk: tuple[object, ...] | None = None,
        answers: list[Reply] | None = None,
    ) -> None:
        """Receives until ``done``; answers that belong to ``talk`` go into ``answers``. PeerLost after ``wait_s``."""
        deadline = time.monotonic() + min(self.assignment.wait_s, self._remaining_s())
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise PeerLost(f"{whom}: no answer within {self.assignment.wait_s:g} s to {what}")
            for message in self._receive(left):
                if answers is not None and conversation(message) == talk:
                    answers.append(message)

    def _receive(self, timeout_s: float) -> list[Message]:
        """Sorts what has arrived; returns what is not for the queue of tasks."""
        others = []
        for _, message in self._hub.poll(timeout_s):
            match message:
                case Task():
                    self._tasks.append(message)
                case TaskPart(lane=_, part=part, attempt=attempt):
                    self._parts[message.id, attempt, part] = message
                case Leave():
                    self._told_to_leave = True
                case Refused(reason=reason):
                    raise GnnError(f"refused: {reason}")
                case _:
                    others.append(message)
        return others

    def _param_server(self, index: int) -> Address:
        address = param_server(index)
        if not self._hub.knows(address):
            self._hub.dial(address, self.assignment.param_servers[index], self.assignment.proxy)
        return address

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hub.flush_and_close(1.0)
