"""Columns of Parquet and CSV files, a block of rows at a time, through pyarrow.

What cannot be used is named by file, row (counted from 1, without a header) and column.
"""

from __future__ import annotations

import glob
import gzip
import re
import zlib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from siafu.errors import ConfigError, DatasetError
from siafu.sparse import Array

PARQUET = (".parquet", ".pq")
TEXT = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}  # ending -> delimiter
SUFFIXES = (*PARQUET, *TEXT)
TEXT_BLOCK_BYTES = 4 << 20
PARQUET_BUFFER_BYTES = 1 << 20  # read ahead per column: row groups may be larger than memory
LARGEST_ID = 2**63 - 1


def files_of(pattern: str) -> list[Path]:
    """The table files that a path, a folder or a pattern with ``*`` names, in the order of their names.

    Raises: DatasetError if there is none, or one is of another kind.
    """
    path = Path(pattern)
    if path.is_dir():
        found = sorted(file for file in path.iterdir() if file.name.endswith(SUFFIXES))
    elif glob.has_magic(pattern) and not path.exists():
        found = sorted(Path(name) for name in glob.glob(pattern))
    else:
        found = [path]
    if not found:
        raise DatasetError(f"{pattern}: no file there that ends in {', '.join(SUFFIXES)}")
    for file in found:
        if not file.is_file():
            raise DatasetError(f"{file}: no such file")
        if not file.name.endswith(SUFFIXES):
            raise DatasetError(f"{file}: must end in {', '.join(SUFFIXES)}")
    return found


def column_names(file: Path) -> list[str]:
    """Names of the columns; those of a CSV file whose first line is numbers are its column numbers, from 0."""
    if file.name.endswith(PARQUET):
        with _opened(file) as parquet:
            return list(parquet.schema_arrow.names)
    first = _first_line(file)
    return first if _is_header(first) else [str(i) for i in range(len(first))]


def num_rows(file: Path) -> int:
    """Rows of a table: exact for Parquet, for text an estimate from the length of its first lines."""
    if file.name.endswith(PARQUET):
        with _opened(file) as parquet:
            return int(parquet.metadata.num_rows)
    head = _head(file)
    compression = 1 if not file.name.endswith(".gz") else 4
    lines = head.count(b"\n") - _is_header(_first_line(file))
    return lines if len(head) < 1 << 16 else int(compression * file.stat().st_size * lines / len(head))


def largest(file: Path, column: str) -> int | None:
    """The largest value of an integer column by the statistics in the file; None if there are none."""
    if not file.name.endswith(PARQUET):
        return None
    with _opened(file) as parquet:
        if column not in parquet.schema_arrow.names:
            return None
        place = parquet.schema_arrow.names.index(column)
        groups = (parquet.metadata.row_group(i).column(place).statistics for i in range(parquet.num_row_groups))
        found = [group.max if group is not None and group.has_min_max else None for group in groups]
    known = [value for value in found if isinstance(value, int)]
    return max(known) if known and len(known) == len(found) else None


def blocks(file: Path, columns: list[str], rows: int, kinds: str) -> Iterator[tuple[Array, ...]]:
    """The columns in blocks of about so many rows; ``kinds`` has one letter each: i for int64 ids, f for floats.

    Raises: DatasetError for a file that cannot be read, a column that is not there, or a value that is no such number.
    """
    names = column_names(file)
    for column in columns:
        if column not in names:
            raise DatasetError(f"{file}: has no column {column!r}, only {', '.join(names)}")
    waiting: list[tuple[Array, ...]] = []
    count, first = 0, 1
    for batch in _batches(file, columns, rows, kinds):
        here = (file, first)
        waiting.append(
            tuple(
                (_ids if kind == "i" else _numbers)(batch.column(i), *here, columns[i]) for i, kind in enumerate(kinds)
            )
        )
        count += len(batch)
        first += len(batch)
        if count >= rows:
            yield _joined(waiting)
            waiting, count = [], 0
    if count:
        yield _joined(waiting)


def _joined(waiting: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    return waiting[0] if len(waiting) == 1 else tuple(np.concatenate(column) for column in zip(*waiting, strict=True))


# --- pyarrow ----------------------------------------------------------------------------------------------------------


def arrow(module: str) -> Any:
    """A module of pyarrow. Raises: ConfigError if that is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ConfigError("Parquet and CSV files need pyarrow: pip install 'siafu[data]'") from None


def _opened(file: Path) -> Any:
    pa, parquet = arrow("pyarrow"), arrow("pyarrow.parquet")
    try:
        return parquet.ParquetFile(file, pre_buffer=False, buffer_size=PARQUET_BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"{file}: not a readable Parquet file ({_line(error)})") from None


def _batches(file: Path, columns: list[str], rows: int, kinds: str) -> Iterator[Any]:
    pa = arrow("pyarrow")
    try:
        if file.name.endswith(PARQUET):
            with _opened(file) as parquet:
                yield from parquet.iter_batches(rows, columns=columns)
        else:
            yield from _text_batches(file, columns, kinds, use_threads=True)
    except (pa.ArrowException, OSError) as error:
        if not file.name.endswith(PARQUET):
            _raise_where(file, columns, kinds)
        raise DatasetError(f"{file}: not readable ({_line(error)})") from None


def _text_batches(file: Path, columns: list[str], kinds: str, use_threads: bool) -> Iterator[Any]:
    pa, csv = arrow("pyarrow"), arrow("pyarrow.csv")
    first = _first_line(file)
    names = None if _is_header(first) else [str(i) for i in range(len(first))]
    types = {"i": pa.int64(), "f": pa.float64()}
    with csv.open_csv(
        str(file),
        read_options=csv.ReadOptions(block_size=TEXT_BLOCK_BYTES, use_threads=use_threads, column_names=names),
        parse_options=csv.ParseOptions(delimiter=_delimiter(file)),
        convert_options=csv.ConvertOptions(
            include_columns=columns, column_types={c: types[kind] for c, kind in zip(columns, kinds, strict=True)}
        ),
    ) as reader:
        yield from reader


def _raise_where(file: Path, columns: list[str], kinds: str) -> None:
    """Reads a bad file again on one thread: only then does pyarrow say which row it stumbles over."""
    try:
        for _ in _text_batches(file, columns, kinds, use_threads=False):
            pass
    except arrow("pyarrow").ArrowException as error:
        text = _line(error)
        row, value = re.search(r"Row #(\d+)", text), re.search(r"invalid value '(.*)'", text)
        column = re.search(r"CSV column #(\d+)", text)
        if row and value and column:
            named = column_names(file)[int(column[1])]
            number = int(row[1]) - _is_header(_first_line(file))
            _refuse(
                file, number, named, repr(value[1]), "a number" if kinds[columns.index(named)] == "f" else "an integer"
            )


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(". ")


def _text(file: Path) -> Any:
    return gzip.open(file) if file.name.endswith(".gz") else file.open("rb")


def _head(file: Path) -> bytes:
    """The first bytes of the text. Raises: DatasetError if they cannot be read."""
    try:
        with _text(file) as stream:
            return bytes(stream.read(1 << 16))
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable ({_line(error)})") from None


def _first_line(file: Path) -> list[str]:
    line = _head(file).partition(b"\n")[0].decode("utf-8", "replace").strip("\ufeff\r")
    if not line:
        raise DatasetError(f"{file}: is empty, or its first line is")
    return [field.strip().strip('"') for field in line.split(_delimiter(file))]


def _is_header(fields: list[str]) -> bool:
    """False if every field of a first line is a number."""
    return not all(re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", field) for field in fields)


def _delimiter(file: Path) -> str:
    return next(delimiter for suffix, delimiter in TEXT.items() if file.name.endswith(suffix))


# --- values -----------------------------------------------------------------------------------------------------------


def _refuse(file: Path, row: int, column: str, value: str, must: str) -> NoReturn:
    raise DatasetError(f"{file}: row {row}: column {column!r} is {value}, must be {must}")


def _ids(array: Any, file: Path, first: int, column: str) -> Array:
    """int64 of an Arrow array of vertex ids."""
    values = _values(array, file, first, column, "an integer")
    if values.dtype.kind == "f":
        _first_bad(values == np.floor(values), values, file, first, column, "an integer")
        _first_bad(np.abs(values) < 2.0**53, values, file, first, column, "an integer, not a rounded one")
    if values.dtype == np.uint64:
        _first_bad(values <= LARGEST_ID, values, file, first, column, f"in 0..{LARGEST_ID}")
    if len(values) and values.min() < 0:
        _first_bad(values >= 0, values, file, first, column, f"in 0..{LARGEST_ID}")
    return values.astype(np.int64, copy=False)


def _numbers(array: Any, file: Path, first: int, column: str) -> Array:
    values = _values(array, file, first, column, "a number")
    return values if values.dtype == np.float32 else values.astype(np.float64, copy=False)


def _values(array: Any, file: Path, first: int, column: str, must: str) -> Array:
    """The numbers of an Arrow array."""
    if array.null_count:
        row = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        _refuse(file, first + row, column, "missing", must)
    try:
        values: Array = array.to_numpy(zero_copy_only=False)
    except (ValueError, TypeError, NotImplementedError):
        values = np.empty(0, object)
    if values.dtype.kind not in "iuf":
        _refuse(file, first, column, f"{array[0].as_py()!r}, {array.type}", must)
    return values


def _first_bad(good: Array, values: Array, file: Path, first: int, column: str, must: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        _refuse(file, first + row, column, str(values[row]), must)
