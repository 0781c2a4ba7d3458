"""Pairs of vertices: what the kernels make of them is what NumPy makes; what does not fit is refused."""

from __future__ import annotations

import numpy as np
import pytest

from siafu import ops
from siafu.kernels import pairs
from siafu.sparse import Array, EdgeRows
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

TRUE, FALSE = 3, 4
KEY = ops.edge_key(1, 2, 3)
EVERYWHERE = pytest.mark.parametrize("isa", INSTRUCTION_SETS)


def problem(width: int, dtype: str, *, shared: bool) -> tuple[Array, EdgeRows, Array]:
    """Rows of nine vertices, some without pairs and one with many; the other ends' rows; a row of each pair."""
    rng = np.random.default_rng(width)
    counts = np.array([0, 3, 200, 0, 1, 17, 5000, 2, 0])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    m, k = int(indptr[-1]), 40 if shared else int(indptr[-1])
    index = rng.integers(0, k, m).astype(np.int32) if shared else None
    H, O, D = (rng.normal(size=(n, width)).astype(dtype) for n in (len(counts), k, m))
    return H, EdgeRows(indptr, O, index), D


@EVERYWHERE
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("width", [1, 7, 16, 41, 64, 129])
def test_pairs_are_worth_what_their_formulas_say(width: int, shared: bool, dtype: str, isa: str):
    H, others, D = problem(width, dtype, shared=shared)
    own, other = (np.repeat(H, np.diff(others.indptr), axis=0), others.each())
    sums = np.stack(
        [D[a:b].astype(float).T @ other[a:b] for a, b in zip(others.indptr, others.indptr[1:], strict=False)]
    )
    summed = sums.diagonal(axis1=1, axis2=2)  # of column j of both
    one = D[:, :1].copy()
    scaled = np.stack(
        [one[a:b, 0].astype(float) @ other[a:b] for a, b in zip(others.indptr, others.indptr[1:], strict=False)]
    )
    close = {"rtol": 0, "atol": 1e-12 if dtype == "float64" else 3e-4}
    with using(isa):
        for threads in (1, 3):
            assert pairs.products(H, others, threads=threads).tobytes() == (own * other).tobytes()
            dots = pairs.dots(H, others, threads=threads)
            np.testing.assert_allclose(dots, (own.astype(float) * other).sum(1), **close)
            np.testing.assert_allclose(pairs.sums(D, others, threads=threads), summed, **close)
            np.testing.assert_allclose(pairs.sums(one, others, threads=threads), scaled, **close)
            assert {dots.dtype, pairs.sums(D, others).dtype} == {np.dtype(dtype)}


@EVERYWHERE
def test_no_pair_at_all(isa: str):
    none = EdgeRows(np.zeros(4, np.int64), np.zeros((5, 3), np.float32), np.zeros(0, np.int32))
    H, D = np.ones((3, 3), np.float32), np.zeros((0, 3), np.float32)
    with using(isa):
        assert pairs.dots(H, none).shape == (0,)
        assert pairs.products(H, none).shape == (0, 3)
        assert not pairs.sums(D, none).any()
        assert not pairs.sums(D[:, :1], none).any()


@pytest.mark.skipif(len(INSTRUCTION_SETS) == 1, reason="no compiled kernels")
def test_what_does_not_fit_is_refused():
    H, others, D = problem(4, "float32", shared=True)
    m = others.num_edges
    with pytest.raises(ValueError, match=r"own: float64 \(9, 4\), must be float32 \(9, 4\)"):
        pairs.dots(H.astype(np.float64), others)
    with pytest.raises(ValueError, match=r"own: float32 \(8, 4\), must be float32 \(9, 4\)"):
        pairs.products(H[1:], others)
    with pytest.raises(ValueError, match=rf"values: float32 \({m}, 3\), must be float32 \({m}, 4\)"):
        pairs.sums(D[:, :3], others)
    assert others.index is not None
    for wrong in (np.full(m, 40, np.int32), np.full(m, -1, np.int32)):
        with pytest.raises(ValueError, match=r"one is not in 0\.\.39"):
            pairs.dots(H, EdgeRows(others.indptr, others.values, wrong))
    with pytest.raises(ValueError, match="as many numbers"):
        pairs.dots(H, EdgeRows(others.indptr, others.values, others.index[1:]))
    falling = others.indptr.copy()
    falling[3] = falling[2] - 1
    with pytest.raises(ValueError, match="do not follow each other"):
        pairs.dots(H, EdgeRows(falling, others.values, others.index))
    with pytest.raises(ValueError, match=r"is not in 0\.\.39"):  # each pair has its own row, and there are 40
        pairs.dots(H, EdgeRows(others.indptr, others.values))
    with pytest.raises(ValueError, match="rows of int32"):
        pairs.dots(H.astype(np.int32), others.astype(np.int32))


# --- drawn ------------------------------------------------------------------------------------------------------------


def pool(n: int = 50) -> tuple[Array, Array, Array, Array]:
    """indptr, columns, kind and ids of some pairs, of 60 numbers of which the first 50 are the rows'."""
    rng = np.random.default_rng(5)
    counts = rng.poisson(30, n) * (rng.random(n) < 0.8)
    counts[7] = 3000
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = rng.integers(0, 60, indptr[-1]).astype(np.int32)
    kind = rng.choice(np.array([TRUE, FALSE, FALSE, FALSE], np.uint8), len(columns))
    return indptr, columns, kind, rng.permutation(10**9 + np.arange(60))


@EVERYWHERE
@pytest.mark.parametrize("share", [0.0, 0.75, 0.999])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_true_pairs_are_drawn_and_of_the_others_what_the_mask_keeps(share: float, threads: int, isa: str):
    indptr, columns, kind, ids = pool()
    row = np.repeat(np.arange(50), np.diff(indptr))
    ends = np.minimum(ids[row], ids[columns]), np.maximum(ids[row], ids[columns])
    kept = (kind == TRUE) | (ops.edge_dropout(*ends, 1, share, KEY)[:, 0] > 0)
    with using(isa):
        found, drawn, true = pairs.draw(indptr, columns, kind, TRUE, ids, ids[:50], share, KEY, threads)
    np.testing.assert_array_equal(drawn, columns[kept])
    np.testing.assert_array_equal(true, kind[kept, None] == TRUE)
    np.testing.assert_array_equal(found, np.concatenate([[0], np.cumsum(np.bincount(row[kept], minlength=50))]))
    assert (drawn.dtype, true.dtype, found.dtype) == (np.int32, np.uint8, np.int64)
    assert len(drawn) < len(columns) or share == 0


def test_pairs_are_drawn_the_same_some_at_a_time(monkeypatch: pytest.MonkeyPatch):
    indptr, columns, kind, ids = pool()
    asked = (indptr, columns, kind, TRUE, ids, ids[:50], 0.75, KEY)
    with using("numpy"):
        whole = pairs.draw(*asked)
        for together in (1, 50):
            monkeypatch.setattr(pairs, "DRAWN_TOGETHER", together)
            for found, expected in zip(pairs.draw(*asked), whole, strict=True):
                np.testing.assert_array_equal(found, expected)


@EVERYWHERE
def test_a_pool_without_pairs(isa: str):
    empty = np.zeros(0, np.int32)
    with using(isa):
        found, drawn, true = pairs.draw(
            np.zeros(3, np.int64), empty, empty.astype(np.uint8), TRUE, *[np.arange(2)] * 2, 0.5, 1
        )
    assert (found.tolist(), len(drawn), true.shape) == ([0, 0, 0], 0, (0, 1))


def test_what_cannot_be_drawn_from_is_refused():
    indptr, columns, kind, ids = pool()
    with pytest.raises(ValueError, match="kind: int64"):
        pairs.draw(indptr, columns, kind.astype(np.int64), TRUE, ids, ids[:50], 0.5, KEY)
    with pytest.raises(ValueError, match=r"indptr: int64 \(51,\), must be contiguous int64 \(50,\)"):
        pairs.draw(indptr, columns, kind, TRUE, ids, ids[:49], 0.5, KEY)
    for isa in INSTRUCTION_SETS[1:]:
        with using(isa), pytest.raises(ValueError, match="one has no id"):
            pairs.draw(indptr, columns, kind, TRUE, ids[:59], ids[:50], 0.5, KEY)
