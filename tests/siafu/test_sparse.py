"""Rows that are not a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

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
