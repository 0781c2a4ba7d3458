"""Reads columns of Parquet and CSV files through pyarrow, a block of rows at a time.

Errors name the file, the row (counted from 1, without a header) and the column.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import numpy as np

from graph_data.rowfile import check_file
from graph_data.sources import textfile
from graph_data.sources.arrow import arrow, first_line_of
from graph_data.sources.textfile import TEXT
from siafu.errors import DatasetError
from siafu.sparse import Array

PARQUET = (".parquet", ".pq")
SUFFIXES = (*PARQUET, *TEXT)
LISTED = (*PARQUET, *(ending for ending in TEXT if ending.startswith((".csv", ".tsv"))))
PARQUET_BUFFER_BYTES = 1 << 20  # read ahead per column: row groups may be larger than memory
PACKED = (".zip", ".bz2", ".xz", ".zst", ".7z", ".rar", ".tar", ".tgz", ".gz", ".lz4")
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"
Identity = tuple[int, int, int]  # of a file, as ``identity`` has it
LARGEST_ID = 2**63 - 1
EPOCHS = (631_152_000, 2_208_988_800)  # seconds from 1970 to 1990, and to 2040


@dataclass(frozen=True)
class Where:
    """The place of the first value of an Arrow array."""

    file: Path
    row: int
    column: str

    def refuse(self, offset: int, value: str, must: str) -> NoReturn:
        """Raises: DatasetError about the value ``offset`` rows on."""
        raise DatasetError(f"{self.file}: row {self.row + offset}: column {self.column!r} is {value}, must be {must}")

    def refuse_column(self, kind: str, must: str) -> NoReturn:
        raise DatasetError(f"{self.file}: column {self.column!r} is {kind}, must be {must}")

    def check(self, good: Array, values: Sequence[Any] | Array, must: str) -> None:
        """Raises: DatasetError about the first invalid value."""
        if not good.all():
            offset = int(np.argmin(good))
            self.refuse(offset, str(values[offset]), must)


@dataclass(frozen=True)
class Kind:
    """How a column's values are read."""

    text: str  # the Arrow type that a column of text is converted to
    must: str  # what a value must be
    read: Callable[[Any, Where], Array]  # an Arrow array as numpy's, of the same length


# --- files ------------------------------------------------------------------------------------------------------------


def path_and_options(argument: str) -> tuple[str, str]:
    """Splits PATH?KEY=VALUE&... An existing path may have a ? in its name."""
    marks = [at for at, character in enumerate(argument) if character == "?"]
    there = (at for at in (len(argument), *reversed(marks)) if os.path.exists(argument[:at]))
    at = next(there, marks[0] if marks else len(argument))
    return argument[:at], argument[at + 1 :]


def file_and_columns(text: str) -> tuple[str, str]:
    """Splits FILE or FILE#COLUMN,COLUMN. Names of existing files, folders and columns may have a #."""
    marks = [at for at, character in enumerate(text) if character == "#"]
    for at in () if os.path.exists(text) else reversed(marks):
        if (
            text[:at].endswith(SUFFIXES)
            or os.path.isdir(text[:at])
            or (glob.has_magic(text[:at]) and "/" not in text[at:])
        ):
            return text[:at], text[at + 1 :]
    return text, ""


def listed(chosen: str) -> list[str]:
    """The names in COLUMN,COLUMN. A name with a comma stands in quotes, as in a CSV file."""
    return next(csv.reader([chosen]))


def line_of(names: Sequence[str]) -> str:
    """COLUMN,COLUMN for these names, as ``listed`` reads it."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(names)
    return line.getvalue()


def files_of(pattern: str) -> list[Path]:
    """The table files that a path, a folder or a pattern with ``*`` names, in the order of their names.

    Raises: DatasetError if no file matches, or one is of another kind.
    """
    path = Path(pattern)
    if path.is_dir():
        there = sorted(file for file in path.iterdir() if not file.name.startswith(("_", ".")))  # Spark's _metadata
        found = [file for file in there if file.name.endswith(LISTED)]  # beside them, a README.txt is no table
        found = found or [file for file in there if file.name.endswith(SUFFIXES)]
        parts = [
            file
            for folder in there
            if folder.is_dir() and "=" in folder.name
            for file in sorted(folder.rglob("*"))
            if is_parquet(file) and all("=" in f.name for f in _between(path, file))
        ]
        if found and parts:
            raise DatasetError(
                f"{pattern}: holds tables ({found[0].name}) and partitions ({parts[0].parent.name}): name one of them"
            )
        found = found or parts
    elif glob.has_magic(pattern) and not path.exists():
        found = sorted(Path(name) for name in glob.glob(pattern))
    else:
        found = [path]
    if not found:
        texts = path.is_dir() and any(folder.is_dir() and "=" in folder.name for folder in there)
        more = "; partitions (NAME=VALUE folders) must be of Parquet" if texts else ""
        raise DatasetError(f"{pattern}: no file there that ends in {', '.join(SUFFIXES)}{more}")
    for file in found:
        check_file(file)
        if not file.is_file():
            raise missing(file)
        if not file.name.endswith(SUFFIXES):
            raise DatasetError(f"{file}: {why_unknown(file.name) or 'must end in ' + ', '.join(SUFFIXES)}")
    return found


def why_unknown(name: str, endings: Sequence[str] = SUFFIXES) -> str:
    """The reason why a file with almost one of these endings is not read, and what to do; "" for other names."""
    lower = next((ending for ending in endings if name.lower().endswith(ending)), "")
    if lower:
        return f"endings are read in lower case: call it {name[: -len(lower)]}{lower}"
    if name.lower().endswith(PACKED):
        return "is packed: unpack it (of packed files, siafu reads tables ending in .gz)"
    return ""


def identity(file: Path) -> Identity:
    """Inode, bytes and time of the last change: different once the file is written to, or replaced."""
    status = file.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def check_unchanged(file: Path, before: Identity) -> None:
    """Raises: DatasetError for a file that has changed: an id added since then has no number."""
    if not file.exists() or identity(file) != before:
        raise DatasetError(f"{file}: changed while it was read: start again once nothing writes to it")


def missing(file: str | os.PathLike[str]) -> DatasetError:
    how = "" if Path(file).suffix else "; a column of a table is FILE#COLUMN"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(file)):
        how = "; siafu opens no addresses: download it, and give its path"
    elif os.fspath(file).startswith("~"):
        how = f"; ~ is not replaced here: give {os.path.expanduser(file)}"
    return DatasetError(f"{os.fspath(file)}: no such file{how}")


def _between(folder: Path, file: Path) -> list[Path]:
    return [parent for parent in file.parents if folder in parent.parents]


def is_parquet(file: Path) -> bool:
    return file.name.endswith(PARQUET)


def partition_of(file: Path) -> dict[str, str | int | None]:
    """Values that the folders of a Parquet file set for all its rows, as Hive, Spark and pandas write them:
    kind=friend/year=2020/0.parquet."""
    found: dict[str, str | int | None] = {}
    for folder in file.absolute().parents if is_parquet(file) else ():
        key, equals, text = folder.name.partition("=")
        if not equals or not key:
            break
        value = unquote(text)
        found[unquote(key)] = (
            None if value == NO_PARTITION else int(value) if re.fullmatch(r"0|-?[1-9]\d{0,17}", value) else value
        )
    return dict(reversed(found.items()))


def is_nameless(column: str) -> bool:
    """Whether this is pandas' name for a column without a name: mostly row numbers."""
    return textfile.NAMELESS.fullmatch(column) is not None


def plain(column: str) -> str:
    """A name without capitals, blanks and signs, to compare with common names of columns."""
    return re.sub(r"[^a-z0-9]", "", column.casefold())


def column_names(file: Path) -> list[str]:
    """Names of the columns; those of a CSV file whose first line is numbers are its column numbers, from 0."""
    if not is_parquet(file):
        return textfile.column_names(file)
    with _opened(file) as parquet:
        names = list(parquet.schema_arrow.names)
    if len(set(names)) < len(names):
        raise DatasetError(f"{file}: has two columns {next(name for name in names if names.count(name) > 1)!r}")
    return [*names, *(name for name in partition_of(file) if name not in names)]


def check_columns(file: Path, columns: Sequence[str]) -> None:
    """Raises: DatasetError that lists the existing columns, if one of these does not exist."""
    names = column_names(file)
    known = frozenset(names)
    for column in columns:
        if column not in known:
            raise DatasetError(f"{file}: has no column {column!r}, only {', '.join(names)}")


def column_type(file: Path, column: str) -> Any:
    """The Arrow type of a column of a Parquet file, without the dictionary or extension that it may be wrapped in."""
    pa = arrow()
    with _opened(file) as parquet:
        if column not in parquet.schema_arrow.names:
            return pa.scalar(partition_of(file)[column]).type
        kind = parquet.schema_arrow.field(column).type
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def text_columns(file: Path) -> dict[str, str]:
    """Text columns of a Parquet file, dictionaries of text included, with their types, for a message."""
    is_ = arrow().types
    with _opened(file) as parquet:
        kinds = {field.name: field.type for field in parquet.schema_arrow}
    kinds = {name: kind.value_type if is_.is_dictionary(kind) else kind for name, kind in kinds.items()}
    return {name: "text" for name, kind in kinds.items() if is_.is_string(kind) or is_.is_large_string(kind)}


def is_time(file: Path, column: str) -> bool:
    """Whether the values of a column are dates or times: by the schema, or in text if all in the head of the file are.
    Integers that count seconds or milliseconds since 1970 count too, if all are of the years 1990 to 2039."""
    if is_parquet(file):
        found = bounds(file, column)
        return bool(arrow().types.is_temporal(column_type(file, column))) or (found is not None and _are_epochs(found))
    head = textfile.values(file, column)
    if head and all(re.fullmatch(r"\d{9,13}", value) for value in head):
        return _are_epochs([*map(int, head)])
    return bool(head) and all(map(textfile.TIME.fullmatch, head))


def _are_epochs(seconds: Sequence[int]) -> bool:
    """Whether these are times in seconds, or in milliseconds, since 1970."""
    least, most = min(seconds), max(seconds)
    return any(unit * EPOCHS[0] <= least and most < unit * EPOCHS[1] for unit in (1, 1000))


def is_bool(file: Path, column: str) -> bool:
    """Whether a column holds true and false: by the schema, or in text by all values in the head of it."""
    if is_parquet(file):
        return bool(arrow().types.is_boolean(column_type(file, column)))
    return textfile.are_bools(textfile.values(file, column))


def widths(file: Path, columns: Sequence[str]) -> list[int]:
    """Numbers in a value of each column: for lists, the length of the first; else one. Reads the schema once."""
    if not is_parquet(file):
        return [1] * len(columns)
    with _opened(file) as parquet:
        schema = parquet.schema_arrow
        lists = {field.name for field in schema if is_list(field.type)}
    return [_length_of_lists(file, column) if column in lists else 1 for column in columns]


def _length_of_lists(file: Path, column: str) -> int:
    for batch in _batches(file, [column], 1, [FEATURES]):
        if batch.column(0)[0].is_valid:
            if not len(batch.column(0)[0]):
                raise DatasetError(f"{file}: column {column!r} has lists of no numbers")
            return len(batch.column(0)[0])
    return 1


def is_list(kind: Any) -> bool:
    is_ = arrow().types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def num_rows(file: Path) -> int:
    """Rows of a table: exact for Parquet, for text an estimate from the length of its first lines."""
    if not is_parquet(file):
        return textfile.num_rows(file)
    with _opened(file) as parquet:
        return int(parquet.metadata.num_rows)


def largest(file: Path, column: str) -> int | None:
    """The largest value of an integer column by the statistics in the file; None without any."""
    found = bounds(file, column)
    return None if found is None else found[1]


def bounds(file: Path, column: str) -> tuple[int, int] | None:
    """The least and the largest value of an integer column, by the statistics in the file; None without any."""
    if not is_parquet(file):
        return None
    with _opened(file) as parquet:
        if column not in parquet.schema_arrow.names:
            return None
        leaves = [parquet.schema.column(i).path for i in range(len(parquet.schema))]  # a struct has several
        if leaves.count(column) != 1:  # column a.b and leaf b of struct a have one path
            return None
        place = leaves.index(column)
        groups = (parquet.metadata.row_group(i).column(place).statistics for i in range(parquet.num_row_groups))
        found = [(group.min, group.max) if group is not None and group.has_min_max else None for group in groups]
    known = [pair for pair in found if pair is not None and isinstance(pair[0], int)]
    if not known or len(known) < len(found):
        return None
    return min(least for least, _ in known), max(most for _, most in known)


# --- blocks -----------------------------------------------------------------------------------------------------------


def blocks(file: Path, columns: Sequence[str], rows: int, kinds: Sequence[Kind]) -> Iterator[tuple[Array, ...]]:
    """The columns in blocks of about ``rows`` rows, each read as its kind.

    Raises: DatasetError for an unreadable file, a missing column, or a value that is not of its kind.
    """
    check_columns(file, columns)
    waiting: list[tuple[Array, ...]] = []
    count, first = 0, 1
    for batch in _batches(file, list(columns), rows, kinds):
        waiting.append(
            tuple(
                kind.read(batch.column(i), Where(file, first, name))
                for i, (name, kind) in enumerate(zip(columns, kinds, strict=True))
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


def _opened(file: Path) -> Any:
    pa, parquet = arrow("pyarrow"), arrow("pyarrow.parquet")
    try:
        opened = parquet.ParquetFile(file, pre_buffer=False, buffer_size=PARQUET_BUFFER_BYTES)
        _ = opened.reader.column_paths, opened.schema_arrow.names  # decoded when they are first asked for
        return opened
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: not a readable Parquet file ({first_line_of(error)})") from None


def _batches(file: Path, columns: list[str], rows: int, kinds: Sequence[Kind]) -> Iterator[Any]:
    pa = arrow("pyarrow")
    types = [kind.text for kind in kinds]
    if not is_parquet(file):  # whose schema tells; in text true and false are no numbers
        bools = [textfile.are_bools(head) for head in textfile.heads(file, columns)]
        types = [
            "bool_" if type_ == "float64" and is_bool else type_ for type_, is_bool in zip(types, bools, strict=True)
        ]
    try:
        if is_parquet(file):
            with _opened(file) as parquet:
                names, beside = parquet.schema_arrow.names, partition_of(file)
                own = set(names)
                for batch in parquet.iter_batches(rows, columns=[c for c in columns if c in own] or names[:1]):
                    yield pa.RecordBatch.from_arrays(
                        [
                            batch.column(c) if c in own else pa.array([beside[c]]).take(pa.array([0] * len(batch)))
                            for c in columns
                        ],
                        names=columns,
                    )
        else:
            yield from textfile.batches(file, columns, types)
    except (pa.ArrowException, OSError) as error:
        if not is_parquet(file):
            textfile.explain(file, columns, types, [kind.must for kind in kinds])
        raise DatasetError(f"{file}: not readable ({first_line_of(error)})") from None


# --- numbers ----------------------------------------------------------------------------------------------------------


def ids(num_vertices: int | None = None, hint: str = "") -> Kind:
    """The kind of integer ids, as int64: any that fit, or the numbers of ``num_vertices`` vertices.

    ``hint`` ends the message about another value. Integers with leading zeros are refused, unless they are numbers of
    vertices: 007 and 7 are two ids.
    """
    must = f"an integer{hint}"

    def read(array: Any, where: Where) -> Array:
        if array.null_count:
            refuse_null(array, where, "an integer")
        values = _values(parsed(array, where, must, zeros=bool(num_vertices)), where, must)
        if values.dtype.kind == "f":
            digits = np.finfo(values.dtype).nmant + 1  # of float32, 24: 16777217 and 16777216 are one
            values = values.astype(np.float64, copy=False)
            where.check(values == np.floor(values), values, must)
            where.check(np.abs(values) < 2.0**digits, values, f"an integer, not a rounded one: below 2**{digits}")
        if values.dtype == np.uint64:
            where.check(values <= LARGEST_ID, values, f"in 0..{LARGEST_ID}{hint}")
        if num_vertices and len(values) and values.min() < 0:
            where.check(values >= 0, values, f"in 0..{num_vertices - 1}")
        return values.astype(np.int64, copy=False)

    return Kind("string", must, read)


def parsed(array: Any, where: Where, must: str, *, zeros: bool) -> Any:
    """Text as Arrow's int64, or float64 if integers end in .0; arrays that are not text stay. Reading text and parsing
    it here is as fast as a reader that parses integers, which drops leading zeros. zeros: whether they are allowed."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    if is_parquet(where.file) or not pa.types.is_string(array.type):
        return array
    _check_padded(array, where, must, zeros)
    with contextlib.suppress(pa.ArrowInvalid):
        return array.cast("int64")
    trimmed = compute.utf8_trim_whitespace(array)
    _check_padded(trimmed, where, must, zeros)
    whole = compute.match_substring_regex(trimmed, f"^{textfile.WHOLE.pattern}$").to_numpy(zero_copy_only=False)
    if not whole.all():
        offset = int(np.argmin(whole))
        text = array[offset].as_py()
        if text.strip() in textfile.MISSING:
            where.refuse(offset, f"missing ({text!r})" if text else "missing", must.partition(";")[0])
        where.refuse(offset, repr(text), must)
    with contextlib.suppress(pa.ArrowInvalid):
        return trimmed.cast("int64")
    return trimmed.cast("float64")


def _check_padded(array: Any, where: Where, must: str, zeros: bool) -> None:
    """Raises: DatasetError for 007, unless ``zeros``, and for 0x1F: Arrow would take them for 7 and 31."""
    compute = arrow("pyarrow.compute")
    begin = compute.or_(compute.starts_with(array, "0"), compute.starts_with(array, "-0"))
    begin = compute.or_(begin, compute.starts_with(array, "+0"))
    padded = compute.and_(begin, compute.greater(compute.binary_length(array), 1))
    for row in map(int, np.flatnonzero(padded.to_numpy(zero_copy_only=False))):
        text = array[row].as_py()
        if text[:2].lower() == "0x":
            where.refuse(row, repr(text), must)
        if not zeros and textfile.LEADING_ZERO.fullmatch(text):
            why = must.partition("; ")[2] or "they would be lost"
            where.refuse(row, repr(text), f"an integer without leading zeros; {why}")


def _read_numbers(array: Any, where: Where) -> Array:
    values = _values(array, where, "a number")
    return values if values.dtype == np.float32 else values.astype(np.float64, copy=False)


def _read_features(array: Any, where: Where) -> Array:
    """Numbers [n], or [n, k] of lists of k."""
    if is_list(array.type):
        return _read_lists(array, where)
    if array.null_count:
        refuse_null(array, where, f"a number: fill it in, or #-{where.column} leaves the column out")
    values = _read_numbers(array, where)
    where.check(np.isfinite(values), values, "finite")
    where.check(_fits_float32(values), values, FLOAT32)
    return values


FLOAT32 = "within float32, 3.4e38 at most"


def _fits_float32(values: Array) -> Array:
    return np.asarray(np.abs(values) <= np.finfo(np.float32).max)


def _read_lists(array: Any, where: Where) -> Array:
    if array.null_count:
        refuse_null(array, where, "a list of numbers")
    lengths = arrow("pyarrow.compute").list_value_length(array).to_numpy(zero_copy_only=False)
    where.check(lengths == lengths[0], [f"a list of {n}" for n in lengths], f"of {lengths[0]} numbers, as those above")
    values = array.flatten()
    if values.null_count:
        row = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False))) // int(lengths[0])
        where.refuse(row, "a list with a missing number", "a list of numbers")
    found = _read_numbers(values, where).reshape(len(array), -1)
    where.check(np.asarray(np.isfinite(found).all(axis=1)), ["a list with nan or infinity"] * len(found), "finite")
    where.check(np.asarray(_fits_float32(found).all(axis=1)), ["a list with a larger number"] * len(found), FLOAT32)
    return found


def _read_weights(array: Any, where: Where) -> Array:
    values = _read_numbers(array, where)
    where.check(values > 0, values, "finite and > 0")  # what is too large is seen by the census
    return values


FEATURES = Kind("float64", "a number", _read_features)
WEIGHTS = Kind("float64", "a number", _read_weights)


def _values(array: Any, where: Where, must: str) -> Array:
    """The numbers of an Arrow array."""
    if array.null_count:
        refuse_null(array, where, must)
    pa = arrow("pyarrow")
    types = pa.types
    if isinstance(array, pa.ExtensionArray) and array.type.extension_name.startswith("pandas."):
        where.refuse_column(array.type.extension_name, must)  # a period is a count of months, say
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_boolean(array.type) and must == "a number":
        array = array.cast("uint8")
    if types.is_decimal(array.type):  # NUMERIC of a database
        whole = array.type.scale == 0
        if not whole or must == "a number":
            array = array.cast("float64")
        else:
            with contextlib.suppress(pa.ArrowInvalid):  # one that int64 cannot hold is refused below
                array = array.cast("int64")
    try:
        values: Array = array.to_numpy(zero_copy_only=False)
    except (ValueError, TypeError, NotImplementedError):
        values = np.empty(0, object)
    if values.dtype.kind not in "iuf":
        where.refuse(0, f"{array[0].as_py()!r}, {array.type}" if len(array) else f"empty, {array.type}", must)
    return values


def refuse_null(array: Any, where: Where, must: str) -> NoReturn:
    where.refuse(int(np.argmax(array.is_null().to_numpy(zero_copy_only=False))), "missing", must)
