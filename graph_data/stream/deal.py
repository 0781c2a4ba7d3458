"""Deals the rows of one CSR to the partitions that own them: a file for each partition, in ascending order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from graph_data.ahead import ahead
from graph_data.rowfile import GrowingFile, RowFile
from siafu.shards import Edges
from siafu.sparse import Array


def dealt_file(folder: Path, side: str, p: int, part: str) -> Path:
    """Path of the ``indices`` or ``weight`` of partition p."""
    return folder / f"{side}-{p:05d}.{part}"


def dealt_edges(folder: Path, side: str, p: int, indptr: Array, vertices: Array, weighted: bool) -> Edges:
    """The rows of partition p's vertices on disk, columns still global; ``indptr`` is that of all rows."""
    local = np.zeros(len(vertices) + 1, np.int64)
    np.cumsum(indptr[vertices + 1] - indptr[vertices], out=local[1:])
    weight = RowFile(dealt_file(folder, side, p, "weight")) if weighted else None
    return Edges(local, RowFile(dealt_file(folder, side, p, "indices")), weight)  # type: ignore[arg-type]


def deal(folder: Path, side: str, edges: Edges, owner: Array, parts: int, entries: int, threads: int) -> None:
    """Writes the files of every partition, reading ``edges`` once, about ``entries`` at a time."""
    dtypes = {"indices": np.dtype(np.int32)} | ({} if edges.weight is None else {"weight": np.dtype(np.float32)})
    files = {
        part: [GrowingFile(dealt_file(folder, side, p, part), dtype) for p in range(parts)]
        for part, dtype in dtypes.items()
    }
    try:
        for cuts, columns in ahead(
            lambda rows: _dealt(edges, owner, parts, rows), row_blocks(edges.indptr, entries), threads
        ):
            for part, values in columns.items():
                for p in range(parts):
                    files[part][p].append(values[cuts[p] : cuts[p + 1]])
    finally:
        for growing in (file for of_part in files.values() for file in of_part):
            growing.close()


def deal_whole(folder: Path, side: str, files: dict[str, Path]) -> None:
    """Gives all rows to partition 0: the files get a second name."""
    for part, file in files.items():
        dealt = dealt_file(folder, side, 0, part)
        dealt.unlink(missing_ok=True)
        os.link(file, dealt)


def row_blocks(indptr: Array, entries: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that cover all, of at most ``entries`` entries unless one row alone has more."""
    n, start = len(indptr) - 1, 0
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + entries, side="right")) - 1
        stop = min(n, max(stop, start + 1), start + entries)
        yield start, stop
        start = stop


def _dealt(edges: Edges, owner: Array, parts: int, rows: tuple[int, int]) -> tuple[Array, dict[str, Array]]:
    """The entries of these rows sorted by owner: the start of each partition's, int64 [P + 1], and the values."""
    start, stop = rows
    first, last = int(edges.indptr[start]), int(edges.indptr[stop])
    small = np.uint8 if parts <= 256 else np.uint16  # sorted by counting
    whose = np.repeat(owner[start:stop].astype(small), np.diff(edges.indptr[start : stop + 1]))  # [m]
    order = np.argsort(whose, kind="stable")
    cuts = np.zeros(parts + 1, np.int64)
    np.cumsum(np.bincount(whose, minlength=parts), out=cuts[1:])
    columns = {"indices": edges.indices[first:last][order]}
    if edges.weight is not None:
        columns["weight"] = edges.weight[first:last][order]
    return cuts, columns
