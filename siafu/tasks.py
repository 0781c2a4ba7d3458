"""The names of steps and tasks, and the order in which an interval runs its steps.

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
    """The nine kinds. A prime marks the backward of a kind (suffix ``_B`` in identifiers)."""

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
    """What an epoch is run for. Evaluation runs the same machine with a shorter program and buffers of its own."""

    TRAIN = "train"
    EVAL = "eval"


#: linear: the model's weighted sum; attention: GAT's; typed: a sum for each edge type; pairs: of edges to be predicted.
Operator = Literal["linear", "attention", "typed", "pairs"]


def is_of_edges(slot: str) -> bool:
    """Whether a slot holds ``EdgeRows``: its name begins with E."""
    return slot.startswith("E")


@dataclass(frozen=True)
class Step:
    """One step of a program: what it reads and writes by slot name."""

    kind: Kind
    layer: int
    reads: tuple[str, ...] = ()  # slots of the interval itself
    writes: tuple[str, ...] = ()
    gathers: str | None = None  # the published slot whose rows of *other* vertices this step reads
    publishes: str | None = None  # the slot that this Scatter makes readable by others
    fused: bool = False  # the last AV, the loss and AV' in one task (Dorylus §6, task fusion)
    parameters: bool = True  # whether a tensor step has weights, at its ``layer``
    operator: Operator = "linear"  # how the rows of edges' other ends are combined, in GA, SC, AE and their backwards
    factor: float = 1.0  # linear GA: of what is gathered
    own: float = 1.0  # linear GA: of the interval's own slots in ``reads``, which are added; SC: of what it adds
    adds: tuple[str, ...] = ()  # those of ``writes`` that are added to what the slot holds already
    #: Only vertices that count matter: in training those that train (ADR 0038), in evaluation those that are judged
    #: (ADR 0040). SC: rows with an edge into one are read; GA: their sums alone are; SC', GA': their rows alone are not
    #: zero.
    of_loss: bool = False
    #: AV, AV': only rows that such a gather reads matter, those with an edge into a vertex that counts and its own: of
    #: all others nobody reads what is made, and the gradients are zero (ADR 0039).
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
    of_loss: bool = False  #: whether nobody reads rows but those that count, and those with an edge into one

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, pc: int) -> Step:
        return self.steps[pc]

    @cached_property
    def publisher(self) -> dict[str, int]:
        """Published slot -> index of the Scatter that publishes it."""
        return {step.publishes: pc for pc, step in enumerate(self.steps) if step.publishes}

    @cached_property
    def waits_for(self) -> tuple[int | None, ...]:
        """For each step the index of the Scatter whose rows it gathers; None if it gathers nothing or constants."""
        return tuple(self.publisher.get(step.gathers) if step.gathers else None for step in self.steps)

    @cached_property
    def constants(self) -> frozenset[str]:
        """Slots that are the same in every epoch: what is gathered of rows that nobody publishes."""
        gathers = [step for step in self.steps if step.gathers and step.gathers not in self.publisher]
        return frozenset(slot for step in gathers for slot in step.writes)

    @cached_property
    def last_reader(self) -> dict[str, int]:
        """Slot -> index of the last step that reads it: afterwards its rows can go."""
        last = {slot: pc for pc, step in enumerate(self.steps) for slot in step.writes}
        return last | {slot: pc for pc, step in enumerate(self.steps) for slot in step.reads}
