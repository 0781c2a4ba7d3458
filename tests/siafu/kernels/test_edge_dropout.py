"""Attention with dropout: the mask is the same whoever makes it, and sums and gradients are those of the mask."""

from __future__ import annotations

import numpy as np
import pytest

from siafu.kernels.attention import EdgeDropout, attend, attend_backward
from siafu.kernels.coefficients import edge_dot
from siafu.ops import edge_dropout, edge_key
from tests.siafu.kernels.attention_problem import (
    SEGMENT,
    Problem,
    assert_attended,
    assert_close,
    gradients,
    torch_gradients,
    transposed,
)

P = 0.6
#: Heads that share a hash, or need several; columns that are cut into passes which begin within a hash; one head.
SHAPES = ((8, 8), (1, 16), (4, 32), (8, 64), (2, 8), (1, 130), (3, 5), (17, 3))


# --- the mask ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 8, 16, 17, 40])
@pytest.mark.parametrize("add_self", [False, True])
def test_every_implementation_makes_the_same_mask_bit_for_bit(isa, heads, add_self):
    """Products of ones are the mask itself; a hub's edges are cut into parts."""
    problem = Problem(heads, 1, hub=SEGMENT + 7, p=P)
    ones = problem.records(np.ones_like(problem.T))
    found = edge_dot(
        problem.edges,
        2,
        30,
        np.ones((28, heads), np.float32),
        ones,
        add_self=add_self,
        dropout=problem.dropout,
        threads=2,
    )
    indptr, indices = problem.edges.indptr, problem.edges.indices
    rows = [np.append(v, indices[indptr[v] : indptr[v + 1]])[1 - add_self :] for v in range(2, 30)]
    own = np.repeat(np.arange(2, 30), [len(row) for row in rows])
    # of out-edges: rows are the sources
    wanted = edge_dropout(problem.ids[own], problem.ids[np.concatenate(rows)], heads, P, problem.dropout.key)
    np.testing.assert_array_equal(found, wanted)


def test_a_mask_depends_on_its_edge_alone():
    """A graph's edges in any order, in any part of them, give the same."""
    rng = np.random.default_rng(0)
    sources, targets = rng.integers(0, 1 << 40, (2, 1000))
    key, order = edge_key(1, 2, 3), rng.permutation(1000)
    whole = edge_dropout(sources, targets, 8, 0.5, key)
    np.testing.assert_array_equal(edge_dropout(sources[order], targets[order], 8, 0.5, key), whole[order])
    np.testing.assert_array_equal(edge_dropout(sources[:7], targets[:7], 3, 0.5, key), whole[:7, :3])


def test_masks_never_change_between_versions():
    """Runs are repeated bit for bit: what was kept once is kept for ever."""
    mask = edge_dropout(np.array([0, 1, 1 << 40]), np.array([7, 0, 5]), 6, 0.5, edge_key(1, 2, 3))
    assert ["".join(".x"[int(kept > 0)] for kept in row) for row in mask] == ["x..xx.", ".xxxx.", "x.xxx."]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.6, 0.9])
def test_the_share_that_is_kept_is_that_asked_for_and_the_mean_stays(p):
    """Of the 250,000 edges of a dense graph, in every head: within five standard deviations."""
    sources, targets = (ids.ravel() for ids in np.divmod(np.arange(250_000), 500))
    mask = edge_dropout(sources, targets, 8, p, edge_key(0, 0, 0))
    deviation = np.sqrt(p * (1 - p) / len(mask))
    np.testing.assert_allclose((mask > 0).mean(0), 1 - p, atol=5 * deviation)
    np.testing.assert_allclose(mask.mean(0), 1, atol=5 * deviation / (1 - p))


def test_masks_of_heads_epochs_layers_neighbours_and_reversed_edges_are_independent():
    n = 500
    sources, targets = (ids.ravel() for ids in np.divmod(np.arange(n * n), n))

    def kept(key=(0, 0, 0), u=sources, v=targets):
        return (edge_dropout(u, v, 8, 0.5, edge_key(*key)) > 0).astype(np.float64) - 0.5

    base = kept()
    others = [kept((0, 1, 0)), kept((0, 0, 1)), kept((1, 0, 0)), kept(u=targets, v=sources)]
    others += [kept(u=sources + 1), kept(v=targets + 1), kept(u=sources + 1, v=targets + 1)]
    others += [np.roll(base, shift, axis=1) for shift in range(1, 8)]
    for other in others:
        correlation = 4 * (base * other)[sources != targets].mean()
        assert abs(correlation) < 5 / np.sqrt(base.size / 2)


def test_rows_and_columns_of_the_mask_are_as_spread_as_chance_has_it():
    """How many a vertex keeps of its in-edges, and of its out-edges: binomial."""
    n = 500
    sources, targets = (ids.ravel() for ids in np.divmod(np.arange(n * n), n))
    kept = (edge_dropout(sources, targets, 4, 0.5, edge_key(3, 1, 4)) > 0).reshape(n, n, 4)
    for axis in (0, 1):
        variance = kept.sum(axis).astype(np.float64).var()
        assert variance == pytest.approx(n / 4, rel=0.15)


def test_what_is_no_dropout_is_refused():
    ids = np.arange(40)
    with pytest.raises(ValueError, match=r"attention dropout 1\.0, must be in 0\.\.1"):
        EdgeDropout(1.0, 0, ids)
    with pytest.raises(ValueError, match=r"ids int32 \(40,\), must be contiguous int64"):
        EdgeDropout(0.5, 0, ids.astype(np.int32))
    problem = Problem(2, 8)
    with pytest.raises(ValueError, match="ids of 40 vertices, must be 47"):
        attend(problem.edges, 0, 40, problem.sources(), problem.t, dropout=EdgeDropout(0.5, 0, ids))


# --- sums and gradients -----------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("heads", "width"), SHAPES)
@pytest.mark.parametrize("add_self", [False, True])
def test_every_shape_attends_to_what_is_kept(isa, heads, width, add_self):
    problem = Problem(heads, width, weighted=add_self, p=P)
    assert_attended(problem.attend(add_self=add_self), problem.expected(add_self=add_self))


@pytest.mark.parametrize("heads", [1, 8])
def test_hubs_are_summed_in_parts(isa, heads):
    problem = Problem(heads, 8, hub=2 * SEGMENT + 1, spread=30.0, p=P)
    assert_attended(problem.attend(threads=2, add_self=True), problem.expected(add_self=True), 5e-5)


@pytest.mark.parametrize("heads", [1, 4])
def test_scores_of_any_size_are_dropped_after_the_softmax(isa, heads):
    """All weight is on one edge: the row is that edge's, scaled, or nothing."""
    problem = Problem(heads, 8, mean=40, spread=1e4, p=P)
    assert_close(problem.attend().Z, problem.expected().Z, 2e-2)
    assert_close(problem.attend().log_total, problem.expected().log_total)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bfloat16_rows_see_the_same_mask(isa, dtype):
    problem = Problem(3, 5, p=P)
    rounded = problem.sources(dtype)
    found = problem.attend(dtype=dtype)
    problem.T = rounded.rows()
    assert_attended(found, problem.expected())


def test_a_share_below_a_131072th_is_none(isa):
    one, other = Problem(8, 8, p=1e-6), Problem(8, 8)
    np.testing.assert_array_equal(one.attend().Z, other.attend().Z)


@pytest.mark.parametrize(("heads", "width"), SHAPES)
def test_gradients_are_those_of_torch_under_the_same_mask(isa, heads, width):
    problem = Problem(heads, width, ghosts=0, weighted=True, p=P)
    dZ = np.random.default_rng(2).standard_normal((40, heads * width))
    oracle = torch_gradients(problem, dZ, add_self=True)
    for found, wanted in zip(gradients(problem, dZ, add_self=True, threads=2), oracle, strict=True):
        assert_close(found, wanted, 2e-5)


def test_gradients_are_finite_differences():
    problem = Problem(3, 2, n=8, ghosts=0, mean=3, weighted=True, p=0.4)
    problem.T, problem.s, problem.t = (a.astype(np.float64) for a in (problem.T, problem.s, problem.t))
    dZ = np.random.default_rng(2).standard_normal((8, 6))
    step = 1e-6
    found = gradients(problem, dZ, dtype="float64", add_self=True)
    for array, gradient in zip((problem.T, problem.s, problem.t), found, strict=True):
        for place in np.ndindex(array.shape):
            values = []
            for sign in (step, -step):
                array[place] += sign
                values.append((problem.attend(dtype="float64", add_self=True).Z * dZ).sum())
                array[place] -= sign
            assert gradient[place] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-7)


def test_a_mask_is_the_same_on_the_server_that_holds_the_other_end(isa):
    """Vertices 0..24 on one server, 25..39 on the other: what each computes is what one server does."""
    problem = Problem(4, 16, ghosts=0, p=P)
    rng = np.random.default_rng(1)
    marks = [rng.standard_normal((40, 4)).astype(np.float32) for _ in range(3)]
    out_edges = transposed(problem.edges, 40)
    whole = attend_backward(
        out_edges, 0, 40, problem.records(problem.T, *marks), problem.T, problem.s, dropout=problem.dropout
    )
    apart = Problem(4, 16, n=40, ghosts=0)
    apart.n, apart.g, cut = 25, 15, out_edges.indptr[25]
    targets = apart.records(problem.T, *marks)
    edges = type(out_edges)(out_edges.indptr[:26], out_edges.indices[:cut], None)
    part = attend_backward(edges, 0, 25, targets, problem.T[:25], problem.s[:25], dropout=problem.dropout)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[:25], b)


def test_totals_are_of_all_edges_even_if_nearly_none_is_kept(isa):
    """65535 of 65536 are dropped: after the softmax."""
    problem = Problem(1, 8, p=1 - 2**-16)
    done = problem.attend()
    assert (np.abs(done.Z).max(1) == 0).mean() > 0.9
    assert_close(done.leaned_total, Problem(1, 8).expected().leaned_total)
