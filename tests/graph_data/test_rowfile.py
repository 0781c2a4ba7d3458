import numpy as np
import pytest

from graph_data.rowfile import GrowingFile, RowFile, header
from siafu.errors import DatasetError


@pytest.mark.parametrize("shape", [(7,), (7, 3), (7, 2, 2), (0,), (0, 4)])
@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.uint8])
def test_slices_of_a_file_are_slices_of_its_array(shape, dtype, tmp_path):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    found = RowFile(tmp_path / "a.npy")
    assert (found.shape, found.dtype, len(found), found.ndim) == (shape, array.dtype, len(array), array.ndim)
    for rows in (slice(None), slice(2, 5), slice(5, 100), slice(6, 2), slice(-2, None)):
        assert np.array_equal(found[rows], array[rows])


def test_a_header_is_what_numpy_writes(tmp_path):
    array = np.zeros((5, 3), np.float32)
    np.save(tmp_path / "a.npy", array)
    assert (tmp_path / "a.npy").read_bytes() == header(array.shape, array.dtype) + array.tobytes()


@pytest.mark.parametrize("kept", [0, 2, 5])
def test_a_growing_file_is_an_array_and_continues_after_any_length(kept, tmp_path):
    file = tmp_path / "g.npy"
    with GrowingFile(file, np.dtype(np.int64)) as growing:
        growing.append(np.arange(3))
        growing.append(np.arange(3, 5))
    assert np.array_equal(np.load(file), np.arange(5))
    with GrowingFile(file, np.dtype(np.int64), kept) as growing:
        growing.append(np.full(2, 9))
    assert np.array_equal(np.load(file), [*range(kept), 9, 9])


def test_a_truncated_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(10))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:-1])
    with pytest.raises(DatasetError, match=rf"a\.npy: {len(data) - 1} bytes, must be {len(data)} by its header$"):
        RowFile(tmp_path / "a.npy")


@pytest.mark.parametrize("content", [b"", b"not an array"])
def test_what_is_no_array_is_refused(content, tmp_path):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DatasetError, match=r"a\.npy: not a readable \.npy file"):
        RowFile(tmp_path / "a.npy")


def test_columns_one_after_another_are_rows_too(tmp_path):
    """``numpy.save`` of a DataFrame's values, or of ``x.T``, writes such a file."""
    x = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "a.npy", np.asfortranarray(x))
    found = RowFile(tmp_path / "a.npy")
    assert (found[:].tolist(), found[1:2].tolist(), found[3:].tolist()) == (x.tolist(), x[1:2].tolist(), [])
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), order="F"))
    with pytest.raises(DatasetError, match=r"a\.npy: is an array of 3 axes, must be rows of numbers$"):
        RowFile(tmp_path / "a.npy")
