"""Detects from the loss alone that training has collapsed, and decides what to do: GNNPipe's known failure (its
authors' own log has .143 against .677 for GCNII on ogbn-arxiv). Pure; ranks that see equal losses decide alike.

Losses are judged by the means of windows of ``WINDOW`` epochs. ``constant`` is the loss of the best prediction that
ignores the vertex: for classes, the entropy of their shares among training vertices. Training has collapsed when

1. a loss is not finite, at once; or
2. a window's mean is above constant - (constant - best) / 2, best being the least mean of any window, where best was at
   most (1 - LEARNT) constant: half of what had been learnt is lost; or
3. ``PATIENCE`` windows have gone by since the start, or since the last recovery, and best is still above
   (1 - LEARNT) constant: nothing has been learnt.

Training continues from the weights with which the best window began, with less staleness: first with a history that is
refreshed in every epoch; then, each time, with half as many chunks. With one chunk nothing is stale, and nothing more
can be done.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

WINDOW = 20
PATIENCE = 5
LEARNT = 0.02


class Setting(NamedTuple):
    """The settings on which the staleness of rows depends."""

    freeze: int
    chunks: int

    def milder(self) -> Setting | None:
        """A setting with less staleness; None: nothing is stale any more."""
        if self.chunks == 1:
            return None
        return self._replace(freeze=1) if self.freeze > 1 else self._replace(chunks=(self.chunks + 1) // 2)


class Verdict(NamedTuple):
    best: bool  # a window has ended that is better than all before
    ended: bool  # a window has ended
    collapsed: str  # why; "": it has not


class Watch:
    def __init__(self, constant: float):
        self.constant = constant
        # All that changes:
        self.best = math.inf
        self.windows = 0  # that have ended since the start or the last recovery
        self.losses: list[float] = []  # of this window

    def saw(self, loss: float) -> Verdict:
        """Judges the loss; called after every epoch."""
        if not math.isfinite(loss):
            return Verdict(best=False, ended=False, collapsed=f"the loss is {loss}")
        self.losses.append(loss)
        if len(self.losses) < WINDOW:
            return Verdict(best=False, ended=False, collapsed="")
        mean, before = sum(self.losses) / WINDOW, self.best
        self.losses, self.windows = [], self.windows + 1
        learnt = before <= (1 - LEARNT) * self.constant
        if learnt and mean > self.constant - (self.constant - before) / 2:
            return Verdict(best=False, ended=True, collapsed=f"the loss is {mean:.4g} after {before:.4g}")
        self.best = min(mean, before)
        if self.windows >= PATIENCE and self.best > (1 - LEARNT) * self.constant:
            return Verdict(
                best=False, ended=True, collapsed=f"the loss is {self.best:.4g}, that of a constant {self.constant:.4g}"
            )
        return Verdict(best=mean < before, ended=True, collapsed="")

    def recovered(self) -> None:
        """Starts over, as training does from good weights."""
        self.losses, self.windows = [], 0

    def numbers(self) -> list[float]:
        """All mutable state, for a checkpoint."""
        return [self.best, float(self.windows), *self.losses]

    def resume(self, numbers: Sequence[float]) -> None:
        self.best, self.windows, self.losses = numbers[0], int(numbers[1]), list(numbers[2:])


def constant_loss(
    target: str, count: float, sums: Sequence[float], squares: Sequence[float], smoothing: float = 0.0
) -> float:
    """The least loss of a prediction that is the same for every vertex.

    sums, squares: [C], over ``count`` training vertices, of the labels, or of 0 and 1 for classes and sets of classes.
    smoothing: of classes' labels.
    """
    if not count:
        return 0.0
    shares = [total / count for total in sums]
    if target == "numbers":
        spreads = [square / count - mean * mean for square, mean in zip(squares, shares, strict=True)]
        return sum(spreads) / len(spreads)
    if target == "labels":
        return sum(_entropy([share, 1 - share]) for share in shares) / len(shares)
    return _entropy([(1 - smoothing) * share + smoothing / len(shares) for share in shares])


def _entropy(shares: Sequence[float]) -> float:
    return -sum(share * math.log(share) for share in shares if share > 0)
