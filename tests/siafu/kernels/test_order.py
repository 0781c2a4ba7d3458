import numpy as np
import pytest

from siafu.kernels import order
from siafu.kernels.order import move_labels


def symmetric(n, entries, weighted, seed=0):
    """CSR of a random symmetric graph with a few entries on its diagonal."""
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, n * n, entries))
    row, column = np.concatenate([[keys // n, keys % n], [keys % n, keys // n]], axis=1)
    keys = np.unique(row * n + column)
    row, column = keys // n, keys % n
    weight = None
    if weighted:
        drawn = rng.integers(1, 1 << 20, (n, n))
        weight = (drawn + drawn.T)[row, column]
    return np.searchsorted(row, np.arange(n + 1)).astype(np.int64), column.astype(np.int32), weight


def rounds(graph, threads, num_rounds=4):
    """Labels and volumes after some rounds from singletons, and how many vertices moved in each."""
    indptr, indices, weight = graph
    n = len(indptr) - 1
    ones = np.ones(len(indices), np.int64) if weight is None else weight
    degree = np.bincount(np.repeat(np.arange(n), np.diff(indptr)), ones, minlength=n).astype(np.int64)
    total = np.full(n, degree.sum())
    label, volume = np.arange(n, dtype=np.int32), degree.copy()
    moved = [move_labels(indptr, indices, weight, degree, total, label, volume, threads) for _ in range(num_rounds)]
    assert np.array_equal(volume, np.bincount(label, degree, minlength=n))
    return label.tolist(), moved


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 700])
def test_moves_are_the_same_compiled_or_not_with_any_number_of_threads(n, weighted, monkeypatch):
    graph = symmetric(n, 5 * n, weighted)
    found = [rounds(graph, threads) for threads in (1, 3)]
    monkeypatch.setattr(order, "LIBRARY", None)
    assert found == [rounds(graph, 1)] * 2


def test_two_cliques_get_two_labels():
    clique = np.ones((20, 20)) - np.eye(20)
    row, column = np.nonzero(np.block([[clique, np.zeros((20, 20))], [np.zeros((20, 20)), clique]]))
    graph = np.searchsorted(row, np.arange(41)).astype(np.int64), column.astype(np.int32), None
    label, moved = rounds(graph, 1)
    assert len(set(label[:20])) == len(set(label[20:])) == 1
    assert label[0] != label[20]
    assert moved[-1] == 0
