"""CSV and TSV files as text: their header, their first row, and which row a parser stumbled over.

Rows are counted from 1, without the header. A first line of numbers is no header. Blanks around names are no part of them;
where the header has some, none is part of a word either.
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from graph_data.sources.arrow import arrow, first_line_of
from siafu.errors import DatasetError

TEXT = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}  # ending -> delimiter
BLOCK_BYTES = 4 << 20
HEAD_BYTES = 1 << 16
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
MISSING = ("", "NA", "N/A", "null", "NULL", "nan", "NaN")  # of numbers: pyarrow's own list has more spellings of these

#: What a file of another kind begins with, and what to do with it.
FOREIGN = {
    b"PAR1": "is a Parquet file: call it .parquet",
    b"\x1f\x8b": "is compressed by gzip: call it {name}.gz",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"BZh": "is compressed by bzip2: unpack it, or compress it by gzip and call it {name}.gz",
    b"\xfd7zXZ": "is compressed by xz: unpack it, or compress it by gzip and call it {name}.gz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd: unpack it, or compress it by gzip and call it {name}.gz",
    b"\xff\xfe": "is UTF-16, must be UTF-8",
    b"\xfe\xff": "is UTF-16, must be UTF-8",
}


# --- the head ---------------------------------------------------------------------------------------------------------


def column_names(file: Path) -> list[str]:
    """Of the header; column numbers, from 0, if the first line is numbers. Raises: DatasetError if two are equal."""
    first = _first_line(file)
    if not is_header(first):
        return [str(i) for i in range(len(first))]
    for i, name in enumerate(first):
        if name in first[:i]:
            raise DatasetError(f"{file}: has two columns {name!r}")
    return first


def is_header(fields: list[str]) -> bool:
    """False if every field of a first line is a number."""
    return not all(NUMBER.fullmatch(field) for field in fields)


def has_header(file: Path) -> bool:
    return is_header(_first_line(file))


def first_value(file: Path, column: str) -> str | None:
    """The first value of a column that is not missing, looked for in the head of the file; None if there is none."""
    place = column_names(file).index(column)
    for fields in _rows(file)[has_header(file) :]:
        if place < len(fields) and (value := fields[place].strip()) not in MISSING:
            return value
    return None


def num_rows(file: Path) -> int:
    """An estimate from the length of the first lines."""
    head = _head(file)
    compression = 1 if not file.name.endswith(".gz") else 4
    lines = head.count(b"\n") - has_header(file)
    return lines if len(head) < HEAD_BYTES else int(compression * file.stat().st_size * lines / len(head))


def _first_line(file: Path) -> list[str]:
    rows = _rows(file)
    if not rows or not rows[0]:
        raise DatasetError(f"{file}: {'its first line is empty' if rows else 'is empty'}")
    return [field.strip() for field in rows[0]]


def _rows(file: Path) -> list[list[str]]:
    """The rows that are whole in the head of the file, fields as they stand."""
    head = _head(file)
    lines = [line.removesuffix("\r") for line in head.decode("utf-8-sig", "replace").split("\n")]
    whole = lines[:-1] if len(lines) > 1 and (len(head) == HEAD_BYTES or not lines[-1]) else lines
    try:
        return list(csv.reader(whole, delimiter=_delimiter(file))) if head else []
    except csv.Error as error:
        raise DatasetError(f"{file}: not readable ({error})") from None


def _head(file: Path) -> bytes:
    """The first bytes of the text. Raises: DatasetError if they cannot be read, or are of no text."""
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            head = bytes(stream.read(HEAD_BYTES))
    except gzip.BadGzipFile:
        raise DatasetError(f"{file}: is not compressed by gzip: call it {file.name.removesuffix('.gz')}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable ({first_line_of(error)})") from None
    for magic, advice in FOREIGN.items():
        if head.startswith(magic):
            raise DatasetError(f"{file}: {advice.format(name=file.name)}")
    if b"\0" in head:
        raise DatasetError(f"{file}: is no text: byte {head.index(0)} is zero")
    return head


def _delimiter(file: Path) -> str:
    return next(delimiter for suffix, delimiter in TEXT.items() if file.name.endswith(suffix))


# --- all of it --------------------------------------------------------------------------------------------------------


def batches(file: Path, columns: list[str], types: list[str], use_threads: bool = True) -> Iterator[Any]:
    """Arrow's batches of these columns; ``types`` are names of Arrow types."""
    pa, text = arrow("pyarrow"), arrow("pyarrow.csv")
    names, spaced = column_names(file), _is_spaced(file)
    with text.open_csv(
        str(file),
        read_options=text.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=use_threads,
            column_names=names if spaced or not has_header(file) else None,
            skip_rows=int(spaced),
        ),
        parse_options=text.ParseOptions(delimiter=_delimiter(file)),
        convert_options=text.ConvertOptions(
            include_columns=columns,
            column_types={column: getattr(pa, type_)() for column, type_ in zip(columns, types, strict=True)},
        ),
    ) as reader:
        yield from (_trimmed(file, batch) for batch in reader) if spaced else reader


def _is_spaced(file: Path) -> bool:
    """Whether blanks stand around names of the header, which pyarrow would take for parts of them."""
    return has_header(file) and column_names(file) != _rows(file)[0]


def _trimmed(file: Path, batch: Any) -> Any:
    """Words without the blanks around them: in ``alice, bob`` and ``bob, alice`` there are two of them, not four. DatasetError
    for a quote behind a blank, which pyarrow takes for a part of the word."""
    pa, compute = arrow("pyarrow"), arrow("pyarrow.compute")
    found = [compute.utf8_trim_whitespace(a) if pa.types.is_string(a.type) else a for a in batch.columns]
    for name, column in zip(batch.schema.names, found, strict=True):
        if pa.types.is_string(column.type) and compute.any(compute.starts_with(column, '"')).as_py():
            raise DatasetError(
                f"{file}: column {name!r} has a quoted field behind a blank: leave out the blanks behind delimiters"
            )
    return pa.RecordBatch.from_arrays(found, schema=batch.schema)


def explain(file: Path, columns: list[str], types: list[str], musts: list[str]) -> NoReturn:
    """Reads a bad file again on one thread: only then does pyarrow say which row it stumbles over.

    ``musts`` says what the values of every column must be. Raises: DatasetError.
    """
    try:
        for _ in batches(file, columns, types, use_threads=False):
            pass
    except (arrow("pyarrow").ArrowException, OSError) as error:
        text = first_line_of(error)
        raise DatasetError(f"{file}: {_where(file, columns, musts, text)}") from None
    raise DatasetError(f"{file}: changed while it was read")


def _where(file: Path, columns: list[str], musts: list[str], text: str) -> str:
    found = re.search(r"Row #(\d+)", text)
    if not found:
        return f"not readable ({text})"
    row = int(found[1]) - has_header(file)
    if fields := re.search(r"Expected (\d+) columns, got (\d+)", text):
        return f"row {row} has {fields[2]} field{'s' if fields[2] != '1' else ''}, must have {fields[1]}"
    place = re.search(r"CSV column #(\d+)", text)
    column = column_names(file)[int(place[1])] if place else ""
    if column and (value := re.search(r"invalid value '(.*)'", text)):
        return f"row {row}: column {column!r} is {value[1]!r}, must be {musts[columns.index(column)]}"
    if column and "UTF8" in text:
        return f"row {row}: column {column!r} is no UTF-8"
    return f"row {row}: not readable ({text})"
