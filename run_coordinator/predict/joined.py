"""Reads rows of all partitions in the order of vertices: those that graph servers have written, and labels and splits
of the shards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from siafu.errors import DatasetError
from siafu.shards import ShardSet, folder_of
from siafu.sparse import Array


class _Part(NamedTuple):
    rows: Array  # [n, F], mapped
    vertices: Array  # int64 [n], ascending
    place: Array  # int64 [n], of those vertices in ``rows``


class JoinedRows:
    """``[N, F]``; only the rows of a slice are in memory."""

    def __init__(self, shards: ShardSet, rows: Callable[[int], Array]):
        """``rows``: those of a partition, [n, F]."""
        self._parts = [_part(shards, p, rows(p)) for p in range(shards.manifest.num_partitions)]
        self.num_rows = shards.manifest.num_vertices
        self.width = int(self._parts[0].rows.shape[1])

    @classmethod
    def written(cls, folder: Path, shards: ShardSet) -> JoinedRows:
        """Raises: DatasetError if a graph server has not written its rows."""
        return cls(shards, lambda p: _rows(folder, p))

    def __getitem__(self, rows: slice) -> Array:
        """Rows ``start:stop`` (step 1)."""
        start, stop, _ = rows.indices(self.num_rows)
        found = np.empty((stop - start, self.width), self._parts[0].rows.dtype)
        for part in self._parts:
            first, last = np.searchsorted(part.vertices, [start, stop])
            found[part.vertices[first:last] - start] = part.rows[part.place[first:last]]
        return found


def _part(shards: ShardSet, p: int, rows: Array) -> _Part:
    vertices = np.asarray(shards.partition(p).vertices)
    place = np.argsort(vertices)
    return _Part(rows, vertices[place], place)


def _rows(folder: Path, p: int) -> Array:
    file = folder / f"{folder_of(p)}.npy"
    try:
        found: Array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: graph server {p} has not written its rows: {error}") from None
    return found
