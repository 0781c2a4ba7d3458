"""Rows of all partitions, in the order of the whole graph's vertices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from run_coordinator.predict.joined import JoinedRows
from siafu.errors import DatasetError
from siafu.shards import ShardSet, folder_of
from tests.toy_graphs import random_graph


@pytest.fixture
def shards(tmp_path: Path) -> ShardSet:
    return prepare(random_graph(3), tmp_path / "shards", parts=3, partitioner="random", order="random")


def test_every_slice_is_in_the_order_of_vertices(tmp_path: Path, shards: ShardSet) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for p in range(3):
        vertices = shards.partition(p).vertices
        np.save(folder / f"{folder_of(p)}.npy", np.stack([vertices, -vertices], axis=1).astype(np.float32))
    rows = JoinedRows.written(folder, shards)
    assert (rows.num_rows, rows.width) == (23, 2)
    for cut in (slice(0, 23), slice(0, 1), slice(5, 17), slice(22, 23)):
        np.testing.assert_array_equal(rows[cut], [[v, -v] for v in range(23)][cut])


def test_a_servers_missing_file_is_named(tmp_path: Path, shards: ShardSet) -> None:
    with pytest.raises(DatasetError, match=r"rows/part-000.npy: graph server 0 has not written its rows"):
        JoinedRows.written(tmp_path / "rows", shards)
