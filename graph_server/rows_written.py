"""Writes a slot of all vertices of a partition to a ``.npy`` file, for ``siafu predict``."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np

from siafu.errors import DatasetError
from siafu.sparse import Array


class RowsWritten:
    """The file of one slot's rows. Use in a ``with`` block. The first rows written create the file and set its
    width."""

    def __init__(self, path: Path, num_rows: int):
        self.path, self.num_rows = path, num_rows
        # All mutable state:
        self._file: BinaryIO | None = None
        self._begin = 0  # offset of row 0

    def write(self, start: int, rows: Array) -> None:
        """Writes ``rows`` [n, F] of the vertices from ``start`` on. Raises: DatasetError if the file cannot be
        written."""
        try:
            if self._file is None:
                self._file = self._made(rows)
            self._file.seek(self._begin + start * rows.dtype.itemsize * rows.shape[1])
            self._file.write(np.ascontiguousarray(rows).data)
            self._file.flush()
        except OSError as error:
            raise DatasetError(f"{self.path}: cannot be written: {error.strerror}") from error

    def _made(self, rows: Array) -> BinaryIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("wb")
        head = {"descr": rows.dtype.str, "fortran_order": False, "shape": (self.num_rows, rows.shape[1])}
        np.lib.format.write_array_header_1_0(file, head)
        self._begin = file.tell()
        return file

    def __enter__(self) -> RowsWritten:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
