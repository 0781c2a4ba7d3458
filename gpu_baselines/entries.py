"""A sparse matrix on a GPU, by rows and, for gradients, by columns: how bags of words are multiplied there."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from siafu.sparse import SparseRows

#: Entries that 32 bits count.
MOST_INT32 = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Structure:
    """Positions of the m entries of a matrix [n, F]: copied once, whatever dropout drops. All int64."""

    shape: tuple[int, int]
    row: Tensor  # [m]
    column: Tensor  # [m]
    first: Tensor  # [n + 1], of each row's entries

    @cached_property
    def by_column(self) -> Tensor:
        """The entries in the order of the transposed matrix: [m]."""
        return torch.argsort(self.column, stable=True)

    @cached_property
    def first_of_column(self) -> Tensor:
        """The first entry of each column, in the order of ``by_column``: [F + 1]."""
        counts = torch.bincount(self.column, minlength=self.shape[1])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@dataclass(frozen=True, eq=False)
class Entries:
    structure: Structure
    value: Tensor  # [m]

    @classmethod
    def of(cls, rows: SparseRows, device: torch.device) -> Entries:
        def there(host: Any, dtype: Any) -> Tensor:
            return torch.from_numpy(np.array(host, dtype)).to(device)

        row, column = there(rows.row_of_entry(), np.int64), there(rows.indices, np.int64)
        return cls(Structure(rows.shape, row, column, there(rows.indptr, np.int64)), there(rows.data, rows.dtype))

    @property
    def shape(self) -> tuple[int, int]:
        return self.structure.shape

    def times(self, factor: Tensor) -> Entries:
        """Entries, each multiplied by its factor [m]."""
        return replace(self, value=self.value * factor)

    def product(self, W: Tensor) -> Tensor:
        """X W, [n, G]."""
        where = self.structure
        return csr_matrix(where.first, where.column, self.value, where.shape) @ W

    def product_transposed(self, D: Tensor) -> Tensor:
        """Xᵀ D, [F, G]."""
        where, (n, width) = self.structure, self.structure.shape
        order = where.by_column
        return csr_matrix(where.first_of_column, where.row[order], self.value[order], (width, n)) @ D

    def dense(self) -> Tensor:
        out = self.value.new_zeros(self.shape)
        out[self.structure.row, self.structure.column] = self.value
        return out


def csr_matrix(first: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """torch's sparse matrix [n, F] of entries by row; ``first`` [n + 1], ``column`` and ``value`` [m]. Indices are
    32-bit if possible: a product reads all of them."""
    kind = torch.int32 if value.numel() <= MOST_INT32 else torch.int64
    with warnings.catch_warnings():  # once in a process each: that CSR is a beta feature, that nothing is checked
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(first.to(kind), column.to(kind), value, shape, check_invariants=False)
