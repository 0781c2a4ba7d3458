from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from siafu import kernels, ops
from siafu.sparse import SparseRows
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using


def bag(n: int, width: int, share: float, dtype: str) -> SparseRows:
    made = sp.random(n, width, share, "csr", dtype=np.float64, rng=np.random.default_rng(n + width))
    data = np.ceil(10 * made.data) if dtype == "uint8" else made.data
    return SparseRows(made.indptr.astype(np.int64), made.indices.astype(np.int32), data.astype(dtype), width)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "float16"])
@pytest.mark.parametrize(("n", "width", "out"), [(1, 1, 1), (40, 300, 7), (500, 90, 64), (3, 5, 130)])
def test_products_are_those_of_dense_rows(name: str, dtype: str, n: int, width: int, out: int):
    X, rng = bag(n, width, 0.1, dtype), np.random.default_rng(0)
    for real in ("float32", "float64"):
        W, D = rng.standard_normal((width, out)).astype(real), rng.standard_normal((n, out)).astype(real)
        dense, tight = X.dense().astype(real), {"float32": 1e-4, "float64": 1e-12}[real]
        with using(name):
            np.testing.assert_allclose(kernels.matmul_sparse(X, W), dense @ W, rtol=tight, atol=tight)
            found = kernels.matmul_sparse_transposed(X, D)
        np.testing.assert_allclose(found, dense.T @ D, rtol=tight, atol=tight)
        assert found.dtype == W.dtype


@pytest.mark.parametrize("real", ["float32", "float64"])
def test_what_there_is_is_added_to_in_place(real: str):
    X, W = bag(30, 50, 0.2, "float32"), np.random.default_rng(1).standard_normal((50, 16)).astype(real)
    there = np.random.default_rng(2).standard_normal((30, 16)).astype(real)
    wanted = there + ops.matmul(X, W)
    assert kernels.matmul_sparse(X, W, there) is there
    np.testing.assert_allclose(there, wanted, rtol=1e-5, atol=1e-5)


def test_any_rows_of_a_bag_and_none():
    X, W = bag(64, 128, 0.05, "float32"), np.random.default_rng(1).standard_normal((128, 8)).astype(np.float32)
    whole = kernels.matmul_sparse(X, W)
    assert np.array_equal(np.concatenate([kernels.matmul_sparse(X[:17], W), kernels.matmul_sparse(X[17:], W)]), whole)
    assert kernels.matmul_sparse(X[:0], W).shape == (0, 8)
    assert not kernels.matmul_sparse_transposed(X[:0], whole[:0]).any()


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
@pytest.mark.parametrize("real", ["float32", "float64"])
def test_each_number_of_a_transposed_product_is_summed_over_the_rows_in_turn(name: str, real: str):
    """With whole lines of columns, a pair, one, and the rest."""
    X = bag(80, 50, 0.2, "float32")
    for out in (1, 7, 8, 16, 31, 41, 64, 130):
        D = np.random.default_rng(out).standard_normal((80, out)).astype(real)
        wanted = np.zeros((50, out), real)
        for row in range(80):
            words = slice(X.indptr[row], X.indptr[row + 1])
            wanted[X.indices[words]] += X.data[words, None].astype(real) * D[row]
        with using(name):
            assert np.array_equal(kernels.matmul_sparse_transposed(X, D), wanted)
