"""Sparse matrices in other people's files: checked, built by SciPy, used as edges or features of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from siafu.sparse import Array, Rows, SparseRows

EMPTY_LINES = 1 << 20  # rows and columns of a matrix that need no bytes: SciPy takes memory for what a shape says


def csr(kind: str, parts: dict[str, Any]) -> Any:
    """The matrix of data, indices and indptr (csr, csc) or data, row and col (coo), and shape. Raises: ValueError."""
    import scipy.sparse

    shape = parts.get("_shape", parts.get("shape"))
    shape = shape.tolist() if isinstance(shape, np.ndarray) else shape
    if not isinstance(shape, (tuple, list)) or len(shape) != 2 or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("its shape is no pair of sizes")
    names = {"coo": ("row", "col")}.get(kind, ("indices", "indptr"))
    coords = parts.get("coords")  # as SciPy has rows and columns since 1.13
    if isinstance(coords, tuple) and len(coords) == 2:
        parts = {**parts, "row": coords[0], "col": coords[1]}
    data, first, second = (parts.get(name, ()) for name in ("data", *names))
    for values, kinds in ((data, "biuf"), (first, "iu"), (second, "iu")):
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
            raise ValueError(f"{', '.join(names)} or data is no array of numbers")
    if max(shape) > (most := EMPTY_LINES + data.nbytes + first.nbytes + second.nbytes):
        raise ValueError(f"its shape is {list(shape)}, of so few values at most {most}")
    if kind == "coo":
        if not len(data) == len(first) == len(second) or not _within(first, shape[0]) or not _within(second, shape[1]):
            raise ValueError("a row or column is outside its shape")
        made = scipy.sparse.coo_matrix((data, (first, second)), shape=tuple(shape)).tocsr()
    else:
        lines, width = (shape[0], shape[1]) if kind == "csr" else (shape[1], shape[0])
        second = second.astype(np.int64)
        if len(second) != lines + 1 or second[0] != 0 or (np.diff(second) < 0).any() or second[-1] != len(data):
            raise ValueError(f"indptr does not lead through {lines} rows of {len(data)} values")
        if len(first) != len(data) or not _within(first, width):
            raise ValueError(f"an index is not in 0..{width - 1}")
        make = scipy.sparse.csr_matrix if kind == "csr" else scipy.sparse.csc_matrix
        made = make((data, first.astype(np.int64), second), shape=tuple(shape)).tocsr()
    made.sum_duplicates()
    return made


def _within(values: Array, size: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < size)


def sparse_rows(made: Any) -> SparseRows:
    """A ``scipy.sparse.csr_matrix`` without duplicates, as SparseRows."""
    made.sort_indices()
    return SparseRows(
        made.indptr.astype(np.int64),
        made.indices.astype(np.int32),
        made.data,
        int(made.shape[1]),
    )


def edges(made: Any) -> tuple[Array, Array, Array | None]:
    """src, dst and weight of an adjacency matrix whose row is the source; no weight if all
    are 1. Stored zeros are no edges."""
    made.eliminate_zeros()
    coo = made.tocoo()
    weight = None if (coo.data == 1).all() else coo.data.astype(np.float32)
    return coo.row.astype(np.int64), coo.col.astype(np.int64), weight


def square(made: Any) -> Any:
    """Raises: ValueError if the matrix is not square."""
    if made.shape[0] != made.shape[1]:
        raise ValueError(f"the adjacency matrix is {list(made.shape)}, must be square")
    return made


def features(given: Any) -> Rows:
    """Feature rows of a dense matrix, or of a SciPy matrix."""
    return given if isinstance(given, np.ndarray) else sparse_rows(given)
