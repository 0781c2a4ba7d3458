from __future__ import annotations

import numpy as np
import pytest

from siafu import ops
from siafu.kernels import dropout, from_bfloat16, to_bfloat16
from siafu.sparse import SparseRows
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

WHERE = {"seed": 5, "epoch": 3, "layer": 1}
P = 0.3


def _rows(n: int, width: int) -> np.ndarray:
    return np.random.default_rng(n + width).standard_normal((n, width), np.float32)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("width", [1, 3, 4, 15, 16, 17, 63, 64, 65, 130, 767])
def test_drops_what_numpy_drops_bit_for_bit(name: str, width: int):
    X, vertices = _rows(37, width), np.random.default_rng(width).integers(0, 10**10, 37)
    wanted = ops.dropped(X, P, vertices=vertices, **WHERE)
    with using(name):
        assert np.array_equal(dropout.dropped(X, P, vertices=vertices, **WHERE), wanted)
        ones = np.ones_like(X)
        found = dropout.factors(width, P, vertices=vertices, **WHERE)
        assert np.array_equal(found, ops.dropped(ones, P, vertices=vertices, **WHERE))


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("width", [1, 15, 16, 17, 64, 130])
def test_bfloat16_stays_so_and_is_rounded_once(name: str, width: int):
    wide, vertices = to_bfloat16(_rows(37, width + 5)), np.random.default_rng(width).integers(0, 10**10, 37)
    X = wide[:, 2:-3]
    X[3, 0], X[4, 0], X[5, 0] = 0x7FC0, 0xFF80, 0x0001  # not a number, -infinity, subnormal
    wanted = to_bfloat16(ops.dropped(from_bfloat16(X), P, vertices=vertices, **WHERE))
    assert np.array_equal(ops.dropped(X, P, vertices=vertices, **WHERE), wanted)
    with using(name):
        found = dropout.dropped(X, P, vertices=vertices, **WHERE)
    assert (found.dtype, found.shape) == (X.dtype, X.shape)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_threads_and_ranges_and_rows_apart_see_the_same_mask(name: str):
    wide, vertices = _rows(3000, 200), np.arange(3000) * 7
    X = wide[:, 20:150]
    with using(name):
        wanted = dropout.dropped(X.copy(), P, vertices=vertices, **WHERE)
        assert np.array_equal(dropout.dropped(X, P, vertices=vertices, threads=3, **WHERE), wanted)
        halves = [
            dropout.dropped(X[half], P, vertices=vertices[half], **WHERE) for half in (slice(1100), slice(1100, None))
        ]
    assert np.array_equal(np.concatenate(halves), wanted)
    assert abs((wanted == 0).mean() - P) < 5 * np.sqrt(P * (1 - P) / wanted.size)


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("most", [1, 7, 63, 64, 65, 300])
def test_drops_of_sparse_rows_what_numpy_drops_bit_for_bit(name: str, most: int):
    rng = np.random.default_rng(most)
    counts = rng.integers(0, most + 1, 50)
    counts[[0, 7, 49]] = 0
    indices = np.concatenate([np.sort(rng.choice(1000, count, replace=False)) for count in counts]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    X = SparseRows(indptr, indices, rng.standard_normal(len(indices), np.float32), 1000)
    vertices = rng.integers(0, 10**10, 50)
    wanted = ops.dropped(X, P, vertices=vertices, **WHERE)
    with using(name):
        found = dropout.dropped(X, P, vertices=vertices, **WHERE)
        none = dropout.dropped(X[:1], P, vertices=vertices[:1], **WHERE)
    assert isinstance(found, SparseRows)
    assert isinstance(wanted, SparseRows)
    assert np.array_equal(found.indptr, wanted.indptr)
    assert np.array_equal(found.indices, wanted.indices)
    assert np.array_equal(found.data, wanted.data)
    assert (none.shape, none.nbytes) == ((1, 1000), 16)


def test_nothing_is_dropped_of_nothing_or_with_p_0():
    X, none = _rows(3, 4), np.zeros(0, np.int64)
    assert dropout.dropped(X, 0.0, vertices=np.arange(3), **WHERE) is X
    assert dropout.dropped(X[:0], P, vertices=none, **WHERE).shape == (0, 4)
    assert (dropout.factors(4, 0.0, vertices=np.arange(3), **WHERE) == 1).all()
    assert dropout.factors(4, P, vertices=none, **WHERE).shape == (0, 4)


@pytest.mark.parametrize(
    ("X", "vertices"),
    [
        (np.zeros((3, 4)), np.arange(3)),
        (np.zeros((3, 4), np.float32), np.arange(4)),
        (np.zeros((3, 4), np.float32), np.arange(3, dtype=np.int32)),
        (np.zeros((3, 0), np.float32), np.arange(3)),
        (np.zeros((4, 3), np.float32).T, np.arange(3)),
    ],
)
@pytest.mark.skipif(INSTRUCTION_SETS == ["numpy"], reason="nothing is compiled here")
def test_what_the_kernel_cannot_read_is_refused(X: np.ndarray, vertices: np.ndarray):
    with pytest.raises(ValueError, match=r"must be|no columns"):
        dropout.dropped(X, P, vertices=vertices, **WHERE)
