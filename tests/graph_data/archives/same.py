"""Graphs that two sources give, compared array by array."""

import numpy as np

from siafu.graph import tidy
from siafu.sparse import SparseRows


def dense(rows):
    if not isinstance(rows, SparseRows):
        return np.asarray(rows)
    made = np.zeros(rows.shape, rows.dtype)
    made[np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.indices] = rows.data
    return made


def assert_same(one, other):
    one, other = tidy(one), tidy(other)
    assert (one.num_vertices, one.num_classes) == (other.num_vertices, other.num_classes)
    for name in ("src", "dst", "labels", "split"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(dense(one.features), dense(other.features))
