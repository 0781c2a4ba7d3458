"""Describes feature columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from siafu.features import Matrix, blocks
from siafu.sparse import Array, SparseRows

CLOSE = 1e-3


@dataclass(frozen=True)
class Features:
    columns: int
    dtype: str
    stored_sparse: bool
    zeros: float  # share of the values
    constant_columns: int
    min: float
    max: float
    smallest_deviation: float  # of a column that is not constant
    largest_deviation: float
    kind: str  # "random:F" that siafu made, "binary", "counts", "rows sum to 1", "standardised", "real" or "none"


def features_of(features: Matrix | SparseRows, made: str = "") -> Features:
    """Describes the features. ``made``: ``Graph.made_features``."""
    sums = _of_sparse(features) if isinstance(features, SparseRows) else _of_dense(features)
    n, width = features.shape
    mean = sums.total / max(1, n)
    deviation = np.sqrt(np.maximum(sums.square / max(1, n) - mean**2, 0))
    constant = sums.low == sums.high
    moving = deviation[~constant]
    return Features(
        columns=width,
        dtype=str(features.dtype),
        stored_sparse=isinstance(features, SparseRows),
        zeros=1 - sums.filled / max(1, n * width),
        constant_columns=int(np.count_nonzero(constant)),
        min=float(sums.low.min(initial=np.inf)) if width else 0.0,
        max=float(sums.high.max(initial=-np.inf)) if width else 0.0,
        smallest_deviation=float(moving.min(initial=np.inf)) if len(moving) else 0.0,
        largest_deviation=float(moving.max(initial=0.0)),
        kind=made or _kind(sums, mean, moving, constant) if width and n else "none",
    )


@dataclass(frozen=True, eq=False)
class _Sums:
    total: Array  # [F]
    square: Array
    low: Array
    high: Array
    filled: int  # values that are not 0
    whole: bool  # all values are integers
    one_rows: bool  # the values of every row that has any add up to 1


def _of_sparse(rows: SparseRows) -> _Sums:
    n, width = rows.shape
    values, column = rows.data.astype(np.float64), rows.indices
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(low, column, values)
    np.maximum.at(high, column, values)
    gaps = np.bincount(column, minlength=width) < n  # a value that is not stored is 0
    low[gaps], high[gaps] = np.minimum(low[gaps], 0), np.maximum(high[gaps], 0)
    sums = np.bincount(rows.row_of_entry(), values, minlength=n)
    return _Sums(
        np.bincount(column, values, minlength=width),
        np.bincount(column, values**2, minlength=width),
        low,
        high,
        int(np.count_nonzero(values)),
        bool((values == np.floor(values)).all()),
        _all_one(sums),
    )


def _of_dense(features: Matrix) -> _Sums:
    width = features.shape[1]
    total, square = np.zeros(width), np.zeros(width)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    filled, whole, ones = 0, True, True
    for _, block in blocks(features):
        values = block.astype(np.float64)
        total += values.sum(axis=0)
        square += (values**2).sum(axis=0)
        low, high = np.minimum(low, values.min(axis=0)), np.maximum(high, values.max(axis=0))
        filled += int(np.count_nonzero(values))
        whole = whole and bool((values == np.floor(values)).all())
        ones = ones and _all_one(values.sum(axis=1))
    return _Sums(total, square, low, high, filled, whole, ones)


def _all_one(sums: Array) -> bool:
    return bool((np.abs(sums[sums != 0] - 1) < CLOSE).all()) and bool((sums != 0).any())


def _kind(sums: _Sums, mean: Array, moving: Array, constant: Array) -> str:
    if sums.whole and sums.low.min() >= 0:
        return "binary" if sums.high.max() <= 1 else "counts"
    if sums.low.min() >= 0 and sums.one_rows:
        return "rows sum to 1"
    if len(moving) and (np.abs(mean[~constant]) < CLOSE).all() and (np.abs(moving - 1) < CLOSE).all():
        return "standardised"
    return "real"
