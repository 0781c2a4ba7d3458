"""The number of epochs that a mode needs. No model of a machine predicts it: for ``pipe`` it is given, or a finished
run's; other modes need a multiple of it, as Dorylus reports.

1. ``no-pipe`` needs as many epochs as ``pipe``: it computes the same.
2. ``async`` reads stale rows: Dorylus (OSDI'21, section 7.3) needed 1.00, 1.09 and 1.14 times the epochs of ``pipe`` at
   s = 0 on its three graphs, 1.07, 1.57 and 1.58 times at s = 1. The means are assumed; for s > 1, that of s = 1.
3. A finished run of a mode sets that mode's number, and by these ratios the numbers of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

from cost_planner.value import trained
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.progress import written

#: Staleness -> epochs to the accuracy of ``pipe`` over those of ``pipe``: Reddit-small, Amazon, Reddit-large.
PAPER = {0: (1.00, 1.09, 1.14), 1: (1.07, 1.57, 1.58)}

Kind = tuple[str, int]  # mode and staleness


def ratio(mode: str, staleness: int) -> float:
    return mean(PAPER[min(staleness, max(PAPER))]) if mode == "async" else 1.0


@dataclass(frozen=True)
class Epochs:
    """Epochs that each mode needs. ``of_pipe``: those of ``pipe``."""

    of_pipe: float
    measured: dict[Kind, float] = field(default_factory=dict)
    source: str = "as told (--epochs)"

    def of(self, mode: str, staleness: int) -> int:
        found = self.measured.get((mode, staleness), self.of_pipe * ratio(mode, staleness))
        return max(1, round(found))


def of_runs(runs: Sequence[Path], target: float | None) -> Epochs:
    """Epochs of finished runs of this graph up to a validation score; None: the best score that all of them reach.
    ConfigError if one does not reach it, or is a baseline's."""
    found = [trained.read(run) for run in runs]
    if target is None:
        target = trained.reached_by_all(found, "val")
    needed: dict[Kind, list[float]] = {}
    for one in found:
        if isinstance(one.config, BaselineConfig):
            raise ConfigError(f"{one.where}: a baseline's epochs say nothing of siafu's modes")
        there = one.reaches(target, "val")
        if there is None:
            raise ConfigError(f"{one.where}: never reaches {target:g}, its best is {written(one.best('val'))} (val)")
        needed.setdefault(_kind(one.config), []).append(there.epoch)
    measured = {kind: median(epochs) for kind, epochs in needed.items()}
    of_pipe = median(epochs / ratio(*kind) for kind, epochs in measured.items())
    told = ", ".join(f"{mode} s={s} {epochs:g}" for (mode, s), epochs in measured.items())
    return Epochs(
        measured.get(("pipe", 0), of_pipe), measured, f"as {len(found)} run(s) needed to {target:.4g}: {told}"
    )


def _kind(config: Config) -> Kind:
    return config.train.mode, config.train.staleness if config.train.mode == "async" else 0
