"""Published rows of one slot: those of a partition's own vertices and of its ghosts, and each row's age.

Asynchronous gathers read rows that have not been replaced in this epoch yet: they are those of an epoch before, as in
Dorylus (docs/adr/0003 has what else was tried).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from siafu import kernels, ops
from siafu.kernels import Table
from siafu.ops import BFLOAT16
from siafu.sparse import Array

Index = slice | Array


class Store(Protocol):
    """Memory for published rows, laid out as their operator gathers them. Several threads
    may use different rows at once."""

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        """Columns and dtype of rows on their way to a peer."""

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        """Rows as a model gives them, each times its scale. ``columns``: of these rows, in one array or in several
        side by side, as far as the store keeps them apart: they need not be joined first."""

    def read(self, place: Index) -> Array:
        """Rows as they were written, in float32 or float64: a copy."""

    def cut(self, place: Index) -> Array:
        """Rows as they travel: as they are stored, so that a peer reads the very same."""

    def paste(self, place: Index, rows: Array) -> None:
        """Rows that a peer has cut."""


class TableStore:
    """Rows that are gathered by a weighted sum. ``threads``: that one write may use; ``edges``: of ``Table``."""

    def __init__(self, num_rows: int, width: int, storage: str, threads: int = 1, edges: float = 0.0):
        self.table, self.storage, self.threads = Table(num_rows, width, storage, edges=edges), storage, threads

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        return self.table.width, BFLOAT16 if self.storage == "bfloat16" else np.dtype(self.storage)

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        (rows,) = columns
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

    def __init__(self, store: Store, places: dict[int, Index], scale: Array | None = None):
        self.store, self.places = store, places
        self.scale = scale  # [inner + ghosts]
        # All mutable state:
        self.epoch_of = np.full(max(places) + 1, -1, np.int64)  # by interval: the epoch of its rows
        self._readers = np.zeros(len(self.epoch_of), np.int64)  # by interval: computations that read its rows now
        self._writers = np.zeros(len(self.epoch_of), np.int64)  # and that write them

    @property
    def rows(self) -> Array:
        """What is in the store, in float32 or float64: a copy."""
        return self.store.read(slice(None))

    def write(self, interval: int, epoch: int, *columns: Array) -> None:
        """Puts an interval's rows in, in the order of its places; ``columns``: as ``Store.write`` has them."""
        place = self.places[interval]
        self.store.write(place, *columns, scale=None if self.scale is None else self.scale[place])
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def paste(self, interval: int, epoch: int, rows: Array) -> None:
        """Puts rows in that a peer has cut for us: they are scaled already."""
        self.store.paste(self.places[interval], rows)
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def may_read(self, intervals: Array) -> bool:
        """Whether no computation writes rows of these intervals."""
        return not self._writers[intervals].any()

    def may_write(self, interval: int) -> bool:
        """Whether no computation reads rows of the interval."""
        return not self._readers[interval]

    def hold_read(self, intervals: Array, by: Literal[1, -1]) -> None:
        """A computation reads rows of these intervals from now on; -1: no more."""
        self._readers[intervals] += by

    def hold_write(self, interval: int, by: Literal[1, -1]) -> None:
        """A computation writes rows of the interval from now on; -1: no more."""
        self._writers[interval] += by

    def oldest(self, intervals: Array, epoch: int, first: int) -> int:
        """By how many epochs the oldest rows of these intervals trail ``epoch``; 0 if none does. Rows that nobody has
        written yet are of the epoch before ``first``, which is beyond 0 in a run that goes on."""
        return max(0, epoch - max(int(self.epoch_of[intervals].min(initial=epoch)), first - 1))
