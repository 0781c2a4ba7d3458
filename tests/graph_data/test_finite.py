"""Numbers at the edge of what float32 holds: shards hold finite ones, or the source is
refused, by every way into them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from siafu.errors import DatasetError
from siafu.sparse import Array, SparseRows
from tests.graph_data.graphs import random_graph

GRAPH = random_graph()
N = GRAPH.num_vertices
LARGEST = np.finfo(np.float32).max
WAYS = pytest.mark.parametrize("stream", [False, True], ids=["in memory", "on disk"])
KINDS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


def features(row: Array, sparse: bool) -> Array | SparseRows:
    """The row for every vertex."""
    dense = np.tile(row, (N, 1))
    if not sparse:
        return dense
    width = len(row)
    columns = np.tile(np.arange(width, dtype=np.int32), N)
    return SparseRows(np.arange(0, N * width + 1, width), columns, dense.ravel(), width)


def prepared(found: Array | SparseRows, out: Path, norm: str, stream: bool):
    graph = replace(GRAPH, features=found)
    options = {"partitioner": "chunk", "order": "given", "feature_norm": norm, "stream": stream}
    return prepare(graph, out, **options).partition(0).features


@pytest.mark.sampled(3)
@WAYS
@KINDS
@pytest.mark.parametrize("norm", ["none", "row", "standard"])
@pytest.mark.parametrize(
    "row",
    [
        np.array([LARGEST, -LARGEST, LARGEST / 2], np.float32),
        np.array([65_504, 65_504], np.float16),
        np.array([1e-45, 0], np.float32),
        np.array([1e30, -1e30, 1e-10], np.float32),
    ],
    ids=["largest", "half", "smallest", "cancelling"],
)
def test_normalising_makes_no_number_infinite(row: Array, norm: str, sparse: bool, stream: bool, tmp_path: Path):
    found = prepared(features(row, sparse), tmp_path / "out", norm, stream)
    assert np.isfinite(found.data if isinstance(found, SparseRows) else np.asarray(found)).all()


@WAYS
@KINDS
@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "nan"), (np.inf, "inf"), (1e300, "inf")], ids=["nan", "inf", "beyond float32"]
)
def test_what_is_no_number_is_refused_by_vertex_and_column(
    value: float, said: str, sparse: bool, stream: bool, tmp_path: Path
):
    found = features(np.ones(3), sparse)
    values = found.data.reshape(N, 3) if isinstance(found, SparseRows) else found
    values[4, 1] = value
    with pytest.raises(DatasetError, match=rf"feature 1 of vertex 4 is {said}, must be finite$"):
        prepared(found, tmp_path / "out", "row", stream)
