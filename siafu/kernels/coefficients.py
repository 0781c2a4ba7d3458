"""Attention (``siafu.kernels.attention``) with coefficients that an ApplyEdge task has computed.

The server sends ``edge_scores`` and ``segments``. ``siafu.ops.segment_softmax`` computes coefficients from them, which
come back *signed*: |alpha| is the coefficient; it is negative where LeakyReLU's argument was. Arrays are per edge and
head, [edges of the range, heads], row after row. With ``add_self`` each row begins with the edge of the vertex to
itself, then has its edges in the order of the shard. Edge weights are in alpha already.

    forward   segment_softmax(edge_scores: s; own t) -> alpha over in-edges, log_total; here: ``attend_given``
    backward  segment_softmax_backward(edge_scores: t, log_total, delta; ``edge_dot``; own s) -> alpha over out-edges,
              ds; here: ``rows_gradient``, dT
"""

from __future__ import annotations

import numpy as np

from siafu.kernels import attention_numpy
from siafu.kernels.attention import Attended
from siafu.kernels.attention_call import (
    ATTEND,
    BACKWARD,
    Call,
    check_dropout,
    check_range,
    computed_here,
    real_rows,
    rows_of_range,
)
from siafu.kernels.dropout import EdgeDropout
from siafu.kernels.records import Records, check
from siafu.sparse import Array, Edges

# --- what leaves -----------------------------------------------------------------------------------------------------


def segments(edges: Edges, start: int, stop: int, *, add_self: bool = False) -> Array:
    """Returns the start of each row's coefficients, for the rows ``start:stop``, and the end of the last: int64
    [k + 1]."""
    indptr = np.asarray(edges.indptr[start : stop + 1]) - edges.indptr[start]
    return np.asarray(indptr + np.arange(len(indptr)) if add_self else indptr)


def edge_scores(edges: Edges, start: int, stop: int, base: Records, *, add_self: bool = False) -> Array:
    """Returns the scores of the other end of each edge of the rows: [edges of the range, num_scores * heads].

    base: with s (forward), or with t, log_total and delta (backward).
    """
    first, last = int(edges.indptr[start]), int(edges.indptr[stop])
    columns = np.asarray(edges.indices[first:last])
    if add_self:
        indptr = np.asarray(edges.indptr[start:stop]) - first
        columns = np.insert(columns, indptr, np.arange(start, stop, dtype=columns.dtype))
    return np.asarray(base.scores[columns].reshape(len(columns), base.num_scores * base.heads))


# --- what is done with alpha ------------------------------------------------------------------------------------------


def attend_given(
    edges: Edges,
    start: int,
    stop: int,
    sources: Records,
    alpha: Array,
    log_total: Array,
    *,
    slope: float = 0.2,
    add_self: bool = False,
    dropout: EdgeDropout | None = None,
    training: bool = True,
    threads: int = 1,
) -> Attended:
    """Computes ``attend`` with signed coefficients. sources: T, with any scores; log_total: the one computed with
    alpha, returned unchanged.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check(edges, start, stop, sources, alpha, add_self, dropout, threads)
    k = stop - start
    check(log_total, (k, sources.heads), "log_total")
    kept = k if training else 0
    if computed_here(sources):
        T = sources.rows()
        Z, _, leaned, leaned_total = attention_numpy.attend_given(
            edges, start, stop, T, alpha, slope, add_self, dropout
        )
        return Attended(Z, log_total, leaned[:kept], leaned_total[:kept])
    shapes = (k, sources.columns), (kept, sources.columns), (kept, sources.heads)
    Z, leaned, leaned_total = (np.empty(shape, np.float32) for shape in shapes)
    call = Call.of(
        ATTEND, edges, start, stop, sources, slope=slope, add_self=add_self, dropout=dropout, threads=threads
    )
    alpha = call.set_alpha(alpha)
    call.out = Z.ctypes.data
    if training:
        call.leaned, call.leaned_total = leaned.ctypes.data, leaned_total.ctypes.data
    call.run()
    return Attended(Z, log_total, leaned, leaned_total)


def rows_gradient(
    out_edges: Edges,
    start: int,
    stop: int,
    targets: Records,
    alpha: Array,
    *,
    add_self: bool = False,
    dropout: EdgeDropout | None = None,
    threads: int = 1,
) -> Array:
    """Returns dT_u = sum of m_vu |alpha_vu| dZ_v over the out-edges u -> v of each row: [k, heads * width].

    targets: dZ, with any scores.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check(out_edges, start, stop, targets, alpha, add_self, dropout, threads)
    if computed_here(targets):
        dZ = targets.rows()
        return attention_numpy.rows_gradient(out_edges, start, stop, dZ, alpha, add_self, dropout)
    dT = np.empty((stop - start, targets.columns), np.float32)
    call = Call.of(BACKWARD, out_edges, start, stop, targets, add_self=add_self, dropout=dropout, threads=threads)
    alpha = call.set_alpha(alpha)
    call.out = dT.ctypes.data
    call.run()
    return dT


def edge_dot(
    out_edges: Edges,
    start: int,
    stop: int,
    rows: Array,
    targets: Records,
    *,
    add_self: bool = False,
    dropout: EdgeDropout | None = None,
    threads: int = 1,
) -> Array:
    """Returns m_vu <T_u, dZ_v> for every edge u -> v out of the rows, by head: [edges of the range, heads].

    rows: T of all inner vertices, or of the range alone; targets: dZ, with any scores.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check(out_edges, start, stop, targets, None, add_self, dropout, threads)
    rows = rows_of_range(rows, out_edges, start, stop, targets.columns, "rows")
    if computed_here(targets):
        dZ = targets.rows()
        return attention_numpy.edge_dot(out_edges, start, stop, real_rows(rows), dZ, targets.heads, add_self, dropout)
    products = np.empty((_num_edges(out_edges, start, stop, add_self), targets.heads), np.float32)
    call = Call.of(BACKWARD, out_edges, start, stop, targets, add_self=add_self, dropout=dropout, threads=threads)
    rows = call.set_own_rows(rows)
    call.out = products.ctypes.data
    call.run_edge_dot()
    return products


def _check(
    edges: Edges,
    start: int,
    stop: int,
    base: Records,
    alpha: Array | None,
    add_self: bool,
    dropout: EdgeDropout | None,
    threads: int,
) -> None:
    check_range(edges, start, stop, threads)
    check_dropout(dropout, base)
    if alpha is not None:
        check(alpha, (_num_edges(edges, start, stop, add_self), base.heads), "alpha")


def _num_edges(edges: Edges, start: int, stop: int, add_self: bool) -> int:
    return int(edges.indptr[stop] - edges.indptr[start]) + (stop - start) * add_self
