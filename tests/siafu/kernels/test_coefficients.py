"""Attention whose coefficients were made elsewhere is attention: in every instruction
set, and with numpy as its Lambda."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from siafu.kernels.attention import Records, target_gradient
from siafu.kernels.coefficients import attend_given, edge_dot, edge_scores, rows_gradient, segments
from siafu.ops import segment_softmax, segment_softmax_backward
from siafu.shards import Edges
from tests.siafu.kernels.attention_problem import (
    SEGMENT,
    Problem,
    assert_attended,
    assert_close,
    gradients,
    neighbours,
    torch_gradients,
    transposed,
)

SLOPE = 0.2
SHAPES = ((8, 8), (1, 16), (4, 32), (8, 64), (2, 8), (1, 3), (17, 3))


def weights(problem, start, stop, add_self):
    """Of the range's edges, as a task would get them."""
    if problem.edges.weight is None:
        return None
    found = [weight for _, weight in neighbours(problem.edges, add_self)][start:stop]
    return np.concatenate(found).astype(problem.s.dtype)


def apart(problem, start=0, stop=None, *, add_self=False, dtype="float32", **options):
    """``problem.attend`` by way of ApplyEdge."""
    stop = problem.n if stop is None else stop
    sources = problem.sources(dtype)
    cut = problem.edges, start, stop
    alpha, log_total = segment_softmax(
        edge_scores(*cut, sources, add_self=add_self),
        problem.t[start:stop],
        segments(*cut, add_self=add_self),
        SLOPE,
        weights(problem, start, stop, add_self),
    )
    return attend_given(
        *cut, sources, alpha, log_total, slope=SLOPE, add_self=add_self, dropout=problem.dropout, **options
    )


def gradients_apart(problem, dZ, *, add_self, dtype="float32"):
    """dT, ds and dt by way of ApplyEdge, of a problem without ghosts, in two ranges."""
    n, real = problem.n, problem.sources(dtype).real
    done = apart(problem, add_self=add_self, dtype=dtype)
    dt, delta = target_gradient(done, dZ.astype(real))
    targets = problem.records(dZ.astype(real), problem.t, done.log_total, delta, dtype=dtype)
    out_edges = transposed(problem.edges, n)
    made = []
    for start, stop in ((0, 17), (17, n)):
        cut, own = (out_edges, start, stop), {"add_self": add_self, "dropout": problem.dropout, "threads": 2}
        weight = None
        if out_edges.weight is not None:
            weight = np.concatenate([w for _, w in neighbours(out_edges, add_self)][start:stop]).astype(real)
        alpha, ds = segment_softmax_backward(
            edge_scores(*cut, targets, add_self=add_self),
            problem.s[start:stop].astype(real),
            edge_dot(*cut, problem.T[start:stop].astype(real), targets, **own),
            segments(*cut, add_self=add_self),
            SLOPE,
            weight,
        )
        made.append((rows_gradient(*cut, targets, alpha, **own), ds))
    return *(np.concatenate(parts) for parts in zip(*made, strict=True)), dt


# --- what leaves the server -------------------------------------------------------------------------------------------


def test_a_row_has_its_own_edge_first_and_then_those_of_the_shard():
    edges = Edges(np.array([0, 2, 2, 3]), np.array([1, 3, 0], np.int32), None)  # column 3 is a ghost
    sources = Records(4, 2, 4)
    sources.scores[:, 0] = [[0, 10], [1, 11], [2, 12], [3, 13]]
    found = edge_scores(edges, 0, 3, sources, add_self=True)
    np.testing.assert_array_equal(found[:, 0], [0, 1, 3, 1, 2, 0])
    np.testing.assert_array_equal(found[:, 1], 10 + found[:, 0])
    np.testing.assert_array_equal(segments(edges, 0, 3, add_self=True), [0, 3, 4, 6])
    np.testing.assert_array_equal(edge_scores(edges, 1, 3, sources)[:, 0], [0])
    np.testing.assert_array_equal(segments(edges, 1, 3), [0, 0, 1])


def test_the_scores_of_a_kind_lie_side_by_side():
    edges = Edges(np.array([0, 1]), np.array([0], np.int32), None)
    inner = Records(1, 2, 4, num_scores=3)
    inner.scores[0] = [[1, 2], [3, 4], [5, 6]]
    np.testing.assert_array_equal(edge_scores(edges, 0, 1, inner), [[1, 2, 3, 4, 5, 6]])


# --- sums -------------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("add_self", [False, True])
def test_every_shape_attends_as_if_it_had_computed_alpha_itself(isa, heads, width, add_self):
    problem = Problem(heads, width, weighted=add_self, p=0.6)
    assert_attended(apart(problem, add_self=add_self, threads=2), problem.expected(SLOPE, add_self))


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 16), (3, 5), (17, 3)])
def test_hubs_and_parts_of_the_graph(isa, heads, width):
    problem = Problem(heads, width, hub=2 * SEGMENT + 1, weighted=True)
    whole = problem.expected(SLOPE, add_self=True)
    assert_attended(apart(problem, add_self=True), whole, 5e-5)
    part = apart(problem, 3, 30, add_self=True, threads=2)
    assert_close(part.Z, whole.Z[3:30], 5e-5)
    assert_close(part.leaned, whole.leaned[3:30], 5e-5)


def test_bfloat16_rows(isa):
    problem = Problem(4, 16)
    rounded = problem.sources("bfloat16")
    found = apart(problem, dtype="bfloat16")
    problem.T = rounded.rows()
    assert_attended(found, problem.expected())


def test_without_training_only_what_inference_needs_is_made(isa):
    problem = Problem(8, 8)
    done = apart(problem, training=False)
    np.testing.assert_array_equal(done.Z, apart(problem).Z)
    assert done.leaned.shape == (0, 64)


def test_ranges_without_rows_or_edges_give_nothing(isa):
    problem = Problem(2, 8, ghosts=0)
    inner = problem.sources()
    for start, stop in ((5, 5), (0, 1)):  # no row; a row without edges
        cut, k = (problem.edges, start, stop), stop - start
        assert edge_scores(*cut, inner).shape == edge_dot(*cut, problem.T, inner).shape == (0, 2)
        done = attend_given(*cut, inner, np.zeros((0, 2), np.float32), np.full((k, 2), np.inf, np.float32))
        assert not done.Z.any()
        dt, delta = target_gradient(done, np.ones((k, 16), np.float32))
        assert dt.shape == delta.shape == (k, 2)
        assert not rows_gradient(*cut, inner, np.zeros((0, 2), np.float32)).any()


def test_alpha_of_another_shape_is_refused():
    problem = Problem(2, 8, ghosts=0)
    inner = problem.sources()
    with pytest.raises(ValueError, match="alpha"):
        attend_given(problem.edges, 0, 40, inner, np.zeros((3, 2), np.float32), np.zeros((40, 2), np.float32))


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("add_self", [False, True])
def test_gradients_by_way_of_apply_edge_are_those_of_torch(isa, heads, width, add_self):
    problem = Problem(heads, width, ghosts=0, weighted=not add_self, p=0.6)
    dZ = np.random.default_rng(2).standard_normal((40, heads * width))
    oracle = torch_gradients(problem, dZ, add_self=add_self)
    for found, wanted in zip(gradients_apart(problem, dZ, add_self=add_self), oracle, strict=True):
        assert_close(found, wanted, 2e-5)


def test_gradients_of_hubs_and_of_bfloat16_rows(isa):
    for dtype, tolerance in (("float32", 5e-5), ("bfloat16", 3e-2)):
        problem = Problem(2, 8, ghosts=0, hub=2 * SEGMENT + 9)
        dZ = np.random.default_rng(2).standard_normal((40, 16))
        oracle = torch_gradients(problem, dZ, add_self=True)
        for found, wanted in zip(gradients_apart(problem, dZ, add_self=True, dtype=dtype), oracle, strict=True):
            assert_close(found, wanted, tolerance)


def test_in_float64_both_ways_are_the_same():
    problem = Problem(3, 5, ghosts=0, weighted=True, p=0.3)
    problem.T, problem.s, problem.t = (a.astype(np.float64) for a in (problem.T, problem.s, problem.t))
    dZ = np.random.default_rng(2).standard_normal((40, 15))
    here = gradients(problem, dZ, dtype="float64", add_self=True)
    for found, wanted in zip(gradients_apart(problem, dZ, add_self=True, dtype="float64"), here, strict=True):
        assert_close(found, wanted, 1e-12)


# --- softmax over segments, alone -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_is_that_of_dense_rows(dtype):
    rng = np.random.default_rng(0)
    indptr = np.array([0, 0, 3, 3, 10, 11, 11])
    source, target = rng.standard_normal((11, 4)).astype(dtype), rng.standard_normal((6, 4)).astype(dtype)
    alpha, log_total = segment_softmax(source, target, indptr, SLOPE)
    assert alpha.dtype == log_total.dtype == dtype
    for row, (a, b) in enumerate(pairwise(indptr)):
        x = source[a:b].astype(np.float64) + target[row]
        e = np.exp(np.where(x < 0, SLOPE * x, x))
        np.testing.assert_allclose(np.abs(alpha[a:b]), e / e.sum(0), rtol=1e-5)
        np.testing.assert_array_equal(np.signbit(alpha[a:b]), x < 0)
        if a < b:
            np.testing.assert_allclose(log_total[row], np.log(e.sum(0)), rtol=1e-5, atol=1e-5)
        else:
            assert np.isposinf(log_total[row]).all()


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_scores_of_any_size_neither_overflow_nor_vanish(size):
    source = np.array([[size], [size + 1], [-size], [0]], np.float32)
    alpha, log_total = segment_softmax(source, np.zeros((2, 1), np.float32), np.array([0, 2, 4]), SLOPE)
    assert np.isfinite(alpha).all()
    np.testing.assert_allclose(np.add.reduceat(np.abs(alpha), [0, 2]), 1, rtol=1e-6)
    assert np.isfinite(log_total).all()


def test_nothing_in_and_nothing_out():
    for k in (0, 3):
        indptr, none = np.zeros(k + 1, np.int64), np.zeros((0, 2), np.float32)
        own = np.zeros((k, 2), np.float32)
        alpha, log_total = segment_softmax(none, own, indptr, SLOPE)
        assert alpha.shape == (0, 2)
        assert np.isposinf(log_total).all()
        alpha, ds = segment_softmax_backward(np.zeros((0, 6), np.float32), own, none, indptr, SLOPE)
        assert ds.shape == (k, 2)
        assert not ds.any()


def test_gradient_of_the_sources_is_a_finite_difference():
    """Of sum(c |alpha|), whose products with dZ are c: T of one column, that is 1."""
    rng = np.random.default_rng(1)
    n, heads = 5, 3
    edges = Edges(np.array([0, 2, 2, 5, 7, 9]), np.array([1, 3, 0, 1, 4, 2, 3, 0, 2], np.int32), None)
    s, t = rng.standard_normal((2, n, heads))
    c = rng.standard_normal((9, heads))

    def loss():
        return (c * np.abs(segment_softmax(s[edges.indices], t, edges.indptr, SLOPE)[0])).sum()

    alpha, log_total = segment_softmax(s[edges.indices], t, edges.indptr, SLOPE)
    delta = np.zeros((n, heads))
    delta[[0, 2, 3, 4]] = np.add.reduceat(c * np.abs(alpha), edges.indptr[[0, 2, 3, 4]], axis=0)
    row = np.repeat(np.arange(n), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")  # out of each source
    halves = np.concatenate([t, log_total, delta], axis=1)[row[order]]
    indptr = np.append(0, np.cumsum(np.bincount(edges.indices, minlength=n)))
    again, ds = segment_softmax_backward(halves, s, c[order], indptr, SLOPE)
    np.testing.assert_allclose(again, alpha[order], rtol=1e-12)
    for place in np.ndindex(s.shape):
        values = []
        for step in (1e-6, -1e-6):
            s[place] += step
            values.append(loss())
            s[place] -= step
        assert ds[place] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-8)
