"""Rows that are not a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

from siafu import sparse as sparse_rows
from siafu.sparse import SparseRows, stack
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
