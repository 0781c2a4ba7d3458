"""Decides what follows when an environment runs out of memory, so that its tasks do not fail again. Pure.

Rules:
1. The cause may be the number of tasks and rows held, not one task. From then on every worker is given one task at a
   time and keeps no rows from one to the next; results keep every bit. Earlier workers, which have kept rows, are
   retired; if one of them runs out of memory, nothing more follows.
2. If a worker held a task alone under rule 1, the task itself is too large. From then on tasks are split into twice as
   many parts, each sent when the worker asks for it, so that the worker has the rows of one part at a time and its
   intermediate values. Only the result is whole. A gradient that is summed in other parts has other last bits.
3. If a task cannot be split further, the run ends when workers ran out of memory on it alone ALONE times, or on any
   such tasks IN_A_ROW times without a result between. The error says what to change.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from siafu.errors import WorkerError
from siafu.tasks import TaskId

OUT_OF_MEMORY = "Runtime.OutOfMemory"
MOST_PARTS = 64
ALONE, IN_A_ROW = 2, 3


class Step(enum.Enum):
    """The rule that applies from now on, if any is new."""

    NOTHING = enum.auto()
    ALONE = enum.auto()  # rule 1
    SPLIT = enum.auto()  # rule 2


class MemoryShortage:
    """The state of the rules for one graph server. ``intervals``: the config's ``train.intervals``."""

    def __init__(self, memory_mb: int, intervals: int):
        self.memory_mb, self.intervals = memory_mb, intervals
        # All mutable state:
        self.on = False  # rule 1
        self.num_parts = 1  # rule 2
        self._alone: dict[TaskId, int] = {}  # task -> environments that it ran out of memory in most parts
        self._in_a_row = 0

    def ran_out(self, held: Sequence[TaskId], nbytes: int, num_parts: int = 1, *, at_most: int = MOST_PARTS) -> Step:
        """Decides what follows when an environment ran out of memory while it held these tasks, with ``nbytes`` of rows
        in all. For a single task: it was sent in ``num_parts`` parts, and can be split into ``at_most``.

        Raises: WorkerError by rule 3.
        """
        if not self.on:
            self.on = True
            return Step.ALONE
        if len(held) != 1 or num_parts < min(self.num_parts, at_most):  # sent before the latest rule applied
            return Step.NOTHING
        if self.num_parts < min(MOST_PARTS, at_most):
            self.num_parts *= 2
            return Step.SPLIT
        (task,) = held
        self._alone[task] = self._alone.get(task, 0) + 1
        self._in_a_row += 1
        if self._alone[task] >= ALONE or self._in_a_row >= IN_A_ROW:
            raise WorkerError(
                f"{task}: an environment of lambda.memory_mb = {self.memory_mb} ran out of memory on it alone, though "
                f"it came in {num_parts} parts; its rows are {nbytes / 2**20:.1f} MiB, its result comes on top: raise "
                f"lambda.memory_mb, or train.intervals = {self.intervals} for smaller tasks"
            )
        return Step.NOTHING

    def done(self, task: TaskId) -> None:
        """Records that the task has a result."""
        self._alone.pop(task, None)
        self._in_a_row = 0
