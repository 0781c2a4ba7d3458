"""Reads ``.npy`` files and ``.npz`` archives from any source: no header is trusted beyond the bytes that follow it.

numpy's own reader trusts a header: it allocates as much memory as the shape asks for, and raises a dozen kinds of
errors for odd headers. Here a header must describe an array of numbers or texts, and a file must be as long as its
header says; else a ValueError is raised.
"""

from __future__ import annotations

import ast
import math
import re
import struct
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from siafu.sparse import Array

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 10_000  # numpy's own limit
MAX_DIMENSIONS = 8
MAX_NBYTES = 1 << 62  # of an array: larger sizes wrap around
DEFLATE = 1032  # the most bytes that one compressed byte can become (zlib's technical notes)
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|f16|c8|c16|[SU][0-9]{1,6})")
#: Errors of zipfile and zlib for invalid archives: an unknown compression is a NotImplementedError, a RuntimeError.
_BROKEN = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, KeyError, RuntimeError, OverflowError)


@dataclass(frozen=True)
class Header:
    """The header of a ``.npy`` file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool  # columns one after another
    offset: int  # of the values

    @property
    def nbytes(self) -> int:
        """The size of the values in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def file_bytes(self) -> int:
        """The size of the whole file in bytes."""
        return self.offset + self.nbytes


#: CPython 3.11 counts the parser's depth for all threads together: two that parse at once can end in a SystemError.
_PARSING = threading.Lock()


def read_header(stream: IO[bytes]) -> Header:
    """Reads the header of the array at the stream's position. Raises: ValueError; OSError of the stream."""
    lead = stream.read(8)
    if lead[:6] != MAGIC or len(lead) < 8 or lead[6] not in (1, 2, 3):
        raise ValueError("it does not begin as one")
    width = 2 if lead[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes, at most {MAX_HEADER_BYTES}")
    text = stream.read(length)
    if len(text) < length:
        raise ValueError("it ends within its header")
    try:
        with _PARSING:
            fields = ast.literal_eval(text.decode("latin1" if lead[6] < 3 else "utf-8").strip())
        description, fortran, shape = fields.pop("descr"), fields.pop("fortran_order"), fields.pop("shape")
    except (
        ValueError,
        SyntaxError,
        tokenize.TokenError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        MemoryError,
    ):
        raise ValueError("its header is no description of an array") from None
    if fields or type(fortran) is not bool or type(shape) is not tuple or len(shape) > MAX_DIMENSIONS:
        raise ValueError("its header is no description of an array")
    if not isinstance(description, str) or not _DTYPE.fullmatch(description):
        raise ValueError(f"values of dtype {str(description)[:40]!r}, must be numbers or texts")
    dtype = np.dtype(description)
    size = max(1, dtype.itemsize)
    for n in shape:
        if type(n) is not int or n < 0 or (size := size * max(1, n)) > MAX_NBYTES:
            raise ValueError(f"shape {str(shape)[:40]} is not allowed")
    return Header(shape, dtype, fortran, len(lead) + width + length)


def mapped(file: Path) -> Array:
    """Maps the array of a file read-only. Raises: ValueError if the file is not valid; OSError if it cannot be
    opened."""
    with file.open("rb") as stream:
        header = read_header(stream)
    nbytes = file.stat().st_size
    if nbytes != header.file_bytes:
        raise ValueError(f"{nbytes} bytes, must be {header.file_bytes} by its header")
    order: Literal["C", "F"] = "F" if header.fortran else "C"
    if not math.prod(header.shape):
        return np.empty(header.shape, header.dtype, order)  # an empty array cannot be mapped
    found: Array = np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
    return found


def read_archive(stream: IO[bytes], only: Container[str] | None = None) -> dict[str, Array]:
    """Reads the arrays of an ``.npz`` archive into memory, by name. ``only``: names to read; None: all. Raises:
    ValueError; OSError of the stream."""
    try:
        with zipfile.ZipFile(stream) as archive:
            named = ((info.filename.removesuffix(".npy"), info) for info in archive.infolist())
            return {name: _member(archive, info) for name, info in named if only is None or name in only}
    except _BROKEN as error:
        raise ValueError(str(error) or type(error).__name__) from None


def headers_in(stream: IO[bytes]) -> dict[str, Header]:
    """Reads the headers of an ``.npz`` archive's arrays, by name, without their values. Raises: ValueError; OSError of
    the stream."""
    found = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            for info in archive.infolist():
                with archive.open(info) as member:
                    found[info.filename.removesuffix(".npy")] = read_header(member)
    except _BROKEN as error:
        raise ValueError(str(error) or type(error).__name__) from None
    return found


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename}: compressed by method {info.compress_type}")
    if info.file_size > DEFLATE * (info.compress_size + 1):
        raise ValueError(f"{info.filename}: {info.file_size} bytes out of {info.compress_size} are not possible")
    try:
        with archive.open(info) as member:
            header = read_header(member)
            if header.file_bytes != info.file_size:
                raise ValueError(f"{info.file_size} bytes, must be {header.file_bytes} by its header")
            values = np.empty(math.prod(header.shape), header.dtype)
            room = values.view(np.uint8) if values.nbytes else values[:0]
            place = 0
            while place < len(room):
                block = member.read(min(1 << 20, len(room) - place))
                if not block:
                    raise ValueError("it is cut short")
                room[place : place + len(block)] = np.frombuffer(block, np.uint8)
                place += len(block)
            member.read(1)  # the end: the checksum is compared there
    except ValueError as error:
        raise ValueError(f"{info.filename}: {error}") from None
    return values.reshape(header.shape, order="F" if header.fortran else "C")
