"""Packs the rows of tensor tasks into messages to workers: cut into parts, without rows that a worker already has.
Pure.

A worker keeps constant rows (``TensorTask.constants``). They are sent once, and again only if the worker reports them
missing or the task is cut into another number of parts. A worker without room for all keeps those that came first, and
is sent the others with every task: if it dropped the oldest instead, tasks that come in turn would never find theirs.
Rows that will not be needed again make room: those of an interval that another worker has by now, and those of other
numbers of parts.

All parts are sent at once, so that they travel while earlier ones are computed. If memory is short (``split_in``), each
is sent when the worker asks for it.
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
    on_request: bool = False  # all parts but the first are sent when the worker asks for them


@dataclass
class _Open:
    """The attempts of a task without a result."""

    cuts: dict[int, _Cut] = field(default_factory=dict)  # by attempt
    nbytes: int = 0  # of rows sent for the latest attempt


#: Key of constants: interval, number of parts, slot, subset of rows.
_Key = tuple[int, int, str, Subset]


class Shipping:
    """The rows sent to each worker. ``keep_bytes``: of constants that a worker keeps (``Lambda.keep_bytes``);
    ``num_parts``: number of parts of long tasks."""

    def __init__(self, *, keep_bytes: int, num_parts: int):
        # All mutable state:
        self.keep_bytes = keep_bytes
        self.num_parts = num_parts
        self.split_in = 0  # parts that tasks are split into because memory is short; 0: it is not short
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
        """Records that the worker keeps these constants, if it has room; makes room first, if possible."""
        given, (_, parts, slot, subset) = self._given[worker], key
        if sum(given.values()) + nbytes > self.keep_bytes:
            for old in list(given):
                in_other_parts = (old[0], *old[2:]) == (key[0], slot, subset) and old[1] != parts
                if self._had[old[0]] != worker or in_other_parts:
                    del given[old]
        if sum(given.values()) + nbytes <= self.keep_bytes:
            given[key] = nbytes

    def again(self, task: TensorTask, message: RowsMissing) -> Send | None:
        """Returns a part with all its rows, for a worker that misses some; None if there is no such part."""
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
        """Forgets the task; returns the bytes of rows sent for its latest attempt."""
        return self._open.pop(task).nbytes

    def gone(self, worker: str) -> None:
        self._given.pop(worker, None)

    def parts_of(self, task: TaskId, attempt: int) -> int:
        """Returns the number of parts into which this attempt was split because memory is short. 1: it was not, and its
        worker may have had all of its rows at once."""
        cut = self._cut(task, attempt)
        return cut.num_parts if cut is not None and cut.on_request else 1

    def _cut(self, task: TaskId, attempt: int) -> _Cut | None:
        """Returns how this attempt was cut into parts; None if it was not sent."""
        opened = self._open.get(task)
        return None if opened is None else opened.cuts.get(attempt)

    def _cut_now(self, task: TensorTask, attempt: int) -> _Cut:
        """Decides how to cut a new attempt: like the attempt before, even if ``num_parts`` has changed, unless memory
        is short."""
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
    """Returns the rows to send, by part. Of a task with the loss only rows of training vertices are sent.

    They are selected after the cut into parts: so sums have the same bits as on a server's own threads, which compute
    all rows.
    """
    parts = [{slot: _alone(value) for slot, value in part.items()} for part in split(task.rows, num_parts)]
    return [of_training(part) for part in parts] if task.of_training else parts


def _alone(rows: TaskRows) -> TaskRows:
    """Drops the values of ``EdgeRows`` that no edge of this part uses."""
    return rows.compact() if isinstance(rows, EdgeRows) else rows
