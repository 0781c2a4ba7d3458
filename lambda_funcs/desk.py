"""A worker's tasks, and the message that each of them waits for. Pure.

A task waits for weights, for its next rows, or for the acknowledgement of its gradients; each wait is a round trip of
the network. Meanwhile the worker computes another of its tasks (``lambda.prefetch``).
"""

from __future__ import annotations

import traceback
from collections.abc import Generator
from dataclasses import dataclass

from siafu.address import Address, Send, param_server
from siafu.tensor_task import NextPart, Reply, Request, TensorWorker, conversation
from siafu.wire import GradientAck, Message, RowsMissing, Task, TaskFailed, TaskPart, TaskResult, Weights

Conversation = tuple[object, ...]
#: The most parts kept of tasks that are not on the desk: the part overtook its task, or the task is done.
STRAY_PARTS = 4


@dataclass
class _Open:
    """A task without a result."""

    task: Task
    run: Generator[Request, Reply, TaskResult]


class Desk:
    """The open tasks of one worker. ``home``: the graph server that hands out the tasks."""

    def __init__(self, home: Address, tensor: TensorWorker):
        self.home, self.tensor = home, tensor
        # All mutable state:
        self._waiting: dict[Conversation, _Open] = {}
        self._parts: dict[Conversation, TaskPart] = {}  # rows that came before they were asked for
        self.num_done = 0

    @property
    def idle(self) -> bool:
        return not self._waiting

    def handle(self, message: Message) -> list[Send]:
        """Resumes the task that the message is for, until it waits again or ends. Returns the messages to send, in
        order."""
        match message:
            case Task():
                opened = _Open(message, self.tensor.perform(message))
                return self._resume(opened, None)
            case TaskPart():
                talk: Conversation = ("part", message.id, message.attempt, message.part)
            case Weights() | GradientAck():
                talk = conversation(message)
            case _:
                return []
        waiting = self._waiting.pop(talk, None)
        if waiting is not None:
            return self._resume(waiting, message)
        if isinstance(message, TaskPart):
            self._keep(talk, message)
        return []  # late: no task waits for this answer any more

    def waits_for(self) -> str:
        """Returns the message that the oldest task waits for, as text for an error."""
        talk, waiting = next(iter(self._waiting.items()))
        return f"{talk[0]} of {waiting.task.id}"

    def _resume(self, opened: _Open, reply: Reply) -> list[Send]:
        task = opened.task
        while True:
            try:
                request = opened.run.send(reply)
            except StopIteration as stop:
                self.num_done += 1
                self._forget_parts(task)
                return [Send(self.home, stop.value)]
            except Exception:  # the edge of the process: the graph server must see the traceback
                trace = traceback.format_exc()[-8000:]
                self._forget_parts(task)
                failed = TaskFailed(
                    task.lane, task.epoch, task.interval, task.pc, task.attempt, self.tensor.name, trace
                )
                return [Send(self.home, failed)]
            if not isinstance(request, NextPart):
                self._waiting[conversation(request)] = opened
                return [Send(param_server(task.param_server), request)]
            talk = ("part", task.id, task.attempt, request.part)
            if talk not in self._parts:
                self._waiting[talk] = opened
                return [Send(self.home, self._missing(task, request.part))] if request.lost else []
            reply = self._parts.pop(talk)

    def _missing(self, task: Task, part: int) -> RowsMissing:
        return RowsMissing(task.lane, task.epoch, task.interval, task.pc, task.attempt, self.tensor.name, part)

    def _keep(self, talk: Conversation, part: TaskPart) -> None:
        self._parts[talk] = part
        on_desk = {(opened.task.id, opened.task.attempt) for opened in self._waiting.values()}
        strays = [talk for talk in self._parts if talk[1:3] not in on_desk]
        for stray in strays[:-STRAY_PARTS]:
            del self._parts[stray]

    def _forget_parts(self, task: Task) -> None:
        for talk in [talk for talk in self._parts if talk[1:3] == (task.id, task.attempt)]:
            del self._parts[talk]
