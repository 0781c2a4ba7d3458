"""What two sources give, compared array by array, and what a source says of files that it refuses."""

import numpy as np
import pytest

from graph_data.sources.names import resolve
from siafu.errors import DatasetError
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


def edges_of(graph):
    return sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def refusal(name):
    with pytest.raises(DatasetError) as error:
        resolve(str(name)).load()
    return str(error.value)
