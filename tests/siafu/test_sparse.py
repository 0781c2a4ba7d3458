"""Rows that are not a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

from siafu import sparse as sparse_rows
from siafu.sparse import EdgeRows, SparseRows, blocks, numbered, stack
from tests.toy_graphs import sparse


def test_blocks_are_stacked_dense_or_sparse() -> None:
    X = np.array([[0.0, 1.0], [0.0, 0.0], [2.0, 0.0]])
    assert np.asarray(stack([X[:1], X[1:]])).tolist() == X.tolist()
    stacked = stack([sparse(X[:1]), sparse(X[1:2]), sparse(X[2:])])
    assert isinstance(stacked, SparseRows)
    assert stacked.dense().tolist() == X.tolist()
    with pytest.raises(AssertionError, match="mixed"):
        stack([X[:1], sparse(X[1:])])


@pytest.mark.parametrize("together", [1, 2, 5, 1 << 20])
def test_rows_are_made_dense_some_at_a_time(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "_TOGETHER", together)
    random = np.random.default_rng(0)
    for X in (random.random((9, 4)) * (random.random((9, 4)) < 0.4), np.zeros((3, 2)), np.zeros((0, 2)), np.eye(5)):
        assert (sparse(X).dense() == X).all()
        assert sparse(X).dense().shape == X.shape


@pytest.mark.parametrize("together", [1, 3, 1 << 20])
def test_numbers_are_numbered_in_their_order(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_rows, "_TOGETHER", together)
    for index in ([7, 2, 7, 0, 2], [], [9]):
        chosen, place = numbered(np.array(index, np.int32), 10)
        expected, inverse = np.unique(np.array(index, np.int32), return_inverse=True)
        assert (chosen.tolist(), place.tolist()) == (expected.tolist(), inverse.tolist())
        assert place.dtype == np.int32


@pytest.mark.parametrize("entries", [1, 4, 100])
@pytest.mark.parametrize("counts", [[], [0, 0], [0, 3, 0, 9, 1, 1, 0], [5]])
def test_blocks_have_all_rows_in_order(counts: list[int], entries: int) -> None:
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    found = blocks(indptr, entries)
    assert [row for start, stop in found for row in range(start, stop)] == list(range(len(counts)))
    assert all(indptr[stop] - indptr[start] < entries + max(counts, default=0) for start, stop in found)


def test_edges_that_share_values_keep_those_of_a_part_alone() -> None:
    rows = EdgeRows(np.array([0, 1, 3]), np.array([[1.0], [2.0], [3.0]]), np.array([2, 0, 2], np.int32))
    part = rows[1:2]
    assert (part.num_edges, part.shape, len(part.values)) == (2, (1, 1), 3)
    alone = part.compact()
    assert alone.values.tolist() == [[1.0], [3.0]]
    assert alone.each().tolist() == part.each().tolist() == [[1.0], [3.0]]
    assert rows.nbytes == 3 * 8 + 3 * 8 + 3 * 4
    assert rows.astype(np.float32).each().dtype == np.float32
    own = EdgeRows(rows.indptr, rows.each())
    assert own.compact() is own
