"""Checks, converts and normalises feature rows on their way into shards, a block at a time.

A matrix may be larger than memory: a dense one needs only the methods of ``Matrix``, and every pass reads ``blocks``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from siafu.errors import ConfigError, DatasetError
from siafu.npy import mapped
from siafu.sparse import Array, Rows, SparseRows

log = logging.getLogger(__name__)

FEATURE_NORMS = ("none", "row", "standard")
STANDARD = "standard.npy"  # beside shards, and of a run: the means and deviations by which ``standard`` scaled
KEPT_DTYPES = (np.dtype(np.uint8), np.dtype(np.float16), np.dtype(np.float32))  # every other one becomes float32
DENSE_LIMIT_BYTES = 4 << 30  # the largest dense copy of sparse features: standardising leaves no zeros
FEW_STEPS = 64  # of float32 between the least and the largest value of a column: its differences are mostly lost
BLOCK_VALUES = 1 << 19  # values per block of a pass over the features: the last bits of sums depend on it

Scale = Callable[[Array], Array]  # a block of rows -> the block as a shard holds it


class Matrix(Protocol):
    """A dense matrix [N, F] whose rows are read by slices: an array, or a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> Array: ...


@dataclass(frozen=True)
class _Columns:
    """Some columns of a matrix whose rows are read by slices: a ``Matrix``."""

    matrix: Matrix
    order: Array  # int64 [F]

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.matrix), len(self.order)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.matrix.dtype

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: slice) -> Array:
        return _taken(self.matrix[rows], self.order)


def _taken(rows: Array, order: Array) -> Array:
    found: Array = np.ascontiguousarray(rows[:, order])
    found[:, order < 0] = 0
    return found


def columns_of(features: Any, order: Sequence[int]) -> Any:
    """Returns the columns ``order`` of feature rows [N, F]; -1 gives a column of zeros. The result is a copy of an
    array, sorted sparse rows, or a view of rows on disk."""
    chosen = np.asarray(order, np.int64)
    if isinstance(features, SparseRows):
        place = np.full(features.width, -1, np.int64)
        place[chosen[chosen >= 0]] = np.flatnonzero(chosen >= 0)
        column, row = place[features.indices], features.row_of_entry()
        kept = np.flatnonzero(column >= 0)
        kept = kept[np.lexsort((column[kept], row[kept]))]
        starts = np.searchsorted(row[kept], np.arange(len(features) + 1))
        return SparseRows(starts.astype(np.int64), column[kept].astype(np.int32), features.data[kept], len(chosen))
    if isinstance(features, np.ndarray):
        return _taken(features, chosen)
    return _Columns(features, chosen)


def check_norm(norm: str) -> None:
    """Raises: ConfigError if it is not one of FEATURE_NORMS."""
    if norm not in FEATURE_NORMS:
        raise ConfigError(f"feature norm {norm!r} is not one of {', '.join(FEATURE_NORMS)}")


def blocks(features: Matrix) -> Iterator[tuple[int, Array]]:
    """Yields blocks of the matrix, each with its first row, small enough for temporary copies."""
    rows = block_rows(features.shape[1])
    for start in range(0, len(features), rows):
        yield start, features[start : start + rows]


def block_rows(width: int) -> int:
    return max(1, BLOCK_VALUES // max(1, width))


# --- checks -----------------------------------------------------------------------------------------------------------


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the dtype in which a shard stores features of this dtype."""
    if dtype.kind == "b":
        return np.dtype(np.uint8)
    return dtype if dtype in KEPT_DTYPES else np.dtype(np.float32)


def check_shape(features: Matrix | SparseRows, num_vertices: int, name: str) -> None:
    """Raises: DatasetError unless it is [N, F] of real numbers, and if sparse, well formed."""
    if len(features) != num_vertices:
        raise DatasetError(f"{name}: {len(features)} feature rows, must be {num_vertices}")
    if features.dtype.kind not in "fiub":
        raise DatasetError(f"{name}: features are {features.dtype}, must be real numbers")
    if len(features.shape) != 2:
        raise DatasetError(f"{name}: features have {len(features.shape)} axes, must be 2, [N, F]")
    if not features.shape[1]:
        raise DatasetError(f"{name}: features are [{num_vertices}, 0], must have 1 column at least")
    if isinstance(features, SparseRows):
        _check_structure(name, features)


def checked_block(block: Array, start: int, name: str) -> Array:
    """Returns the block in its kept dtype. Raises: DatasetError naming the first value that is not finite."""
    with np.errstate(over="ignore"):  # a value too large becomes inf and is named below
        block = block.astype(kept_dtype(block.dtype), copy=False)
    if block.dtype.kind == "f":
        finite = np.isfinite(block)
        if not finite.all():
            v, column = np.argwhere(~finite)[0]
            raise DatasetError(_not_finite(name, start + int(v), int(column), block[v, column]))
    return block


def checked(features: Rows, num_vertices: int, name: str) -> Rows:
    """Returns the features in a dtype of shards. Raises: DatasetError if they are malformed or not finite."""
    check_shape(features, num_vertices, name)
    with np.errstate(over="ignore"):
        features = features.astype(kept_dtype(features.dtype)) if features.dtype not in KEPT_DTYPES else features
    if isinstance(features, SparseRows):
        bad = np.flatnonzero(~np.isfinite(features.data))
        if len(bad):
            v = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
            raise DatasetError(_not_finite(name, v, int(features.indices[bad[0]]), features.data[bad[0]]))
        return features
    for start, block in blocks(features):
        checked_block(block, start, name)
    return features


class Extent:
    """The least and the largest value of each column that is stored as float32. Rounding may lose differences: near
    times in seconds since 1970, float32 has steps of 128."""

    def __init__(self, width: int) -> None:
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)  # [F]

    def see(self, block: Array) -> None:
        """Takes a block [n, F] into account; NaN marks an unknown value."""
        if len(block):
            self._low = np.fmin(self._low, np.fmin.reduce(block, axis=0))
            self._high = np.fmax(self._high, np.fmax.reduce(block, axis=0))

    def warn(self, what: Callable[[int], str]) -> None:
        """Warns of the first column with fewer than FEW_STEPS of float32 between its extremes. ``what`` names a
        column."""
        low, high = self._low, self._high
        with np.errstate(over="ignore", invalid="ignore"):  # values too large are refused elsewhere
            steps = np.spacing(np.maximum(np.abs(low), np.abs(high)).astype(np.float32))
            lost = np.flatnonzero((high > low) & (high - low < FEW_STEPS * steps))
        if lost.size:
            i = int(lost[0])
            log.warning(
                "%s is between %.12g and %.12g, where float32 has steps of %g: subtract %.12g from it",
                what(i),
                low[i],
                high[i],
                steps[i],
                low[i],
            )


def warn_of_steps(values: Rows, what: Callable[[int], str]) -> None:
    """Warns like ``Extent.warn`` of an array [N, F] in memory. Does nothing for sparse rows and for dtypes that a shard
    stores unchanged."""
    if not isinstance(values, SparseRows) and values.dtype not in KEPT_DTYPES:
        extent = Extent(values.shape[1])
        for _, block in blocks(values):
            extent.see(block)
        extent.warn(what)


def _not_finite(name: str, vertex: int, column: int, value: float) -> str:
    return f"{name}: feature {column} of vertex {vertex} is {value}, must be finite"


def _check_structure(name: str, rows: SparseRows) -> None:
    entries = len(rows.indices)
    if (
        rows.indptr[0] != 0
        or rows.indptr[-1] != entries
        or (np.diff(rows.indptr) < 0).any()
        or len(rows.data) != entries
    ):
        raise DatasetError(f"{name}: sparse feature rows do not add up to their {entries} column indices")
    if entries and (rows.indices.min() < 0 or rows.indices.max() >= rows.width):
        entry = int(np.argmax((rows.indices < 0) | (rows.indices >= rows.width)))
        v = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
        raise DatasetError(
            f"{name}: vertex {v} has feature column {rows.indices[entry]}, must be in 0..{rows.width - 1}"
        )
    rises = np.diff(rows.indices) > 0
    starts = rows.indptr[1:-1]
    rises[starts[(starts > 0) & (starts < entries)] - 1] = True  # from one row to the next the column may fall
    if not rises.all():
        v = int(np.searchsorted(rows.indptr, int(np.argmin(rises)) + 1, side="right")) - 1
        raise DatasetError(f"{name}: feature columns of vertex {v} are not sorted, or one is there twice")


# --- normalising ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Standard:
    """The means and deviations of columns, which feature norm ``standard`` makes 0 and 1."""

    mean: Array  # float64 [F]
    deviation: Array  # float64 [F]; infinite where a column is constant, which makes it zeros

    @classmethod
    def of(cls, features: Matrix, rows: Array | None = None) -> Standard:
        """Computes them from all rows, or those in ``rows`` (bool [N], at least one), in two passes."""
        count = len(features) if rows is None else int(np.count_nonzero(rows))
        total, square = np.zeros(features.shape[1]), np.zeros(features.shape[1])  # [F]
        for block in _chosen(features, rows):
            total += block.sum(axis=0, dtype=np.float64)
        mean = total / count
        for block in _chosen(features, rows):
            square += ((block - mean) ** 2).sum(axis=0)
        deviation = np.sqrt(square / count)
        deviation[deviation < 1e-12 * np.maximum(1, np.abs(mean))] = np.inf  # constant: rounding is not a signal
        return cls(mean, deviation)

    def scaled(self, block: Array) -> Array:
        """Returns a block of rows standardised, in float32."""
        found: Array = ((block - self.mean) / self.deviation).astype(np.float32)
        return found

    def save(self, folder: Path) -> None:
        np.save(folder / STANDARD, np.stack([self.mean, self.deviation]))

    @classmethod
    def load(cls, folder: Path) -> Standard | None:
        """Reads the file that ``save`` wrote; None if there is none. Raises: DatasetError if it cannot be read."""
        try:
            found = np.array(mapped(folder / STANDARD))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise DatasetError(f"{folder / STANDARD}: not readable: {error}") from None
        if found.dtype != np.float64 or found.ndim != 2 or len(found) != 2:
            raise DatasetError(f"{folder / STANDARD}: {found.dtype} {list(found.shape)}, must be float64 [2, F]")
        return cls(*found)

    def equals(self, other: Standard) -> bool:
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.deviation, other.deviation)


def _chosen(features: Matrix, rows: Array | None) -> Iterator[Array]:
    for start, block in blocks(features):
        yield block if rows is None else block[rows[start : start + len(block)]]


def normalised(features: Rows, norm: str, name: str, standard: Standard | None = None) -> Rows:
    """Returns all rows, normalised as in ``siafu.graph.tidy``. ``standard``: means and deviations to use; None: the
    rows' own.

    Raises: DatasetError if the dense result is too large.
    """
    if norm == "none":
        return features
    if isinstance(features, SparseRows):
        if norm == "row":
            return _sparse_rows_normalised(features)
        features = densified(features, name)
    scale = scale_of(features, norm, standard)
    out = np.empty(features.shape, np.float32)  # [N, F]
    for start, block in blocks(features):
        out[start : start + len(block)] = scale(block)
    return out


def densified(features: SparseRows, name: str) -> Array:
    """Makes sparse rows dense. Raises: DatasetError if that takes more than DENSE_LIMIT_BYTES."""
    nbytes = 4 * features.shape[0] * features.shape[1]
    if nbytes > DENSE_LIMIT_BYTES:
        raise DatasetError(
            f"{name}: standardised features are dense and take {nbytes} bytes, the limit is {DENSE_LIMIT_BYTES}"
        )
    return features.dense()


def scale_of(features: Matrix, norm: str, standard: Standard | None = None) -> Scale:
    """Returns the function that normalises a block of rows of ``features``. For norm "standard" without ``standard`` it
    takes two passes over the features."""
    if norm == "standard":
        return (standard or Standard.of(features)).scaled
    return _row_scale if norm == "row" else lambda block: block


def _row_scale(block: Array) -> Array:
    total = np.abs(block.astype(np.float32)).sum(axis=1, dtype=np.float64)  # [rows]
    return (block / np.where(total > 0, total, 1)[:, None]).astype(np.float32)


def _sparse_rows_normalised(features: SparseRows) -> SparseRows:
    row = features.row_of_entry()  # [nnz]
    total = np.bincount(row, np.abs(features.data.astype(np.float64)), minlength=len(features))  # [N]
    data = features.data / np.where(total > 0, total, 1)[row]
    return replace(features, data=data.astype(np.float32))
