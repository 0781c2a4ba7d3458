"""Rows come interval by interval in any order, and are one array in the end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_server.rows_written import RowsWritten
from siafu.errors import DatasetError


@pytest.mark.parametrize("dtype", ["<f4", "<f8"])
def test_rows_in_any_order_are_one_array(tmp_path: Path, dtype: str) -> None:
    rows = np.random.default_rng(0).normal(size=(10, 3)).astype(dtype)
    with RowsWritten(tmp_path / "rows" / "part.npy", 10) as written:
        for start, stop in ((6, 10), (0, 4), (4, 6)):
            written.write(start, rows[start:stop])
    found = np.load(tmp_path / "rows" / "part.npy")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, rows)


def test_rows_that_are_a_cut_of_others_are_written_as_they_are(tmp_path: Path) -> None:
    wide = np.arange(12.0).reshape(3, 4)
    with RowsWritten(tmp_path / "part.npy", 3) as written:
        written.write(0, wide[:, 1:3])
    np.testing.assert_array_equal(np.load(tmp_path / "part.npy"), wide[:, 1:3])


def test_without_rows_there_is_no_file(tmp_path: Path) -> None:
    with RowsWritten(tmp_path / "rows" / "part.npy", 3):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows").write_text("in the way")
    with (
        RowsWritten(tmp_path / "rows" / "part.npy", 3) as written,
        pytest.raises(DatasetError, match=r"rows/part.npy: cannot be written: "),
    ):
        written.write(0, np.zeros((3, 2)))
