"""The kinds and names of steps and tasks, and the order in which an interval runs its steps.

A *step* is one of the nine task kinds of Dorylus (OSDI'21, §4) in one layer. A *program* is the ordered steps that an
interval runs in one epoch; the model gives it. Steps hand rows to each other through named *slots* (``"Z0"``, ``"H1"``,
``"dZ1"``...): a slot belongs to one interval, until a Scatter publishes it and makes its rows readable by others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal


class Kind(str, Enum):
    """The nine kinds of steps. A prime marks the backward of a kind (suffix ``_B`` in identifiers)."""

    GA, AV, SC, AE = "GA", "AV", "SC", "AE"
    GA_B, AV_B, SC_B, AE_B = "GA'", "AV'", "SC'", "AE'"
    WU = "WU"


#: Kinds computed by a tensor backend; every other kind runs on the graph server that owns the interval.
TENSOR_KINDS = frozenset({Kind.AV, Kind.AE, Kind.AV_B, Kind.AE_B})
#: Kinds that go backwards: they walk edges from target to source.
BACKWARD_KINDS = frozenset({Kind.GA_B, Kind.AV_B, Kind.SC_B, Kind.AE_B})
#: Slots that no step writes: an interval's features, vertices, labels, and which of its vertices train.
GIVEN_SLOTS = frozenset({"H0", "vertex", "label", "train"})


class Lane(str, Enum):
    """The purpose of an epoch. Evaluation uses the same mechanism as training, with a shorter program and buffers of
    its own."""

    TRAIN = "train"
    EVAL = "eval"


#: linear: the model's weighted sum; attention: GAT's; typed: a sum per edge type; pairs: rows of the edges to predict.
Operator = Literal["linear", "attention", "typed", "pairs"]


def is_of_edges(slot: str) -> bool:
    """Whether a slot holds ``EdgeRows``: its name begins with E."""
    return slot.startswith("E")


@dataclass(frozen=True)
class Step:
    """One step of a program, with the names of the slots that it reads and writes."""

    kind: Kind
    layer: int
    reads: tuple[str, ...] = ()  # slots of the interval itself
    writes: tuple[str, ...] = ()
    gathers: str | None = None  # the published slot whose rows of *other* vertices this step reads
    publishes: str | None = None  # the slot that this Scatter makes readable by others
    fused: bool = False  # the last AV, the loss and AV' in one task (Dorylus §6, task fusion)
    parameters: bool = True  # whether a tensor step has weights, at its ``layer``
    operator: Operator = "linear"  # combines the rows of edges' other ends in GA, SC, AE and their backwards
    factor: float = 1.0  # linear GA: of the gathered sums
    own: float = 1.0  # linear GA: of the interval's own slots in ``reads``, which are added; SC: of the rows it writes
    adds: tuple[str, ...] = ()  # slots of ``writes`` whose rows are added to those already there
    #: Only vertices that count matter: in training the training vertices (ADR 0038), in evaluation the judged ones (ADR
    #: 0040). SC: only rows with an edge into such a vertex are read; GA: only sums of such vertices are read; SC', GA':
    #: only rows of such vertices are not zero.
    of_loss: bool = False
    #: AV, AV': only rows that an ``of_loss`` gather reads matter: rows of vertices that count, and rows with an edge
    #: into one. Results of other rows are never read, and their gradients are zero (ADR 0039).
    feeds_loss: bool = False
    #: The evaluation's last AV: only rows of judged vertices matter (ADR 0040).
    judged: bool = False

    @cached_property
    def name(self) -> str:
        return f"{self.kind.value}{self.layer}"

    @cached_property
    def backward(self) -> bool:
        return self.kind in BACKWARD_KINDS

    @cached_property
    def has_gradient(self) -> bool:
        """Whether the step pushes weight gradients."""
        return self.fused or self.kind in (Kind.AV_B, Kind.AE_B)


@dataclass(frozen=True, order=True)
class TaskId:
    """A step of one interval in one epoch. ``pc``: index into the lane's program; intervals are numbered globally."""

    lane: Lane
    epoch: int
    interval: int
    pc: int

    def __str__(self) -> str:
        return f"{self.lane.value} epoch {self.epoch} interval {self.interval} step {self.pc}"


@dataclass(frozen=True)
class Program:
    """The ordered steps of one epoch of one interval."""

    steps: tuple[Step, ...]
    of_loss: bool = False  #: whether only rows that count, and rows with an edge into one, are ever read

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, pc: int) -> Step:
        return self.steps[pc]

    @cached_property
    def publisher(self) -> dict[str, int]:
        """The index of the Scatter that publishes each slot, by published slot."""
        return {step.publishes: pc for pc, step in enumerate(self.steps) if step.publishes}

    @cached_property
    def waits_for(self) -> tuple[int | None, ...]:
        """By step: the index of the Scatter whose rows it gathers; None if it gathers nothing or constants."""
        return tuple(self.publisher.get(step.gathers) if step.gathers else None for step in self.steps)

    @cached_property
    def constants(self) -> frozenset[str]:
        """The slots that are the same in every epoch: results of gathers of rows that no step publishes."""
        gathers = [step for step in self.steps if step.gathers and step.gathers not in self.publisher]
        return frozenset(slot for step in gathers for slot in step.writes)

    @cached_property
    def last_reader(self) -> dict[str, int]:
        """The index of the last step that reads each slot, by slot; afterwards its rows can be dropped."""
        last = {slot: pc for pc, step in enumerate(self.steps) for slot in step.writes}
        return last | {slot: pc for pc, step in enumerate(self.steps) for slot in step.reads}
