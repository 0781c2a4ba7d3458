"""Published rows of one slot: those of a partition's own vertices and of its ghosts, and each row's age.

Asynchronous gathers read rows that have not been replaced in this epoch yet. ``StalePolicy`` says what such rows hold
when an epoch begins (remedies of PipeGCN §3.3 and GNNPipe §4; measured in docs/adr/0003):

    use      the rows of the epoch before (Dorylus)
    drop     a row that adds nothing, and Gather's ``share`` for the edges that are missing (GNNPipe omits historical
             gradients)
    smooth   a running mean, ŝ = γ ŝ + (1 - γ) s (PipeGCN's smoothing)
    freeze   the rows as they were at the last multiple of ``freeze_epochs`` (GNNPipe's fixed history)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from siafu import kernels, ops
from siafu.kernels import Table
from siafu.ops import BFLOAT16
from siafu.sparse import Array

Index = slice | Array


@dataclass(frozen=True)
class StalePolicy:
    kind: Literal["use", "drop", "smooth", "freeze"] = "use"
    smoothing: float = 0.5
    freeze_epochs: int = 23


_USE = StalePolicy()


class Store(Protocol):
    """Memory for published rows, laid out as their operator gathers them. Several threads
    may use different rows at once."""

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        """Columns and dtype of rows on their way to a peer."""

    def write(self, place: Index, rows: Array, scale: Array | None = None) -> None:
        """Rows as a model gives them, each times its scale."""

    def read(self, place: Index) -> Array:
        """Rows as they were written, in float32 or float64: a copy."""

    def cut(self, place: Index) -> Array:
        """Rows as they travel: as they are stored, so that a peer reads the very same."""

    def paste(self, place: Index, rows: Array) -> None:
        """Rows that a peer has cut."""


class TableStore:
    """Rows that are gathered by a weighted sum. ``threads``: that one write may use."""

    def __init__(self, num_rows: int, width: int, storage: str, threads: int = 1):
        self.table, self.storage, self.threads = Table(num_rows, width, storage), storage, threads

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        return self.table.width, BFLOAT16 if self.storage == "bfloat16" else np.dtype(self.storage)

    def write(self, place: Index, rows: Array, scale: Array | None = None) -> None:
        self.table.write(place, rows, scale, threads=self.threads)

    def read(self, place: Index) -> Array:
        return self.table.read(place)

    def cut(self, place: Index) -> Array:
        rows = self.table.read(place)
        return kernels.to_bfloat16(rows) if self.storage == "bfloat16" else rows

    def paste(self, place: Index, rows: Array) -> None:
        real = np.dtype(np.float64 if self.storage == "float64" else np.float32)
        self.table.write(place, ops.real(rows, real), threads=self.threads)


class PublishedSlot:
    """The rows of one slot, of inner vertices and ghosts. Rows of an interval stand where ``places[interval]`` says.

    They are kept as Gather wants them: each times its factor of ``scale`` (Gather's s), in the operator's store.

    Nobody reads rows while they are replaced (docs/adr/0033): whoever computes with them asks ``may_read`` or
    ``may_write`` before, and says ``hold_read`` or ``hold_write`` for as long as it takes.
    """

    def __init__(
        self,
        store: Store,
        places: dict[int, Index],
        policy: StalePolicy = _USE,
        scale: Array | None = None,
        nothing: Array | float = 0.0,
    ):
        """``nothing``: a row that adds nothing to what is gathered, or the number that all its columns are."""
        self.store, self.places, self.policy, self.nothing = store, places, policy, nothing
        self.scale = scale  # [inner + ghosts]
        # All mutable state:
        self.epoch_of = np.full(max(places, default=-1) + 1, -1, np.int64)  # by interval: the epoch of its rows
        self._readers = np.zeros(len(self.epoch_of), np.int64)  # by interval: computations that read its rows now
        self._writers = np.zeros(len(self.epoch_of), np.int64)  # and that write them
        self._first = self._turned = -1
        keeps = policy.kind in ("smooth", "freeze")
        self._history: Array | None = np.zeros_like(self.rows) if keeps else None

    @property
    def rows(self) -> Array:
        """What is in the store, in float32 or float64: a copy."""
        return self.store.read(slice(None))

    def write(self, interval: int, epoch: int, values: Array) -> None:
        """Puts an interval's rows in; ``values`` in the order of its places."""
        self.turn(epoch)
        place = self.places[interval]
        self.store.write(place, values, None if self.scale is None else self.scale[place])
        self._written(interval, epoch, place)

    def paste(self, interval: int, epoch: int, rows: Array) -> None:
        """Puts rows in that a peer has cut for us: they are scaled already."""
        self.turn(epoch)
        place = self.places[interval]
        self.store.paste(place, rows)
        self._written(interval, epoch, place)

    def _written(self, interval: int, epoch: int, place: Index) -> None:
        if self._history is not None and self.policy.kind == "smooth":
            known = self.policy.smoothing if self.epoch_of[interval] >= 0 else 0.0
            self._history[place] = known * self._history[place] + (1 - known) * self.store.read(place)
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def may_read(self, intervals: Array, epoch: int) -> bool:
        """Whether no computation writes rows of these intervals, and none reads what ``turn`` would replace."""
        return not self._writers[intervals].any() and self._may_turn(epoch)

    def may_write(self, interval: int, epoch: int) -> bool:
        """Whether no computation reads rows of the interval, or what ``turn`` would replace."""
        return not self._readers[interval] and self._may_turn(epoch)

    def hold_read(self, intervals: Array, by: Literal[1, -1]) -> None:
        """A computation reads rows of these intervals from now on; -1: no more."""
        self._readers[intervals] += by

    def hold_write(self, interval: int, by: Literal[1, -1]) -> None:
        """A computation writes rows of the interval from now on; -1: no more."""
        self._writers[interval] += by

    def _may_turn(self, epoch: int) -> bool:
        still = self.policy.kind == "use" or epoch <= self._turned
        return still or not (self._readers.any() or self._writers.any())

    def turn(self, epoch: int) -> None:
        """The first that is written or read in an epoch: every row that is there becomes a stale one."""
        if epoch <= self._turned:
            return
        if self._turned < 0:
            self._first = epoch  # beyond 0 in a run that goes on
        self._turned = epoch
        if self.policy.kind == "use":
            return
        stale = [place for interval, place in self.places.items() if self.epoch_of[interval] < epoch]
        if self.policy.kind == "drop":
            for place in stale:
                rows = self.store.read(place)
                rows[:] = self.nothing
                self.store.write(place, rows)
        elif self._history is not None:
            for place in stale:
                goes_on = 0 < self._first == epoch - 1
                if self.policy.kind == "freeze" and (epoch % self.policy.freeze_epochs == 0 or goes_on):
                    self._history[place] = self.store.read(place)
                elif epoch > self._first and (self.policy.kind == "smooth" or epoch >= self.policy.freeze_epochs):
                    self.store.write(place, self._history[place])

    def oldest(self, intervals: Array, epoch: int) -> int:
        """By how many epochs the oldest rows of these intervals trail ``epoch``; 0 if none does. Rows that nobody has
        written yet are of the epoch before the first, also in a run that goes on."""
        oldest = int(self.epoch_of[intervals].min(initial=epoch))
        return max(0, epoch - (oldest if oldest >= 0 else max(oldest, self._first - 1)))
