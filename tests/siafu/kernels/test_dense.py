"""Dense products of every instruction set, and NumPy's in their place, against float64 of the rounded operands."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from siafu.kernels import dense, from_bfloat16, to_bfloat16

#: n, K, N: what training multiplies, and sizes around those of blocks, panels, tiles and vectors.
SHAPES = [
    (1, 1, 1),
    (2, 1, 17),
    (9, 2, 16),
    (7, 3, 5),
    (130, 41, 128),
    (300, 128, 41),
    (129, 602, 128),
    (305, 33, 256),
    (64, 305, 47),
    (127, 1217, 31),
    (20, 40, 1024),
]


def float_rows(n, width, seed=0):
    return np.random.default_rng([seed, n, width]).standard_normal((n, width), dtype=np.float32)


def rounded(X):
    """To bfloat16 and back."""
    return from_bfloat16(to_bfloat16(X))


def error(result, expected, size):
    """The largest error relative to the sum of the terms' magnitudes."""
    return float((np.abs(result - expected) / (size + 1e-30)).max())


# --- values -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "K", "N"), SHAPES)
def test_product_is_that_of_float64(isa, n, K, N):
    X, W = float_rows(n, K), float_rows(K, N, 1)
    expected, size = X.astype(np.float64) @ W, np.abs(X).astype(np.float64) @ np.abs(W)
    assert error(dense.matmul(X, W), expected, size) < 4e-7
    X, W = rounded(X), rounded(W)
    expected, size = X.astype(np.float64) @ W, np.abs(X).astype(np.float64) @ np.abs(W)
    assert error(dense.matmul(to_bfloat16(X), W), expected, size) < 4e-7


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "K", "N"), [*SHAPES, (2500, 50, 20), (4900, 9, 3), (90, 530, 700)])
def test_transposed_product_is_that_of_float64(isa, n, K, N):
    X, D = float_rows(n, K), float_rows(n, N, 1)
    expected, size = X.T.astype(np.float64) @ D, np.abs(X).T.astype(np.float64) @ np.abs(D)
    assert error(dense.matmul_transposed(X, D), expected, size) < 4e-7
    X, D = rounded(X), rounded(D)
    expected, size = X.T.astype(np.float64) @ D, np.abs(X).T.astype(np.float64) @ np.abs(D)
    assert error(dense.matmul_transposed(to_bfloat16(X), D), expected, size) < 4e-7
    assert error(dense.matmul_transposed(to_bfloat16(X), to_bfloat16(D)), expected, size) < 4e-7


def test_small_operand_is_rounded_to_the_nearest_bfloat16(isa):
    one, half_ulp = np.float32(1), np.float32(2**-8)
    W = np.array([[one + half_ulp, one + 3 * half_ulp, one + half_ulp * np.float32(1.01), -one - half_ulp]], np.float32)
    X = to_bfloat16(np.ones((3, 1), np.float32))
    np.testing.assert_array_equal(dense.matmul(X, W)[2], [1, 1.015625, 1.0078125, -1])  # ties to even
    np.testing.assert_array_equal(dense.matmul_transposed(X[:1], W)[0], [1, 1.015625, 1.0078125, -1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("n", "K", "N"), [*SHAPES, (2500, 50, 20), (90, 530, 700)])
def test_float32_operands_are_rounded_as_if_they_were_bfloat16(isa, n, K, N):
    wide = float_rows(n, K + 3)
    X, W, D = wide[:, 2:-1], float_rows(K, N, 1), float_rows(n, N, 2)
    bits = to_bfloat16(X)
    np.testing.assert_array_equal(dense.matmul(X, W, rounds=True), dense.matmul(bits, W))
    expected = dense.matmul_transposed(bits, D)
    for given in (D, to_bfloat16(D)):
        np.testing.assert_array_equal(dense.matmul_transposed(X, given, rounds=True), expected)


def test_infinity_and_nan_stay_in_their_row_and_column(isa):
    X, W = float_rows(20, 41), float_rows(41, 18, 1)
    X[7, 40], X[8, 40], W[3, 17] = np.inf, np.nan, np.nan
    for P in (dense.matmul(X, W), dense.matmul(X, W, rounds=True), dense.matmul(to_bfloat16(X), W)):
        assert np.isnan(P[:, 17]).all()
        assert np.isinf(P[7, :17]).all()
        assert np.isnan(P[8]).all()
        assert np.isfinite(np.delete(P, [7, 8], 0)[:, :17]).all()


def test_bias_and_relu_come_after_the_sum(isa):
    X, W, bias = rounded(float_rows(37, 333)), rounded(float_rows(333, 50, 1)), float_rows(1, 50, 2)[0]
    X[5] = np.nan
    expected = np.maximum(X.astype(np.float64) @ W + bias, 0)
    for P in (
        dense.matmul(X, W, bias=bias, relu=True),
        dense.matmul(to_bfloat16(X), W, bias=bias, relu=True),
    ):
        np.testing.assert_allclose(P, expected, rtol=1e-5, atol=1e-4)


def test_product_is_added_to_what_out_holds(isa):
    X, W, D = rounded(float_rows(37, 333)), rounded(float_rows(333, 50, 1)), rounded(float_rows(37, 50, 2))
    for bits in (False, True):
        left = to_bfloat16(X) if bits else X
        P, dW = np.full((37, 50), 2, np.float32), np.full((333, 50), 2, np.float32)
        assert dense.matmul(left, W, out=P, add=True) is P
        assert dense.matmul_transposed(left, D, out=dW, add=True) is dW
        np.testing.assert_allclose(P, 2 + X @ W, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(dW, 2 + X.T @ D, rtol=1e-5, atol=1e-4)


def test_ranges_summed_apart_are_added_to_what_out_holds(isa):
    X, D = rounded(float_rows(9000, 5)), rounded(float_rows(9000, 3, 1))
    dW = np.ones((5, 3), np.float32)
    dense.matmul_transposed(to_bfloat16(X), D, out=dW, add=True)
    np.testing.assert_allclose(dW, 1 + X.T.astype(np.float64) @ D, rtol=1e-5, atol=1e-3)


# --- rows in memory -----------------------------------------------------------------------------------------------


def test_operands_and_result_may_be_slices_of_wider_rows(isa):
    X, D, W = float_rows(60, 101), float_rows(60, 40, 1), float_rows(90, 77, 2)
    wide = np.full((60, 50), 7, np.float32)
    for X_ in (X, to_bfloat16(X)):
        part = X_[10:50, 1:42]
        np.testing.assert_array_equal(
            dense.matmul(part, W[3:44, 5:38], out=wide[10:50, 4:37]),
            dense.matmul(part.copy(), W[3:44, 5:38].copy()),
        )
        np.testing.assert_array_equal(
            dense.matmul_transposed(part, D[10:50, 3:36]),
            dense.matmul_transposed(part.copy(), np.ascontiguousarray(D[10:50, 3:36])),
        )
        assert (wide[:10] == 7).all()
        assert (wide[50:] == 7).all()
        assert (wide[:, :4] == 7).all()
        assert (wide[:, 37:] == 7).all()


def test_weights_may_be_a_transpose(isa):
    dP, W = float_rows(33, 41), float_rows(128, 41, 1)
    np.testing.assert_array_equal(dense.matmul(dP, W.T), dense.matmul(dP, W.T.copy()))


def test_no_rows_give_no_rows_and_a_zero_gradient(isa):
    X, D = np.zeros((0, 5), np.float32), np.zeros((0, 3), np.float32)
    assert dense.matmul(X, np.ones((5, 3), np.float32)).shape == (0, 3)
    np.testing.assert_array_equal(dense.matmul_transposed(X, D), np.zeros((5, 3)))
    np.testing.assert_array_equal(
        dense.matmul_transposed(X, D, out=np.ones((5, 3), np.float32), add=True), np.ones((5, 3))
    )


# --- order of sums ------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("K", "N"), [(602, 33), (41, 17), (70, 200)])
def test_threads_change_no_bit(isa, K, N):
    n = 2100  # two ranges
    X, W, D = float_rows(n, K), float_rows(K, N, 1), float_rows(n, N, 2)
    if isa == "numpy":
        pytest.skip("BLAS has threads of its own")
    for X_ in (X, to_bfloat16(X)):
        for one, several in itertools.product([1], [2, 5]):
            np.testing.assert_array_equal(dense.matmul(X_, W, threads=one), dense.matmul(X_, W, threads=several))
            np.testing.assert_array_equal(
                dense.matmul_transposed(X_, D, threads=one), dense.matmul_transposed(X_, D, threads=several)
            )


def test_row_of_a_product_does_not_depend_on_the_other_rows(isa):
    if isa == "numpy":
        pytest.skip("BLAS promises no order")
    X, W = float_rows(300, 602), float_rows(602, 128, 1)
    for X_ in (X, to_bfloat16(X)):
        whole = dense.matmul(X_, W)
        for start, stop in ((0, 1), (3, 10), (131, 299)):
            np.testing.assert_array_equal(dense.matmul(X_[start:stop], W), whole[start:stop])


# --- errors -------------------------------------------------------------------------------------------------------

FLOATS, BITS = np.ones((4, 6), np.float32), np.ones((4, 6), np.uint16)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dense.matmul(FLOATS.astype(np.float64), FLOATS.T), "X: dtype float64, must be float32 or uint16"),
        (lambda: dense.matmul(BITS, BITS.T), "W: dtype uint16, must be float32"),
        (lambda: dense.matmul(FLOATS, FLOATS), r"W: shape \[4, 6\], must be \[6, any\]"),
        (lambda: dense.matmul(FLOATS.T, FLOATS), "X: the numbers of a row must be adjacent"),
        (lambda: dense.matmul(FLOATS[::-1], FLOATS.T), "X: rows must follow each other"),
        (lambda: dense.matmul(FLOATS[:, :0], FLOATS.T), "X: no columns"),
        (
            lambda: dense.matmul(FLOATS, FLOATS.T, bias=np.ones(5, np.float32)),
            r"bias: float32 \[5\], must be float32 \[4\]",
        ),
        (lambda: dense.matmul(FLOATS, FLOATS.T, out=FLOATS), r"out: shape \[4, 6\], must be \[4, 4\]"),
        (lambda: dense.matmul(FLOATS, FLOATS.T, add=True), "out: add needs what to add to"),
        (lambda: dense.matmul_transposed(FLOATS, FLOATS[:3]), r"D: shape \[3, 6\], must be \[4, any\]"),
        (lambda: dense.matmul_transposed(FLOATS, BITS), "D: dtype uint16, must be float32"),
        (
            lambda: dense.matmul_transposed(BITS, BITS.astype(np.int64)),
            "D: dtype int64, must be float32 or uint16",
        ),
    ],
)
def test_operand_that_cannot_be_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
