"""The rows that each interval of a partition holds: what never changes, and what its steps have written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from siafu import kernels
from siafu.graph import TRAIN
from siafu.models.staged import among_all, chosen
from siafu.shards import Shard
from siafu.sparse import Array, Rows, TaskRows
from siafu.tasks import Lane, Program, Step, TaskId


class IntervalRows:
    """Of ``intervals``, by their numbers in the run."""

    def __init__(self, intervals: Sequence[int]):
        self._first = intervals[0]
        # All mutable state:
        self.constants: dict[Lane, list[dict[str, Rows]]] = {}  # by interval; set once
        self._feeding: list[tuple[Array, dict[str, Rows]]] = []  # by interval: which rows, and their constants
        self._slots: dict[tuple[Lane, int], dict[str, TaskRows]] = {(x, i): {} for x in Lane for i in intervals}

    def fixed(self, task: TaskId) -> dict[str, Rows]:
        """What never changes of the task's interval."""
        return self.constants[task.lane][task.interval - self._first]

    def choose_feeding(self, feeds: Array, bounds: Sequence[tuple[int, int]], program: Program) -> None:
        """``feeds``: bool ``[n]``, the rows that the loss's gather reads. Constants of steps that feed it are cut out
        once, and held beside those of all rows."""
        read = {slot for step in program.steps if step.feeds_loss for slot in step.reads}
        for (start, stop), constants in zip(bounds, self.constants[Lane.TRAIN], strict=True):
            which = feeds[start:stop]
            self._feeding.append((which, chosen(which, {s: rows for s, rows in constants.items() if s in read})))

    def chooses(self, step: Step) -> bool:
        """Whether the step computes on some rows of each interval alone."""
        return step.feeds_loss and bool(self._feeding)

    def read_by(self, task: TaskId, step: Step) -> dict[str, TaskRows]:
        """What a tensor step reads, of the rows that it computes on."""
        held = self.of(task)
        if not self.chooses(step):
            return {slot: held[slot] for slot in step.reads}
        which, known = self._feeding[task.interval - self._first]
        return {**chosen(which, {slot: held[slot] for slot in step.reads if slot not in known}), **known}

    def of(self, task: TaskId) -> dict[str, TaskRows]:
        """Everything that the task's interval holds now."""
        return {**self.fixed(task), **self._slots[task.lane, task.interval]}

    def written(self, task: TaskId, slot: str) -> Array:
        return np.asarray(self._slots[task.lane, task.interval][slot])

    def put(self, task: TaskId, step: Step, made: Mapping[str, Any]) -> None:
        """Takes the slots that a step has written, or added to: where it computed on some rows, zero in all others."""
        slots = self._slots[task.lane, task.interval]
        if self.chooses(step):
            made = among_all(made, self._feeding[task.interval - self._first][0])
        for name, rows in made.items():
            slots[name] = np.asarray(slots[name]) + rows if name in step.adds else rows

    def drop_read(self, task: TaskId, program: Program) -> None:
        """Slots that nobody reads after this step go."""
        slots = self._slots[task.lane, task.interval]
        for slot in [slot for slot in slots if program.last_reader[slot] <= task.pc]:
            del slots[slot]


def constants_of(
    shard: Shard,
    split: Array,
    bounds: Sequence[tuple[int, int]],
    programs: Mapping[Lane, Program],
    lanes: Sequence[Lane],
    aggregates: Mapping[Lane, Rows],
    of_features: str,
    storage: str,
) -> dict[Lane, list[dict[str, Rows]]]:
    """What any program reads of a shard and never changes, cut into intervals, for these lanes.

    aggregates: layer 0's, ``[n, F]``; of_features: their slot, or "". storage: dtype of rows that are gathered.
    """
    is_train = split == TRAIN
    H: Rows = shard.features
    if isinstance(H, np.ndarray) and H.dtype == np.float32 and storage == "bfloat16":
        H = kernels.to_bfloat16(H)
    read = {slot for program in programs.values() for step in program.steps for slot in step.reads}
    made: dict[Lane, list[dict[str, Rows]]] = {lane: [] for lane in lanes}
    for lane, cut in made.items():
        for start, stop in bounds:
            constants: dict[str, Rows] = {
                "H0": H[start:stop],
                "vertex": np.asarray(shard.vertices[start:stop], np.int64),
                "label": np.asarray(shard.labels[start:stop]),
                "train": is_train[start:stop],
            }
            if of_features:
                constants[of_features] = aggregates[lane][start:stop]
            cut.append({slot: rows for slot, rows in constants.items() if slot in read})
    return made
