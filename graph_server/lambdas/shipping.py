"""Packs the rows of tensor tasks into messages to workers: cut into parts, without rows that a worker already has.
Pure.

A worker keeps rows that never change (``TensorTask.constants``); what it was sent once is not sent again unless it says
that it lost it, or the task is cut into another number of parts. Where a worker has no room for all of them, it keeps
those that came first, and is sent the others with every task: if it let go of the oldest instead, tasks that come round
in turn would find nothing. Room is made by what it will not be asked for again: of an interval that another worker has
by now, and of other numbers of parts.

Parts are sent at once, so that they travel while those before are computed; or, where memory is short (``split``), each
when the worker asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_server.backends import TensorTask
from graph_server.lambdas.dispatch import Assign
from siafu.address import Send
from siafu.address import worker as worker_address
from siafu.models.staged import of_training
from siafu.sparse import EdgeRows, TaskRows
from siafu.tasks import TaskId
from siafu.tensor_task import num_parts, num_rows, split
from siafu.wire import Message, RowsMissing, Subset, Task, TaskPart, Tensors


@dataclass(frozen=True)
class _Cut:
    num_parts: int
    on_request: bool = False  # parts but the first are sent when they are asked for


@dataclass
class _Open:
    """What was sent of a task without a result."""

    cuts: dict[int, _Cut] = field(default_factory=dict)  # by attempt
    nbytes: int = 0  # of rows, to the latest attempt


#: Of constants: interval, parts, slot, which rows.
_Key = tuple[int, int, str, Subset]


class Shipping:
    """``keep_bytes``: of rows that never change, what a worker keeps (``Lambda.keep_bytes``); ``num_parts``: that long
    tasks travel in from now on."""

    def __init__(self, *, keep_bytes: int, num_parts: int):
        # All mutable state:
        self.keep_bytes = keep_bytes
        self.num_parts = num_parts
        self.split_in = 0  # parts that tasks are split in because memory is short; 0: it is not
        self._open: dict[TaskId, _Open] = {}
        self._given: dict[str, dict[_Key, int]] = {}  # worker -> constants that it has, and their bytes
        self._had: dict[int, str] = {}  # interval -> the worker that had it last
        self.nbytes = 0  # of rows, in all

    def ship(self, task: TensorTask, assign: Assign) -> list[Send]:
        cut = self._cut_now(task, assign.attempt)
        before, parts = self.nbytes, rows_of(task, cut.num_parts)
        self._had[task.id.interval] = assign.worker
        given = self._given.setdefault(assign.worker, {})
        keys: dict[str, _Key] = {slot: (task.id.interval, len(parts), slot, task.subset) for slot in task.constants}
        known = {slot for slot, key in keys.items() if key in given}
        for slot in keys.keys() - known:
            self._keep(assign.worker, keys[slot], sum(rows[slot].nbytes for rows in parts))
        constants = tuple(slot for slot, key in keys.items() if key in given)
        sends = []
        for number, rows in enumerate(parts[:1] if cut.on_request else parts):
            sent = {slot: value for slot, value in rows.items() if slot not in known}
            sends.append(self._part(task, assign, number, cut, sent, constants))
        self._open[task.id].nbytes = self.nbytes - before
        return sends

    def _keep(self, worker: str, key: _Key, nbytes: int) -> None:
        """If there is room."""
        given, (_, parts, slot, subset) = self._given[worker], key
        if sum(given.values()) + nbytes > self.keep_bytes:
            for old in list(given):
                in_other_parts = (old[0], *old[2:]) == (key[0], slot, subset) and old[1] != parts
                if self._had[old[0]] != worker or in_other_parts:
                    del given[old]
        if sum(given.values()) + nbytes <= self.keep_bytes:
            given[key] = nbytes

    def again(self, task: TensorTask, message: RowsMissing) -> Send | None:
        """A part whole, for a worker that misses rows of it; None if there is no such part."""
        cut = self._cut(task.id, message.attempt)
        if cut is None or not 0 <= message.part < cut.num_parts:
            return None
        parts = rows_of(task, cut.num_parts)
        given = self._given.get(message.worker, {})
        self._given[message.worker] = {key: kept for key, kept in given.items() if key[0] != message.interval}
        assign, before = Assign(message.worker, task.id, message.attempt), self.nbytes
        send = self._follow_up(task, assign, message.part, parts[message.part])
        if message.attempt == max((opened := self._open[task.id]).cuts):
            opened.nbytes += self.nbytes - before
        return send

    def done(self, task: TaskId) -> int:
        """Nothing of it will be sent any more; how many bytes its latest attempt was."""
        return self._open.pop(task).nbytes

    def gone(self, worker: str) -> None:
        self._given.pop(worker, None)

    def parts_of(self, task: TaskId, attempt: int) -> int:
        """That this attempt was split in because memory is short; 1: its worker could
        have all of its rows at a time."""
        cut = self._cut(task, attempt)
        return cut.num_parts if cut is not None and cut.on_request else 1

    def _cut(self, task: TaskId, attempt: int) -> _Cut | None:
        """How it was cut; None if it was not sent."""
        opened = self._open.get(task)
        return None if opened is None else opened.cuts.get(attempt)

    def _cut_now(self, task: TensorTask, attempt: int) -> _Cut:
        """Every attempt like the one before, whatever is chosen meanwhile, unless memory is short."""
        attempts = self._open.setdefault(task.id, _Open()).cuts
        if self.split_in:
            cut = _Cut(max(1, min(self.split_in, num_rows(task.rows))), on_request=True)
        elif attempts:
            cut = list(attempts.values())[-1]
        else:
            cut = _Cut(num_parts(task.rows, self.num_parts))
        attempts[attempt] = cut
        return cut

    def _part(
        self, task: TensorTask, assign: Assign, number: int, cut: _Cut, rows: Tensors, constants: tuple[str, ...]
    ) -> Send:
        if number:
            return self._follow_up(task, assign, number, rows)
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        first = Task(
            lane,
            epoch,
            interval,
            pc,
            assign.attempt,
            task.param_server,
            cut.num_parts,
            constants,
            rows,
            on_request=cut.on_request,
            subset=task.subset,
        )
        return self._send(assign.worker, first, rows)

    def _follow_up(self, task: TensorTask, assign: Assign, number: int, rows: Tensors) -> Send:
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        return self._send(assign.worker, TaskPart(lane, epoch, interval, pc, assign.attempt, number, rows), rows)

    def _send(self, worker: str, message: Message, rows: Tensors) -> Send:
        self.nbytes += sum(value.nbytes for value in rows.values())
        return Send(worker_address(worker), message)


def rows_of(task: TensorTask, num_parts: int) -> list[Tensors]:
    """What travels, by part. Of a task with the loss rows of training vertices, after they were cut with all others: so
    sums have the bits that a server's own threads give them, which have no reason to choose before they compute."""
    parts = [{slot: _alone(value) for slot, value in part.items()} for part in split(task.rows, num_parts)]
    return [of_training(part) for part in parts] if task.of_training else parts


def _alone(rows: TaskRows) -> TaskRows:
    """Without values that no edge of a part has."""
    return rows.compact() if isinstance(rows, EdgeRows) else rows
