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
import os
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from siafu.kernels import attention_numpy
from siafu.kernels.library import LIBRARY
from siafu.shards import Edges
from siafu.sparse import Array

Dtype = Literal["float32", "bfloat16", "float64"]
_STORED: Final = {"float32": np.float32, "bfloat16": np.uint16, "float64": np.float64}
_ATTEND, _BACKWARD, _WEIGHTS = range(3)  # attention.hpp: Mode
BLOCK_BYTES: Final = 64  # of a row in a block of columns: a cache line
BLOCK_HEADS: Final = 8  # at most, in one block: what every instruction set takes in one pass


# --- rows ------------------------------------------------------------------------------------------------------------


class Records:
    """``num_rows`` rows of ``heads * width`` columns, each with ``num_scores`` scores per head.

    Attention reads one score of a source (s), and three of a target on the way back (t, log_total, delta). Where the table
    is larger than the last cache and a cache line of every row is not, columns are kept in blocks of a line per row, which
    are gathered from one after the other.

    Raises: ValueError for a shape or dtype that there is not.
    """

    def __init__(
        self,
        num_rows: int,
        heads: int,
        width: int,
        *,
        num_scores: int = 1,
        dtype: Dtype = "float32",
        blocked: bool | None = None,
    ):
        if dtype not in _STORED:
            raise ValueError(f"records of {dtype!r}, must be one of {', '.join(_STORED)}")
        if min(num_rows, num_scores) < 0 or min(heads, width) < 1:
            raise ValueError(f"records of {num_rows} rows, {heads} heads x {width}, {num_scores} scores")
        self.num_rows, self.heads, self.width, self.num_scores, self.dtype = num_rows, heads, width, num_scores, dtype
        stored = np.dtype(_STORED[dtype])
        columns = BLOCK_BYTES // stored.itemsize
        block_heads = min(heads, (columns + width - 2) // width + 1)  # that a block may touch
        if blocked is None:
            cache = _last_cache_bytes()
            row = stored.itemsize * heads * width + 4 * num_scores * heads
            blocked = num_rows * row > cache >= num_rows * (BLOCK_BYTES + 4 * num_scores * block_heads) * 4 // 3
        self.blocked = blocked and heads * width > columns and block_heads <= BLOCK_HEADS and dtype != "float64"
        if self.blocked:
            blocks = -(-heads * width // columns)
            self._rows = _zeros((blocks, num_rows, columns), stored)
            self._scores = _zeros((blocks, num_rows, num_scores, block_heads), np.dtype(np.float32))
        else:
            self._rows, self._scores = _packed(num_rows, heads, width, num_scores, stored)

    @classmethod
    def of(cls, rows: Array, *scores: Array, heads: int) -> Records:
        """``rows`` [N, heads * width] (uint16: bfloat16's bits) as they lie, not copied; scores [N, heads] each, copied if several."""
        dtypes: dict[Any, Dtype] = {np.dtype(v): k for k, v in _STORED.items()}  # type: ignore[misc]
        if rows.ndim != 2 or rows.dtype not in dtypes or rows.shape[1] % heads or not rows.shape[1]:
            raise ValueError(f"rows {rows.dtype} {rows.shape}, must be float32, float64 or uint16 [N, {heads} x width]")
        made = cls(0, heads, rows.shape[1] // heads, num_scores=len(scores), dtype=dtypes[rows.dtype], blocked=False)
        made.num_rows = len(rows)
        made._rows = np.ascontiguousarray(rows)[None]
        real = np.float64 if made.dtype == "float64" else np.float32
        for score in scores:
            _check(score, (len(rows), heads), "scores")
        made._scores = np.stack([np.asarray(s, real) for s in scores], axis=1)[None] if scores else np.zeros((1, 0, 0, 0), real)
        return made

    @property
    def nbytes(self) -> int:
        return int(self._rows.nbytes + self._scores.nbytes)

    def write(self, place: slice | Array, rows: Array, *scores: Array) -> None:
        """Rows [k, heads * width] and their scores [k, heads] to where ``place`` says: a slice, or row numbers."""
        if len(scores) != self.num_scores:
            raise ValueError(f"{len(scores)} scores, must be {self.num_scores}")
        if rows.ndim != 2 or rows.shape[1] != self.heads * self.width:
            raise ValueError(f"rows {rows.shape}, must be [k, {self.heads * self.width}]")
        for score in scores:
            _check(score, (len(rows), self.heads), "scores")
        columns = self._rows.shape[2]
        for block, (to, to_scores) in enumerate(zip(self._rows, self._scores, strict=True)):
            part = rows[:, block * columns : (block + 1) * columns]
            to[place, : part.shape[1]] = _to_bits(part) if self.dtype == "bfloat16" and rows.dtype != np.uint16 else part
            first, last = self._heads_of(block)
            for kind, score in enumerate(scores):
                to_scores[place, kind, : last - first] = score[:, first:last]

    def rows(self) -> Array:
        """A copy: [N, heads * width], float32 or float64."""
        flat = np.concatenate(list(self._rows), axis=1)[:, : self.heads * self.width]
        return _from_bits(flat) if self.dtype == "bfloat16" else flat

    def scores(self, kind: int) -> Array:
        """A copy: [N, heads]."""
        out = np.empty((self.num_rows, self.heads), self._scores.dtype)
        for block in range(len(self._rows)):
            first, last = self._heads_of(block)
            out[:, first:last] = self._scores[block, :, kind, : last - first]
        return out

    def _heads_of(self, block: int) -> tuple[int, int]:
        columns = self._rows.shape[2]
        first, last = block * columns, min((block + 1) * columns, self.heads * self.width)
        return first // self.width, (last - 1) // self.width + 1


def _packed(num_rows: int, heads: int, width: int, num_scores: int, stored: np.dtype[Any]) -> tuple[Array, Array]:
    """One memory for both, so that a row's scores come with its last cache line."""
    real = np.dtype(np.float64 if stored == np.float64 else np.float32)
    row = -(-heads * width * stored.itemsize // real.itemsize) * real.itemsize
    step = -(-(row + num_scores * heads * real.itemsize) // 64) * 64
    memory = _zeros((num_rows, step), np.dtype(np.uint8))
    rows = memory[:, : heads * width * stored.itemsize].view(stored)
    scores = memory[:, row : row + num_scores * heads * real.itemsize].view(real)
    return rows[None], scores.reshape(num_rows, num_scores, heads)[None]


def _zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Beginning at a cache line."""
    nbytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(nbytes + BLOCK_BYTES, np.uint8)
    skip = -memory.ctypes.data % BLOCK_BYTES
    return memory[skip : skip + nbytes].view(dtype).reshape(shape)


def _last_cache_bytes() -> int:
    try:
        return os.sysconf("SC_LEVEL3_CACHE_SIZE") or 16 << 20
    except (ValueError, OSError):
        return 16 << 20


def _to_bits(rows: Array) -> Array:
    """bfloat16's bits, rounded to the nearest even."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _from_bits(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


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

    sources: T and s; ghosts: those of columns from ``sources.num_rows`` on, in the same layout. target: t [n, heads].
    add_self: every vertex attends to itself too, with weight 1 (GAT on graphs with self-loops; shards hold none).

    Raises: ValueError if shapes or dtypes do not fit.
    """
    _check_range(edges, start, stop, threads)
    _check_bases(sources, ghosts, 1)
    _check(target, (len(edges.indptr) - 1, sources.heads), "target")
    real = np.float64 if sources.dtype == "float64" else np.float32
    k, wide, narrow = stop - start, sources.heads * sources.width, sources.heads
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
    call.slope, call.add_self, call.leaned_wanted = slope, add_self, training
    kept_alive = target = np.ascontiguousarray(target, np.float32)
    call.own = kept_alive.ctypes.data
    call.out, call.total = out.Z.ctypes.data, out.log_total.ctypes.data
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
    n, k, wide = len(out_edges.indptr) - 1, stop - start, targets.heads * targets.width
    _check(rows, (n, wide), "rows")
    _check(source, (n, targets.heads), "source")
    real = np.float64 if targets.dtype == "float64" else np.float32
    dT, ds = out if out is not None else (np.empty((k, wide), real), np.empty((k, targets.heads), real))
    _check_out(dT, (k, wide), real)
    _check_out(ds, (k, targets.heads), real)
    if LIBRARY is None or targets.dtype == "float64":
        dZ, marks = _joined(targets, ghosts)
        T = _from_bits(rows) if rows.dtype == np.uint16 else rows
        dT[...], ds[...] = attention_numpy.backward(out_edges, start, stop, dZ, marks, T, source, slope, add_self)
        return dT, ds
    call = _call(_BACKWARD, out_edges, start, stop, targets, ghosts, threads)
    call.slope, call.add_self, call.leaned_wanted = slope, add_self, True
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
    _check(weight, (int(edges.indptr[stop] - edges.indptr[start]), sources.heads), "weight")
    real = np.float64 if sources.dtype == "float64" else np.float32
    Z = out if out is not None else np.empty((stop - start, sources.heads * sources.width), real)
    _check_out(Z, (stop - start, sources.heads * sources.width), real)
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

    The gradient of ``gather_heads`` with respect to the weights, for targets dZ [n, heads * width]. Sources whose columns
    are in blocks are refused: an edge's product needs whole rows.

    Raises: ValueError if shapes, dtypes or layouts do not fit.
    """
    _check_range(edges, start, stop, threads)
    _check_bases(sources, ghosts, sources.num_scores)
    _check(targets, (len(edges.indptr) - 1, sources.heads * sources.width), "targets")
    if sources.blocked:
        raise ValueError("edge_dot of records in blocks of columns: make them with blocked=False")
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
        *((name, ctypes.c_int64) for name in ("start", "stop", "num_inner", "row_bytes", "block_bytes")),
        *((name, ctypes.c_int64) for name in ("ghost_block_bytes", "score_bytes", "score_block_bytes")),
        *((name, ctypes.c_int64) for name in ("ghost_score_block_bytes", "score_step")),
        *((name, ctypes.c_int32) for name in ("mode", "heads", "width", "block_columns", "bits16", "own_bits16")),
        *((name, ctypes.c_int32) for name in ("add_self", "leaned_wanted", "threads")),
        ("slope", ctypes.c_float),
    )


def _call(
    mode: int, edges: Edges, start: int, stop: int, base: Records, ghosts: Records | None, threads: int
) -> _Call:
    """The fields that every function fills. Arrays must outlive the call: only those of the arguments are taken."""
    call = _Call(mode=mode, start=start, stop=stop, threads=threads, heads=base.heads, width=base.width)
    call.indptr, call.indices = edges.indptr.ctypes.data, edges.indices.ctypes.data
    call.weight = None if edges.weight is None else edges.weight.ctypes.data
    call.num_inner, call.bits16 = base.num_rows, base.dtype == "bfloat16"
    call.block_columns = base._rows.shape[2] if base.blocked else 0
    call.rows, call.block_bytes, call.row_bytes = base._rows.ctypes.data, base._rows.strides[0], base._rows.strides[1]
    call.scores, call.score_block_bytes = base._scores.ctypes.data, base._scores.strides[0]
    call.score_bytes, call.score_step = base._scores.strides[1], base._scores.strides[2] // 4
    if ghosts is not None:
        call.ghost_rows, call.ghost_block_bytes = ghosts._rows.ctypes.data, ghosts._rows.strides[0]
        call.ghost_scores, call.ghost_score_block_bytes = ghosts._scores.ctypes.data, ghosts._scores.strides[0]
    return call


def _joined(base: Records, ghosts: Records | None) -> tuple[Array, list[Array]]:
    """Rows [N + g, heads * width] and the scores [N + g, heads] of both, copied."""
    both = [base] if ghosts is None else [base, ghosts]
    rows = np.concatenate([one.rows() for one in both])
    return rows, [np.concatenate([one.scores(kind) for one in both]) for kind in range(base.num_scores)]


def _check(array: Array, shape: tuple[int, ...], name: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} {array.shape}, must be {shape}")


def _check_out(array: Array, shape: tuple[int, ...], dtype: type) -> None:
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        raise ValueError(f"out {array.dtype} {array.shape}, must be contiguous {np.dtype(dtype)} {shape}")


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
    one, other = (
        (r.heads, r.width, r.num_scores, r.dtype, r.blocked, r._rows.strides[1], r._scores.strides[1:])
        for r in (base, ghosts)
    )
    if one != other:
        raise ValueError(f"ghosts are laid out as {other}, must be as the inner rows: {one}")
