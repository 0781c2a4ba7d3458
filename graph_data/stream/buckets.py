"""Edges as keys in files: a bucket holds the rows of neighbouring vertices, and is small enough to sort in memory.

A key is ``row * n + column`` as in ``siafu.graph.pack``, int64. Where weights have to be merged across both directions
it is ``2 * (row * n + column)``, plus one if the edge was listed the other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from siafu.graph import pack
from siafu.shards import Edges
from siafu.sparse import Array

BYTES_PER_KEY, BYTES_PER_WEIGHTED_KEY = 32, 80  # of memory, while a bucket is sorted and merged
SLACK = 1.25  # the largest bucket, in wanted sizes: limits come from a sample
MAX_BUCKET_KEYS = 1 << 24  # larger ones do not sort faster
KEYS_DTYPE = np.dtype(np.int64)


@dataclass(frozen=True, eq=False)
class Buckets:
    """Files of edges: bucket b has the rows of the vertices ``firsts[b]`` to ``firsts[b + 1] - 1``."""

    folder: Path
    firsts: Array  # int64 [B + 1]
    num_vertices: int
    weight_dtype: np.dtype[Any] | None
    flagged: bool  # keys tell which way an edge was listed

    def __len__(self) -> int:
        return len(self.firsts) - 1

    def files(self, b: int) -> tuple[Path, ...]:
        keys = self.folder / f"{b:05d}.keys"
        return (keys, keys.with_suffix(".weights")) if self.weight_dtype else (keys,)

    def add(self, keys: Array, weight: Array | None) -> None:
        """Appends edges to their buckets. Within a bucket their order is kept only if they have weights."""
        limits = self.firsts * (self.num_vertices * (2 if self.flagged else 1))
        if weight is None:
            keys.sort()  # as quick as parting them, and sorted runs sort quicker later
            cuts = np.searchsorted(keys, limits)
        else:
            bucket = (np.searchsorted(limits, keys, side="right") - 1).astype(np.uint16)
            order = np.argsort(bucket, kind="stable")
            keys, weight = keys[order], weight[order]
            cuts = np.searchsorted(bucket[order], np.arange(len(self) + 1))
        for b in np.flatnonzero(np.diff(cuts)):
            chosen = slice(int(cuts[b]), int(cuts[b + 1]))
            for file, values in zip(self.files(int(b)), (keys, weight), strict=False):
                if values is not None:
                    with file.open("ab") as stream:
                        values[chosen].tofile(stream)

    def sizes(self) -> list[int]:
        """Number of keys in each bucket."""
        return [file.stat().st_size // 8 if (file := self.files(b)[0]).exists() else 0 for b in range(len(self))]

    def truncate(self, sizes: list[int]) -> None:
        """Drops everything that was added after the buckets had these sizes."""
        self.folder.mkdir(exist_ok=True)
        for b, size in enumerate(sizes):
            for file, dtype in zip(self.files(b), (KEYS_DTYPE, self.weight_dtype), strict=False):
                if file.exists() and dtype:
                    with file.open("r+b") as stream:
                        stream.truncate(size * dtype.itemsize)

    def read(self, b: int) -> tuple[Array, Array | None]:
        """The keys and weights of a bucket, as they were added."""
        files = self.files(b)
        if not files[0].exists():
            empty = np.empty(0, np.int64)
            return empty, None if self.weight_dtype is None else np.empty(0, self.weight_dtype)
        return np.fromfile(files[0], np.int64), (
            np.fromfile(files[1], self.weight_dtype) if self.weight_dtype is not None else None
        )

    def delete(self, b: int) -> None:
        for file in self.files(b):
            file.unlink(missing_ok=True)


def most_keys(nbytes: int, weighted: bool) -> int:
    """The most keys of a bucket that can be sorted in ``nbytes``."""
    return max(1, min(MAX_BUCKET_KEYS, int(nbytes / SLACK / (BYTES_PER_WEIGHTED_KEY if weighted else BYTES_PER_KEY))))


def bucket_limits(rows: Array, num_keys: int, num_vertices: int, most: int) -> Array:
    """First vertex of every bucket, then N: int64 [B + 1], so that a bucket has about ``most`` keys.

    ``rows`` is a sample of the rows of keys, int64 [S]; a row alone may have more than ``most``.
    """
    wanted = max(1, -(-num_keys // most))
    ordered = np.sort(rows)
    places = (np.arange(1, wanted) * len(ordered)) // wanted
    inner = ordered[places] if len(ordered) else np.empty(0, np.int64)
    firsts = np.unique(np.concatenate([[0], inner, [num_vertices]])).astype(np.int64)
    return firsts[:65_536] if len(firsts) <= 65_536 else np.append(firsts[:65_535], num_vertices)


def keys_of(
    blocks: Iterator[tuple[Array, Array, Array | None]], n: int, directed: bool, flagged: bool
) -> Iterator[tuple[Array, Array | None]]:
    """Keys of the in-edges of every block; of both directions unless ``directed``."""
    for src, dst, weight in blocks:
        keys = pack(dst, src, n)
        if not directed:
            mirrored = pack(src, dst, n)
            if flagged:
                keys *= 2
                mirrored *= 2
                mirrored += 1
            keys = np.concatenate([keys, mirrored])
            weight = None if weight is None else np.tile(weight, 2)
        yield keys, weight


def turned(edges: Edges, start: int, stop: int, n: int) -> tuple[Array, Array | None]:
    """Keys of the reversed edges of these rows: columns become rows."""
    chosen = slice(int(edges.indptr[start]), int(edges.indptr[stop]))
    keys = edges.indices[chosen].astype(np.int64)
    keys *= n
    keys += np.repeat(np.arange(start, stop), np.diff(edges.indptr[start : stop + 1]))
    return keys, None if edges.weight is None else edges.weight[chosen]
