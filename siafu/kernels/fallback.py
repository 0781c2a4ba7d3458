"""The compiled kernels' functions in NumPy and SciPy, for machines where the kernels could not be built: equal
results, slower.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from siafu import ops
from siafu.kernels import csr
from siafu.sparse import Array, Edges

EDGES = 1 << 22  # edges whose weights are made at a time
VALUES = 1 << 24  # values of rows widened at a time


# --- rows -------------------------------------------------------------------------------------------------------------


def widened(values: Array, dtype: str) -> Array:
    """Converts stored values to float32 (float64 if stored so), in which sums are computed."""
    if dtype == "bfloat16":
        return ops.from_bfloat16(values)
    return values.astype(np.float64 if dtype == "float64" else np.float32, copy=False)


def write(tiles: Array, dtype: str, place: slice | Array, rows: Array, scale: Array | None) -> None:
    """Writes rows [k, width], each times its scale, into tiles [T, num_rows, tile]."""
    value = np.float64 if dtype == "float64" else np.float32
    tile, width = tiles.shape[2], rows.shape[1]
    for number, first in enumerate(range(0, width, tile)):
        part = rows[:, first : first + tile].astype(value, copy=False)
        if scale is not None:
            part = part * scale[:, None]
        with np.errstate(over="ignore"):  # values too large for float16 become inf, as in the compiled kernel
            stored = ops.to_bfloat16(part) if dtype == "bfloat16" else part.astype(tiles.dtype, copy=False)
        tiles[number, place, : part.shape[1]] = stored


def read(tiles: Array, dtype: str, place: slice | Array, width: int) -> Array:
    parts = [widened(tiles[number, place], dtype) for number in range(len(tiles))]
    return np.concatenate(parts, axis=1)[:, :width]


# --- gather -----------------------------------------------------------------------------------------------------------

#: Columns first:stop of every row of one base, widened: [num_rows, stop - first].
Columns = Callable[[int, int], Array]


def gather(
    edges: Edges, start: int, stop: int, base: Columns, num_rows: int, width: int, tile: int, out: Array
) -> None:
    """Writes out[v - start] = sum over the edges of v of weight * row. The caller applies scale, bias and the rest."""
    step = min(tile, max(1, VALUES // max(1, num_rows)))
    for first in range(0, width, tile):
        end = min(width, first + tile)
        for left in range(first, end, step):
            right = min(end, left + step)
            X = base(left, right)
            for low, high in _ranges(edges.indptr, start, stop):
                out[low - start : high - start, left:right] = _product(edges, low, high, X)


def _ranges(indptr: Array, start: int, stop: int) -> list[tuple[int, int]]:
    """Cuts rows into ranges of about ``EDGES`` edges."""
    cuts = [start]
    while cuts[-1] < stop:
        after = int(np.searchsorted(indptr, int(indptr[cuts[-1]]) + EDGES))
        cuts.append(min(stop, max(cuts[-1] + 1, after)))
    return list(pairwise(cuts))


def _product(edges: Edges, start: int, stop: int, X: Array) -> Array:
    first, last = int(edges.indptr[start]), int(edges.indptr[stop])
    indptr = np.asarray(edges.indptr[start : stop + 1]) - first
    weight = np.ones(last - first, X.dtype) if edges.weight is None else edges.weight[first:last].astype(X.dtype)
    return csr.multiply(indptr, np.asarray(edges.indices[first:last]), weight, X)
