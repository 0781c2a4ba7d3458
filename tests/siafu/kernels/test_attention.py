"""siafu.kernels.attention against float64 formulas, finite differences and torch, in
every instruction set and in numpy."""

from __future__ import annotations

import ctypes
from dataclasses import fields
from itertools import pairwise

import numpy as np
import pytest

from siafu.kernels import library
from siafu.kernels.attention import Attended, Records, attend, attend_backward
from siafu.kernels.caches import L3_BYTES
from siafu.kernels.rows import to_bfloat16
from siafu.shards import Edges
from tests.siafu.kernels.attention_problem import (
    SEGMENT,
    SHAPES,
    Problem,
    assert_attended,
    assert_close,
    gradients,
    neighbours,
    torch_gradients,
    transposed,
)
from tests.siafu.kernels.instruction_sets import INSTRUCTION_SETS, using


@pytest.fixture(params=INSTRUCTION_SETS[1:])
def compiled(request):
    with using(request.param):
        yield


# --- forward ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_shape_attends(isa, heads, width, weighted):
    problem = Problem(heads, width, weighted=weighted)
    assert_attended(problem.attend(), problem.expected())


@pytest.mark.sampled(2)
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


def test_the_range_may_bring_its_own_targets_alone(isa):
    problem = Problem(3, 5)
    found = attend(problem.edges, 7, 19, problem.sources(), problem.t[7:19])
    np.testing.assert_array_equal(found.Z, problem.attend(7, 19).Z)


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 16), (3, 5), (1, 3)])
def test_bfloat16_rows_are_attended_to_as_their_roundings(isa, heads, width):
    problem = Problem(heads, width)
    rounded = problem.sources("bfloat16")
    found = problem.attend(dtype="bfloat16")
    problem.T = rounded.rows()
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


# --- order: a row is the same whoever computes it, and whatever else is computed --------------------------------------


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


@pytest.mark.sampled(2)
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
    targets = problem.records(problem.T, *marks)

    dT, ds = attend_backward(problem.edges, 0, 40, targets, problem.T, problem.s)
    for a, b in ((0, 40), (0, 4), (3, 4), (4, 40)):
        for own in ((problem.T, problem.s), (problem.T[a:b], problem.s[a:b])):  # of all vertices, or of the range alone
            part_T, part_s = attend_backward(problem.edges, a, b, targets, *own, threads=3)
            np.testing.assert_array_equal(part_T, dT[a:b])
            np.testing.assert_array_equal(part_s, ds[a:b])


def test_backward_takes_bfloat16_rows_of_the_range_alone(isa):
    problem = Problem(2, 8, ghosts=0)
    targets = problem.records(problem.T, problem.s, problem.s, problem.s)
    rows = to_bfloat16(problem.T)
    whole = attend_backward(problem.edges, 0, 40, targets, rows, problem.s)
    part = attend_backward(problem.edges, 5, 30, targets, rows[5:30], problem.s[5:30])
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[5:30], b)


# --- backward ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
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


def test_backward_with_bfloat16_rows(isa):
    problem = Problem(8, 8, ghosts=0)
    dZ = np.random.default_rng(2).standard_normal((40, 64))
    oracle = torch_gradients(problem, dZ, 0.2, False)
    for found, wanted in zip(gradients(problem, dZ, dtype="bfloat16"), oracle, strict=True):
        assert_close(found, wanted, 3e-2)


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
    sources = problem.records(problem.T, problem.s, beside=beside)
    found = attend(problem.edges, 0, 40, sources, problem.t)
    np.testing.assert_array_equal(found.Z, problem.attend().Z)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": 41}, "rows 0..41, must be in 0..40"),
        ({"threads": 0}, "0 threads"),
        ({"target": np.zeros((39, 2), np.float32)}, r"target \(39, 2\), must be \(40, 2\)"),
        ({"sources": Records(40, 2, 8, num_scores=3)}, "records with 3 scores, must be 1"),
        (
            {"edges": Edges(np.zeros(41, np.int64), np.zeros(0, np.int64), None)},
            "edges: int64, must be contiguous int32",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    problem = Problem(2, 8)
    given = {"edges": problem.edges, "start": 0, "stop": 40, "sources": problem.sources(), "target": problem.t}
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
