"""Row arithmetic: dropout masks as a pure function, sparse equal to dense, gradients against finite differences."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from siafu import ops
from siafu.sparse import Array, SparseRows
from tests.toy_graphs import sparse

KEY = {"seed": 1, "epoch": 2, "layer": 3}


def mask_of(n: int, width: int, p: float = 0.3, first: int = 0, **key: int) -> Array:
    mask = ops.dropout_mask(np.empty((n, width), np.float32), p, **(KEY | key), vertices=np.arange(first, first + n))
    assert mask is not None
    return mask


def random_sparse(seed: int, n: int = 40, width: int = 29, dtype: type = np.float64) -> tuple[SparseRows, Array]:
    """Rows, some of them empty, and the same matrix dense."""
    rng = np.random.default_rng(seed)
    dense = (rng.normal(size=(n, width)) * (rng.random((n, width)) < 0.3)).astype(dtype)
    dense[[0, 7, n - 1]] = 0
    return sparse(dense), dense


# --- dropout masks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_masks_keep_the_share_that_they_promise(p):
    mask = mask_of(2000, 250, p)
    deviation = np.sqrt(p * (1 - p) / mask.size)
    assert mask.mean() == pytest.approx(1 - p, abs=5 * deviation)
    assert np.abs(mask.mean(0) - (1 - p)).max() < 5 * deviation * np.sqrt(250)  # each column
    assert np.abs(mask.mean(1) - (1 - p)).max() < 5 * deviation * np.sqrt(2000)  # each row


def test_neighbouring_entries_are_independent():
    """16 bits of one 64-bit hash serve one column each: any two of them, and any two rows, must not be correlated."""
    kept = mask_of(4000, 16, 0.5).astype(float) - 0.5
    correlation = kept.T @ kept / (0.25 * len(kept))
    np.testing.assert_allclose(correlation - np.eye(16), 0, atol=5 / np.sqrt(4000))
    by_row = (kept[1:] * kept[:-1]).mean() / 0.25
    assert abs(by_row) < 5 / np.sqrt(kept.size)


@pytest.mark.parametrize("change", [{"seed": 2}, {"epoch": 3}, {"layer": 4}, {"first": 1000}])
def test_masks_of_other_seeds_epochs_layers_and_vertices_are_independent(change):
    same = (mask_of(500, 200, 0.5) == mask_of(500, 200, 0.5, **change)).mean()
    assert same == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(500 * 200))


def test_seed_epoch_and_layer_do_not_trade_places():
    masks = [mask_of(50, 50, 0.5, seed=a, epoch=b, layer=c) for a, b, c in ((1, 2, 3), (2, 1, 3), (3, 2, 1), (1, 3, 2))]
    assert len({mask.tobytes() for mask in masks}) == 4


def test_a_mask_is_a_function_of_the_vertex_not_of_its_place():
    whole = mask_of(100, 33)
    vertices = np.random.default_rng(0).permutation(100)[:40]
    some = ops.dropout_mask(np.empty((40, 33)), 0.3, **KEY, vertices=vertices)
    np.testing.assert_array_equal(some, whole[vertices])


def test_a_mask_is_a_function_of_the_column_not_of_the_width():
    np.testing.assert_array_equal(mask_of(20, 5), mask_of(20, 33)[:, :5])


def test_masks_never_change_between_versions():
    """A resumed run must draw the masks that it would have drawn: raise the checkpoint's version if this changes."""
    digest = hashlib.sha256(np.packbits(mask_of(64, 37)).tobytes()).hexdigest()[:16]
    assert digest == "b3bea4d282567a31"


@pytest.mark.parametrize("seed", range(5))
def test_the_mask_of_sparse_rows_is_that_of_their_dense_entries(seed):
    rows, dense = random_sparse(seed)
    vertices = np.random.default_rng(seed).integers(0, 2**40, len(dense))
    mask = ops.dropout_mask(rows, 0.4, **KEY, vertices=vertices)
    full = ops.dropout_mask(dense, 0.4, **KEY, vertices=vertices)
    np.testing.assert_array_equal(mask, full[rows.row_of_entry(), rows.indices])
    np.testing.assert_array_equal(ops.dropout(rows, mask, 0.4).dense(), ops.dropout(dense, full, 0.4))


def test_no_dropout_has_no_mask_and_leaves_the_rows_alone():
    rows, dense = random_sparse(1)
    assert ops.dropout_mask(dense, 0.0, **KEY, vertices=np.arange(40)) is None
    assert ops.dropout(dense, None, 0.0) is dense
    assert ops.dropout(rows, None, 0.0) is rows


def test_a_probability_below_the_resolution_drops_nothing():
    mask = mask_of(100, 100, 1e-6)
    assert mask.all()
    np.testing.assert_array_equal(ops.dropout(np.ones((100, 100)), mask, 1e-6), 1.0)


def test_a_probability_near_one_stays_finite():
    X = np.ones((300, 300), np.float32)
    kept = ops.dropout(X, mask_of(300, 300, 0.9999999), 0.9999999)
    assert np.isfinite(kept).all()
    assert set(np.unique(kept)) <= {0.0, 65536.0}


@pytest.mark.parametrize("p", [0.1, 0.25, 0.7])
def test_dropout_leaves_the_mean_as_it_was(p):
    X = np.full((3000, 100), 2.0)
    dropped = ops.dropout(X, mask_of(3000, 100, p), p)
    assert dropped.mean() == pytest.approx(2.0, abs=5 * 2 * np.sqrt(p / (1 - p) / X.size))
    assert len(np.unique(dropped)) == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dropout_keeps_the_dtype(dtype):
    rows, dense = random_sparse(2, dtype=dtype)
    for X in (rows, dense):
        mask = ops.dropout_mask(X, 0.5, **KEY, vertices=np.arange(40))
        assert ops.dropout(X, mask, 0.5).dtype == dtype


def test_an_empty_set_of_rows_has_an_empty_mask():
    assert mask_of(0, 5).shape == (0, 5)
    assert ops.dropout_mask(sparse(np.zeros((0, 5))), 0.5, **KEY, vertices=np.arange(0)).shape == (0,)


# --- sparse rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_bytes", [1, 1000, 8 << 20])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_products_of_sparse_rows_equal_dense_ones(monkeypatch, block_bytes, dtype):
    monkeypatch.setattr(ops, "_BLOCK_BYTES", block_bytes)
    rng = np.random.default_rng(3)
    rows, dense = random_sparse(3)
    rows, dense = rows.astype(dtype), dense.astype(dtype)
    W, D = rng.normal(size=(29, 6)), rng.normal(size=(40, 6))
    np.testing.assert_allclose(ops.matmul(rows, W), dense @ W, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(ops.matmul_transposed(rows, D), dense.T @ D, rtol=1e-12, atol=1e-13)


def test_products_have_the_dtype_of_the_weights():
    rows, dense = random_sparse(4)
    W, D = np.ones((29, 2), np.float32), np.ones((40, 2), np.float32)
    for X in (rows, dense):
        assert ops.matmul(X, W).dtype == np.float32
        assert ops.matmul_transposed(X, D).dtype == np.float32


def test_products_of_no_rows_are_empty_or_zero():
    rows, dense = sparse(np.zeros((0, 29))), np.zeros((0, 29))
    for X in (rows, dense):
        assert ops.matmul(X, np.ones((29, 2))).shape == (0, 2)
        np.testing.assert_array_equal(ops.matmul_transposed(X, np.ones((0, 2))), np.zeros((29, 2)))


@pytest.mark.parametrize("index", [[], [0], [39, 3, 3, 0], list(range(40))])
def test_rows_are_taken_in_the_order_asked_for(index):
    rows, dense = random_sparse(5)
    index = np.array(index, np.int64)
    np.testing.assert_array_equal(ops.take(rows, index).dense(), dense[index])
    np.testing.assert_array_equal(ops.take(dense, index), dense[index])


@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 40), slice(7, 8), slice(3, 25), slice(30, 99), slice(None, 5)])
def test_slices_of_sparse_rows_are_those_of_the_dense_matrix(rows):
    X, dense = random_sparse(6)
    part = X[rows]
    assert part.shape == dense[rows].shape
    assert part.indptr[0] == 0
    assert part.nbytes == part.indptr.nbytes + part.indices.nbytes + part.data.nbytes
    np.testing.assert_array_equal(part.dense(), dense[rows])


# --- activation, normalisation ----------------------------------------------------------------------------------------


def numeric_gradient(f, X: Array, step: float = 1e-6) -> Array:
    gradient = np.empty_like(X)
    for place in np.ndindex(X.shape):
        up, down = X.copy(), X.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (f(up) - f(down)) / (2 * step)
    return gradient


@pytest.mark.parametrize("kind", ["relu", "tanh", "elu", "identity"])
def test_activation_backward_equals_finite_differences(kind):
    rng = np.random.default_rng(7)
    N, dH = rng.normal(size=(5, 4)), rng.normal(size=(5, 4))
    expected = numeric_gradient(lambda N: (ops.activate(N, kind) * dH).sum(), N)
    np.testing.assert_allclose(ops.activate_backward(dH, N, kind), expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elu_is_that_of_torch_for_numbers_of_any_size_and_in_place(dtype):
    N = np.array([-1e4, -3, -1e-6, 0, 1e-6, 2, 1e4], dtype)
    expected = torch.nn.functional.elu(torch.tensor(N)).numpy()
    found = ops.activate(N, "elu")
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_array_equal(ops.activate_backward(np.ones_like(N), N, "elu") == 1, N >= 0)
    ops.activate(N, "elu", out=N)
    np.testing.assert_array_equal(N, found)


def test_relu_has_gradient_zero_at_zero():
    N = np.array([[-1.0, 0.0, 1.0]])
    np.testing.assert_array_equal(ops.activate_backward(np.ones((1, 3)), N, "relu"), [[0, 0, 1]])


def test_layer_norm_makes_rows_of_mean_zero_and_variance_one():
    P = 5 + 3 * np.random.default_rng(8).normal(size=(6, 50))
    N = ops.layer_norm(P, np.ones(50), np.zeros(50))
    np.testing.assert_allclose(N.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(N.var(1), 1, atol=1e-5)


def test_layer_norm_backward_equals_finite_differences():
    rng = np.random.default_rng(9)
    P, dN, gain, shift = rng.normal(size=(5, 4)), rng.normal(size=(5, 4)), rng.normal(size=4), rng.normal(size=4)
    dP, dgain, dshift = ops.layer_norm_backward(dN, P, gain)

    def total(P: Array, gain: Array, shift: Array) -> float:
        return (ops.layer_norm(P, gain, shift) * dN).sum()

    np.testing.assert_allclose(dP, numeric_gradient(lambda P: total(P, gain, shift), P), atol=1e-7)
    np.testing.assert_allclose(dgain, numeric_gradient(lambda g: total(P, g, shift), gain), atol=1e-7)
    np.testing.assert_allclose(dshift, numeric_gradient(lambda s: total(P, gain, s), shift), atol=1e-7)


def test_layer_norm_of_a_constant_row_is_its_shift():
    np.testing.assert_array_equal(ops.layer_norm(np.full((1, 3), 7.0), np.ones(3), np.arange(3.0)), [[0, 1, 2]])


# --- loss -------------------------------------------------------------------------------------------------------------


def test_cross_entropy_in_closed_form():
    loss, gradient = ops.cross_entropy(np.log([[1.0, 2.0, 5.0], [2.0, 2.0, 4.0]]), np.array([2, 0]))
    assert loss == pytest.approx(-np.log(5 / 8) - np.log(2 / 8))
    np.testing.assert_allclose(gradient, [[1 / 8, 2 / 8, -3 / 8], [-6 / 8, 2 / 8, 4 / 8]])


def test_cross_entropy_gradient_equals_finite_differences():
    rng = np.random.default_rng(10)
    logits, labels = rng.normal(size=(5, 4)), rng.integers(0, 4, 5)
    expected = numeric_gradient(lambda x: ops.cross_entropy(x, labels)[0], logits)
    np.testing.assert_allclose(ops.cross_entropy(logits, labels)[1], expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_smoothed_cross_entropy_equals_torch(smoothing, dtype):
    rng = np.random.default_rng(12)
    logits, labels = rng.normal(size=(7, 4)).astype(dtype), rng.integers(0, 4, 7)
    x = torch.tensor(logits, requires_grad=True)
    torch.nn.functional.cross_entropy(x, torch.tensor(labels), reduction="sum", label_smoothing=smoothing).backward()
    loss, gradient = ops.cross_entropy(logits, labels, smoothing)
    expected = torch.nn.functional.cross_entropy(
        x.double(), torch.tensor(labels), reduction="sum", label_smoothing=smoothing
    )
    assert loss == pytest.approx(expected.item(), rel=1e-6 if dtype == np.float32 else 1e-12)
    assert gradient.dtype == dtype
    np.testing.assert_allclose(gradient, x.grad.numpy(), atol=1e-6 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 3)])
def test_squared_error_equals_torch(shape):
    rng = np.random.default_rng(13)
    labels = rng.normal(size=shape).astype(np.float32)
    outputs = rng.normal(size=(7, shape[1] if len(shape) > 1 else 1))
    x = torch.tensor(outputs, requires_grad=True)
    expected = torch.nn.functional.mse_loss(x, torch.tensor(labels.reshape(x.shape)).double())
    expected.backward()
    loss, gradient = ops.squared_error(outputs, labels)
    assert loss / 7 == pytest.approx(expected.item(), rel=1e-12)
    np.testing.assert_allclose(gradient / 7, x.grad.numpy(), rtol=1e-12)


def test_binary_cross_entropy_in_closed_form():
    loss, gradient = ops.binary_cross_entropy(np.log([[1.0, 3.0]]), np.array([[1, 0]], np.uint8))
    assert loss == pytest.approx((-np.log(1 / 2) - np.log(1 / 4)) / 2)
    np.testing.assert_allclose(gradient, [[-1 / 4, 3 / 8]])


def test_binary_cross_entropy_gradient_equals_finite_differences():
    rng = np.random.default_rng(11)
    logits, labels = rng.normal(size=(5, 4)), rng.integers(0, 2, (5, 4)).astype(np.uint8)
    expected = numeric_gradient(lambda x: ops.binary_cross_entropy(x, labels)[0], logits)
    np.testing.assert_allclose(ops.binary_cross_entropy(logits, labels)[1], expected, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e30])
def test_losses_of_huge_logits_are_finite(size, dtype):
    logits = np.array([[size, -size], [-size, size]], dtype)
    for loss, gradient in (
        ops.cross_entropy(logits, np.array([1, 1])),
        ops.binary_cross_entropy(logits, np.array([[0, 1], [0, 1]])),
    ):
        assert np.isfinite(loss)
        assert gradient.dtype == dtype
        np.testing.assert_allclose(np.abs(gradient).max(), 1, atol=0.51)


def test_the_sigmoid_keeps_its_small_values():
    gradient = ops.binary_cross_entropy(np.array([[-50.0]]), np.array([[0]]))[1]
    assert gradient[0, 0] == pytest.approx(np.exp(-50), rel=1e-12)


def test_losses_of_no_rows_are_zero():
    assert ops.cross_entropy(np.zeros((0, 3)), np.zeros(0, np.int64))[0] == 0.0
    assert ops.binary_cross_entropy(np.zeros((0, 3)), np.zeros((0, 3), np.uint8))[0] == 0.0
    assert ops.cross_entropy(np.zeros((0, 3)), np.zeros(0, np.int64), 0.1)[0] == 0.0
    assert ops.squared_error(np.zeros((0, 1)), np.zeros(0))[0] == 0.0
