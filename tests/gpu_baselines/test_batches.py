"""Batches of several subgraphs (``gpu_baselines.batches``): whose numbers are cited."""

from __future__ import annotations

import numpy as np
import pytest

from gpu_baselines.batches import BINS, MIXED, Batches, counted, drawn, mixed, mixture

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
    assert [batch.tolist() for batch in Batches(1, 1.0, trains, 0)(0)] == [[1], [4]]
    pairs = Batches(2, 1.0, trains, 0)
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


def test_the_fewest_subgraphs_that_mix_are_chosen() -> None:
    """4."""
    apart = np.kron(np.eye(4, dtype=np.int64), np.ones((6, 1), np.int64)) * 5  # 24 subgraphs of a class each
    chosen = mixed(apart, most=24)
    assert 1 < chosen < 24
    assert mixture(apart, chosen) >= MIXED
    fewer = -(-24 // (-(-24 // chosen) + 1))  # the next smaller size that makes another number of batches
    assert mixture(apart, fewer) < MIXED
    assert mixed(np.full((24, 4), 5), most=24) == 1
    assert mixed(apart, most=2) == 2


def test_labels_of_every_kind_are_counted() -> None:
    """4."""
    nothing = np.zeros(0, np.int64)
    assert counted([np.array([2, 0, 2]), nothing], 3, "classes").tolist() == [[1, 0, 2], [0, 0, 0]]
    sets = [np.array([[1, 1, 0], [0, 1, 0]]), np.zeros((0, 3), int)]
    assert counted(sets, 3, "labels").tolist() == [[1, 2, 0], [0, 0, 0]]
    numbers = counted([np.arange(50.0), np.arange(50.0, 100.0)[:, None]], 1, "numbers")
    assert numbers.shape == (2, BINS)
    assert numbers.tolist() == [[10] * 5 + [0] * 5, [0] * 5 + [10] * 5]
