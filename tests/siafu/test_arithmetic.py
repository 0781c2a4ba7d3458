"""siafu's arithmetic gives what ``siafu.ops`` gives, but for rounding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from siafu import arithmetic, kernels, ops
from siafu.models import ModelSpec, TensorOps, build
from siafu.sparse import Array, EdgeRows
from siafu.tasks import Kind, Lane
from tests.toy_graphs import sparse

RNG = np.random.default_rng(3)


def normal(*shape: int, dtype: str = "float32") -> Array:
    return RNG.normal(size=shape).astype(dtype)


def close(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(expected).max(initial=0.0)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["dense", "sparse", "bfloat16", "uint8"])
def test_products(dtype: str, form: str):
    X = normal(50, 33) if form != "uint8" else RNG.integers(0, 9, (50, 33)).astype(np.uint8)
    rows = {"sparse": sparse(X), "bfloat16": kernels.to_bfloat16(X) if form == "bfloat16" else X}.get(form, X)
    exact = {"bfloat16": ops.real(rows, np.dtype("f4")) if form == "bfloat16" else X}.get(form, X)
    W, D = normal(33, 20, dtype=dtype), normal(50, 20, dtype=dtype)
    if form == "bfloat16" and dtype == "float32":  # then the other factor is rounded, too
        W, D = (ops.real(kernels.to_bfloat16(A), np.dtype("f4")) for A in (W, D))
    close(arithmetic.matmul(rows, W), ops.matmul(exact, W))
    close(arithmetic.matmul(rows, W.T.copy().T), ops.matmul(exact, W))
    close(arithmetic.matmul_transposed(rows, D), ops.matmul_transposed(exact, D))
    more = normal(50, 20, dtype=dtype)
    added = more.copy()
    assert arithmetic.matmul(rows, W, added) is added
    close(added, ops.matmul(exact, W) + more)


@pytest.mark.parametrize("form", ["dense", "bfloat16"])
def test_products_of_rounded_operands(form: str):
    X, W, D = normal(50, 33), normal(33, 20), normal(50, 20)
    exact, W_exact, D_exact = (ops.real(kernels.to_bfloat16(A), np.dtype("f4")) for A in (X, W, D))
    rows = kernels.to_bfloat16(X) if form == "bfloat16" else X
    for made in (ops, arithmetic, arithmetic.on_threads(2)):
        close(made.matmul(rows, W, rounds=True), exact @ W_exact)
        close(made.matmul_transposed(rows, D, rounds=True), exact.T @ D_exact)
        added = np.ones((50, 20), np.float32)
        assert made.matmul(rows, W, added, rounds=True) is added
        close(added, exact @ W_exact + 1)
    X = sparse(X)  # stays as it is
    np.testing.assert_array_equal(arithmetic.matmul(X, W, rounds=True), arithmetic.matmul(X, W))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["relu", "tanh", "elu", "identity"])
def test_activations(dtype: str, kind: ops.Activation):
    N, dH = normal(30, 7, dtype=dtype), normal(30, 7, dtype=dtype)
    expected = ops.activate(N, kind)
    kept = N.copy()
    close(arithmetic.activate(N, kind), expected)
    np.testing.assert_array_equal(N, kept)
    close(arithmetic.activate_backward(dH, N, kind), ops.activate_backward(dH, N, kind))
    close(arithmetic.activate(N, kind, out=N), expected)
    close(N, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_rows", [0, 1, 40])
def test_losses(dtype: str, num_rows: int):
    logits, labels = normal(num_rows, 5, dtype=dtype), RNG.integers(0, 5, num_rows)
    several, targets = RNG.integers(0, 2, (num_rows, 5)), normal(num_rows, 5)
    calls: list[tuple[str, Array, tuple[float, ...]]] = [
        ("cross_entropy", labels, ()),
        ("cross_entropy", labels, (0.2,)),
        ("binary_cross_entropy", several, ()),
        ("squared_error", targets, ()),
    ]
    for name, wanted, more in calls:
        loss, gradient = getattr(ops, name)(logits, wanted, *more)
        found, found_gradient = getattr(arithmetic, name)(logits.copy(), wanted, *more)
        assert found == pytest.approx(loss, rel=1e-5)
        close(found_gradient, gradient)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_and_inner_products(dtype: str):
    A, B = normal(70, 9, dtype=dtype), normal(70, 9, dtype=dtype)
    close(arithmetic.column_sums(A), ops.column_sums(A))
    close(arithmetic.column_sums(A[:0]), ops.column_sums(A[:0]))
    close(arithmetic.dots(A, B), ops.dots(A, B))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs(dtype: str):
    H, D = normal(3, 9, dtype=dtype), normal(5, 9, dtype=dtype)
    others = EdgeRows(np.array([0, 2, 2, 5]), normal(4, 9, dtype=dtype), np.array([3, 0, 1, 1, 2], np.int32))
    close(arithmetic.pair_dots(H, others), ops.pair_dots(H, others))
    close(arithmetic.pair_products(H, others), ops.pair_products(H, others))
    for values in (D, D[:, :1]):
        close(arithmetic.pair_sums(values, others), ops.pair_sums(values, others))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_over_edges(dtype: str):
    indptr, weight = np.array([0, 3, 4, 8]), np.abs(normal(8, dtype=dtype))
    source, target = normal(8, 2, dtype=dtype), normal(3, 2, dtype=dtype)
    for found, expected in zip(
        arithmetic.segment_softmax(source, target, indptr, 0.2, weight),
        ops.segment_softmax(source, target, indptr, 0.2, weight),
        strict=True,
    ):
        close(found, expected)
    halves, products = normal(8, 6, dtype=dtype), normal(8, 2, dtype=dtype)
    for found, expected in zip(
        arithmetic.segment_softmax_backward(halves, target, products, indptr, 0.2, weight),
        ops.segment_softmax_backward(halves, target, products, indptr, 0.2, weight),
        strict=True,
    ):
        close(found, expected)


def each_shared_function(of: TensorOps) -> dict[str, Array]:
    """What all of ``arithmetic.SHARED`` make of some rows: enough of them for several chunks."""
    rng = np.random.default_rng(1)
    X, W, D = (rng.normal(size=shape).astype(np.float32) for shape in ((3000, 40), (40, 41), (3000, 41)))
    where = {"seed": 1, "epoch": 2, "layer": 3, "vertices": np.arange(3000)}
    loss, gradient = of.cross_entropy(D.copy(), np.arange(3000) % 41)
    H = of.activate(D.copy(), "relu")
    multilabel, many = of.binary_cross_entropy(D, D > 0)
    others = EdgeRows(np.arange(3001) * 5, D, (np.arange(15000) * 7 % 3000).astype(np.int32))
    return {
        "matmul": of.matmul(X, W),
        "matmul_transposed": of.matmul_transposed(X, D),
        "column_sums": of.column_sums(D),
        "activate": H,
        "activate_backward": of.activate_backward(D, H, "relu"),
        "dropped": np.asarray(of.dropped(X, 0.5, **where)),
        "cross_entropy": np.append(gradient, np.float32(loss)),
        "binary_cross_entropy": np.append(many, np.float32(multilabel)),
        "pair_dots": of.pair_dots(D, others),
        "pair_products": of.pair_products(D, others),
        "pair_sums": of.pair_sums(D.repeat(5, axis=0), others),
        "sparse": of.matmul(sparse(X), W),
        "float64": of.matmul(X.astype(np.float64), W.astype(np.float64)),
        "float64 transposed": of.matmul_transposed(X.astype(np.float64), D.astype(np.float64)),
    }


def test_threads_change_no_bit_however_many_call_at_once():
    alone = each_shared_function(arithmetic)
    assert set(arithmetic.SHARED) <= set(alone)
    team = arithmetic.on_threads(3)
    with ThreadPoolExecutor(4) as pool:
        for made in pool.map(each_shared_function, [team] * 8 + [arithmetic] * 8):
            for name, value in alone.items():
                np.testing.assert_array_equal(made[name], value, err_msg=name)


@pytest.mark.parametrize("name", ["gcn", "sage"])
@pytest.mark.parametrize("widths", [(9,), (40, 12)])
@pytest.mark.parametrize("multilabel", [False, True])
def test_models_compute_the_same_with_either(name: str, widths: tuple[int, ...], multilabel: bool):
    spec = ModelSpec(name, 20, 6, 30, widths=widths, dropout=0.3, multilabel=multilabel, rematerialise=False)
    ours, theirs = build(spec, arithmetic), build(spec)
    weights = theirs.init()
    labels = RNG.integers(0, 2, (30, 6)).astype(np.uint8) if multilabel else RNG.integers(0, 6, 30)
    constants = {"vertex": np.arange(30), "label": labels, "train": np.arange(30) % 3 > 0}
    for step in theirs.program(Lane.TRAIN).steps:
        if step.kind not in (Kind.AV, Kind.AV_B):
            continue
        rows = {slot: constants[slot] if slot in constants else normal(30, theirs.width(slot)) for slot in step.reads}
        found, expected = (
            model.run(step, {slot: X.copy() for slot, X in rows.items()}, weights, epoch=2, lane=Lane.TRAIN)
            for model in (ours, theirs)
        )
        assert found.loss == pytest.approx(expected.loss, rel=1e-4)
        for part in ("rows", "gradients"):
            assert getattr(found, part).keys() == getattr(expected, part).keys()
            for key, value in getattr(expected, part).items():
                close(getattr(found, part)[key], value)
