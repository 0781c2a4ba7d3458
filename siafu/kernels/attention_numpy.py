"""``attention`` without the compiled library: the same formulas over explicit edges, a block of rows at a time.

Weights per edge and head exist here, for ``BLOCK_EDGES`` edges (or one row's) at once. Computes in the dtype of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from siafu.shards import Edges
from siafu.sparse import Array

BLOCK_EDGES = 1 << 20


class _Block:
    """The edges of some rows, with those to themselves if they count."""

    def __init__(self, edges: Edges, begin: int, end: int, add_self: bool):
        first, last = int(edges.indptr[begin]), int(edges.indptr[end])
        self.begin, self.end, self.edges = begin, end, slice(first, last)
        self.indptr = np.asarray(edges.indptr[begin : end + 1]) - first
        self.columns = np.asarray(edges.indices[first:last])
        self.weight = None if edges.weight is None else np.asarray(edges.weight[first:last])
        if add_self:
            self.columns = np.insert(self.columns, self.indptr[:-1], np.arange(begin, end, dtype=np.int32))
            self.weight = None if self.weight is None else np.insert(self.weight, self.indptr[:-1], 1)
            self.indptr = self.indptr + np.arange(len(self.indptr))
        counts = np.diff(self.indptr)
        self.row = np.repeat(np.arange(end - begin), counts)
        self.filled = np.flatnonzero(counts)

    def reduce(self, function: np.ufunc, values: Array, empty: float) -> Array:
        """Of each row's edges: [edges, heads] -> [rows, heads]."""
        out = np.full((self.end - self.begin, values.shape[1]), empty, values.dtype)
        if len(self.filled):
            out[self.filled] = function.reduceat(values, self.indptr[:-1][self.filled], axis=0)
        return out

    def gather(self, weight: Array, rows: Array) -> Array:
        """Rows [N, heads * width] of the columns, summed with weight [edges, heads]."""
        heads = weight.shape[1]
        shape = self.end - self.begin, len(rows)
        parts = [
            sp.csr_array((np.ascontiguousarray(weight[:, h]), self.columns, self.indptr), shape=shape) @ part
            for h, part in enumerate(np.split(rows, heads, axis=1))
        ]
        return np.concatenate(parts, axis=1)


def _blocks(edges: Edges, start: int, stop: int, add_self: bool) -> Iterator[_Block]:
    begin = start
    while begin < stop:
        limit = int(edges.indptr[begin]) + BLOCK_EDGES
        end = int(np.searchsorted(edges.indptr[: stop + 1], limit, side="right")) - 1
        end = max(end, begin + 1)
        yield _Block(edges, begin, end, add_self)
        begin = end


def attend(
    edges: Edges, start: int, stop: int, T: Array, s: Array, t: Array, slope: float, add_self: bool
) -> tuple[Array, Array, Array, Array]:
    """Z, log_total, leaned and leaned_total of the rows: see ``siafu.kernels.attention``."""
    heads = s.shape[1]
    made = [np.zeros((stop - start, columns), T.dtype) for columns in (T.shape[1], heads, T.shape[1], heads)]
    for block in _blocks(edges, start, stop, add_self):
        score = t[block.begin : block.end][block.row] + s[block.columns]  # [edges, heads]
        lean = np.where(score < 0, T.dtype.type(slope), T.dtype.type(1))
        score *= lean
        best = block.reduce(np.maximum, score, 0.0)
        alpha = np.exp(score - best[block.row])
        if block.weight is not None:
            alpha *= block.weight[:, None]
        total = block.reduce(np.add, alpha, 0.0)
        some = total > 0
        divisor = np.where(some, total, 1)
        alpha /= divisor[block.row]
        place = slice(block.begin - start, block.end - start)
        made[0][place] = block.gather(alpha, T)
        made[1][place] = np.where(some, best + np.log(divisor), np.inf)
        alpha *= lean
        made[2][place] = block.gather(alpha, T)
        made[3][place] = block.reduce(np.add, alpha, 0.0)
    return made[0], made[1], made[2], made[3]


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
) -> tuple[Array, Array]:
    """dT and ds of the rows; marks: t, log_total and delta of the targets."""
    t, log_total, delta = marks
    heads = s.shape[1]
    dT, ds = np.zeros((stop - start, dZ.shape[1]), dZ.dtype), np.zeros((stop - start, heads), dZ.dtype)
    for block in _blocks(out_edges, start, stop, add_self):
        score = s[block.begin : block.end][block.row] + t[block.columns]  # [edges, heads]
        lean = np.where(score < 0, dZ.dtype.type(slope), dZ.dtype.type(1))
        alpha = np.exp(score * lean - log_total[block.columns])
        if block.weight is not None:
            alpha *= block.weight[:, None]
        place = slice(block.begin - start, block.end - start)
        dT[place] = block.gather(alpha, dZ)
        alpha *= lean
        leaned = block.gather(alpha, dZ).reshape(block.end - block.begin, heads, -1)
        own = T[block.begin : block.end].reshape(leaned.shape)
        ds[place] = np.einsum("khd,khd->kh", own, leaned)
        ds[place] -= block.reduce(np.add, alpha * delta[block.columns], 0.0)
    return dT, ds


def gather_heads(edges: Edges, start: int, stop: int, T: Array, weight: Array) -> Array:
    first = int(edges.indptr[start])
    Z = np.zeros((stop - start, T.shape[1]), T.dtype)
    for block in _blocks(edges, start, stop, False):
        part = weight[block.edges.start - first : block.edges.stop - first]
        Z[block.begin - start : block.end - start] = block.gather(part.astype(T.dtype, copy=False), T)
    return Z


def edge_dot(edges: Edges, start: int, stop: int, targets: Array, sources: Array, heads: int) -> Array:
    first = int(edges.indptr[start])
    out = np.empty((int(edges.indptr[stop]) - first, heads), sources.dtype)
    for block in _blocks(edges, start, stop, False):
        own = targets[block.begin : block.end][block.row].reshape(len(block.row), heads, -1)
        other = sources[block.columns].reshape(own.shape)
        out[block.edges.start - first : block.edges.stop - first] = np.einsum("ehd,ehd->eh", own, other)
    return out
