"""``attention`` in NumPy, for float64 and without the compiled library: the same formulas over explicit edges, a
block of rows at a time.

Coefficients per edge and head exist here, for ``BLOCK_EDGES`` edges (or one row's) at once. Computes in the dtype of
the rows. Arrays by row have only the rows of the range.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from siafu import ops
from siafu.kernels import csr, functions
from siafu.kernels.dropout import EdgeDropout
from siafu.sparse import Array, Edges

BLOCK_EDGES = 1 << 20


class _Block:
    """The edges of some rows; each row begins with the edge to itself if ``add_self``."""

    def __init__(self, edges: Edges, start: int, begin: int, end: int, add_self: bool):
        first, last = int(edges.indptr[begin]), int(edges.indptr[end])
        self.begin, self.place = begin, slice(begin - start, end - start)  # the rows, in the range
        self.indptr = np.asarray(edges.indptr[begin : end + 1]) - first
        self.columns = np.asarray(edges.indices[first:last])
        self.weight = None if edges.weight is None else np.asarray(edges.weight[first:last])
        if add_self:
            self.columns = np.insert(self.columns, self.indptr[:-1], np.arange(begin, end, dtype=np.int32))
            self.weight = None if self.weight is None else np.insert(self.weight, self.indptr[:-1], 1)
            self.indptr = self.indptr + np.arange(len(self.indptr))
        counts = np.diff(self.indptr)
        before = first - int(edges.indptr[start]) + (begin - start) * add_self
        self.edges = slice(before, before + int(self.indptr[-1]))  # in the range
        self.row = np.repeat(np.arange(end - begin), counts)

    def gather(self, weight: Array, rows: Array) -> Array:
        """Sums the rows [N, heads * width] of the columns with weight [edges, heads]."""
        by_head = np.split(rows, weight.shape[1], axis=1)
        parts = [csr.multiply(self.indptr, self.columns, weight[:, h], part) for h, part in enumerate(by_head)]
        return np.concatenate(parts, axis=1)

    def kept(self, values: Array, dropout: EdgeDropout | None, forward: bool) -> Array:
        """Applies dropout to values [edges, heads]."""
        if dropout is None:
            return values
        rows = self.begin + self.row
        return values * dropout.mask(rows, self.columns, values.shape[1], forward=forward, dtype=values.dtype)


def _blocks(edges: Edges, start: int, stop: int, add_self: bool) -> Iterator[_Block]:
    begin = start
    while begin < stop:
        limit = int(edges.indptr[begin]) + BLOCK_EDGES
        end = int(np.searchsorted(edges.indptr[: stop + 1], limit, side="right")) - 1
        end = max(end, begin + 1)
        yield _Block(edges, start, begin, end, add_self)
        begin = end


# --- forward --------------------------------------------------------------------------------------------------------


def attend(
    edges: Edges,
    start: int,
    stop: int,
    T: Array,
    s: Array,
    t: Array,
    slope: float,
    add_self: bool,
    dropout: EdgeDropout | None,
) -> tuple[Array, Array, Array, Array]:
    """Returns Z, log_total, leaned and leaned_total of the rows: see ``siafu.kernels.attention``."""
    made = _nothing(stop - start, T, s.shape[1])
    for block in _blocks(edges, start, stop, add_self):
        signed, made[1][block.place] = ops.segment_softmax(
            s[block.columns], t[block.place], block.indptr, slope, block.weight, functions
        )
        _sum_up(made, block, signed, slope, T, dropout)
    return made


def attend_given(
    edges: Edges,
    start: int,
    stop: int,
    T: Array,
    alpha: Array,
    slope: float,
    add_self: bool,
    dropout: EdgeDropout | None,
) -> tuple[Array, Array, Array, Array]:
    """Computes ``attend`` with signed coefficients [edges of the range, heads]; log_total stays zero."""
    made = _nothing(stop - start, T, alpha.shape[1])
    for block in _blocks(edges, start, stop, add_self):
        _sum_up(made, block, alpha[block.edges].astype(T.dtype, copy=False), slope, T, dropout)
    return made


def _nothing(k: int, T: Array, heads: int) -> tuple[Array, Array, Array, Array]:
    wide, narrow = (k, T.shape[1]), (k, heads)
    return np.zeros(wide, T.dtype), np.zeros(narrow, T.dtype), np.zeros(wide, T.dtype), np.zeros(narrow, T.dtype)


def _sum_up(
    made: tuple[Array, Array, Array, Array],
    block: _Block,
    signed: Array,
    slope: float,
    T: Array,
    dropout: EdgeDropout | None,
) -> None:
    """Writes Z, leaned and leaned_total of a block into ``made``, from signed coefficients: negative where LeakyReLU's
    argument was."""
    alpha, lean = np.abs(signed), ops.either(signed < 0, slope, 1, T.dtype)
    kept = block.kept(alpha, dropout, forward=True)
    made[0][block.place] = block.gather(kept, T)
    made[2][block.place] = block.gather(kept * lean, T)
    made[3][block.place] = ops.sum_segments(alpha * lean, block.indptr)


# --- backward -------------------------------------------------------------------------------------------------------


def backward(
    out_edges: Edges,
    start: int,
    stop: int,
    dZ: Array,
    marks: list[Array],
    T: Array,
    s: Array,
    slope: float,
    add_self: bool,
    dropout: EdgeDropout | None,
) -> tuple[Array, Array]:
    """Returns dT and ds of the rows. marks: t, log_total and delta of the targets."""
    t, log_total, delta = marks
    dT, ds = np.zeros((stop - start, dZ.shape[1]), dZ.dtype), np.zeros((stop - start, s.shape[1]), dZ.dtype)
    for block in _blocks(out_edges, start, stop, add_self):
        score = s[block.place][block.row] + t[block.columns]  # [edges, heads]
        lean = ops.either(score < 0, slope, 1, dZ.dtype)
        alpha = functions.exp(score * lean - log_total[block.columns])
        if block.weight is not None:
            alpha *= block.weight[:, None]
        kept = block.kept(alpha, dropout, forward=False)
        dT[block.place] = block.gather(kept, dZ)
        ds[block.place] = functions.dots(T[block.place], block.gather(kept * lean, dZ), s.shape[1])
        ds[block.place] -= ops.sum_segments(alpha * lean * delta[block.columns], block.indptr)
    return dT, ds


def rows_gradient(
    out_edges: Edges, start: int, stop: int, dZ: Array, alpha: Array, add_self: bool, dropout: EdgeDropout | None
) -> Array:
    """Returns dT of the rows. alpha: signed coefficients [edges of the range, heads]."""
    dT = np.zeros((stop - start, dZ.shape[1]), dZ.dtype)
    for block in _blocks(out_edges, start, stop, add_self):
        values = np.abs(alpha[block.edges].astype(dZ.dtype, copy=False))
        dT[block.place] = block.gather(block.kept(values, dropout, forward=False), dZ)
    return dT


def edge_dot(
    out_edges: Edges,
    start: int,
    stop: int,
    T: Array,
    dZ: Array,
    heads: int,
    add_self: bool,
    dropout: EdgeDropout | None,
) -> Array:
    num_edges = int(out_edges.indptr[stop] - out_edges.indptr[start]) + (stop - start) * add_self
    out = np.empty((num_edges, heads), dZ.dtype)
    for block in _blocks(out_edges, start, stop, add_self):
        products = functions.dots(T[block.place][block.row], dZ[block.columns], heads)
        out[block.edges] = block.kept(products, dropout, forward=False)
    return out
