"""What the coordinator asks its shell to do (``Action``), and what a progress line shows (``Status``). Values only."""

from __future__ import annotations

from dataclasses import dataclass

from siafu import run_files
from siafu.address import Send
from siafu.training_state import TrainingState


@dataclass(frozen=True)
class Record:
    """An action: a line for metrics.jsonl."""

    values: run_files.Record


@dataclass(frozen=True)
class Save:
    """An action: keep this as a checkpoint."""

    state: TrainingState


Action = Send | Record | Save


@dataclass
class Status:
    """The values that a progress line shows."""

    phase: str = "starting"
    epoch: int = 0
    loss: float = float("nan")
    evaluation: run_files.BySplit | None = None
    epoch_s: float = 0.0
    tasks_in_flight: int | None = 0  # None: nothing is cut into tasks
    workers: int = 0
    ghost_bytes: int = 0  # of the last epoch's training
    eval_ghost_bytes: int = 0  # of all evaluations so far, by epoch
    usd: float = 0.0
    budget_usd: float = 0.0
    notes: tuple[str, ...] = ()  # on the graph: what of its source was taken for what, and what was left out
