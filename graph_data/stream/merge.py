"""Merges buckets into one CSR on disk: each bucket is sorted, its parallel edges merged, and appended."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.ahead import ahead
from graph_data.rowfile import GrowingFile, RowFile
from graph_data.stream.buckets import Buckets
from graph_data.stream.work import Work
from siafu.graph import as_kept, merged
from siafu.shards import Edges
from siafu.sparse import Array

INDEX = np.dtype(np.int32)
WEIGHT = np.dtype(np.float32)


@dataclass(frozen=True)
class Rows:
    """The rows of a bucket, merged."""

    counts: Array  # int64 [vertices of the bucket]
    indices: Array  # int32 [m]
    weight: Array | None  # float32 [m]


class Stack:
    """The CSR of all vertices in three files: NAME.counts, NAME.indices and NAME.weight, which are ``.npy`` files."""

    def __init__(self, folder: Path, name: str, weighted: bool) -> None:
        self._dtypes: dict[str, np.dtype[Any]] = {"counts": np.dtype(np.int64), "indices": INDEX}
        if weighted:
            self._dtypes["weight"] = WEIGHT
        self._files = {part: folder / f"{name}.{part}" for part in self._dtypes}

    def opened(self, rows: int, entries: int) -> dict[str, GrowingFile]:
        """The files to append to, cut to ``rows`` rows and ``entries`` entries."""
        return {
            part: GrowingFile(file, self._dtypes[part], rows if part == "counts" else entries)
            for part, file in self._files.items()
        }

    def edges(self) -> Edges:
        """The CSR, with ``indices`` and ``weight`` left on disk."""
        weight = RowFile(self._files["weight"]) if "weight" in self._files else None
        return Edges(self.indptr(), RowFile(self._files["indices"]), weight)  # type: ignore[arg-type]

    def indptr(self) -> Array:
        """int64 [N + 1]."""
        counts = self.counts()
        indptr = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        return indptr

    def counts(self) -> Array:
        """Entries of every row, int64 [N]."""
        return RowFile(self._files["counts"])[:]

    def entries(self) -> dict[str, Path]:
        """All files but the counts: ``indices``, and ``weight`` if there is one."""
        return {part: file for part, file in self._files.items() if part != "counts"}


def merge(work: Work, step: str, buckets: Buckets, stack: Stack, threads: int) -> None:
    """Appends every bucket that is not in ``stack`` yet, and deletes it. Records ``step`` after each one."""
    done = work.get(step) or {"buckets": 0, "entries": 0}
    rows = int(buckets.firsts[done["buckets"]])
    files = stack.opened(rows, done["entries"])
    try:
        todo = range(done["buckets"], len(buckets))
        for b, rows_of_b in zip(todo, ahead(lambda b: merged_rows(buckets, b), todo, threads), strict=True):
            for part, file in files.items():
                file.append(getattr(rows_of_b, part))
                file.flush()
            work.record(step, {"buckets": b + 1, "entries": files["indices"].length})
            buckets.delete(b)
    finally:
        for file in files.values():
            file.close()


def merged_rows(buckets: Buckets, b: int) -> Rows:
    """The rows of one bucket, columns sorted, each once; the same weights as ``siafu.graph.tidy`` gives."""
    n = buckets.num_vertices
    keys, weight = merged(*buckets.read(b), np.add)
    if buckets.flagged:
        keys, weight = merged(keys >> 1, weight, np.maximum)
    if weight is not None:
        weight = as_kept(weight, keys % n, keys // n)
    starts = np.searchsorted(keys, np.arange(buckets.firsts[b], buckets.firsts[b + 1] + 1) * n)
    indices = np.empty(len(keys), INDEX)
    np.remainder(keys, n, out=indices, casting="unsafe")
    return Rows(np.diff(starts), indices, weight)
