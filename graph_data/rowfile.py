"""Arrays on disk that are read and written a piece at a time. They are not mapped, because mapped pages count as our
memory.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import IO, Any

import numpy as np

from siafu.errors import DatasetError
from siafu.npy import read_header
from siafu.sparse import Array


def check_file(path: Path) -> None:
    """Raises: DatasetError for a folder, and for a pipe or device, which has no end or can be read only once."""
    if path.exists() and not path.is_file():
        raise DatasetError(f"{path}: is a {'folder' if path.is_dir() else 'pipe or device'}, must be a file")


class RowFile:
    """The array of a ``.npy`` file; slices of its rows are read when asked for."""

    def __init__(self, path: Path) -> None:
        """Raises: DatasetError if it is no ``.npy`` file, or shorter than its header says."""
        self.path = path
        check_file(path)
        try:
            with path.open("rb") as stream:
                found = read_header(stream)
        except (OSError, ValueError) as error:
            raise DatasetError(f"{path}: not a readable .npy file ({error})") from None
        self.shape, self.dtype, self._offset = found.shape, found.dtype, found.offset
        self._by_column = found.fortran and len(self.shape) > 1  # as numpy saves a DataFrame's values, or x.T
        if not self.shape or (self._by_column and len(self.shape) > 2):
            raise DatasetError(f"{path}: is an array of {len(self.shape)} axes, must be rows of numbers")
        self._row = math.prod(self.shape[1:])  # values
        if path.stat().st_size < found.file_bytes:
            raise DatasetError(f"{path}: {path.stat().st_size} bytes, must be {found.file_bytes} by its header")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: slice) -> Array:
        start, stop, _ = rows.indices(len(self))
        if self._by_column:
            return self._of_columns(start, max(start, stop))
        count = max(0, stop - start) * self._row
        offset = self._offset + start * self._row * self.dtype.itemsize
        flat = np.fromfile(self.path, self.dtype, count, offset=offset)
        return flat.reshape(max(0, stop - start), *self.shape[1:])

    def _of_columns(self, start: int, stop: int) -> Array:
        out = np.empty((stop - start, self._row), self.dtype)
        with self.path.open("rb") as stream:
            for column in range(self._row):
                stream.seek(self._offset + (column * len(self) + start) * self.dtype.itemsize)
                out[:, column] = np.fromfile(stream, self.dtype, stop - start)
        return out


def header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """The header of a ``.npy`` file of this array. Its length is the same for any number of rows: numpy leaves room."""
    stream = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, description)
    return stream.getvalue()


class GrowingFile:
    """A ``.npy`` file to append to; ``close`` writes its length into the header."""

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int = 0, row: tuple[int, ...] = ()) -> None:
        """``length``: number of existing rows to keep; the rest is dropped. ``row``: the shape of a row."""
        self._dtype, self._row = dtype, row
        self.length = length  # the only state that changes
        self._stream: IO[bytes] = path.open("r+b" if length else "wb")
        start = header((0, *row), dtype)
        self._stream.seek(0)
        self._stream.write(start)
        self._stream.truncate(len(start) + length * math.prod(row) * dtype.itemsize)
        self._stream.seek(0, 2)

    def append(self, values: Array) -> None:
        values.astype(self._dtype, copy=False).tofile(self._stream)
        self.length += len(values)

    def flush(self) -> None:
        """Hands everything to the operating system: it outlives this process."""
        self._stream.flush()

    def close(self) -> None:
        self._stream.seek(0)
        self._stream.write(header((self.length, *self._row), self._dtype))
        self._stream.close()

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
