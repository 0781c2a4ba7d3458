"""Elementwise passes of every instruction set, and NumPy's in their place, against ``siafu.ops`` in float64."""

from __future__ import annotations

import numpy as np
import pytest

from siafu import ops
from siafu.kernels import from_bfloat16, passes, to_bfloat16

SHAPES = [(1, 1), (3, 2), (5, 15), (40, 16), (33, 41), (60, 23), (700, 128), (9, 1000)]


def float_rows(n, width, seed=0):
    return np.random.default_rng([seed, n, width]).standard_normal((n, width), dtype=np.float32)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_relu_in_place(isa, n, m):
    P = float_rows(n, m)
    P[-1, -1] = np.nan
    expected = np.maximum(P, 0)
    assert passes.relu(P, threads=2) is P
    np.testing.assert_array_equal(P, expected)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_relu_backward_keeps_gradients_where_the_activation_is_positive(isa, n, m):
    dH, H = float_rows(n, m), np.maximum(float_rows(n, m, 1), 0)
    H[0, 0], H[-1, -1] = np.nan, np.inf
    expected = np.where(H > 0, dH, np.float32(0))
    np.testing.assert_array_equal(passes.relu_backward(dH, H, threads=2), expected)
    np.testing.assert_array_equal(passes.relu_backward(dH, to_bfloat16(H)), expected)
    assert passes.relu_backward(dH, H, out=dH) is dH
    np.testing.assert_array_equal(dH, expected)


def test_relu_backward_of_bfloat16_takes_every_pattern_as_its_number(isa):
    H = np.arange(1 << 16, dtype=np.uint16).reshape(64, 1024)
    dH = np.ones(H.shape, np.float32)
    np.testing.assert_array_equal(passes.relu_backward(dH, H), from_bfloat16(H) > 0)


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_cross_entropy_is_that_of_ops(isa, n, m):
    logits, labels = 3 * float_rows(n, m), np.arange(n) % m
    expected, gradient = ops.cross_entropy(logits.astype(np.float64), labels)
    loss, made = passes.softmax_cross_entropy(logits, labels, scale=0.5, threads=2)
    assert made is logits
    assert loss == pytest.approx(expected, rel=1e-6, abs=1e-6 * n)
    np.testing.assert_allclose(made, 0.5 * gradient, rtol=2e-6, atol=2e-7)


def test_cross_entropy_of_chosen_rows_leaves_the_others_no_gradient(isa):
    logits, labels = float_rows(50, 7), np.arange(50) % 7
    index = np.array([3, 4, 10, 49])
    mask = np.isin(np.arange(50), index)
    labels[~mask] = -1  # unknown
    expected, gradient = ops.cross_entropy(logits[index].astype(np.float64), labels[index])
    for rows in (index, mask):
        loss, made = passes.softmax_cross_entropy(logits.copy(), labels, rows)
        assert loss == pytest.approx(expected, rel=1e-6)
        np.testing.assert_allclose(made[index], gradient, rtol=2e-6, atol=2e-7)
        assert (made[~mask] == 0).all()


def test_large_logits_do_not_overflow(isa):
    logits = np.array([[1e4, -1e4, 0], [-1e4, -1e4, -1e4], [88, 0, -104]], np.float32)
    loss, gradient = passes.softmax_cross_entropy(logits, np.array([1, 0, 0]))
    assert loss == pytest.approx(2e4 + np.log(3), rel=1e-6)
    np.testing.assert_allclose(gradient[0], [1, -1, 0])
    np.testing.assert_allclose(gradient[1], [1 / 3 - 1, 1 / 3, 1 / 3], rtol=1e-6)


def test_exponential_is_right_over_its_whole_range(isa):
    x = np.linspace(-103, 0, 20001, dtype=np.float32)
    logits = np.stack([np.zeros_like(x), x], 1)
    expected = np.exp(x.astype(np.float64)) / (1 + np.exp(x.astype(np.float64)))
    _, gradient = passes.softmax_cross_entropy(logits, np.zeros(len(x), np.int64))
    np.testing.assert_allclose(gradient[:, 1], expected, rtol=5e-7, atol=2e-45)


def test_column_sums_are_those_of_float64(isa):
    for n, m in [*SHAPES, (5000, 41), (0, 3)]:
        D = float_rows(n, m)
        np.testing.assert_allclose(passes.column_sums(D, threads=2), D.sum(0, dtype=np.float64), rtol=1e-5, atol=1e-4)


def test_threads_change_no_bit(isa):
    D, labels = float_rows(5000, 41), np.arange(5000) % 41
    np.testing.assert_array_equal(passes.column_sums(D), passes.column_sums(D, threads=3))
    one, three = (passes.softmax_cross_entropy(D.copy(), labels, threads=threads) for threads in (1, 3))
    assert one[0] == three[0]
    np.testing.assert_array_equal(one[1], three[1])


def test_rows_may_be_slices_of_wider_ones(isa):
    wide, H = float_rows(40, 30), float_rows(40, 30, 1)
    part = wide[3:33, 2:19]
    kept = wide.copy()
    np.testing.assert_array_equal(passes.column_sums(part), passes.column_sums(part.copy()))
    np.testing.assert_array_equal(
        passes.relu_backward(part, H[3:33, 2:19]), passes.relu_backward(part.copy(), H[3:33, 2:19].copy())
    )
    expected = np.maximum(part, 0)
    passes.relu(part)
    kept[3:33, 2:19] = expected
    np.testing.assert_array_equal(wide, kept)


ROWS = np.ones((4, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: passes.relu(ROWS.astype(np.float64)), "P: dtype float64, must be float32"),
        (lambda: passes.relu_backward(ROWS, ROWS[:3]), r"H: shape \[3, 6\], must be \[4, 6\]"),
        (
            lambda: passes.softmax_cross_entropy(ROWS, np.zeros(4, np.int32)),
            r"labels: int32 \[4\], must be int64 \[4\]",
        ),
        (lambda: passes.softmax_cross_entropy(ROWS.copy(), np.array([0, 1, 6, 2])), "labels: 6, must be in 0..5"),
        (
            lambda: passes.softmax_cross_entropy(ROWS, np.zeros(4, int), np.ones(3, bool)),
            r"rows: bool \[3\], must be bool \[4\]",
        ),
        (lambda: passes.column_sums(ROWS.T), "D: the numbers of a row must be adjacent"),
    ],
)
def test_operand_that_cannot_be_is_named(isa, call, message):
    with pytest.raises(ValueError, match=message):
        call()
