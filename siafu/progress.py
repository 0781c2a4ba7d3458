"""What a user sees while a run trains: a live panel on a terminal, a plain line per evaluation elsewhere. On stderr."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

#: Plain lines are at least so far apart, but for the last.
PLAIN_EVERY_S = 5.0


class Status(Protocol):
    """Where a run stands (``bench.coordinator.Status``)."""

    phase: str
    epoch: int
    loss: float
    evaluation: dict[str, dict[str, float]]
    epoch_s: float
    tasks_in_flight: int
    workers: int
    ghost_bytes: int


class Display:
    """Use in a ``with`` block; call it with every status."""

    def __init__(self, epochs: int, *, quiet: bool = False):
        self._console = Console(stderr=True, quiet=quiet)
        self._epochs = epochs
        self._live = self._console.is_terminal and not quiet
        self._progress = Progress(
            TextColumn("[bold]{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(),
            TextColumn("{task.fields[line]}"), TimeElapsedColumn(), TextColumn("ETA"), TimeRemainingColumn(),
            console=self._console, transient=True, disable=not self._live,
        )  # fmt: skip
        self._task = self._progress.add_task("starting", total=epochs, line="")
        # All mutable state:
        self._said = 0.0
        self._said_epoch = 0

    def __call__(self, status: Status) -> None:
        if self._live:
            self._progress.update(self._task, description=status.phase, completed=status.epoch, line=_line(status))
            return
        now = time.monotonic()
        last = status.epoch == self._epochs
        if status.epoch > self._said_epoch and (last or now - self._said >= PLAIN_EVERY_S):
            self._said, self._said_epoch = now, status.epoch
            self._console.print(f"epoch {status.epoch}/{self._epochs}  {_line(status)}", highlight=False, soft_wrap=True)

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._progress.stop()


def _line(status: Status) -> str:
    if math.isnan(status.loss):
        return ""
    parts = [f"loss {status.loss:.4f}"]
    parts += [f"{split} {status.evaluation[split]['acc']:.3f}" for split in ("train", "val", "test") if status.evaluation]
    parts += [f"{1000 * status.epoch_s:.0f} ms/epoch", f"{status.tasks_in_flight} tasks"]
    parts += [f"{status.workers} lambdas"] if status.workers else []
    parts += [f"ghosts {size(status.ghost_bytes)}/epoch"] if status.ghost_bytes else []
    return "  ".join(parts)


def size(nbytes: float) -> str:
    """1234567 -> "1.2 MB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"


def summary(result: dict[str, Any], multilabel: bool) -> list[str]:
    """The last lines of a run."""
    score = "F1-micro" if multilabel else "accuracy"
    lambdas = result["lambda"]
    lines = [
        f"trained {result['epochs']} epochs in {result['train_seconds']:.1f} s "
        f"({1000 * result['epoch_seconds_median']:.0f} ms/epoch)",
        f"test {score} {result['test_acc']:.4f} at the best epoch ({result['best_epoch']}, validation {result['val_acc']:.4f})",
    ]
    if lambdas["invocations"]:
        lines.append(
            f"Lambda: {lambdas['invocations']:.0f} invocations, {lambdas['gb_s']:.1f} GB-s billed, "
            f"{lambdas['relaunches']:.0f} relaunches, {lambdas['duplicates']:.0f} duplicates"
        )
    return [*lines, f"run directory {result['run_dir']}"]
