"""Arrays of anybody: what numpy writes is read; whatever else is a ValueError."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from siafu.npy import headers_in, mapped, read_archive, read_header

ARRAYS = [
    np.arange(6, dtype=np.float16).reshape(2, 3),
    np.zeros((0, 4)),
    np.array(3),
    np.array([True, False]),
    np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.array(["a", "bc"]),
    np.arange(3, dtype=np.uint16)[:, None],
    np.arange(4, dtype=">i8"),
]


def npy(values, version=None):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, values, version=version, allow_pickle=True)
    return stream.getvalue()


def with_header(text, version=b"\x01\x00"):
    return b"\x93NUMPY" + version + len(text).to_bytes(2 if version[0] == 1 else 4, "little") + text


@pytest.mark.parametrize("values", ARRAYS, ids=lambda values: f"{values.dtype}{list(values.shape)}")
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_what_numpy_writes_is_read(values, version, tmp_path):
    (tmp_path / "x.npy").write_bytes(npy(values, version))
    np.testing.assert_array_equal(mapped(tmp_path / "x.npy"), values, strict=True)
    header = read_header(io.BytesIO(npy(values, version)))
    assert (header.shape, header.dtype, header.file_bytes) == (values.shape, values.dtype, len(npy(values, version)))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_archives_of_numpy_are_read(save):
    stream = io.BytesIO()
    save(stream, **{f"a{i}": values for i, values in enumerate(ARRAYS)})
    found = read_archive(stream)
    for i, values in enumerate(ARRAYS):
        np.testing.assert_array_equal(found[f"a{i}"], values, strict=True)
        assert found[f"a{i}"].flags.writeable
    assert {name: header.shape for name, header in headers_in(stream).items()} == {
        f"a{i}": values.shape for i, values in enumerate(ARRAYS)
    }


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (b"\x93NUMPY\x09\x00", "does not begin"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "a header of 4294967295 bytes"),  # numpy asks for 4 GiB
        (b"\x93NUMPY\x01\x00\x76\x00{'descr'", "ends within its header"),
        (with_header(b"{'descr': '<f4', 'shape': (3,)"), "no description"),  # numpy: a TokenError
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (3L,), }"), "no description"),
        (with_header(b"\xff" * 9, b"\x03\x00"), "no description"),
        (with_header(b"(" * 5000), "no description"),
        (with_header(b"{'descr': '|O', 'fortran_order': False, 'shape': (3,)}"), "dtype '|O'"),
        (with_header(b"{'descr': '<f4', 'fortran_order': 0, 'shape': (3,)}"), "no description"),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "shape"),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)}" % (2**32, 2**32)), "shape"),
        (with_header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (True,)}"), "shape"),
        (npy(np.arange(3))[:-1], "must be 152 by its header"),
        (npy(np.arange(3)) + b"x", "must be 152 by its header"),
    ],
)
def test_whatever_else_is_a_value_error(data, why, tmp_path):
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(ValueError, match=why.replace("|", r"\|")):
        mapped(tmp_path / "x.npy")


def archive(method=zipfile.ZIP_DEFLATED, **members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return stream.getvalue()


def test_an_archive_is_not_believed_what_it_cannot_hold():
    whole = archive(x=npy(np.arange(3)))
    hostile = npy(np.arange(3)).replace(b"(3,)", b"(999999999,)")[:150]
    for data in (b"", b"no zip", whole[:-5], archive(x=hostile), archive(zipfile.ZIP_BZIP2, x=npy(np.arange(3)))):
        with pytest.raises(ValueError, match=r"."):
            read_archive(io.BytesIO(data))
    altered = bytearray(archive(zipfile.ZIP_STORED, x=npy(np.arange(3))))
    altered[altered.index(b"\x93NUMPY") + 140] ^= 1
    with pytest.raises(ValueError, match="CRC"):
        read_archive(io.BytesIO(bytes(altered)))
