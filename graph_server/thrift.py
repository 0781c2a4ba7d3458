"""What follows when an environment runs out of memory, so that its tasks are not given out again in vain. Pure.

Rules:
1. It may have been what it held, not one task: from then on every worker is given one task at a time and keeps no rows from
   one to the next. Neither changes a bit of any result.
2. A task that a worker held alone under rule 1, for the second time, is itself too large, and so is one of IN_A_ROW that
   have ended so with no result of any task between them: the run ends and says what to change. It is not cut into more parts instead: its rows travel to one worker and its result back as a whole, so that
   parts save little; and a gradient summed in other parts has other bits. Smaller tasks are smaller intervals.
"""

from __future__ import annotations

from collections.abc import Sequence

from siafu.errors import WorkerError
from siafu.tasks import TaskId

OUT_OF_MEMORY = "Runtime.OutOfMemory"
ALONE, IN_A_ROW = 2, 3


class Thrift:
    """``intervals``: of the graph server, as the config has them."""

    def __init__(self, memory_mb: int, intervals: int):
        self.memory_mb, self.intervals = memory_mb, intervals
        # All mutable state:
        self.on = False  # rule 1
        self._alone: dict[TaskId, int] = {}  # task -> environments that it ran out of memory, alone
        self._in_a_row = 0

    def ran_out(self, held: Sequence[TaskId], nbytes: int) -> bool:
        """An environment did while it had these tasks, of so many bytes of rows in all; whether rule 1 begins now.

        Raises: WorkerError by rule 2.
        """
        if not self.on:
            self.on = True
            return True
        if len(held) == 1:
            (task,) = held
            self._alone[task] = self._alone.get(task, 0) + 1
            self._in_a_row += 1
            if self._alone[task] >= ALONE or self._in_a_row >= IN_A_ROW:
                raise WorkerError(
                    f"{task}: an environment of lambda.memory_mb = {self.memory_mb} ran out of memory on it alone, not the "
                    f"first to do so; its rows are {nbytes / 2**20:.1f} MiB, results and what is between come on top: raise "
                    f"lambda.memory_mb, or train.intervals = {self.intervals} for smaller tasks"
                )
        return False

    def done(self, task: TaskId) -> None:
        """It has a result."""
        self._alone.pop(task, None)
        self._in_a_row = 0
