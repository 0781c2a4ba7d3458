"""Published rows of one slot: those of a partition's own vertices and of its ghosts, and the age of each interval's.

An asynchronous gather reads rows of an earlier epoch where those of this epoch have not arrived yet, as in Dorylus
(docs/adr/0003 compares alternatives).
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
        """The number of columns and the dtype of rows sent to a peer."""

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        """Writes a model's rows, each times its scale. ``columns``: the rows as one array, or as several arrays side by
        side where the store keeps those columns apart, so that they need not be joined first."""

    def read(self, place: Index) -> Array:
        """Returns a copy of the rows as they were written, in float32 or float64."""

    def cut(self, place: Index) -> Array:
        """Returns the rows to send to a peer, in the stored precision, so that the peer reads the same bits."""

    def paste(self, place: Index, rows: Array) -> None:
        """Writes rows that a peer has ``cut``."""


class TableStore:
    """Rows that are gathered by a weighted sum. ``threads``: for one write; ``edges``: passed to ``Table``."""

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
    """The rows of one slot, of inner vertices and ghosts. ``places[interval]``: the positions of an interval's rows.

    Rows are stored ready for Gather: each times its factor of ``scale`` (Gather's s), in the operator's store.

    Rows must not be read while they are replaced (docs/adr/0033): a computation asks ``may_read`` or ``may_write``
    before it begins, and calls ``hold_read`` or ``hold_write`` at its begin and its end.
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
        """A copy of all rows in the store, in float32 or float64."""
        return self.store.read(slice(None))

    def write(self, interval: int, epoch: int, *columns: Array) -> None:
        """Writes an interval's rows, in the order of its places. ``columns``: as in ``Store.write``."""
        place = self.places[interval]
        self.store.write(place, *columns, scale=None if self.scale is None else self.scale[place])
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def paste(self, interval: int, epoch: int, rows: Array) -> None:
        """Writes rows that a peer has cut for us, and scaled."""
        self.store.paste(self.places[interval], rows)
        self.epoch_of[interval] = max(epoch, self.epoch_of[interval])

    def may_read(self, intervals: Array) -> bool:
        """Whether no computation writes rows of these intervals."""
        return not self._writers[intervals].any()

    def may_write(self, interval: int) -> bool:
        """Whether no computation reads rows of the interval."""
        return not self._readers[interval]

    def hold_read(self, intervals: Array, by: Literal[1, -1]) -> None:
        """Records that a computation begins (1) or ends (-1) to read rows of these intervals."""
        self._readers[intervals] += by

    def hold_write(self, interval: int, by: Literal[1, -1]) -> None:
        """Records that a computation begins (1) or ends (-1) to write rows of the interval."""
        self._writers[interval] += by

    def oldest(self, intervals: Array, epoch: int, first: int) -> int:
        """Returns how many epochs the oldest rows of these intervals are behind ``epoch``; 0 if none is. Rows never
        written count as of the epoch before ``first``, the run's first epoch: above 0 in a resumed run."""
        return max(0, epoch - max(int(self.epoch_of[intervals].min(initial=epoch)), first - 1))
