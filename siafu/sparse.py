"""Rows that are no dense matrix: sparse ones (bag-of-words features), and rows with a value per edge.

Like dense rows, all of these can be cut between any two rows: a tensor task may be sent in parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

#: Bytes of a column index, int32 in all matrices here.
INDEX_BYTES = 4

_TOGETHER = 1 << 20  # entries made dense at a time
_NUMBERED = 1 << 16


@dataclass(frozen=True, eq=False)
class Edges:
    """A partition's edges, CSR over its ``n`` inner vertices. A column below ``n`` is an inner vertex; others are a
    ghost's number plus ``n``."""

    indptr: Array  # int64 [n + 1]
    indices: Array  # int32 [m], sorted in each row
    weight: Array | None  # float32 [m]; None: every edge weighs 1
    type: Array | None = None  # uint16 [m], not falling among equal columns of a row; None: one type

    @property
    def per_row(self) -> float:
        """The mean number of edges per row."""
        return len(self.indices) / max(1, len(self.indptr) - 1)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """A CSR matrix ``[num_rows, width]``; column indices are sorted within each row and unique."""

    indptr: Array  # int64 [num_rows + 1], starts at 0
    indices: Array  # int32 [nnz]
    data: Array  # [nnz]
    width: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.indptr) - 1, self.width

    @property
    def nbytes(self) -> int:
        return int(self.indptr.nbytes + self.indices.nbytes + self.data.nbytes)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> SparseRows:
        """Returns rows ``start:stop`` (step 1), which share memory with this matrix except ``indptr``."""
        start, stop, _ = rows.indices(len(self))
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = self.indptr[start : stop + 1] - first
        return SparseRows(indptr, self.indices[first:last], self.data[first:last], self.width)

    def astype(self, dtype: npt.DTypeLike) -> SparseRows:
        return SparseRows(self.indptr, self.indices, self.data.astype(dtype, copy=False), self.width)

    def row_of_entry(self) -> Array:
        """Returns the row number of every stored entry, int64 [nnz]."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def in_order(self) -> SparseRows:
        """Returns the same matrix with ascending columns in each row, and the values of repeated columns summed, as
        SciPy interprets them. Returns the matrix itself if it is so already, or if its pointers are not valid."""
        entries, steps = len(self.indices), np.diff(self.indptr)
        if not len(self.indptr) or self.indptr[0] or (steps < 0).any() or self.indptr[-1] != entries:
            return self
        rows = self.row_of_entry()
        if len(self.data) != entries or bool(((np.diff(rows) > 0) | (np.diff(self.indices) > 0)).all()):
            return self
        order = np.lexsort((self.indices, rows))
        rows, indices = rows[order], self.indices[order]
        first = np.flatnonzero(np.append(True, (np.diff(rows) > 0) | (np.diff(indices) > 0)))
        indptr = np.searchsorted(rows[first], np.arange(len(self) + 1))
        return SparseRows(indptr.astype(np.int64), indices[first], np.add.reduceat(self.data[order], first), self.width)

    def dense(self) -> Array:
        """Returns the matrix as a dense array ``[num_rows, width]``."""
        out = np.zeros(self.shape, self.data.dtype)
        # Some rows at a time: the row number of every entry takes as much memory as the entries.
        for start, stop in blocks(self.indptr, _TOGETHER):
            some = self[start:stop]
            out[start:stop][some.row_of_entry(), some.indices] = some.data
        return out


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Values of the edges of each row (a vertex), the input and output of ApplyEdge: row r has
    ``indptr[r]:indptr[r + 1]``."""

    indptr: Array  # int64 [num_rows + 1], starts at 0
    values: Array  # [num_edges, width]; with ``index`` [k, width]
    index: Array | None = None  # int32 [num_edges]: which of the values an edge has; None: each has its own

    @property
    def num_edges(self) -> int:
        return int(self.indptr[-1])

    @property
    def shape(self) -> tuple[int, int]:
        """(Number of rows, which are vertices, not edges; number of values per edge)."""
        return len(self.indptr) - 1, int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        return int(self.indptr.nbytes + self.values.nbytes + (0 if self.index is None else self.index.nbytes))

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.values.dtype

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, rows: slice) -> EdgeRows:
        """Returns rows ``start:stop`` (step 1), which share memory with these except ``indptr``."""
        start, stop, _ = rows.indices(len(self))
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = self.indptr[start : stop + 1] - first
        if self.index is None:
            return EdgeRows(indptr, self.values[first:last])
        return EdgeRows(indptr, self.values, self.index[first:last])

    def astype(self, dtype: npt.DTypeLike) -> EdgeRows:
        return EdgeRows(self.indptr, self.values.astype(dtype, copy=False), self.index)

    def each(self) -> Array:
        """Returns the values of every edge, ``[num_edges, width]``."""
        return self.values if self.index is None else self.values[self.index]

    def compact(self) -> EdgeRows:
        """Returns the same rows without values that no edge uses."""
        if self.index is None:
            return self
        chosen, index = numbered(self.index, len(self.values))
        return EdgeRows(self.indptr, self.values[chosen], index)


def numbered(index: Array, size: int) -> tuple[Array, Array]:
    """Returns the distinct numbers in ``index``, which are below ``size``, int64 ascending, and the place of each entry
    of ``index`` among them, int32."""
    # NumPy converts an index to int64, which takes longer than indexing: so convert once, in parts that fit a cache.
    parts = [slice(first, first + _NUMBERED) for first in range(0, len(index), _NUMBERED)]
    known, place, found = np.zeros(size, np.bool_), np.empty(size, np.int32), np.empty(len(index), np.int32)
    for part in parts:
        known[index[part].astype(np.intp)] = True
    chosen = np.flatnonzero(known)
    place[chosen] = np.arange(len(chosen), dtype=np.int32)
    for part in parts:
        np.take(place, index[part].astype(np.intp), out=found[part], mode="clip")  # all are inside: skip the check
    return chosen, found


def blocks(indptr: Array, entries: int) -> list[tuple[int, int]]:
    """Returns consecutive ranges of whole rows, at least one; each has about ``entries`` entries, at most one row
    more."""
    num_rows = len(indptr) - 1
    cuts = np.searchsorted(indptr, np.arange(0, int(indptr[-1]), entries))
    return list(itertools.pairwise(np.unique([0, *cuts, num_rows]).tolist())) or [(0, num_rows)]


Rows = Array | SparseRows
TaskRows = Rows | EdgeRows  # rows sent with a tensor task


def stack(parts: Sequence[Rows]) -> Rows:
    """Stacks row blocks one under the other; all must be dense, or all sparse."""
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    assert len(sparse) == len(parts), "dense and sparse rows mixed"
    counts = np.concatenate([np.diff(part.indptr) for part in sparse])
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    indices = np.concatenate([part.indices for part in sparse])
    return SparseRows(indptr, indices, np.concatenate([part.data for part in sparse]), sparse[0].width)
