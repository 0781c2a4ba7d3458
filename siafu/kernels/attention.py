"""Attention over edges (GAT) without a tensor over edges: each edge is read once forwards and once backwards.

    e_vu = LeakyReLU(t_v + s_u)        per head, of each edge u -> v; s and t: the source's and the target's score
    alpha_vu = w_vu exp(e_vu) / sum over the in-edges u' of v of w_vu' exp(e_vu')    (w: the edge's weight > 0, or 1)
    Z_v = sum_u m_vu alpha_vu T_u      T [N, heads * width]: heads side by side
    m_vu                               dropout: 0 or 1 / (the share kept), after the softmax; 1 without

Backward needs arrays over vertices, not over edges. With l' the slope of LeakyReLU at the edge:

    log_total_v = ln sum_u w exp(e_vu)                   alpha_vu = w_vu exp(e_vu - log_total_v)
    leaned_v = sum_u m_vu alpha_vu l'_vu T_u             leaned_total_v = sum_u alpha_vu l'_vu
    delta_v = <dZ_v, Z_v>                                per head
    dt_v = <dZ_v, leaned_v> - delta_v leaned_total_v                                              (``target_gradient``)
    dT_u = sum_v m_vu alpha_vu dZ_v
    ds_u = <T_u, sum_v m_vu alpha_vu l'_vu dZ_v> - sum_v alpha_vu l'_vu delta_v

Backward is one pass over the out-edges u -> v. It recomputes alpha from t_v, log_total_v and s_u, and m from the ids of
u and v (``EdgeDropout``).

Rows that edges point at are ``Records``: a row with its scores beside it, in float32, bfloat16, or float64 (which numpy
computes). Sums are float32, in an order that depends on the row alone. Scores may have any size; for large ones
float32 (1e4 + 1e-3) limits alpha's accuracy. A vertex without edges gets zeros.

If ApplyEdge computes alpha: ``siafu.kernels.coefficients``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from siafu.kernels import attention_numpy, functions
from siafu.kernels.attention_call import (
    ATTEND,
    BACKWARD,
    Call,
    check_dropout,
    check_out,
    check_range,
    check_scores,
    computed_here,
    real_rows,
    rows_of_range,
)
from siafu.kernels.dropout import EdgeDropout
from siafu.kernels.records import Records
from siafu.sparse import Array, Edges

__all__ = ["Attended", "EdgeDropout", "Records", "attend", "attend_backward", "target_gradient"]


@dataclass(frozen=True, eq=False)
class Attended:
    """The gathered rows of a range of k targets, and the values that backward needs: see the module's formulas."""

    Z: Array  # [k, heads * width]
    log_total: Array  # [k, heads]; +inf for a vertex without edges
    leaned: Array  # [k, heads * width]; empty (0 rows) without ``training``
    leaned_total: Array  # [k, heads]; empty (0 rows) without ``training``


def attend(
    edges: Edges,
    start: int,
    stop: int,
    sources: Records,
    target: Array,
    *,
    slope: float = 0.2,
    add_self: bool = False,
    dropout: EdgeDropout | None = None,
    training: bool = True,
    out: Attended | None = None,
    threads: int = 1,
) -> Attended:
    """Gathers for the rows ``start:stop``: each sums the rows T of its in-neighbours, weighted by attention.

    sources: T and s by column: of inner vertices, then ghosts.
    target: t of all inner vertices [n, heads], or of the range alone [k, heads].
    add_self: every vertex attends to itself too, with weight 1 (GAT on graphs with self-loops; shards hold none).

    Raises: ValueError if shapes or dtypes do not fit.
    """
    check_range(edges, start, stop, threads)
    check_scores(sources, 1)
    check_dropout(dropout, sources)
    target = rows_of_range(target, edges, start, stop, sources.heads, "target")
    out = _checked(out, sources, stop - start, training)
    if computed_here(sources):
        T, s = sources.rows(), sources.scores[:, 0]
        made = attention_numpy.attend(edges, start, stop, T, s, target, slope, add_self, dropout)
        for to, array in zip((out.Z, out.log_total, out.leaned, out.leaned_total), made, strict=True):
            to[...] = array[: len(to)]
        return out
    call = Call.of(
        ATTEND, edges, start, stop, sources, slope=slope, add_self=add_self, dropout=dropout, threads=threads
    )
    target = call.set_own(target)
    call.out, call.total = out.Z.ctypes.data, out.log_total.ctypes.data
    if training:
        call.leaned, call.leaned_total = out.leaned.ctypes.data, out.leaned_total.ctypes.data
    call.run()
    return out


def _checked(out: Attended | None, sources: Records, k: int, training: bool) -> Attended:
    wide, narrow, real = sources.columns, sources.heads, sources.real
    kept = k if training else 0
    shapes = (k, wide), (k, narrow), (kept, wide), (kept, narrow)
    if out is None:
        return Attended(*(np.empty(shape, real) for shape in shapes))
    made = (out.Z, out.log_total, out.leaned, out.leaned_total)[: 4 if training else 2]
    for array, shape in zip(made, shapes, strict=False):
        check_out(array, shape, real)
    return out


def target_gradient(attended: Attended, dZ: Array) -> tuple[Array, Array]:
    """Returns dt [k, heads], and delta [k, heads], which the sources will need."""
    heads = attended.leaned_total.shape[1]
    delta = functions.dots(dZ, attended.Z, heads)
    return functions.dots(dZ, attended.leaned, heads) - delta * attended.leaned_total, delta


def attend_backward(
    out_edges: Edges,
    start: int,
    stop: int,
    targets: Records,
    rows: Array,
    source: Array,
    *,
    slope: float = 0.2,
    add_self: bool = False,
    dropout: EdgeDropout | None = None,
    out: tuple[Array, Array] | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """Returns dT [k, heads * width] and ds [k, heads] of the sources ``start:stop``, from the targets of their
    out-edges.

    targets: dZ with t, log_total and delta of each target.
    rows: T [n, heads * width], float32 or bfloat16's bits; source: s [n, heads]. Both of all inner vertices, or (each)
    of the range alone: k rows. Neither is copied if it is contiguous.
    dropout: forward's, with the ids of the out-edges' columns.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    check_range(out_edges, start, stop, threads)
    check_scores(targets, 3)
    check_dropout(dropout, targets)
    k, wide, real = stop - start, targets.columns, targets.real
    rows = rows_of_range(rows, out_edges, start, stop, wide, "rows")
    source = rows_of_range(source, out_edges, start, stop, targets.heads, "source")
    dT, ds = out if out is not None else (np.empty((k, wide), real), np.empty((k, targets.heads), real))
    check_out(dT, (k, wide), real)
    check_out(ds, (k, targets.heads), real)
    if computed_here(targets):
        dZ, marks = targets.rows(), [targets.scores[:, kind] for kind in range(3)]
        dT[...], ds[...] = attention_numpy.backward(
            out_edges, start, stop, dZ, marks, real_rows(rows), source, slope, add_self, dropout
        )
        return dT, ds
    call = Call.of(
        BACKWARD,
        out_edges,
        start,
        stop,
        targets,
        slope=slope,
        add_self=add_self,
        dropout=dropout,
        threads=threads,
    )
    source, rows = call.set_own(source), call.set_own_rows(rows)
    call.out, call.leaned_total = dT.ctypes.data, ds.ctypes.data
    call.run()
    return dT, ds
