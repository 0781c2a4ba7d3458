"""Turns a partition's rows with global columns into a shard's: local columns, sorted in each row, and the list of
ghosts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from graph_data.ahead import ahead
from graph_data.stream.deal import dealt_file, row_blocks
from graph_data.writer import BlockFile, link_array
from siafu.shards import Edges, FileEntry
from siafu.sparse import Array


def ghosts_of(edges: Edges, p: int, owner: Array, entries: int, threads: int) -> Array:
    """Global ids of the columns that partition p does not own, sorted by (owner, id), int64 [g]."""
    mentioned = np.zeros(len(owner), bool)

    def mention(rows: tuple[int, int]) -> None:
        mentioned[edges.indices[edges.indptr[rows[0]] : edges.indptr[rows[1]]]] = True

    for _ in ahead(mention, row_blocks(edges.indptr, entries), threads):
        pass
    mentioned &= owner != p
    ghosts = np.flatnonzero(mentioned)
    return ghosts[np.argsort(owner[ghosts], kind="stable")]


def columns_of(vertices: Array, ghosts: Array, num_vertices: int) -> Array:
    """The local column of every vertex that has one, int32 [N]; the other values are undefined."""
    column = np.empty(num_vertices, np.int32)
    column[vertices] = np.arange(len(vertices), dtype=np.int32)
    column[ghosts] = np.arange(len(vertices), len(vertices) + len(ghosts), dtype=np.int32)
    return column


def local_rows(edges: Edges, column: Array, width: int, entries: int, threads: int) -> Iterator[tuple[Array, ...]]:
    """Blocks of whole rows: their ``indices`` int32 [m], and ``weight`` if there is one,
    as ``graph_data.cut`` makes them."""

    def localised(rows: tuple[int, int]) -> tuple[Array, ...]:
        start, stop = rows
        first, last = int(edges.indptr[start]), int(edges.indptr[stop])
        keys = np.repeat(np.arange(stop - start, dtype=np.int64) * width, np.diff(edges.indptr[start : stop + 1]))
        keys += column[edges.indices[first:last]]
        weight = []
        if edges.weight is None:
            keys.sort()  # rows stand in order already: this sorts the columns in each
        else:
            order = np.argsort(keys)
            keys, weight = keys[order], [edges.weight[first:last][order]]
        indices = np.empty(len(keys), np.int32)
        np.remainder(keys, max(1, width), out=indices, casting="unsafe")
        return indices, *weight

    return ahead(localised, row_blocks(edges.indptr, entries), threads)


def write_rows(
    folder: Path, side: str, edges: Edges, column: Array, width: int, entries: int, threads: int
) -> tuple[dict[str, FileEntry], int]:
    """Writes local columns and weights; returns their files, and how many columns are ghosts."""
    dtypes = [("indices", np.dtype(np.int32))] + ([] if edges.weight is None else [("weight", np.dtype(np.float32))])
    inner, cut = len(edges.indptr) - 1, 0
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(BlockFile(folder / name, (int(edges.indptr[-1]),), dtype))
            for name, dtype in ((f"{side}_{part}.npy", dtype) for part, dtype in dtypes)
        }
        for block in local_rows(edges, column, width, entries, threads):
            for file, values in zip(files.values(), block, strict=True):
                file.append(values)
            cut += int((block[0] >= inner).sum())
    return {name: file.entry() for name, file in files.items()}, cut


def link_rows(dealt: Path, folder: Path, side: str, weighted: bool) -> dict[str, FileEntry]:
    """Links the dealt rows unchanged: with one partition, their columns are global already."""
    parts = ("indices", "weight") if weighted else ("indices",)
    return {
        name: link_array(dealt_file(dealt, side, 0, part), folder / name)
        for name, part in ((f"{side}_{part}.npy", part) for part in parts)
    }


def weighted_degree(edges: Edges, entries: int) -> Array:
    """Sum of the weights of every row, float64 [N]."""
    assert edges.weight is not None
    degree = np.zeros(len(edges.indptr) - 1)
    for start, stop in row_blocks(edges.indptr, entries):
        row = np.repeat(np.arange(stop - start), np.diff(edges.indptr[start : stop + 1]))
        weight = edges.weight[edges.indptr[start] : edges.indptr[stop]]
        degree[start:stop] = np.bincount(row, weight, minlength=stop - start)
    return degree
