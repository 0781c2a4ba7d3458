"""The rows of tensor tasks as messages to workers: cut into parts, and without what a worker already has. Pure.

A worker keeps rows that never change (``TensorTask.constants``) as long as it has room; what it was sent once is not sent
again unless it says that it had to let go of it.
"""

from __future__ import annotations

from graph_server.backends import TensorTask
from graph_server.dispatch import Assign
from siafu.address import Send
from siafu.address import worker as worker_address
from siafu.tensor_task import split
from siafu.wire import Message, RowsMissing, Task, TaskPart, Tensors

#: Rows below this are not worth a second message.
MIN_ROWS_PER_PART = 64


class Shipping:
    """``keep_constants``: workers keep them; ``stream``: long tasks travel in two halves."""

    def __init__(self, *, keep_constants: bool, stream: bool):
        self.keep_constants, self.stream = keep_constants, stream
        # All mutable state:
        self._given: dict[str, set[tuple[int, str]]] = {}  # worker -> (interval, slot) of constants that it was sent
        self.nbytes = 0  # of rows, in all

    def ship(self, task: TensorTask, assign: Assign) -> list[Send]:
        constants = task.constants if self.keep_constants else ()
        given = self._given.setdefault(assign.worker, set())
        known = {slot for slot in constants if (task.id.interval, slot) in given}
        given.update((task.id.interval, slot) for slot in constants)
        parts = self._parts(task)
        sends = []
        for number, rows in enumerate(parts):
            sent = {slot: value for slot, value in rows.items() if slot not in known}
            sends.append(self._part(task, assign, number, len(parts), sent, constants))
        return sends

    def again(self, task: TensorTask, message: RowsMissing) -> Send | None:
        """A part whole, for a worker that misses rows of it; None if there is no such part."""
        parts = self._parts(task)
        if not 0 <= message.part < len(parts):
            return None
        given = self._given.get(message.worker, set())
        self._given[message.worker] = {key for key in given if key[0] != message.interval}
        assign = Assign(message.worker, task.id, message.attempt)
        return self._follow_up(task, assign, message.part, parts[message.part])

    def gone(self, worker: str) -> None:
        self._given.pop(worker, None)

    def _parts(self, task: TensorTask) -> list[Tensors]:
        return split(task.rows, 2 if self.stream and num_rows(task) >= 2 * MIN_ROWS_PER_PART else 1)

    def _part(
        self, task: TensorTask, assign: Assign, number: int, num_parts: int, rows: Tensors, constants: tuple[str, ...]
    ) -> Send:
        if number:
            return self._follow_up(task, assign, number, rows)
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        first = Task(lane, epoch, interval, pc, assign.attempt, task.param_server, num_parts, constants, rows)
        return self._send(assign.worker, first, rows)

    def _follow_up(self, task: TensorTask, assign: Assign, number: int, rows: Tensors) -> Send:
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        return self._send(assign.worker, TaskPart(lane, epoch, interval, pc, assign.attempt, number, rows), rows)

    def _send(self, worker: str, message: Message, rows: Tensors) -> Send:
        self.nbytes += sum(value.nbytes for value in rows.values())
        return Send(worker_address(worker), message)


def num_rows(task: TensorTask) -> int:
    return min(len(rows) for rows in task.rows.values())
