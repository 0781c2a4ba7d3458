"""The arithmetic of tensor tasks on dense and sparse rows, forward next to backward, in NumPy alone.

``siafu.arithmetic`` computes the same with compiled kernels, to the same bits on every processor; this module is its
oracle and its fallback. Every function works on rows independently (or sums over rows), so that a task may be cut
between any two rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from siafu.sparse import Array, EdgeRows, Rows, SparseRows

Activation = Literal["relu", "tanh", "elu", "identity"]
_BLOCK_BYTES = 2 << 20  # of a densified block of sparse rows, empty columns included: it stays in a core's caches
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
#: Steps of a lattice of edges whose points lie far apart modulo 2^64 (Roberts' R3: powers of 1 / 1.2207, the root of
#: x^4 = x + 1): distinct (source, target, four heads) have distinct counters. kernels/src/hash.hpp has the same steps.
SOURCE_STEP, TARGET_STEP, HEADS_STEP = 0xD1B54A32D192ED03, 0xABC98388FB8FAC03, 0x8CB92BA72F3D8DD7


class Functions(Protocol):
    """Elementary functions of float32 and float64 arrays, in ``out`` if given: NumPy's, or
    ``siafu.kernels.functions``."""

    def exp(self, x: Array, /, out: Array | None = None) -> Array: ...

    def expm1(self, x: Array, /, out: Array | None = None) -> Array: ...

    def log(self, x: Array, /, out: Array | None = None) -> Array: ...

    def log1p(self, x: Array, /, out: Array | None = None) -> Array: ...

    def tanh(self, x: Array, /, out: Array | None = None) -> Array: ...


# --- bfloat16 -----------------------------------------------------------------------------------------------------

#: numpy has no bfloat16: rows of this dtype are the upper halves of float32 numbers. No features have it.
BFLOAT16 = np.dtype(np.uint16)


def real(X: Rows, dtype: np.dtype[Any]) -> Any:
    """Returns X as numbers of ``dtype``: X itself if it has that dtype; bfloat16 is decoded."""
    if isinstance(X, np.ndarray) and X.dtype == BFLOAT16:
        X = from_bfloat16(X)
    return X.astype(dtype, copy=False) if isinstance(X, np.ndarray) else X.astype(dtype)


def from_bfloat16(bits: Array) -> Array:
    """Returns the float32 numbers of which these uint16 are the upper halves; exact."""
    return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def to_bfloat16(rows: Array) -> Array:
    """Returns uint16 of the same shape: the upper half of each float32, rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(rows, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, quiet, rounded).astype(np.uint16)


def rounded(X: Array, dtype: np.dtype[Any]) -> Array:
    """Returns X rounded to bfloat16, as numbers of ``dtype``."""
    return np.asarray(real(X if X.dtype == BFLOAT16 else to_bfloat16(X), dtype))


# --- products -----------------------------------------------------------------------------------------------------


def matmul(X: Rows, W: Array, add: Array | None = None, *, rounds: bool = False) -> Array:
    """Returns ``X W`` for dense or sparse X ``[n, F]`` and W ``[F, G]``: ``[n, G]`` in W's dtype. ``add``: an array to
    which the product is added in place, and which is returned. rounds: dense X and its W are rounded to bfloat16."""
    if isinstance(X, np.ndarray):
        out: Array = rounded(X, W.dtype) @ rounded(W, W.dtype) if rounds else real(X, W.dtype) @ W
    else:
        out = np.empty((len(X), W.shape[1]), W.dtype)
        for rows, used, dense in _blocks(X, W.dtype):
            np.matmul(dense, W[used], out=out[rows])
    if add is None:
        return out
    add += out
    return add


def matmul_transposed(X: Rows, D: Array, *, rounds: bool = False) -> Array:
    """Returns ``Xᵀ D`` for dense or sparse X ``[n, F]`` and D ``[n, G]``: ``[F, G]`` in D's dtype. rounds: dense X and
    its D are rounded to bfloat16."""
    if isinstance(X, np.ndarray) and rounds:
        return np.asarray(rounded(X, D.dtype).T @ rounded(D, D.dtype))
    if isinstance(X, np.ndarray):
        return np.asarray(real(X, D.dtype).T @ D)
    out = np.zeros((X.width, D.shape[1]), D.dtype)
    for rows, used, dense in _blocks(X, D.dtype):
        out[used] += dense.T @ D[rows]
    return out


def _blocks(X: SparseRows, dtype: np.dtype[Any]) -> Iterator[tuple[slice, Array, Array]]:
    """Yields row blocks of X: the rows, the columns that they use (int64 [u], sorted), and these columns dense
    ``[rows, u]``.

    A few rows of a wide matrix use few of its columns, in a bag of words a quarter, which makes the product cheaper.
    """
    size = max(1, _BLOCK_BYTES // max(1, X.width * dtype.itemsize))
    is_used, place = np.empty(X.width, bool), np.empty(X.width, np.int32)
    for start in range(0, len(X), size):
        block = X[start : start + size]
        is_used[:] = False
        is_used[block.indices] = True
        used = np.flatnonzero(is_used)
        place[used] = np.arange(len(used))
        block = SparseRows(block.indptr, place[block.indices], block.data.astype(dtype, copy=False), len(used))
        yield slice(start, start + len(block)), used, block.dense()


def column_sums(D: Array) -> Array:
    """Returns the sums of the columns of D ``[n, m]``: ``[m]``."""
    return np.asarray(D.sum(0))


def dots(A: Array, B: Array) -> Array:
    """Returns the inner product of each row of A with B's, both ``[n, m]``: ``[n]``."""
    return np.asarray(np.einsum("ij,ij->i", A, B))


def take(X: Rows, index: Array) -> Rows:
    """Returns the rows of X at ``index`` (int64), in that order."""
    if isinstance(X, np.ndarray):
        return np.asarray(X[index])
    counts = np.diff(X.indptr)[index]
    indptr = np.concatenate([[0], np.cumsum(counts)])
    entries = np.repeat(X.indptr[index] - indptr[:-1], counts) + np.arange(indptr[-1])
    return SparseRows(indptr, X.indices[entries], X.data[entries], X.width)


# --- dropout ------------------------------------------------------------------------------------------------------


def dropout(X: Rows, keep: Array | None, p: float) -> Rows:
    """Returns X with its dropped entries zero (sparse: removed) and the kept ones divided by the kept share.

    ``keep``: the result of ``dropout_mask`` for the same X; None: X is returned unchanged. Backward is the same
    function.
    """
    if keep is None:
        return X
    if isinstance(X, np.ndarray) and X.dtype == BFLOAT16:
        return to_bfloat16(np.asarray(dropout(from_bfloat16(X), keep, p)))
    if isinstance(X, np.ndarray):
        factors = keep.astype(X.dtype)
        factors *= X.dtype.type(1 / _kept_share(p))
        factors *= X  # np.where would branch on every entry, and no processor guesses a mask: ten times slower
        return factors
    kept = np.flatnonzero(keep)
    scale = X.data.dtype.type(1 / _kept_share(p))
    return SparseRows(np.searchsorted(kept, X.indptr), X.indices[kept], X.data[kept] * scale, X.width)


def dropout_mask(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Array | None:
    """Returns the mask of the entries of X to keep: bool ``[n, F]``, or ``[nnz]`` for sparse X. None if ``p`` is 0.

    A pure function of (seed, epoch, layer, vertex, column): the mask is the same in backward, in a relaunched task, and
    for any partitioning and any cut into parts, so no mask is ever sent. p is rounded to a multiple of 1/65536.

    vertices: global vertex ids, int64 [n].
    """
    if p == 0.0:
        return None
    width = X.shape[1]
    with np.errstate(over="ignore"):
        row_key = mixed(vertices.astype(np.uint64) * GOLDEN + np.uint64(run_key(seed, epoch, layer)))  # [n]
        threshold = np.uint16(_dropped_in_65536(p))
        if isinstance(X, np.ndarray):
            quads = np.arange((width + 3) // 4, dtype=np.uint64) * GOLDEN  # one 64-bit hash serves four columns
            bits = mixed(row_key[:, None] + quads).astype("<u8", copy=False).view("<u2")  # [n, 4 * quads]
            return np.asarray(bits[:, :width] >= threshold)
        column = X.indices.astype(np.uint64)
        bits64 = mixed(np.repeat(row_key, np.diff(X.indptr)) + (column >> np.uint64(2)) * GOLDEN)
        shift = (column & np.uint64(3)) * np.uint64(16)
        return np.asarray(((bits64 >> shift) & np.uint64(0xFFFF)).astype(np.uint16) >= threshold)


def dropped(X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Rows:
    """Applies dropout to X: ``dropout`` with ``dropout_mask``."""
    return dropout(X, dropout_mask(X, p, seed=seed, epoch=epoch, layer=layer, vertices=vertices), p)


def _dropped_in_65536(p: float) -> int:
    return min(65535, round(p * 65536))


def _kept_share(p: float) -> float:
    return 1.0 - _dropped_in_65536(p) / 65536


@lru_cache(maxsize=256)
def run_key(seed: int, epoch: int, layer: int) -> int:
    """Returns the 64-bit key that ``dropout_mask`` mixes in."""
    return int(np.random.SeedSequence([seed, epoch, layer]).generate_state(1, np.uint64)[0])


@lru_cache(maxsize=256)
def edge_key(seed: int, epoch: int, layer: int) -> int:
    """Returns the 64-bit key for ``edge_dropout``, different from ``run_key`` of the same arguments."""
    return int(np.random.SeedSequence([seed, epoch, layer, 1]).generate_state(1, np.uint64)[0])


def edge_dropout(
    sources: Array, targets: Array, heads: int, p: float, key: int, dtype: np.dtype[Any] | type = np.float32
) -> Array:
    """Returns the factors of each edge's coefficients, ``[m, heads]``: 0, or 1 / (the kept share).

    A pure function of (key, source, target, head): the mask is the same forwards over in-edges on one server and
    backwards over out-edges on another, so no mask is ever sent. p is rounded as in ``dropout_mask``.

    sources, targets: global vertex ids, int64 [m].
    """
    with np.errstate(over="ignore"):
        place = sources.astype(np.uint64) * np.uint64(SOURCE_STEP) + targets.astype(np.uint64) * np.uint64(TARGET_STEP)
        quads = np.arange((heads + 3) // 4, dtype=np.uint64) * np.uint64(HEADS_STEP)  # one hash serves four heads
        hashes = mixed((place + np.uint64(key))[:, None] + quads)
    keep = hashes.astype("<u8", copy=False).view("<u2")[:, :heads] >= np.uint16(_dropped_in_65536(p))
    factors = keep.astype(dtype)
    factors *= factors.dtype.type(1 / _kept_share(p))
    return factors


def dropout_threshold(p: float) -> tuple[int, float]:
    """Returns the threshold that an entry's 16 bits must reach to be kept, and 1 / (the kept share), for other
    implementations of the same masks."""
    return _dropped_in_65536(p), 1 / _kept_share(p)


def mixed(x: Array) -> Array:
    """Mixes the bits of each uint64 to look random: SplitMix64's finaliser (Steele, Lea & Flood, OOPSLA 2014). Works in
    place, so ``x`` must be a fresh array."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def splitmix(x: Array) -> Array:
    """Returns a hash of each uint64: every bit of it depends on every bit of ``x``."""
    return mixed(x + GOLDEN)


# --- activation ---------------------------------------------------------------------------------------------------


def activate(N: Array, kind: Activation, out: Array | None = None, f: Functions = np) -> Array:
    """Returns σ(N), elementwise; in ``out`` if given, which may be N."""
    if kind == "relu":
        return np.asarray(np.maximum(N, N.dtype.type(0), out=out))
    if kind == "elu":
        below = f.expm1(np.minimum(N, N.dtype.type(0)))  # 0 where N > 0, so that large values do not overflow
        return np.asarray(np.add(np.maximum(N, N.dtype.type(0), out=out), below, out=below if out is None else out))
    return np.asarray(f.tanh(N, out=out)) if kind == "tanh" else N


def activate_backward(dH: Array, N: Array, kind: Activation, f: Functions = np) -> Array:
    """Returns dH ⊙ σ'(N)."""
    if kind == "relu":
        return dH * (N > 0)
    if kind == "elu":
        return np.asarray(dH * f.exp(np.minimum(N, N.dtype.type(0))))
    return dH * (1 - np.square(f.tanh(N))) if kind == "tanh" else dH


def either(mask: Array, yes: float, no: float, dtype: np.dtype[Any]) -> Array:
    """Returns ``yes`` where the mask holds, else ``no``: np.where, without a branch for every entry."""
    return np.asarray(np.multiply(mask, yes, dtype=dtype) + np.multiply(~mask, no, dtype=dtype))


# --- layer normalisation ------------------------------------------------------------------------------------------

LAYER_NORM_EPS = 1e-5


def layer_norm(P: Array, gain: Array, shift: Array) -> Array:
    """Normalises each row of P ``[n, F]`` to mean 0 and variance 1, then applies ``gain`` and ``shift`` ``[F]`` (Ba,
    Kiros & Hinton 2016)."""
    return np.asarray(_normalised(P)[0] * gain + shift)


def layer_norm_backward(dN: Array, P: Array, gain: Array) -> tuple[Array, Array, Array]:
    """Returns dP ``[n, F]``, dgain ``[F]`` and dshift ``[F]`` from dN ``[n, F]``."""
    X, inverse_std = _normalised(P)
    dX = dN * gain
    dP = (dX - dX.mean(1, keepdims=True) - X * (dX * X).mean(1, keepdims=True)) * inverse_std
    return dP, (dN * X).sum(0), dN.sum(0)


def _normalised(P: Array) -> tuple[Array, Array]:
    centred = P - P.mean(1, keepdims=True)
    inverse_std = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + P.dtype.type(LAYER_NORM_EPS))
    return centred * inverse_std, inverse_std


# --- softmax over the edges of a vertex -------------------------------------------------------------------------------
#
# siafu.kernels.coefficients defines the data sent: scores of the other end of each edge, row after row, and the starts
# of rows. Coefficients are signed: |alpha|, negative where LeakyReLU's argument was. weight: of the edges, [m]; None:
# all are 1.


def segment_softmax(
    source: Array, target: Array, indptr: Array, slope: float, weight: Array | None = None, f: Functions = np
) -> tuple[Array, Array]:
    """Returns signed alpha [m, heads] over each vertex's in-edges, and log_total [k, heads], +inf for a vertex without
    in-edges.

    source: s of each edge's source [m, heads]; target: t [k, heads]; indptr: int64 [k + 1]. Scores may be of any size.
    """
    counts = np.diff(indptr)
    score = source + np.repeat(target, counts, axis=0)  # [m, heads]
    below = score < 0
    score *= either(below, slope, 1, score.dtype)
    best = _reduce_segments(np.maximum, score, indptr)
    score -= np.repeat(best, counts, axis=0)
    alpha = f.exp(score, out=score)
    if weight is not None:
        alpha *= weight[:, None]
    total = sum_segments(alpha, indptr)
    divisor = np.where(total > 0, total, 1)
    alpha /= np.repeat(divisor, counts, axis=0)
    log_total = np.where(total > 0, best + f.log(divisor), alpha.dtype.type(np.inf))
    return np.negative(alpha, out=alpha, where=below), log_total


def segment_softmax_backward(
    halves: Array,
    source: Array,
    products: Array,
    indptr: Array,
    slope: float,
    weight: Array | None = None,
    f: Functions = np,
) -> tuple[Array, Array]:
    """Returns the same signed alpha over the out-edges of k sources [m, heads], and their ds [k, heads].

    ds is the sum of |alpha| l' (products - delta), where l' is LeakyReLU's slope at the edge. halves: t, log_total and
    delta of each edge's target, side by side [m, 3 * heads]; source: s [k, heads]; products: of each edge's rows T_u
    and dZ_v, where dropout keeps them [m, heads].
    """
    t, log_total, delta = np.split(halves, 3, axis=1)
    score = t + np.repeat(source, np.diff(indptr), axis=0)  # [m, heads]
    below = score < 0
    lean = either(below, slope, 1, score.dtype)
    score *= lean
    score -= log_total
    alpha = f.exp(score, out=score)
    if weight is not None:
        alpha *= weight[:, None]
    lean *= alpha
    lean *= products - delta
    return np.negative(alpha, out=alpha, where=below), sum_segments(lean, indptr)


def sum_segments(values: Array, indptr: Array) -> Array:
    """Returns the sum of each segment of the rows of values [m, h]: [k, h]."""
    return _reduce_segments(np.add, values, indptr)


def _reduce_segments(function: np.ufunc, values: Array, indptr: Array) -> Array:
    """Reduces each segment of the rows of values [m, h]: [k, h]; 0 for a segment without rows."""
    out = np.zeros((len(indptr) - 1, values.shape[1]), values.dtype)
    filled = np.flatnonzero(np.diff(indptr))
    if len(filled):
        out[filled] = function.reduceat(values, indptr[filled], axis=0)
    return out


# --- pairs of vertices ------------------------------------------------------------------------------------------------
#
# Each pair is an edge from one of n vertices to another. H [n, F]: rows of the former; others: rows of the latter, by
# edge.


def pair_dots(H: Array, others: EdgeRows) -> Array:
    """Returns ``<H_v, O_e>`` for each edge e of each vertex v: ``[m]``."""
    return dots(np.repeat(H, np.diff(others.indptr), axis=0), others.each())


def pair_products(H: Array, others: EdgeRows) -> Array:
    """Returns ``H_v ⊙ O_e`` for each edge e of each vertex v: ``[m, F]``."""
    return np.repeat(H, np.diff(others.indptr), axis=0) * others.each()


def pair_sums(D: Array, others: EdgeRows) -> Array:
    """Returns ``Σ_e D_e ⊙ O_e`` over the edges of each vertex: ``[n, F]``. D ``[m, F]``, or ``[m, 1]`` with one value
    per edge."""
    return sum_segments(D * others.each(), others.indptr)


# --- loss ---------------------------------------------------------------------------------------------------------


def cross_entropy(logits: Array, labels: Array, smoothing: float = 0.0, f: Functions = np) -> tuple[float, Array]:
    """Returns softmax cross-entropy summed over rows, and its gradient ``[n, C]``. logits ``[n, C]``, labels int
    ``[n]``.

    smoothing: the share of a label that is spread evenly over all classes (Szegedy et al., CVPR 2016, section 7).
    """
    shifted = logits - logits.max(1, keepdims=True, initial=-np.inf)
    exp = f.exp(shifted)
    total = exp.sum(1, keepdims=True)
    row = np.arange(len(labels))
    loss = f.log(total[:, 0]).astype(np.float64) - shifted[row, labels]
    gradient = exp / total
    if not smoothing:
        gradient[row, labels] -= 1
        return float(loss.sum()), gradient
    spread = smoothing / logits.shape[1]  # of a label, at each class
    loss = (1 - smoothing) * loss + spread * (f.log(total).astype(np.float64) - shifted).sum(1)
    gradient -= gradient.dtype.type(spread)
    gradient[row, labels] -= gradient.dtype.type(1 - smoothing)
    return float(loss.sum()), gradient


def squared_error(outputs: Array, labels: Array) -> tuple[float, Array]:
    """Returns the squared error, mean over columns, summed over rows, and its gradient ``[n, C]``. labels ``[n, C]``,
    or ``[n]``.

    Divided by the number of rows, it is torch's ``mse_loss``.
    """
    num_columns = outputs.shape[1]
    error = outputs - labels.reshape(outputs.shape).astype(outputs.dtype)  # [n, C]
    loss = np.square(error.astype(np.float64)).sum() / num_columns
    return float(loss), error * outputs.dtype.type(2 / num_columns)


def binary_cross_entropy(logits: Array, labels: Array, f: Functions = np) -> tuple[float, Array]:
    """Returns sigmoid cross-entropy, mean over classes, summed over rows, and its gradient ``[n, C]``. logits and
    labels ``[n, C]``, labels in {0, 1}.

    Divided by the number of rows, it is torch's ``binary_cross_entropy_with_logits``.
    """
    y = labels.astype(logits.dtype)
    num_classes = logits.shape[1]
    decay = f.exp(-np.abs(logits))  # at most 1: nothing overflows
    loss = np.maximum(logits, 0) - logits * y + f.log1p(decay)
    sigmoid = np.maximum(logits >= 0, decay) / (1 + decay)  # 1 or decay, above; decay is at most 1
    return float(loss.astype(np.float64).sum() / num_classes), (sigmoid - y) / num_classes
