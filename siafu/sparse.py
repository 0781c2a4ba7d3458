"""Rows of a wide, mostly empty matrix (bag-of-words features) that stay sparse from the source file to the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


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
        """Rows ``start:stop`` (step 1), sharing memory with this matrix but for ``indptr``."""
        start, stop, _ = rows.indices(len(self))
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        indptr = self.indptr[start : stop + 1] - first
        return SparseRows(indptr, self.indices[first:last], self.data[first:last], self.width)

    def astype(self, dtype: npt.DTypeLike) -> SparseRows:
        return SparseRows(self.indptr, self.indices, self.data.astype(dtype, copy=False), self.width)

    def row_of_entry(self) -> Array:
        """Row number of every stored entry, int64 [nnz]."""
        return np.repeat(np.arange(len(self)), np.diff(self.indptr))

    def dense(self) -> Array:
        """The same matrix with its zeros, ``[num_rows, width]``."""
        out = np.zeros(self.shape, self.data.dtype)
        out[self.row_of_entry(), self.indices] = self.data
        return out


Rows = Array | SparseRows
