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

from siafu.kernels import Table
from siafu.sparse import Array

Index = slice | Array


@dataclass(frozen=True)
class StalePolicy:
    kind: Literal["use", "drop", "smooth", "freeze"] = "use"
    smoothing: float = 0.5
    freeze_epochs: int = 23


class PublishedSlot:
    """The rows of one slot, ``[inner + ghosts, width]``. Rows of an interval stand where ``places[interval]`` says.

    They are kept as Gather wants them: each times its factor of ``scale`` (Gather's s), in ``storage``.
    """

    def __init__(
        self,
        width: int,
        num_rows: int,
        places: dict[int, Index],
        storage: str,
        policy: StalePolicy,
        scale: Array | None = None,
    ):
        self.places = places
        self.policy = policy
        self.scale = scale  # [inner + ghosts]
        # All mutable state:
        self.table = Table(num_rows, width, storage)
        self.epoch_of = np.full(max(places, default=-1) + 1, -1, np.int64)  # by interval: the epoch of its rows
        self._turned = -1
        keeps = policy.kind in ("smooth", "freeze")
        self._history: Array | None = np.zeros_like(self.rows) if keeps else None

    @property
    def rows(self) -> Array:
        """What is in the table, in float32 or float64: a copy."""
        return self.table.read(slice(None))

    def write(self, interval: int, epoch: int, values: Array, *, scaled: bool = False) -> None:
        """Puts an interval's rows in; ``values`` in the order of its places. ``scaled``: a peer has done that."""
        self.turn(epoch)
        place = self.places[interval]
        self.table.write(place, values, None if scaled or self.scale is None else self.scale[place])
        if self._history is not None and self.policy.kind == "smooth":
            known = self.policy.smoothing if self.epoch_of[interval] >= 0 else 0.0
            self._history[place] = known * self._history[place] + (1 - known) * self.table.read(place)
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def turn(self, epoch: int) -> None:
        """The first that is written or read in an epoch: every row that is there becomes a stale one."""
        if epoch <= self._turned:
            return
        self._turned = epoch
        if self.policy.kind == "use":
            return
        stale = [place for interval, place in self.places.items() if self.epoch_of[interval] < epoch]
        if self.policy.kind == "drop":
            for place in stale:
                self.table.write(place, np.zeros_like(self.table.read(place)))
        elif self._history is not None:
            for place in stale:
                if self.policy.kind == "freeze" and epoch % self.policy.freeze_epochs == 0:
                    self._history[place] = self.table.read(place)
                elif epoch > 0 and (self.policy.kind == "smooth" or epoch >= self.policy.freeze_epochs):
                    self.table.write(place, self._history[place])

    def oldest(self, intervals: Array, epoch: int) -> int:
        """By how many epochs the oldest rows of these intervals trail ``epoch``; 0 if none does."""
        return max(0, epoch - int(self.epoch_of[intervals].min(initial=epoch)))
