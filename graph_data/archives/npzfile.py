"""Reads ``.npz`` archives that are not ours: the names, the plain arrays, and an object that was pickled into one."""

from __future__ import annotations

import zipfile
from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.archives import plainpickle
from graph_data.archives.sparsematrix import csr
from graph_data.fields import left_out, sorted_out
from graph_data.masks import split_of
from siafu.errors import DatasetError
from siafu.npy import DEFLATE, MAGIC, read_archive
from siafu.sparse import Array

_HEADER_BYTES = 256  # of an array of objects


def names(file: Path) -> frozenset[str]:
    """Names of the arrays in the archive; empty if it is no archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return frozenset(name.removesuffix(".npy") for name in archive.namelist())
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile):
        return frozenset()


def arrays(file: Path, only: Container[str] | None = None) -> dict[str, Array]:
    """All arrays, or those of ``names`` that exist. Raises: DatasetError."""
    try:
        with file.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise ValueError("no zip file")
            stream.seek(0)
            return read_archive(stream, only)
    except FileNotFoundError:
        raise DatasetError(f"{file}: no such file") from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{file}: not a readable npz archive of plain arrays ({error})") from None


def besides(file: Path, read: Container[str], num_vertices: int, shown: str) -> tuple[Array, tuple[str, ...]]:
    """The split in an archive whose format has none, uint8 [N, S], and a note on its other arrays.

    Raises: DatasetError for an array that looks like a weight, a label, or an invalid split.
    """
    found = sorted_out({name: _shown(file, name) for name in sorted(names(file)) if name not in read}, {}, shown)
    return split_of(found.splits, num_vertices, shown), left_out(found.left, num_vertices, shown)


def _shown(file: Path, name: str) -> Array:
    """The array; an empty one if it is pickled."""
    try:
        return arrays(file, (name,))[name]
    except DatasetError:
        return np.empty(0, object)


def scipy_matrix(file: Path) -> Any:
    """The matrix in a file of ``scipy.sparse.save_npz``, as csr. Raises: DatasetError."""
    parts = arrays(file, ("data", "indices", "indptr", "row", "col", "format", "shape"))
    kind = parts.get("format", np.array("csr")).astype("U").ravel()
    try:
        if len(kind) != 1 or kind[0] not in ("csr", "csc", "coo"):
            raise ValueError("its format is not csr, csc or coo")
        return csr(str(kind[0]), dict(parts))
    except ValueError as error:
        raise DatasetError(f"{file}: not a matrix of scipy.sparse.save_npz ({error})") from None


def pickled(file: Path, name: str) -> Any:
    """The one object in an array of objects, for ``plainpickle.matrix``; else the array. Raises: DatasetError."""
    try:
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(f"{name}.npy")
            if info.file_size > DEFLATE * (info.compress_size + 1):
                raise ValueError(f"{info.file_size} bytes out of {info.compress_size} are not possible")
            content = archive.read(info)
    except (OSError, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError, zipfile.BadZipFile) as error:
        raise DatasetError(f"{file}: {name} is not readable ({error})") from None
    if not content.startswith(MAGIC) or b"'|O'" not in content[:_HEADER_BYTES]:
        return arrays(file, (name,))[name]
    start = content.index(b"\n") + 1
    held = plainpickle.array(plainpickle.loads(content[start:], f"{file}: {name}"), f"{file}: {name}")
    return held.item() if held.size == 1 else held
