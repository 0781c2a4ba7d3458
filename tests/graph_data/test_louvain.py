import numpy as np
import pytest

from graph_data.louvain import nested_communities
from siafu.kernels import order as kernels


@pytest.fixture(params=["compiled", "numpy"])
def moves(request, monkeypatch):
    """Every test runs with the compiled moves and with those of numpy."""
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "LIBRARY", None)
    elif kernels.LIBRARY is None:
        pytest.skip("the kernels are not compiled here")


def planted(blocks, size, inside, outside, seed=0):
    """CSR of ``blocks`` communities of ``size``: each vertex draws so many neighbours inside and outside of its own."""
    rng = np.random.default_rng(seed)
    n = blocks * size
    label = rng.permutation(n) // size
    members = np.argsort(label, kind="stable").reshape(blocks, size)
    near = members[label[:, None], rng.integers(0, size, (n, inside))]
    neighbour = np.concatenate([near, rng.integers(0, n, (n, outside))], axis=1)
    pairs = np.stack([np.repeat(np.arange(n), inside + outside), neighbour.ravel()])
    return *csr(n, pairs), label


def csr(n, pairs):
    keys = np.unique(np.concatenate([pairs[0] * n + pairs[1], pairs[1] * n + pairs[0]]))
    row, column = keys // n, keys % n
    row, column = row[row != column], column[row != column]
    return np.searchsorted(row, np.arange(n + 1)).astype(np.int64), column.astype(np.int32)


def test_planted_communities_are_found(moves):
    indptr, indices, label = planted(blocks=8, size=50, inside=12, outside=3)
    found = nested_communities(indptr, indices)
    for community in np.unique(found):
        whose = np.bincount(label[found == community], minlength=8)
        assert whose.max() > 0.9 * whose.sum()


def test_communities_of_one_community_have_neighbouring_numbers(moves):
    """Four groups of four communities: a slice of the order holds communities of one group."""
    rng = np.random.default_rng(1)
    n, size = 960, 60
    label = rng.permutation(n) // size
    members = np.argsort(label, kind="stable").reshape(4, 4, size)
    near = members.reshape(16, size)[label[:, None], rng.integers(0, size, (n, 10))]
    far = members.reshape(4, 4 * size)[label[:, None] // 4, rng.integers(0, 4 * size, (n, 10))]
    neighbour = np.concatenate([near, far], axis=1)
    found = nested_communities(*csr(n, np.stack([np.repeat(np.arange(n), 20), neighbour.ravel()])))
    assert len(np.unique(found)) >= 16
    group = label[np.argsort(found, kind="stable")] // 4
    assert np.count_nonzero(np.diff(group)) == 3


def test_both_kinds_of_moves_find_the_same(monkeypatch):
    if kernels.LIBRARY is None:
        pytest.skip("the kernels are not compiled here")
    indptr, indices, _ = planted(blocks=20, size=40, inside=6, outside=6)
    compiled = nested_communities(indptr, indices)
    monkeypatch.setattr(kernels, "LIBRARY", None)
    assert np.array_equal(nested_communities(indptr, indices), compiled)


@pytest.mark.parametrize("n", [1, 2, 100])
def test_vertices_without_edges_are_taken(moves, n):
    found = nested_communities(np.zeros(n + 1, np.int64), np.empty(0, np.int32))
    assert len(found) == n
