"""Dropout of attention coefficients, as the kernels take it: whose edges, and which mask."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from siafu import ops
from siafu.sparse import Array


@dataclass(frozen=True, eq=False)
class EdgeDropout:
    """The masks of one (seed, epoch, layer), for edges between a server's inner vertices and its ghosts.

    The same for in-edges and for out-edges but for ``ghosts``, which are those of the direction that is read.

    Raises: ValueError for a share outside 0..1 or ids that are not int64.
    """

    p: float  # share of the coefficients that become zero
    key: int  # siafu.ops.edge_key(seed, epoch, layer)
    inner: Array  # global ids of the inner vertices, int64 [n]
    ghosts: Array = field(default_factory=lambda: np.zeros(0, np.int64))  # of the columns from n on, int64 [g]

    def __post_init__(self) -> None:
        if not 0 <= self.p < 1:
            raise ValueError(f"attention dropout {self.p}, must be in 0..1")
        for ids in (self.inner, self.ghosts):
            if ids.dtype != np.int64 or ids.ndim != 1 or not ids.flags.c_contiguous:
                raise ValueError(f"ids {ids.dtype} {ids.shape}, must be contiguous int64 [n]")

    def mask(self, rows: Array, columns: Array, heads: int, *, forward: bool, dtype: np.dtype[Any]) -> Array:
        """[m, heads] of edges between rows (inner vertices) and columns; ``forward``: rows are the targets."""
        here, there = self.inner[rows], self._ids(columns)
        ends = (there, here) if forward else (here, there)
        return ops.edge_dropout(*ends, heads, self.p, self.key, dtype)

    def _ids(self, columns: Array) -> Array:
        n = len(self.inner)
        if not len(self.ghosts):
            return np.asarray(self.inner[columns])
        ids = self.inner[np.minimum(columns, n - 1)] if n else np.zeros(len(columns), np.int64)
        ghosts = columns >= n
        ids[ghosts] = self.ghosts[columns[ghosts] - n]
        return np.asarray(ids)
