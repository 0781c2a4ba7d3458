"""Rows that graph servers have written, each of its own partition in local order, read in the order of vertices."""

from __future__ import annotations

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

    def __init__(self, folder: Path, shards: ShardSet):
        self._parts = [_part(folder, shards, p) for p in range(shards.manifest.num_partitions)]
        self.num_rows = shards.manifest.num_vertices
        self.width = int(self._parts[0].rows.shape[1])

    def __getitem__(self, rows: slice) -> Array:
        """Rows ``start:stop`` (step 1)."""
        start, stop, _ = rows.indices(self.num_rows)
        found = np.empty((stop - start, self.width), self._parts[0].rows.dtype)
        for part in self._parts:
            first, last = np.searchsorted(part.vertices, [start, stop])
            found[part.vertices[first:last] - start] = part.rows[part.place[first:last]]
        return found


def _part(folder: Path, shards: ShardSet, p: int) -> _Part:
    file = folder / f"{folder_of(p)}.npy"
    vertices = np.asarray(shards.partition(p).vertices)
    place = np.argsort(vertices)
    try:
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: graph server {p} has not written its rows: {error}") from None
    return _Part(rows, vertices[place], place)
