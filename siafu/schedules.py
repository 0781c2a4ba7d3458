"""Learning rates as pure functions of the epoch.

To add one: a function and its line in ``SCHEDULES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from siafu.config import Train


def constant(epoch: int, train: Train) -> float:
    return train.lr


def cosine(epoch: int, train: Train) -> float:
    """From lr to 0 over the run: lr (1 + cos(π epoch / epochs)) / 2 (Loshchilov & Hutter, ICLR 2017, without restarts)."""
    return train.lr * (1 + math.cos(math.pi * epoch / train.epochs)) / 2


def step(epoch: int, train: Train) -> float:
    """Multiplied by ``step_factor`` every ``step_epochs`` epochs."""
    return train.lr * train.step_factor ** (epoch // train.step_epochs)


SCHEDULES: dict[str, Callable[[int, Train], float]] = {"constant": constant, "cosine": cosine, "step": step}


def learning_rate(epoch: int, train: Train) -> float:
    """The rate of the step after ``epoch``, before it is scaled down for stale rows."""
    return SCHEDULES[train.schedule](epoch, train)
