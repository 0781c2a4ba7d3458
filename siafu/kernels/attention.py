"""Attention over edges (GAT) without a tensor over edges: each edge is read once forwards and once backwards.

    e_vu = LeakyReLU(t_v + s_u)        per head, of each edge u -> v; s and t: the source's and the target's score
    alpha_vu = w_vu exp(e_vu) / sum over the in-edges u' of v of w_vu' exp(e_vu')    (w: the edge's weight > 0; 1 without)
    Z_v = sum_u alpha_vu T_u           T [N, heads * width]: heads side by side

What backward needs is the size of the vertices, not of the edges. With l' the slope of LeakyReLU at the edge:

    log_total_v = ln sum_u w exp(e_vu)              alpha_vu = w_vu exp(e_vu - log_total_v)
    leaned_v = sum_u alpha_vu l'_vu T_u             leaned_total_v = sum_u alpha_vu l'_vu
    delta_v = <dZ_v, Z_v>                           per head
    dt_v = <dZ_v, leaned_v> - delta_v leaned_total_v                                              (``target_gradient``)
    dT_u = sum_v alpha_vu dZ_v                      ds_u = <T_u, sum_v alpha_vu l'_vu dZ_v> - sum_v alpha_vu l'_vu delta_v

Backward is one pass over the out-edges u -> v, which make alpha again from t_v, log_total_v and their own s_u.

Rows that edges point at are ``Records``: a row with its scores beside it, in float32, bfloat16, or float64 (which numpy
computes). Sums are float32, in an order that depends on the row alone. Scores may be of any size: float32's 1e4 + 1e-3 is
what limits alpha's accuracy then. A vertex without edges gets zeros.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from siafu.kernels import attention_numpy
from siafu.kernels.library import LIBRARY
from siafu.kernels.records import Records, check
from siafu.kernels.rows import from_bfloat16
from siafu.shards import Edges
from siafu.sparse import Array

__all__ = ["Attended", "Records", "attend", "attend_backward", "edge_dot", "gather_heads", "target_gradient"]

_ATTEND, _BACKWARD, _WEIGHTS = range(3)  # attention.hpp: Mode


# --- forward and backward -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attended:
    """What a range of k targets gathered, and what its backward needs: see the module's formulas."""

    Z: Array  # [k, heads * width]
    log_total: Array  # [k, heads]; +inf for a vertex without edges
    leaned: Array  # [k, heads * width]; not made (0 rows) without ``training``
    leaned_total: Array  # [k, heads]; the same


def attend(
    edges: Edges,
    start: int,
    stop: int,
    sources: Records,
    target: Array,
    *,
    ghosts: Records | None = None,
    slope: float = 0.2,
    add_self: bool = False,
    training: bool = True,
    out: Attended | None = None,
    threads: int = 1,
) -> Attended:
    """Rows ``start:stop``: each gathers the rows T of its in-neighbours, weighed by attention.

    sources: T and s; ghosts: those of columns from ``sources.num_rows`` on (``sources.like``). target: t [n, heads].
    add_self: every vertex attends to itself too, with weight 1 (GAT on graphs with self-loops; shards hold none).

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check_range(edges, start, stop, threads)
    _check_bases(sources, ghosts, 1)
    check(target, (len(edges.indptr) - 1, sources.heads), "target")
    real, k, wide, narrow = sources.real, stop - start, sources.columns, sources.heads
    if out is None:
        kept = k if training else 0
        shapes = (k, wide), (k, narrow), (kept, wide), (kept, narrow)
        out = Attended(*(np.empty(shape, real) for shape in shapes))
    _check_out(out.Z, (k, wide), real)
    _check_out(out.log_total, (k, narrow), real)
    if training:
        _check_out(out.leaned, (k, wide), real)
        _check_out(out.leaned_total, (k, narrow), real)
    if LIBRARY is None or sources.dtype == "float64":
        T, s = _joined(sources, ghosts)
        made = attention_numpy.attend(edges, start, stop, T, s[0], target, slope, add_self)
        for to, array in zip((out.Z, out.log_total, out.leaned, out.leaned_total), made, strict=True):
            to[...] = array[: len(to)]
        return out
    call = _call(_ATTEND, edges, start, stop, sources, ghosts, threads)
    call.slope, call.add_self = slope, add_self
    target = np.ascontiguousarray(target, np.float32)
    call.own = target.ctypes.data
    call.out, call.total = out.Z.ctypes.data, out.log_total.ctypes.data
    if training:
        call.leaned, call.leaned_total = out.leaned.ctypes.data, out.leaned_total.ctypes.data
    LIBRARY.siafu_attention(ctypes.byref(call))
    return out


def target_gradient(attended: Attended, dZ: Array) -> tuple[Array, Array]:
    """dt [k, heads], and delta [k, heads], which the sources will ask for."""
    k, heads = attended.leaned_total.shape
    by_head = np.asarray(dZ).reshape(k, heads, -1)
    delta = np.einsum("khd,khd->kh", by_head, attended.Z.reshape(by_head.shape))
    dt = np.einsum("khd,khd->kh", by_head, attended.leaned.reshape(by_head.shape)) - delta * attended.leaned_total
    return dt, delta


def attend_backward(
    out_edges: Edges,
    start: int,
    stop: int,
    targets: Records,
    rows: Array,
    source: Array,
    *,
    ghosts: Records | None = None,
    slope: float = 0.2,
    add_self: bool = False,
    out: tuple[Array, Array] | None = None,
    threads: int = 1,
) -> tuple[Array, Array]:
    """dT [k, heads * width] and ds [k, heads] of the sources ``start:stop``, from the targets of their out-edges.

    targets: dZ with t, log_total and delta of each target; ghosts: the same of columns from ``targets.num_rows`` on.
    rows: T [n, heads * width], float32 or bfloat16's bits; source: s [n, heads]; both of all inner vertices.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check_range(out_edges, start, stop, threads)
    _check_bases(targets, ghosts, 3)
    n, k, wide = len(out_edges.indptr) - 1, stop - start, targets.columns
    check(rows, (n, wide), "rows")
    check(source, (n, targets.heads), "source")
    real = targets.real
    dT, ds = out if out is not None else (np.empty((k, wide), real), np.empty((k, targets.heads), real))
    _check_out(dT, (k, wide), real)
    _check_out(ds, (k, targets.heads), real)
    if LIBRARY is None or targets.dtype == "float64":
        dZ, marks = _joined(targets, ghosts)
        T = from_bfloat16(rows) if rows.dtype == np.uint16 else rows
        dT[...], ds[...] = attention_numpy.backward(out_edges, start, stop, dZ, marks, T, source, slope, add_self)
        return dT, ds
    call = _call(_BACKWARD, out_edges, start, stop, targets, ghosts, threads)
    call.slope, call.add_self = slope, add_self
    source = np.ascontiguousarray(source, np.float32)
    rows = np.ascontiguousarray(rows, np.uint16 if rows.dtype == np.uint16 else np.float32)
    call.own, call.own_rows, call.own_bits16 = source.ctypes.data, rows.ctypes.data, rows.dtype == np.uint16
    call.out, call.leaned_total = dT.ctypes.data, ds.ctypes.data
    LIBRARY.siafu_attention(ctypes.byref(call))
    return dT, ds


# --- weights per edge and head ---------------------------------------------------------------------------------------


def gather_heads(
    edges: Edges,
    start: int,
    stop: int,
    sources: Records,
    weight: Array,
    *,
    ghosts: Records | None = None,
    out: Array | None = None,
    threads: int = 1,
) -> Array:
    """Z [k, heads * width]: sum of w_e T_u over the edges e of each row ``start:stop``, each head with its own weight.

    weight: [edges of the range, heads], in the order of the edges; ``edges.weight`` is not used.

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check_range(edges, start, stop, threads)
    _check_bases(sources, ghosts, sources.num_scores)
    check(weight, (int(edges.indptr[stop] - edges.indptr[start]), sources.heads), "weight")
    Z = out if out is not None else np.empty((stop - start, sources.columns), sources.real)
    _check_out(Z, (stop - start, sources.columns), sources.real)
    if LIBRARY is None or sources.dtype == "float64":
        Z[...] = attention_numpy.gather_heads(edges, start, stop, _joined(sources, ghosts)[0], weight)
        return Z
    call = _call(_WEIGHTS, edges, start, stop, sources, ghosts, threads)
    weight = np.ascontiguousarray(weight, np.float32)
    call.weight, call.out = weight.ctypes.data, Z.ctypes.data
    LIBRARY.siafu_attention(ctypes.byref(call))
    return Z


def edge_dot(
    edges: Edges,
    start: int,
    stop: int,
    targets: Array,
    sources: Records,
    *,
    ghosts: Records | None = None,
    threads: int = 1,
) -> Array:
    """<targets_v, sources_u> of every edge u -> v of the rows, by head: [edges of the range, heads].

    The gradient of ``gather_heads`` with respect to the weights, for targets dZ [n, heads * width].

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check_range(edges, start, stop, threads)
    _check_bases(sources, ghosts, sources.num_scores)
    check(targets, (len(edges.indptr) - 1, sources.columns), "targets")
    if LIBRARY is None or sources.dtype == "float64":
        return attention_numpy.edge_dot(edges, start, stop, targets, _joined(sources, ghosts)[0], sources.heads)
    products = np.empty((int(edges.indptr[stop] - edges.indptr[start]), sources.heads), np.float32)
    call = _call(_WEIGHTS, edges, start, stop, sources, ghosts, threads)
    targets = np.ascontiguousarray(targets, np.float32)
    call.own_rows, call.out = targets.ctypes.data, products.ctypes.data
    LIBRARY.siafu_edge_dot(ctypes.byref(call))
    return products


# --- the library's side ----------------------------------------------------------------------------------------------


class _Call(ctypes.Structure):
    """attention.cpp: Call."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("indptr", "indices", "weight", "rows", "ghost_rows", "scores")),
        *((name, ctypes.c_void_p) for name in ("ghost_scores", "own", "own_rows", "out", "leaned", "total")),
        ("leaned_total", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("start", "stop", "num_inner", "row_bytes", "score_bytes", "score_step")),
        *((name, ctypes.c_int32) for name in ("mode", "heads", "width", "bits16", "own_bits16", "add_self", "threads")),
        ("slope", ctypes.c_float),
    )


def _call(mode: int, edges: Edges, start: int, stop: int, base: Records, ghosts: Records | None, threads: int) -> _Call:
    """What every function fills in. It holds addresses only: the caller keeps the arrays."""
    call = _Call(mode=mode, start=start, stop=stop, threads=threads, heads=base.heads, width=base.width)
    call.indptr, call.indices = edges.indptr.ctypes.data, edges.indices.ctypes.data
    call.weight = None if edges.weight is None else edges.weight.ctypes.data
    call.num_inner, call.bits16 = base.num_rows, base.dtype == "bfloat16"
    call.rows, call.row_bytes = base.memory.ctypes.data, base.row_bytes
    call.scores, call.score_bytes, call.score_step = base.scores.ctypes.data, base.score_bytes, base.heads
    if ghosts is not None:
        call.ghost_rows, call.ghost_scores = ghosts.memory.ctypes.data, ghosts.scores.ctypes.data
    return call


def _joined(base: Records, ghosts: Records | None) -> tuple[Array, list[Array]]:
    """Rows [N + g, heads * width] and the scores [N + g, heads] of both, copied."""
    both = [base] if ghosts is None else [base, ghosts]
    rows = np.concatenate([one.rows() for one in both])
    return rows, [np.concatenate([one.scores[:, kind] for one in both]) for kind in range(base.num_scores)]


def _check_out(array: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"out {array.dtype} {array.shape}, must be contiguous {dtype} {shape}")


def _check_range(edges: Edges, start: int, stop: int, threads: int) -> None:
    n = len(edges.indptr) - 1
    if not 0 <= start <= stop <= n:
        raise ValueError(f"rows {start}..{stop}, must be in 0..{n}")
    if threads < 1:
        raise ValueError(f"{threads} threads, must be at least 1")
    given = (edges.indptr, np.int64), (edges.indices, np.int32), (edges.weight, np.float32)
    for array, dtype in given:
        if array is not None and (array.dtype != dtype or not array.flags.c_contiguous):
            raise ValueError(f"edges: {array.dtype}, must be contiguous {np.dtype(dtype)}")


def _check_bases(base: Records, ghosts: Records | None, num_scores: int) -> None:
    if base.num_scores != num_scores:
        raise ValueError(f"records with {base.num_scores} scores, must be {num_scores}")
    if ghosts is None:
        return
    one, other = ((r.heads, r.width, r.num_scores, r.dtype, r.row_bytes, r.score_bytes) for r in (base, ghosts))
    if one != other:
        raise ValueError(f"ghosts are laid out as {other}, must be as the inner rows: {one} (Records.like)")
