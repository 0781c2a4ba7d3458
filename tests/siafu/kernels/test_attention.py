"""siafu.kernels.attention against float64 formulas, finite differences and torch, in every instruction set and in numpy."""

from __future__ import annotations

import ctypes
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest
import torch

from siafu.kernels import library
from siafu.kernels.attention import (
    Attended,
    Records,
    attend,
    attend_backward,
    edge_dot,
    gather_heads,
    target_gradient,
)
from siafu.kernels.caches import L3_BYTES
from siafu.shards import Edges
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using

#: heads x width: what the kernel has of its own, and what falls between.
SHAPES = ((8, 8), (1, 8), (1, 16), (1, 64), (4, 16), (4, 32), (8, 16), (8, 64), (2, 8), (1, 1), (1, 3), (3, 5), (2, 41),
          (1, 130), (17, 3), (40, 2), (5, 16))  # fmt: skip
SEGMENT = 4096  # attention.cpp: longer rows are cut


@pytest.fixture(params=INSTRUCTION_SETS)
def isa(request):
    with using(request.param):
        yield request.param


@pytest.fixture(params=INSTRUCTION_SETS[1:])
def compiled(request):
    with using(request.param):
        yield


class Problem:
    """A directed graph of n vertices and g ghosts with rows and scores; vertices 0, n // 2 and n - 1 have no in-edges."""

    def __init__(self, heads, width, *, n=40, ghosts=7, mean=6, hub=0, weighted=False, spread=1.0, seed=0):
        rng = np.random.default_rng(seed)
        self.heads, self.width, self.n, self.g = heads, width, n, ghosts
        degree = rng.integers(0, 2 * mean + 1, n)
        degree[[0, n // 2, n - 1]] = 0
        degree[3] = hub or degree[3]
        indptr = np.append(0, np.cumsum(degree)).astype(np.int64)
        indices = np.concatenate([np.sort(rng.integers(0, n + ghosts, d)) for d in degree]).astype(np.int32)
        weight = (rng.random(len(indices)) + 0.1).astype(np.float32) if weighted else None
        self.edges = Edges(indptr, indices, weight)
        self.T = rng.standard_normal((n + ghosts, heads * width)).astype(np.float32)
        self.s = (spread * rng.standard_normal((n + ghosts, heads))).astype(np.float32)
        self.t = (spread * rng.standard_normal((n, heads))).astype(np.float32)

    def sources(self, dtype="float32"):
        return self.records(self.T, self.s, dtype=dtype)

    def records(self, rows, *scores, dtype="float32", beside=None):
        """Of the inner vertices, and of the ghosts."""
        inner = Records(self.n, self.heads, self.width, num_scores=len(scores), dtype=dtype, beside=beside)
        inner.write(slice(None), rows[: self.n], *(score[: self.n] for score in scores))
        ghosts = inner.like(self.g)
        ghosts.write(slice(None), rows[self.n :], *(score[self.n :] for score in scores))
        return inner, ghosts

    def attend(self, start=0, stop=None, *, dtype="float32", **options):
        inner, ghosts = self.sources(dtype)
        stop = self.n if stop is None else stop
        return attend(self.edges, start, stop, inner, self.t, ghosts=ghosts, **options)

    def expected(self, slope=0.2, add_self=False):
        """Edge by edge, in float64."""
        heads, n = self.heads, self.n
        T, s, t = (a.astype(np.float64) for a in (self.T, self.s, self.t))
        T = T.reshape(len(T), heads, -1)
        Z, leaned = np.zeros((n, heads, self.width)), np.zeros((n, heads, self.width))
        log_total, leaned_total = np.full((n, heads), np.inf), np.zeros((n, heads))
        for v, (sources, weight) in enumerate(neighbours(self.edges, add_self)):
            if len(sources) == 0:
                continue
            x = t[v] + s[sources]  # [edges, heads]
            lean = np.where(x < 0, slope, 1.0)
            e = np.exp(x * lean - (x * lean).max(0)) * weight[:, None]
            alpha = e / e.sum(0)
            log_total[v] = (x * lean).max(0) + np.log(e.sum(0))
            Z[v], leaned[v] = (np.einsum("eh,ehd->hd", a, T[sources]) for a in (alpha, alpha * lean))
            leaned_total[v] = (alpha * lean).sum(0)
        return Attended(Z.reshape(n, -1), log_total, leaned.reshape(n, -1), leaned_total)


def neighbours(edges, add_self=False):
    """Columns and weights of each row, itself first if it counts."""
    for v in range(len(edges.indptr) - 1):
        part = slice(edges.indptr[v], edges.indptr[v + 1])
        columns = edges.indices[part]
        weight = np.ones(len(columns)) if edges.weight is None else edges.weight[part].astype(np.float64)
        yield (np.append(v, columns), np.append(1, weight)) if add_self else (columns, weight)


def transposed(edges, n):
    """Edges out of each of n vertices; the graph has no ghosts."""
    row = np.repeat(np.arange(n), np.diff(edges.indptr))
    order = np.lexsort((row, edges.indices))
    indptr = np.append(0, np.cumsum(np.bincount(edges.indices, minlength=n))).astype(np.int64)
    return Edges(indptr, row[order].astype(np.int32), None if edges.weight is None else edges.weight[order])


def gradients(problem, dZ, *, slope=0.2, add_self=False, dtype="float32", threads=1):
    """dT, ds and dt of <dZ, Z>, of a problem without ghosts."""
    inner = problem.sources(dtype)[0]
    n, real = problem.n, inner.real
    t = problem.t.astype(real)
    done = attend(problem.edges, 0, n, inner, t, slope=slope, add_self=add_self, threads=threads)
    dt, delta = target_gradient(done, dZ.astype(real))
    targets = problem.records(dZ.astype(real), t, done.log_total, delta, dtype=dtype)[0]
    dT, ds = attend_backward(
        transposed(problem.edges, n), 0, n, targets, problem.T.astype(real), problem.s.astype(real), slope=slope,
        add_self=add_self, threads=threads,
    )  # fmt: skip
    return dT, ds, dt


def assert_close(found, oracle, tolerance=1e-5):
    np.testing.assert_allclose(
        found, oracle, rtol=tolerance, atol=tolerance * max(1e-30, np.abs(oracle[np.isfinite(oracle)]).max(initial=0))
    )


def assert_attended(found, oracle, tolerance=1e-5):
    for field in fields(Attended):
        assert_close(getattr(found, field.name), getattr(oracle, field.name), tolerance)


# --- forward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_shape_attends(isa, heads, width, weighted):
    problem = Problem(heads, width, weighted=weighted)
    assert_attended(problem.attend(), problem.expected())


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("add_self", [False, True])
def test_slopes_and_self_loops(isa, slope, add_self):
    for heads, width in ((8, 8), (1, 16), (2, 8)):
        problem = Problem(heads, width, weighted=True)
        assert_attended(problem.attend(slope=slope, add_self=add_self), problem.expected(slope, add_self))


def test_a_vertex_without_edges_gets_zeros(isa):
    done = Problem(8, 8).attend()
    for v in (0, 20, 39):
        assert not done.Z[v].any()
        assert not done.leaned[v].any()
        assert not done.leaned_total[v].any()
        assert np.isposinf(done.log_total[v]).all()


def test_a_vertex_that_attends_to_itself_alone_keeps_its_row(isa):
    problem = Problem(4, 16)
    np.testing.assert_allclose(problem.attend(add_self=True).Z[0], problem.T[0], rtol=1e-6)


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_scores_of_any_size_neither_overflow_nor_vanish(isa, heads):
    """The greatest may come first or last, and a head's may lie far below another's."""
    problem = Problem(heads, 8, mean=40, spread=1e4)
    problem.s[:, 0] -= 1e5
    done, oracle = problem.attend(), problem.expected()
    assert np.isfinite(done.Z).all()
    assert_close(done.Z, oracle.Z, 2e-2)  # float32 knows 1e4 to 1e-3, and so e^1e4 to 0.1%
    assert_close(done.log_total, oracle.log_total, 1e-5)


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
def test_scores_that_rise_edge_by_edge_are_measured_anew(isa, heads):
    """Each is 20 above the last: beyond the margin every other edge, and e^-87 below the greatest after five."""
    n = 100
    rising = np.repeat(20.0 * np.arange(n, dtype=np.float32)[:, None], heads, axis=1)
    rows = np.random.default_rng(0).standard_normal((n, heads * 8)).astype(np.float32)
    edges = Edges(np.append(np.zeros(n, np.int64), n), np.arange(n, dtype=np.int32), None)
    done = attend(edges, 0, n, Records.of(rows, rising, heads=heads), np.zeros((n, heads), np.float32))
    np.testing.assert_allclose(done.Z[-1], rows[-1], rtol=1e-5)
    np.testing.assert_allclose(done.log_total[-1], 20.0 * (n - 1), rtol=1e-6)


def test_nan_stays_in_the_rows_that_see_it(isa):
    problem = Problem(8, 8)
    problem.s[5] = np.nan
    sees = np.array([5 in columns for columns, _ in neighbours(problem.edges)])
    assert 0 < sees.sum() < 40
    np.testing.assert_array_equal(np.isnan(problem.attend().Z).all(1), sees)


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 16), (3, 5), (1, 3)])
def test_bfloat16_rows_are_attended_to_as_their_roundings(isa, heads, width):
    problem = Problem(heads, width)
    rounded = problem.sources("bfloat16")
    found = problem.attend(dtype="bfloat16")
    problem.T = np.concatenate([part.rows() for part in rounded])
    assert_attended(found, problem.expected())


def test_float64_rows_are_computed_in_float64():
    problem = Problem(3, 5, weighted=True)
    done = problem.attend(dtype="float64")
    assert done.Z.dtype == np.float64
    assert_attended(done, problem.expected(), 1e-12)


def test_without_training_only_what_inference_needs_is_made(isa):
    problem = Problem(8, 8)
    done = problem.attend(training=False)
    np.testing.assert_array_equal(done.Z, problem.attend().Z)
    assert done.leaned.shape == (0, 64)
    assert done.leaned_total.shape == (0, 8)


# --- order: a row is the same whoever computes it, and whatever else is computed ------------------------------------------


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 16), (2, 100)])
def test_rows_are_the_same_bit_for_bit_over_ranges_and_threads(isa, heads, width):
    problem = Problem(heads, width, mean=300, hub=3 * SEGMENT + 5, weighted=True)
    whole = problem.attend(add_self=True)
    for other in (problem.attend(add_self=True, threads=3), joined(problem, (0, 3, 4, 17, 40))):
        for field in fields(Attended):
            np.testing.assert_array_equal(getattr(other, field.name), getattr(whole, field.name))


def joined(problem, cuts):
    parts = [problem.attend(a, b, add_self=True) for a, b in pairwise(cuts)]
    return Attended(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Attended)))


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 16), (17, 3)])
@pytest.mark.parametrize("add_self", [False, True])
def test_hubs_are_summed_in_parts(isa, heads, width, add_self):
    problem = Problem(heads, width, hub=5 * SEGMENT + 1, weighted=True, spread=30.0)
    assert_attended(problem.attend(threads=2, add_self=add_self), problem.expected(add_self=add_self), 5e-5)


def test_backward_is_the_same_bit_for_bit_over_ranges_and_threads(isa):
    problem = Problem(8, 8, ghosts=0, mean=300, hub=2 * SEGMENT + 5, weighted=True)
    problem.edges = transposed(transposed(problem.edges, 40), 40)
    rng = np.random.default_rng(1)
    marks = [rng.standard_normal((40, 8)).astype(np.float32) for _ in range(3)]
    targets = problem.records(problem.T, *marks)[0]

    def backward(a, b, threads=1):
        return attend_backward(problem.edges, a, b, targets, problem.T, problem.s, threads=threads)

    dT, ds = backward(0, 40)
    for a, b in ((0, 40), (0, 4), (3, 4), (4, 40)):
        part_T, part_s = backward(a, b, threads=3)
        np.testing.assert_array_equal(part_T, dT[a:b])
        np.testing.assert_array_equal(part_s, ds[a:b])


# --- backward ---------------------------------------------------------------------------------------------------------


def torch_gradients(problem, dZ, slope, add_self):
    row = np.concatenate([np.full(len(c), v) for v, (c, _) in enumerate(neighbours(problem.edges, add_self))])
    columns = np.concatenate([c for c, _ in neighbours(problem.edges, add_self)]).astype(np.int64)
    weight = torch.tensor(np.concatenate([w for _, w in neighbours(problem.edges, add_self)]))[:, None]
    T, s, t = (torch.tensor(a.astype(np.float64), requires_grad=True) for a in (problem.T, problem.s, problem.t))
    row, columns = torch.tensor(row), torch.tensor(columns)
    e = torch.exp(torch.nn.functional.leaky_relu(t[row] + s[columns], slope)) * weight
    total = torch.zeros((problem.n, problem.heads), dtype=torch.float64).index_add(0, row, e)
    message = (e / total[row])[:, :, None] * T.reshape(problem.n, problem.heads, -1)[columns]
    Z = torch.zeros((problem.n, problem.heads, problem.width), dtype=torch.float64).index_add(0, row, message)
    (Z.reshape(problem.n, -1) * torch.tensor(dZ)).sum().backward()
    return [a.grad.numpy() for a in (T, s, t)]


@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("add_self", [False, True])
def test_gradients_are_those_of_torch(isa, heads, width, add_self):
    problem = Problem(heads, width, ghosts=0, weighted=add_self)
    dZ = np.random.default_rng(2).standard_normal((40, heads * width))
    oracle = torch_gradients(problem, dZ, 0.2, add_self)
    for found, wanted in zip(gradients(problem, dZ, add_self=add_self, threads=2), oracle, strict=True):
        assert_close(found, wanted, 2e-5)


def test_gradients_are_those_of_torch_for_a_hub_and_any_slope(isa):
    for slope in (0.0, 0.5):
        problem = Problem(2, 8, ghosts=0, hub=2 * SEGMENT + 9, weighted=True)
        dZ = np.random.default_rng(2).standard_normal((40, 16))
        oracle = torch_gradients(problem, dZ, slope, True)
        for found, wanted in zip(gradients(problem, dZ, slope=slope, add_self=True, threads=2), oracle, strict=True):
            assert_close(found, wanted, 5e-5)


def test_gradients_are_finite_differences():
    problem = Problem(2, 3, n=8, ghosts=0, mean=3, weighted=True)
    problem.T, problem.s, problem.t = (a.astype(np.float64) for a in (problem.T, problem.s, problem.t))
    dZ = np.random.default_rng(2).standard_normal((8, 6))
    step = 1e-6
    for array, gradient in zip((problem.T, problem.s, problem.t), gradients(problem, dZ, dtype="float64"), strict=True):
        for place in np.ndindex(array.shape):
            values = []
            for sign in (step, -step):
                array[place] += sign
                values.append((problem.attend(dtype="float64").Z * dZ).sum())
                array[place] -= sign
            assert gradient[place] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-7)


def test_backward_reads_ghosts_like_inner_vertices(isa):
    problem = Problem(4, 16, weighted=True)
    rng = np.random.default_rng(1)
    marks = [rng.standard_normal((47, 4)).astype(np.float32) for _ in range(3)]
    apart = problem.records(problem.T, *marks)
    together = Records(47, 4, 16, num_scores=3)
    together.write(slice(None), problem.T, *marks)
    inner = problem.T[:40], problem.s[:40]
    one = attend_backward(problem.edges, 0, 40, apart[0], *inner, ghosts=apart[1])
    other = attend_backward(problem.edges, 0, 40, together, *inner)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_backward_with_bfloat16_rows(isa):
    problem = Problem(8, 8, ghosts=0)
    dZ = np.random.default_rng(2).standard_normal((40, 64))
    oracle = torch_gradients(problem, dZ, 0.2, False)
    for found, wanted in zip(gradients(problem, dZ, dtype="bfloat16"), oracle, strict=True):
        assert_close(found, wanted, 3e-2)


# --- weights per edge and head ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "width"), SHAPES)
def test_rows_are_gathered_with_a_weight_per_edge_and_head(isa, heads, width):
    problem = Problem(heads, width, hub=SEGMENT + 7)
    indptr, indices = problem.edges.indptr, problem.edges.indices
    weight = np.random.default_rng(3).standard_normal((len(indices), heads)).astype(np.float32)
    message = weight[:, :, None] * problem.T.astype(np.float64).reshape(47, heads, width)[indices]
    oracle = np.array([message[indptr[v] : indptr[v + 1]].sum(0).ravel() for v in range(40)])
    inner, ghosts = (Records.of(problem.T[part], heads=heads) for part in (slice(0, 40), slice(40, None)))
    assert_close(gather_heads(problem.edges, 0, 40, inner, weight, ghosts=ghosts, threads=2), oracle)
    part = weight[indptr[3] : indptr[30]]
    assert_close(gather_heads(problem.edges, 3, 30, inner, part, ghosts=ghosts), oracle[3:30])


@pytest.mark.parametrize(("heads", "width"), SHAPES)
def test_edge_products_are_the_gradients_of_the_weights(isa, heads, width):
    problem = Problem(heads, width, hub=SEGMENT + 7)
    indptr, indices = problem.edges.indptr, problem.edges.indices
    dZ = np.random.default_rng(3).standard_normal((40, heads * width)).astype(np.float32)
    by_head = dZ.astype(np.float64).reshape(40, heads, width)[np.repeat(np.arange(40), np.diff(indptr))]
    oracle = (by_head * problem.T.reshape(47, heads, width)[indices]).sum(2)
    inner, ghosts = problem.sources()
    assert_close(edge_dot(problem.edges, 0, 40, dZ, inner, ghosts=ghosts, threads=2), oracle)
    assert_close(edge_dot(problem.edges, 3, 30, dZ, inner, ghosts=ghosts), oracle[indptr[3] : indptr[30]])


# --- exponentials -----------------------------------------------------------------------------------------------------


def test_exponentials_are_exact_to_float32_over_their_whole_range(compiled):
    x = np.linspace(-87.3, 88, 1 << 16).astype(np.float32)
    y = computed("siafu_attention_exp", x)
    assert np.abs(y / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    beyond = computed("siafu_attention_exp", np.array([-87.5, -1e4, -np.inf, 89, 1e4, np.nan, 0], np.float32))
    assert not beyond[:3].any()
    assert (beyond[3:5] >= np.float32(np.exp(88.0)) * 0.999).all()
    assert np.isnan(beyond[5])
    assert beyond[6] == 1


def test_logarithms_are_exact_to_float32(compiled):
    x = np.exp(np.linspace(-87, 88, 1 << 16)).astype(np.float32)
    oracle = np.log(x.astype(np.float64))
    assert (np.abs(computed("siafu_attention_log", x) - oracle) <= 2e-7 * np.maximum(np.abs(oracle), 0.1)).all()


def computed(function, x):
    y = np.empty_like(x)
    getattr(library.LIBRARY, function)(
        ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(len(x))
    )
    return y


# --- records and errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("heads", "width", "num_scores"), [(8, 8, 1), (8, 8, 3), (1, 8, 1), (1, 41, 3), (1, 1, 0)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_records_hold_what_was_written(heads, width, num_scores, dtype):
    rng = np.random.default_rng(0)
    records = Records(10, heads, width, num_scores=num_scores, dtype=dtype)
    rows = rng.integers(-8, 9, (6, heads * width)).astype(np.float32)
    scores = [rng.standard_normal((6, heads)).astype(np.float32) for _ in range(num_scores)]
    places = np.array([9, 2, 4, 1, 0, 7])
    records.write(places, rows, *scores)
    np.testing.assert_array_equal(records.rows()[places], rows)
    for kind, score in enumerate(scores):
        np.testing.assert_array_equal(records.scores[places, kind], score)
    assert not records.rows()[[3, 5, 6, 8]].any()
    assert records.nbytes >= 10 * heads * width * records.memory.itemsize


def test_no_row_touches_a_cache_line_more_than_it_must():
    for heads, width, num_scores in ((8, 8, 1), (8, 8, 3), (1, 8, 3), (1, 3, 1), (1, 41, 1)):
        for beside in (False, True):
            records = Records(100, heads, width, num_scores=num_scores, beside=beside)
            nbytes = 4 * (heads * width + beside * num_scores * heads)
            first = records.memory.ctypes.data + records.row_bytes * np.arange(100)
            np.testing.assert_array_equal((first + nbytes - 1) // 64 - first // 64, (nbytes - 1) // 64)


def test_scores_lie_beside_the_rows_where_their_own_table_would_not_stay_in_the_cache():
    assert not Records(100, 8, 8).beside
    assert Records(100, 1, 9).beside  # for nothing: the line has room
    assert Records(L3_BYTES // 32, 8, 8).beside


@pytest.mark.parametrize("beside", [False, True])
def test_it_does_not_matter_where_scores_lie(isa, beside):
    problem = Problem(4, 16)
    inner, ghosts = problem.records(problem.T, problem.s, beside=beside)
    found = attend(problem.edges, 0, 40, inner, problem.t, ghosts=ghosts)
    np.testing.assert_array_equal(found.Z, problem.attend().Z)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": 41}, "rows 0..41, must be in 0..40"),
        ({"threads": 0}, "0 threads"),
        ({"target": np.zeros((39, 2), np.float32)}, r"target \(39, 2\), must be \(40, 2\)"),
        ({"sources": Records(40, 2, 8, num_scores=3)}, "records with 3 scores, must be 1"),
        ({"ghosts": Records(7, 2, 9)}, "ghosts are laid out as"),
        (
            {"edges": Edges(np.zeros(41, np.int64), np.zeros(0, np.int64), None)},
            "edges: int64, must be contiguous int32",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    problem = Problem(2, 8)
    inner, ghosts = problem.sources()
    given = {"edges": problem.edges, "start": 0, "stop": 40, "sources": inner, "target": problem.t, "ghosts": ghosts}
    with pytest.raises(ValueError, match=message):
        attend(**(given | change))


def test_records_of_impossible_shapes_are_refused():
    with pytest.raises(ValueError, match="records of 'float16', must be one of"):
        Records(4, 2, 8, dtype="float16")
    with pytest.raises(ValueError, match="4 rows, 0 heads"):
        Records(4, 0, 8)
    with pytest.raises(ValueError, match=r"must be float32, float64 or uint16 \[N, 3 x width\]"):
        Records.of(np.zeros((4, 16), np.float32), heads=3)
    with pytest.raises(ValueError, match="0 scores, must be 1"):
        Records(4, 2, 8).write(slice(None), np.zeros((4, 16), np.float32))
