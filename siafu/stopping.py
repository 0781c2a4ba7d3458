"""Early stopping: finds the best evaluation, and counts evaluations since the last improvement (``train.stop_on``).
Pure.

    stop_on   best, so far                                            starts patience again
    score     the highest score, the earlier of equals                the best
    loss      the lowest loss, the earlier of equals                  the best
    both      as high a score and as low a loss as any before         as high a score or as low a loss as any before

"both" is Veličković et al.'s rule, "loss" that of Kipf & Welling's paper and of Chen et al.
(``run_coordinator.presets``).
"""

from __future__ import annotations

import math
from typing import Any


class Stopping:
    def __init__(self, stop_on: str):
        self.stop_on = stop_on
        # All mutable state:
        self.waited = 0  # evaluations since one that starts patience again
        self._begun = False
        self._score, self._loss = -math.inf, math.inf  # the best of either

    def state(self) -> list[Any]:
        """Returns the mutable state in JSON's types, for ``restore``."""
        return [
            self.waited,
            self._begun,
            *(value if math.isfinite(value) else None for value in (self._score, self._loss)),
        ]

    def restore(self, state: list[Any]) -> None:
        self.waited, self._begun = int(state[0]), bool(state[1])
        self._score = -math.inf if state[2] is None else float(state[2])
        self._loss = math.inf if state[3] is None else float(state[3])

    def judge(self, score: float, loss: float) -> bool:
        """Takes an evaluation of validation vertices, and returns whether it is the best so far. The first one is; a
        later one with NaN is not."""
        if self.stop_on == "both":
            reached = score >= self._score, loss <= self._loss
            best, counts = all(reached), any(reached)
        else:
            best = counts = score > self._score if self.stop_on == "score" else loss < self._loss
        best, counts = best or not self._begun, counts or not self._begun
        self._begun = True
        self._score = score if score > self._score else self._score
        self._loss = loss if loss < self._loss else self._loss
        self.waited = 0 if counts else self.waited + 1
        return best
