"""Whether two graphs are the same, but for what no format keeps: their names, and how their numbers are stored."""

import numpy as np

from siafu.sparse import SparseRows


def assert_same(left, right):
    assert (left.num_vertices, left.num_edges) == (right.num_vertices, right.num_edges)
    np.testing.assert_array_equal(left.src, right.src)
    np.testing.assert_array_equal(left.dst, right.dst)
    for one, other in ((left.weight, right.weight), (left.edge_type, right.edge_type)):
        assert (one is None) == (other is None)
        if one is not None:
            np.testing.assert_array_equal(one.astype(np.float32), other.astype(np.float32))
    assert left.num_edge_types == right.num_edge_types
    assert (left.target, left.num_classes) == (right.target, right.num_classes)
    np.testing.assert_array_equal(left.labels, right.labels)
    np.testing.assert_array_equal(left.split, right.split)
    np.testing.assert_array_equal(dense(left.features), dense(right.features))


def dense(rows):
    return np.asarray(rows.dense() if isinstance(rows, SparseRows) else rows, np.float32)
