"""Batches of several subgraphs (``gpu_baselines.batches``): whose numbers are cited."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_baselines.batches import BINS, KEPT, MIXED, Batches, counted, drawn, enough, kept, mixture

N = 23


@pytest.mark.parametrize("per_batch", [1, 2, 5, 10, N, N + 4])
def test_every_subgraph_is_in_one_batch_of_an_epoch(per_batch: int) -> None:
    """1."""
    for epoch in range(4):
        batches = drawn(N, per_batch, seed=3, epoch=epoch)
        assert sorted(np.concatenate(batches).tolist()) == list(range(N))
        sizes = [len(batch) for batch in batches]
        assert max(sizes) <= per_batch
        assert max(sizes) - min(sizes) <= 1
        assert all((np.diff(batch) > 0).all() for batch in batches)


def test_batches_follow_from_seed_and_epoch() -> None:
    """1."""

    def text(seed: int, epoch: int) -> str:
        return str(drawn(N, 4, seed, epoch))

    assert text(1, 2) == text(1, 2)
    assert len({text(1, 2), text(1, 3), text(2, 2)}) == 3


def test_single_subgraphs_keep_their_order() -> None:
    """2."""
    assert [batch.tolist() for batch in drawn(4, 1, seed=0, epoch=7)] == [[0], [1], [2], [3]]


def test_a_batch_without_a_training_vertex_is_none() -> None:
    """3."""
    trains = np.array([False, True, False, False, True])
    assert [batch.tolist() for batch in Batches(1, 1.0, 1.0, trains, 0)(0)] == [[1], [4]]
    pairs = Batches(2, 1.0, 1.0, trains, 0)
    assert {len(pairs(epoch)) for epoch in range(20)} == {1, 2}
    assert all(trains[batch].any() for epoch in range(20) for batch in pairs(epoch))


def test_mixture_is_a_share_of_the_entropy_of_all_labels() -> None:
    """4. Two subgraphs of one class each, and two that have both: in closed form."""
    counts = np.array([[8, 0], [0, 8]])
    assert mixture(counts, 1) == 0
    assert mixture(counts, 2) == 1
    half = np.array([[6, 2], [2, 6]])
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25)) / np.log(2)
    assert mixture(half, 1) == pytest.approx(entropy, abs=1e-12)
    assert mixture(np.array([[5, 0], [3, 0]]), 1) == 1  # there is one class


def test_kept_edges_are_those_of_the_draw() -> None:
    """5. Against a graph with one edge from each subgraph to each, itself included."""
    source, target = np.divmod(np.arange(N * N), N)
    for per_batch in (1, 5, N):
        shares = []
        for epoch in range(400):
            for batch in drawn(N, per_batch, 0, epoch):
                inside = np.isin(source, batch) & np.isin(target, batch)
                shares.append(inside.sum() / (len(batch) * N))
        size = np.mean([len(batch) for batch in drawn(N, per_batch, 0, 0)])
        assert np.mean(shares) == pytest.approx(size / N, abs=1e-9)  # of N edges into a subgraph, one is its own
        assert kept(1 / N, N, per_batch) == pytest.approx(per_batch / N, abs=1e-12)
    assert kept(0.6, 1, 1) == 0.6


def test_the_fewest_subgraphs_that_mix_and_keep_are_chosen() -> None:
    """6."""
    apart = np.kron(np.eye(4, dtype=np.int64), np.ones((6, 1), np.int64)) * 5  # 24 subgraphs of a class each
    chosen = enough(apart, 1.0, most=24)
    assert 1 < chosen < 24
    assert mixture(apart, chosen) >= MIXED
    fewer = -(-24 // (-(-24 // chosen) + 1))  # the next smaller size that makes another number of batches
    assert mixture(apart, fewer) < MIXED
    alike = np.full((24, 4), 5)
    assert enough(alike, 1.0, most=24) == 1
    assert enough(apart, 1.0, most=2) == 2
    keeping = enough(alike, 0.1, most=24)
    assert kept(0.1, 24, keeping) >= KEPT > kept(0.1, 24, -(-24 // (-(-24 // keeping) + 1)))
    assert enough(apart, 0.1, most=24) >= max(chosen, keeping)


def test_labels_of_every_kind_are_counted() -> None:
    """4."""
    nothing = np.zeros(0, np.int64)
    assert counted([np.array([2, 0, 2]), nothing], 3, "classes").tolist() == [[1, 0, 2], [0, 0, 0]]
    sets = [np.array([[1, 1, 0], [0, 1, 0]]), np.zeros((0, 3), int)]
    assert counted(sets, 3, "labels").tolist() == [[1, 2, 0], [0, 0, 0]]
    numbers = counted([np.arange(50.0), np.arange(50.0, 100.0)[:, None]], 1, "numbers")
    assert numbers.shape == (2, BINS)
    assert numbers.tolist() == [[10] * 5 + [0] * 5, [0] * 5 + [10] * 5]
