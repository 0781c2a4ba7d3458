"""The rows of each interval of a partition: constant ones, and those that its steps have written. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from graph_server.lane_view import LaneView
from siafu import kernels, views
from siafu.graph import TRAIN
from siafu.models.staged import among_all, chosen
from siafu.shards import Shard
from siafu.sparse import Array, Rows, TaskRows
from siafu.tasks import Lane, Program, Step, TaskId
from siafu.wire import Subset

#: Marks of steps that compute on some rows of each interval alone.
Mark = Literal["feeds_loss", "judged"]
MARKS: tuple[Mark, ...] = ("feeds_loss", "judged")
#: Names of subsets of rows. Workers keep constants by these names alone, without the lane.
_SUBSETS: Mapping[tuple[Lane, Mark], Subset] = {
    (Lane.TRAIN, "feeds_loss"): "feeding",
    (Lane.EVAL, "feeds_loss"): "feeding judged",
    (Lane.EVAL, "judged"): "judged",
}


class IntervalRows:
    """The rows of ``intervals``, which are given by their numbers in the run."""

    def __init__(self, intervals: Sequence[int]):
        self._first = intervals[0]
        # All mutable state:
        self.constants: dict[Lane, list[dict[str, Rows]]] = {}  # by interval; set once
        self.narrow: frozenset[Lane] = frozenset()  # lanes that hold some of the partition's rows alone; set once
        # Subset of the rows -> by interval: which rows, and their constants.
        self._chosen: dict[Subset, list[tuple[Array, dict[str, Rows]]]] = {}
        self._slots: dict[tuple[Lane, int], dict[str, TaskRows]] = {(x, i): {} for x in Lane for i in intervals}

    def fixed(self, task: TaskId) -> dict[str, Rows]:
        """Returns the constant rows of the task's interval, by slot."""
        return self.constants[task.lane][task.interval - self._first]

    def choose(self, lane: Lane, mark: Mark, which: Array, bounds: Sequence[tuple[int, int]], program: Program) -> None:
        """Restricts the steps with this mark to the rows ``which``, bool ``[n]``. The constants of these rows are
        copied once, beside those of all rows. Changes nothing if no marked step reads a slot, or if the rows are too
        many for a copy to pay (``views.few``)."""
        read = {slot for step in program.steps if getattr(step, mark) for slot in step.reads}
        if not read or not views.few(which):
            return
        kept = self._chosen[_SUBSETS[lane, mark]] = []
        for (start, stop), constants in zip(bounds, self.constants[lane], strict=True):
            mine = which[start:stop]
            kept.append((mine, chosen(mine, {s: rows for s, rows in constants.items() if s in read})))

    def subset(self, lane: Lane, step: Step) -> Subset:
        """Returns the subset of each interval's rows that the step computes on; "": all rows of the partition."""
        for mark in MARKS:
            if getattr(step, mark) and (name := _SUBSETS[lane, mark]) in self._chosen:
                return name
        return _SUBSETS[lane, "feeds_loss"] if lane in self.narrow else ""

    def read_by(self, task: TaskId, step: Step) -> dict[str, TaskRows]:
        """Returns the slots that a tensor step reads, restricted to the rows that it computes on."""
        held = self.of(task)
        chosen_of = self._chosen.get(self.subset(task.lane, step))
        if chosen_of is None:
            return {slot: held[slot] for slot in step.reads}
        which, known = chosen_of[task.interval - self._first]
        mine = {slot: rows for slot, rows in known.items() if slot in step.reads}
        return {**chosen(which, {slot: held[slot] for slot in step.reads if slot not in mine}), **mine}

    def of(self, task: TaskId) -> dict[str, TaskRows]:
        """Returns all slots that the task's interval holds now."""
        return {**self.fixed(task), **self._slots[task.lane, task.interval]}

    def written(self, task: TaskId, slot: str) -> Array:
        return np.asarray(self._slots[task.lane, task.interval][slot])

    def put(self, task: TaskId, step: Step, made: Mapping[str, Any]) -> None:
        """Stores the slots that a step has written, or adds to them. Rows that the step left out become zero."""
        slots = self._slots[task.lane, task.interval]
        if chosen_of := self._chosen.get(self.subset(task.lane, step)):
            made = among_all(made, chosen_of[task.interval - self._first][0])
        for name, rows in made.items():
            slots[name] = np.asarray(slots[name]) + rows if name in step.adds else rows

    def drop_read(self, task: TaskId, program: Program) -> None:
        """Drops the slots that no step reads after this one."""
        slots = self._slots[task.lane, task.interval]
        for slot in [slot for slot in slots if program.last_reader[slot] <= task.pc]:
            del slots[slot]


def constants_of(
    shard: Shard,
    split: Array,
    seen: Mapping[Lane, LaneView],
    programs: Mapping[Lane, Program],
    aggregates: Mapping[Lane, Rows],
    of_features: Mapping[Lane, str],
    storage: str,
) -> dict[Lane, list[dict[str, Rows]]]:
    """Returns the constant rows of a shard that programs read: for each lane in ``seen``, by interval and slot.

    aggregates: layer 0's, by lane, of the rows that the lane sees, ``[n, F]``; of_features: lane -> the slot of its
    aggregate, for lanes that have one. storage: dtype of rows that are gathered.
    """
    H: Rows = shard.features
    if isinstance(H, np.ndarray) and H.dtype == np.float32 and storage == "bfloat16":
        H = kernels.to_bfloat16(H)
    whole: dict[str, Rows] = {"H0": H, "vertex": shard.vertices, "label": shard.labels, "train": split == TRAIN}
    made: dict[Lane, list[dict[str, Rows]]] = {}
    for lane, view in seen.items():
        read = {slot for step in programs[lane].steps for slot in step.reads}
        rows = {slot: view.take(values) for slot, values in whole.items() if slot in read}
        if lane in of_features:
            rows[of_features[lane]] = aggregates[lane]
        if "vertex" in rows:
            rows["vertex"] = np.asarray(rows["vertex"], np.int64)
        made[lane] = [{slot: values[start:stop] for slot, values in rows.items()} for start, stop in view.bounds]
    return made
