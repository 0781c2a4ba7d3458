"""Features, labels and splits of an edge list's vertices: in .npy files by vertex number, or in tables by id.

A table is Parquet or CSV; its first column is the id, the others are values. A split's values are numbers (0 nothing,
1 train, 2 validation, 3 test).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from datasets.rowfile import RowFile
from datasets.sources import columns
from siafu.errors import DatasetError
from siafu.graph import NONE
from siafu.sparse import Array, Rows, SparseRows

RANDOM_WIDTH = 32
RANDOM_ROWS = 1 << 14  # random rows drawn with one generator
TABLE_VALUES = 1 << 20  # of a table, read together


class RandomRows:
    """Standard normal features for a graph that has none, float16 [N, F]; made when they are read, always the same."""

    dtype = np.dtype(np.float16)
    ndim = 2

    def __init__(self, num_rows: int, width: int) -> None:
        self.shape = (num_rows, width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(len(self))
        first = start - start % RANDOM_ROWS
        drawn = [self._draw(block) for block in range(first, stop, RANDOM_ROWS)]
        joined = np.concatenate([np.empty((0, self.shape[1]), np.float16), *drawn])
        return joined[start - first : max(start, stop) - first]

    def _draw(self, first: int) -> Array:
        rng = np.random.default_rng([first, self.shape[1]])
        return rng.standard_normal((RANDOM_ROWS, self.shape[1]), np.float32).astype(np.float16)


def random_width(text: str) -> int | None:
    """F of "random" or "random:F"; None for anything else."""
    match = re.fullmatch(r"random(?::([1-9]\d{0,5}))?", text)
    return (int(match[1]) if match[1] else RANDOM_WIDTH) if match else None


def is_by_number(path: str) -> bool:
    """Whether the rows of the file are the vertices 0, 1, 2, ...: a ``.npy`` or ``.npz`` file, not a table."""
    return path.endswith((".npy", ".npz"))


def num_rows(path: str) -> int:
    return len(_sparse(Path(path))) if path.endswith(".npz") else len(RowFile(Path(path)))


def ids_in(path: str) -> Iterator[Array]:
    """The ids of a table, in blocks."""
    for file in columns.files_of(path):
        id_column = columns.column_names(file)[0]
        for (ids,) in columns.blocks(file, [id_column], TABLE_VALUES, "i"):
            yield ids


def features(text: str, num_vertices: int, ids: Array | None, scratch: Path | None) -> Rows | RowFile | RandomRows:
    """The feature rows of all vertices, [N, F]; ``ids`` are those of the vertices if they are not their numbers.

    A table is copied to the file ``scratch`` in vertex order, or to memory if there is none. Raises: DatasetError.
    """
    width = random_width(text)
    if width:
        return RandomRows(num_vertices, width)
    if text.endswith(".npz"):
        return _sparse(Path(text))
    if text.endswith(".npy"):
        return RowFile(Path(text))
    files = columns.files_of(text)
    shape = (num_vertices, len(columns.column_names(files[0])) - 1)
    seen = np.zeros(num_vertices, bool)
    if scratch is None:
        out = np.zeros(shape, np.float32)
    else:
        np.lib.format.open_memmap(scratch, "w+", np.float32, shape).flush()
    for where, values in _table(text, num_vertices, ids, seen):
        if scratch is not None:  # mapped anew for every block: what was written does not stay in our memory
            out = np.lib.format.open_memmap(scratch, "r+")
        out[where] = values
    if not seen.all():
        v = int(np.argmin(seen))
        raise DatasetError(f"{text}: has no features of vertex {v if ids is None else ids[v]}")
    return out if scratch is None else RowFile(scratch)


def labels(text: str, num_vertices: int, ids: Array | None) -> Array:
    """int64 [N], -1 where a table has none, or uint8 [N, C] from a file with more than one column."""
    found = _values(text, num_vertices, ids, -1)
    whole = found.astype(np.int64)
    if (whole != found).any():
        v = int(np.argwhere(whole != found)[0][0])
        raise DatasetError(f"{text}: label of vertex {v if ids is None else ids[v]} is {found[v]}, must be an integer")
    if whole.ndim == 1 or whole.shape[1] == 1:
        return whole.reshape(num_vertices)
    return np.maximum(whole, 0)


def split(text: str, num_vertices: int, ids: Array | None) -> Array:
    """uint8 [N, S] of NONE, TRAIN, VAL, TEST."""
    found = _values(text, num_vertices, ids, NONE).reshape(num_vertices, -1)
    if not np.isin(found, (0, 1, 2, 3)).all():
        v, s = np.argwhere(~np.isin(found, (0, 1, 2, 3)))[0]
        raise DatasetError(
            f"{text}: split of vertex {v if ids is None else ids[v]} is {found[v, s]}, "
            "must be 0 (nothing), 1 (train), 2 (validation) or 3 (test)"
        )
    return found.astype(np.uint8)


def _values(text: str, num_vertices: int, ids: Array | None, missing: int) -> Array:
    """All values of a file, [N] or [N, columns]; ``missing`` where a table does not mention a vertex."""
    if text.endswith(".npy"):
        found = RowFile(Path(text))
        if len(found) != num_vertices or found.dtype.kind not in "iufb":
            raise DatasetError(f"{text}: {len(found)} rows of {found.dtype}, must be {num_vertices} rows of numbers")
        return found[:]
    out = np.full((num_vertices, len(columns.column_names(columns.files_of(text)[0])) - 1), missing, np.float64)
    for where, values in _table(text, num_vertices, ids, np.zeros(num_vertices, bool)):
        out[where] = values
    return out


def _table(text: str, num_vertices: int, ids: Array | None, seen: Array) -> Iterator[tuple[Array, Array]]:
    """Blocks of a table as vertex numbers [k] and values [k, columns - 1]; marks who was ``seen``."""
    for file in columns.files_of(text):
        names = columns.column_names(file)
        if len(names) < 2:
            raise DatasetError(f"{file}: has one column, must have an id and at least one value")
        rows = max(1, TABLE_VALUES // len(names))
        for block_ids, *values in columns.blocks(file, names, rows, "i" + "f" * (len(names) - 1)):
            where = block_ids if ids is None else np.minimum(np.searchsorted(ids, block_ids), len(ids) - 1)
            known = where < num_vertices if ids is None else ids[where] == block_ids
            if not known.all():
                raise DatasetError(f"{file}: vertex {block_ids[np.argmin(known)]} is not in the graph")
            ordered = np.sort(where)
            twice = np.concatenate([where[seen[where]], ordered[1:][ordered[1:] == ordered[:-1]]])
            if len(twice):
                raise DatasetError(f"{file}: vertex {twice[0] if ids is None else ids[twice[0]]} is there twice")
            seen[where] = True
            yield where, np.stack(values, axis=1)


def _sparse(path: Path) -> SparseRows:
    """CSR rows as ``scipy.sparse.save_npz`` writes them; they are read into memory."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("indptr", "indices", "data", "shape")}
    except (OSError, ValueError, KeyError) as error:
        raise DatasetError(f"{path}: not a CSR matrix of scipy.sparse.save_npz ({error})") from None
    indices = arrays["indices"].astype(np.int32, copy=False)
    return SparseRows(arrays["indptr"].astype(np.int64), indices, arrays["data"], int(arrays["shape"][1]))
