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
    """Falls from lr to 0 over the run: lr (1 + cos(π epoch / epochs)) / 2 (Loshchilov & Hutter, ICLR 2017, without
    restarts)."""
    return train.lr * (1 + _cos(math.pi * epoch / train.epochs)) / 2


def step(epoch: int, train: Train) -> float:
    """Multiplies lr by ``step_factor`` every ``step_epochs`` epochs."""
    return train.lr * power(train.step_factor, epoch // train.step_epochs)


def power(base: float, exponent: int) -> float:
    """Returns ``base`` to an integer power >= 0, by squaring: the C library's last bit differs between processors."""
    found = 1.0
    while exponent:
        if exponent & 1:
            found *= base
        base, exponent = base * base, exponent >> 1
    return found


def _cos(x: float) -> float:
    """Returns cos x for 0 <= x <= π, as -sin(x - π/2) by Taylor's series, to equal bits on all processors. The error is
    at most 2e-16."""
    y = x - math.pi / 2
    term = total = -y
    for n in range(2, 26, 2):
        term *= -y * y / (n * (n + 1))
        total += term
    return total


SCHEDULES: dict[str, Callable[[int, Train], float]] = {"constant": constant, "cosine": cosine, "step": step}


def learning_rate(epoch: int, train: Train) -> float:
    """Returns the learning rate of the step after ``epoch``."""
    return SCHEDULES[train.schedule](epoch, train)
