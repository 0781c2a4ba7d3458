"""Decides what follows when an environment runs out of memory, so that its tasks do not fail again. Pure.

Rules:
1. It may have been what it held, not one task: from then on every worker is given one task at a time and keeps no rows
   from one to the next. Neither changes a bit of any result. Workers from before, which have kept rows, are retired;
   that one of them runs out of memory says nothing new.
2. A task that a worker held alone under rule 1 is itself too large: from then on tasks are split into twice as many
   parts, each of which travels when it is asked for, so that a worker has the rows of one part at a time, and what it
   computes between. Only the result is whole. A gradient that is summed in other parts has other last bits.
3. Where there are no more parts, a task that a worker held alone for the second time ends the run, so does one of
   IN_A_ROW with no result of any task between them; and it says what to change.
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
    """What is new from now on."""

    NOTHING = enum.auto()
    ALONE = enum.auto()  # rule 1
    SPLIT = enum.auto()  # rule 2


class MemoryShortage:
    """What a graph server has changed because environments ran out of memory. ``intervals``: as the config has
    them."""

    def __init__(self, memory_mb: int, intervals: int):
        self.memory_mb, self.intervals = memory_mb, intervals
        # All mutable state:
        self.on = False  # rule 1
        self.num_parts = 1  # rule 2
        self._alone: dict[TaskId, int] = {}  # task -> environments that it ran out of memory in most parts
        self._in_a_row = 0

    def ran_out(self, held: Sequence[TaskId], nbytes: int, num_parts: int = 1, *, at_most: int = MOST_PARTS) -> Step:
        """An environment did while it had these tasks, of so many bytes of rows in all. If it is one task: it came in
        ``num_parts`` parts, and could in ``at_most``.

        Raises: WorkerError by rule 3.
        """
        if not self.on:
            self.on = True
            return Step.ALONE
        if len(held) != 1 or num_parts < min(self.num_parts, at_most):  # sent before the last rule was followed
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
        """It has a result."""
        self._alone.pop(task, None)
        self._in_a_row = 0
