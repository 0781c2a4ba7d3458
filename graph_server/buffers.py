"""Published rows: what a partition can read of one slot, its own vertices' rows and the ghosts', and how old they are.

Asynchronous gathers read rows that their interval has not refreshed in this epoch. ``StalePolicy`` says what stands in
such rows when an epoch turns (the mends of PipeGCN §3.3 and GNNPipe §4; MEASURED: docs/adr/0003):

    use      the rows of the epoch before (Dorylus)
    drop     zeros, and ``rescale`` for the edges that are missing (GNNPipe omits historical gradients)
    smooth   a running mean, ŝ = γ ŝ + (1 - γ) s (PipeGCN's smoothing)
    freeze   the rows as they were at the last multiple of ``freeze_epochs`` (GNNPipe's fixed history)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from siafu.sparse import Array

Index = slice | Array


@dataclass(frozen=True)
class StalePolicy:
    kind: Literal["use", "drop", "smooth", "freeze"] = "use"
    smoothing: float = 0.5
    freeze_epochs: int = 23


class PublishedSlot:
    """The rows of one slot, ``[inner + ghosts, width]``. Rows of an interval stand where ``places[interval]`` says."""

    def __init__(self, width: int, num_rows: int, places: dict[int, Index], dtype: npt.DTypeLike, policy: StalePolicy):
        self.places = places
        self.policy = policy
        # All mutable state:
        self.rows: Array = np.zeros((num_rows, width), dtype)
        self.epoch_of = np.full(max(places, default=-1) + 1, -1, np.int64)  # by interval: the epoch of its rows
        self._turned = -1
        self._history: Array | None = np.zeros_like(self.rows) if policy.kind in ("smooth", "freeze") else None

    def write(self, interval: int, epoch: int, values: Array) -> None:
        """Puts an interval's rows in; ``values`` in the order of its places."""
        self.turn(epoch)
        place = self.places[interval]
        self.rows[place] = values
        if self._history is not None and self.policy.kind == "smooth":
            known = self.policy.smoothing if self.epoch_of[interval] >= 0 else 0.0
            self._history[place] = known * self._history[place] + (1 - known) * values
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def turn(self, epoch: int) -> None:
        """The first that is written or read in an epoch: every row that is there becomes a stale one."""
        if epoch <= self._turned:
            return
        self._turned = epoch
        stale = [place for interval, place in self.places.items() if self.epoch_of[interval] < epoch]
        if self.policy.kind == "drop":
            for place in stale:
                self.rows[place] = 0
        elif self._history is not None:
            for place in stale:
                if self.policy.kind == "freeze" and epoch % self.policy.freeze_epochs == 0:
                    self._history[place] = self.rows[place]
                elif epoch > 0 and (self.policy.kind == "smooth" or epoch >= self.policy.freeze_epochs):
                    self.rows[place] = self._history[place]

    def oldest(self, intervals: Array, epoch: int) -> int:
        """By how many epochs the oldest rows of these intervals trail ``epoch``; 0 if none does."""
        return max(0, epoch - int(self.epoch_of[intervals].min(initial=epoch)))
