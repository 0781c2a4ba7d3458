"""Elementary functions and plain products: NumPy in longer floats as the oracle, on every instruction set."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from siafu import ops
from siafu.kernels import csr, functions
from siafu.kernels.dense import matmul_doubles
from siafu.sparse import Array
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using
from tests.toy_graphs import sparse

EDGES = [
    0.0,
    -0.0,
    np.inf,
    -np.inf,
    np.nan,
    1.0,
    -1.0,
    88.7,
    -87.4,
    -103.9,
    709.5,
    710.0,
    -745.0,
    -750.0,
    5e-324,
    1e-310,
]
#: Units in the last place that a result may be off.
LIMITS = {"float32": 1.6, "float64": 2.5}


def _numbers(dtype: str) -> Array:
    rng = np.random.default_rng(0)
    drawn = [rng.normal(size=4001) * scale for scale in (1e-9, 1e-3, 1, 10, 100)]
    return np.concatenate([*drawn, EDGES]).astype(dtype)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("name", ["exp", "expm1", "log", "log1p", "tanh"])
def test_functions_are_right_to_their_last_bits(name: str, dtype: str, isa: str):
    x = _numbers(dtype)
    with np.errstate(all="ignore"), using(isa):
        exact = getattr(np, name)(x.astype(np.longdouble))
        rounded = exact.astype(dtype)
        found = getattr(functions, name)(x)
        assert found.dtype == rounded.dtype
        np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(rounded))
        some = np.isfinite(rounded)
        off = np.abs(found[some].astype(np.longdouble) - exact[some]) / np.spacing(np.abs(rounded[some]))
    assert off.max() <= (4 if isa == "numpy" else LIMITS[dtype])


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_a_function_takes_any_shape_and_writes_where_it_is_told(isa: str):
    x = np.linspace(0.1, 3, 60, dtype=np.float32).reshape(4, 15)
    with using(isa):
        expected = functions.log(x.copy())
        assert functions.log(x[:, ::2]).shape == (4, 8)
        assert np.array_equal(functions.log(x[:, ::2]), expected[:, ::2])
        assert functions.log(np.float64(1.0)) == 0
        assert functions.exp(np.zeros((0, 3))).shape == (0, 3)
        there = np.empty((15, 4), np.float32).T
        assert functions.log(x, out=there) is there
        assert np.array_equal(there, expected)
        assert functions.log(x, out=x) is x
        assert np.array_equal(x, expected)


@pytest.mark.skipif(len(INSTRUCTION_SETS) == 1, reason="no compiled kernels")
def test_other_dtypes_and_other_rooms_are_refused():
    with pytest.raises(TypeError, match="exp of int64, must be float32 or float64"):
        functions.exp(np.arange(3))
    with pytest.raises(TypeError, match=r"out float64 \(2,\), must be float32 \(3,\)"):
        functions.exp(np.zeros(3, np.float32), out=np.zeros(2))
    with pytest.raises(TypeError, match="must be real and alike"):
        functions.dots(np.zeros((2, 4)), np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inner_products_by_head(dtype: str, isa: str):
    rng = np.random.default_rng(1)
    for n, heads, width in ((5, 1, 41), (3, 8, 8), (4, 3, 1), (0, 2, 5), (7, 2, 17)):
        A, B = (rng.normal(size=(n, heads * width)).astype(dtype) for _ in range(2))
        by_head = (A.astype(np.longdouble) * B).reshape(n, heads, width).sum(2)
        with using(isa):
            found = functions.dots(A, B, heads)
        np.testing.assert_allclose(found, by_head.astype(dtype), rtol=1e-5 if dtype == "float32" else 1e-13, atol=1e-6)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_products_of_doubles(isa: str):
    rng = np.random.default_rng(2)
    for n, k, m in ((1, 1, 1), (9, 33, 8), (130, 5, 19), (0, 3, 2), (70, 7, 1)):
        X, W, D = rng.normal(size=(n, k + 3))[:, 2 : k + 2], rng.normal(size=(k, m)), rng.normal(size=(n, m))
        with using(isa):
            assert matmul_doubles(X, W) == pytest.approx(X @ W, rel=1e-13, abs=1e-13)
            assert matmul_doubles(X, D, transposed=True) == pytest.approx(X.T @ D, rel=1e-13, abs=1e-13)
            out = D.copy()
            assert matmul_doubles(X, W, out=out, threads=2) is out
            assert out == pytest.approx(D + X @ W, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sparse_matrix_times_rows(dtype: str, isa: str):
    rng = np.random.default_rng(3)
    dense = rng.normal(size=(11, 7)).astype(dtype) * (rng.random((11, 7)) < 0.4)
    X, W, D = sparse(dense), rng.normal(size=(7, 5)).astype(dtype), rng.normal(size=(11, 5)).astype(dtype)
    with using(isa):
        assert csr.multiply(X.indptr, X.indices, X.data, W) == pytest.approx(dense @ W, rel=1e-5, abs=1e-5)
        found = csr.multiply(X.indptr, X.indices, X.data, D, width=7)
    assert found == pytest.approx(dense.T @ D, rel=1e-5, abs=1e-5)
    assert found.dtype == dtype


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sparse_matrix_times_sparse_rows(dtype: str, isa: str):
    rng = np.random.default_rng(4)
    left, right = (rng.normal(size=shape) * (rng.random(shape) < 0.3) for shape in ((9, 7), (7, 30)))
    left[4], right[2] = 0, 0
    X, B = sparse(left), sparse(right.astype(dtype))
    with using(isa):
        found = csr.multiply_both(X.indptr, X.indices, X.data, B)
    assert found.dense() == pytest.approx(left @ right, rel=1e-5, abs=1e-5)
    assert found.data.dtype == dtype
    assert found.indptr.dtype == np.int64
    assert found.indices.dtype == np.int32
    ends = set(found.indptr[1:-1].tolist())
    assert all(found.indices[i] > found.indices[i - 1] for i in range(1, len(found.indices)) if i not in ends)


@pytest.mark.skipif(len(INSTRUCTION_SETS) == 1, reason="no compiled kernels")
@pytest.mark.parametrize(
    "broken",
    [
        {"indices": np.array([0, 7, 2], np.int32)},
        {"indices": np.array([0, -1, 2], np.int32)},
        {"indptr": np.array([0, 9, 3])},
        {"indptr": np.array([0, -1, 3])},
        {"indptr": np.array([0, 2, 4])},
        {"indptr": np.array([1, 2, 3])},
    ],
)
def test_a_broken_sparse_matrix_is_refused_and_nothing_beyond_it_read(broken: dict[str, Any]):
    whole = {"indptr": np.array([0, 1, 3]), "indices": np.array([0, 1, 2], np.int32), "data": np.ones(3)}
    assert csr.multiply(**whole, rows=np.ones((3, 2))).tolist() == [[1, 1], [2, 2]]
    with pytest.raises(ValueError, match="sparse rows"):
        csr.multiply(**{**whole, **broken}, rows=np.ones((3, 2)))
    with pytest.raises(ValueError, match="sparse rows"):
        csr.multiply_both(**{**whole, **broken}, other=sparse(np.ones((3, 2))))
    bad = sparse(np.ones((3, 2)))
    bad = replace(
        bad,
        **{
            name: {"indices": np.array([0, 1, 0, 2, 0, 1], np.int32), "indptr": np.array([0, 2, 1, 6])}[name]
            for name in broken
        },
    )
    with pytest.raises(ValueError, match="sparse rows"):
        csr.multiply_both(**whole, other=bad)


@pytest.mark.parametrize("isa", INSTRUCTION_SETS[1:])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_loss_of_several_labels_is_numpys_operation_for_operation(dtype: str, isa: str):
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (0, 3), (500, 41), (40_000, 3)):
        logits, labels = (rng.normal(size=shape) * 20).astype(dtype), rng.integers(0, 2, shape).astype(np.uint8)
        logits.flat[:4] = [0.0, -0.0, 1e30, -1e30][: logits.size]
        with using(isa):
            loss, gradient = ops.binary_cross_entropy(logits, labels, functions)
            for threads in (1, 2):
                found, found_gradient = functions.binary_cross_entropy(logits, labels, threads=threads)
                assert found == pytest.approx(loss, rel=1e-12)
                assert found_gradient.tobytes() == gradient.tobytes()
            assert np.isnan(functions.binary_cross_entropy(np.full((3, 2), np.nan, dtype), np.ones((3, 2)))[0])
    with pytest.raises(ValueError, match=r"labels \(3, 1\), must be \(3, 2\)"):
        functions.binary_cross_entropy(np.zeros((3, 2), dtype), np.zeros((3, 1)))
    with pytest.raises(TypeError, match="logits of int64"):
        functions.binary_cross_entropy(np.zeros((3, 2), np.int64), np.zeros((3, 2)))
