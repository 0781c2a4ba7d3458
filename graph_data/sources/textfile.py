"""Tables as text: their separator, comments, header, first rows, and which row a parser stumbled over.

Rows are counted from 1, without comments above and the header. A first line of numbers is no header. Blanks around
names are ignored; if the header has some, blanks around words are ignored too.
"""

from __future__ import annotations

import csv
import gzip
import io
import mmap
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NoReturn

from graph_data.sources.arrow import arrow, first_line_of
from siafu.errors import DatasetError, GnnError

#: Ending -> the separator that it promises, if the first line has it. BLANKS: any number of blanks and tabs.
BLANKS = " "
TEXT = {
    f"{ending}{packed}": separator
    for ending, separator in {".csv": ",", ".tsv": "\t", ".txt": "\t", ".edges": "\t", ".edgelist": "\t"}.items()
    for packed in ("", ".gz")
}
SEPARATORS = (",", ";", "\t", "|", BLANKS)
COMMENTS = ("#", "%")  # what a line above the header begins with, if it is none
EXCELS = re.compile(r"sep=(.)")  # a first line that tells Excel the separator
NAME = re.compile(r"[^\W\d][\w.-]*")  # of a column, in a comment
BLOCK_BYTES = 4 << 20
HEAD_BYTES = 1 << 16
HEAD_LINES = 4  # at least, of a longer file
WIDEST_FIELD = 1 << 26  # bytes of a quoted field
BRACKETS = "()[]{}"  # around numbers, of lines that Python has printed
NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
WHOLE = re.compile(r"[-+]?\d{1,18}(\.0*)?")  # an integer, perhaps in a column of floats
LEADING_ZERO = re.compile(r"[-+]?0\d+")
DECIMAL_COMMA = re.compile(r"(?<![\d,])\d+,\d+(?![\d,])")
#: A date or time as ISO 8601, SQL, pandas and spreadsheets write it: 2024-03-01, 2024-03-01T12:30:00Z, 1.3.2024, 3/1/24
TIME = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[/.]\d{1,2}[/.](\d{4}|\d{2}))"
    r"([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?( ?([AaPp][Mm]|Z|UTC|[+-]\d{2}:?\d{2}))?)?"
)
#: What pandas, R, SQL and Excel write where there is nothing: in columns of numbers and of words. A single "." (SAS),
#: "-" and "?" are not among them: they may be words.
MISSING = (
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "#NA",
    "<NA>",
    "NaN",
    "nan",
    "NAN",
    "-NaN",
    "-nan",
    "NaT",
    "null",
    "NULL",
    "Null",
    "None",
    "none",
    "NONE",
    "\\N",
    "1.#QNAN",
    "-1.#QNAN",
    "1.#IND",
    "-1.#IND",
    "#N/A N/A",
    "na",
    "n.a.",
    "N.A.",
    "(null)",
    "(NULL)",
    "[NULL]",
    "<null>",
    "<NULL>",
    "#VALUE!",
    "#REF!",
    "#DIV/0!",
    "#NUM!",
    "#NAME?",
    "#NULL!",
)
#: Names that pandas gives to what has none: row numbers mostly.
NAMELESS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
#: What a second line of names says of its columns
KINDS = re.compile(
    r"u?int(eger)?\d*|(big|small)int|long|float\d*|double|real|decimal|num(ber|eric)?|str(ing)?|text|(var)?char(\(\d+\))?|bool(ean)?"
    r"|date|time|datetime|timestamp|object|category|categorical|factor|uuid|key|(primary|foreign) key|[-–—./]?"
)
RULE = re.compile(r":?(-{2,}|={2,}|_{2,}):?")

MUST_BE_TABLE = "is {}, no table: must be a line for each row, as in CSV"
#: What a file of another kind begins with, in capitals or not, and what to do with it.
FOREIGN = {
    b"PAR1": "is a Parquet file: call it .parquet",
    b"\x1f\x8b": "is compressed by gzip: call it {name}.gz",
    b"PK\x03\x04": "is a zip archive: unpack it",
    b"BZh": "is compressed by bzip2: unpack it, or compress it by gzip and call it {name}.gz",
    b"\xfd7zXZ": "is compressed by xz: unpack it, or compress it by gzip and call it {name}.gz",
    b"\x28\xb5\x2f\xfd": "is compressed by zstd: unpack it, or compress it by gzip and call it {name}.gz",
    b"version https://git-lfs": "is a pointer of git LFS, not the file: git lfs pull fetches it",
    b"%%MatrixMarket": "is a MatrixMarket file, whose first line of numbers is no edge: call it .mtx",
    b"*Vertices": MUST_BE_TABLE.format("a Pajek file"),
    b"graph [": MUST_BE_TABLE.format("GML"),
    b"<?xml": MUST_BE_TABLE.format("XML"),
    b"<graphml": MUST_BE_TABLE.format("XML"),
    b"<!doctype": MUST_BE_TABLE.format("a web page, perhaps instead of the file that was asked for"),
    b"<html": MUST_BE_TABLE.format("a web page, perhaps instead of the file that was asked for"),
    b"{": MUST_BE_TABLE.format("JSON"),
    b"[{": MUST_BE_TABLE.format("JSON"),
    b"\xff\xfe\0\0": "is UTF-32, must be UTF-8",
    b"\xff\xfe": "is UTF-16, must be UTF-8",
    b"\xfe\xff": "is UTF-16, must be UTF-8",
}


NO_UTF8 = "is no UTF-8: iconv -f LATIN1 -t UTF-8 FILE makes it of Latin-1"
LONE_CR = "its lines end in CR alone: tr '\\r' '\\n' makes lines of them"


# --- the head ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The layout of a text table."""

    separator: str
    comments: tuple[str, ...]  # lines above the header
    has_header: bool
    rows: tuple[tuple[str, ...], ...]  # complete rows in the head of the file, unchanged, with the header

    @cached_property
    def first(self) -> list[str]:
        return [field.strip().removeprefix("\ufeff") for field in self.rows[0]]  # of a second byte order mark

    @cached_property
    def names(self) -> list[str]:
        """Names of the header; column numbers, from 0, without a header."""
        return self.first if self.has_header else [str(i) for i in range(len(self.first))]

    def commented_names(self) -> tuple[str, list[str]] | None:
        """A comment that seems to name the columns, and these names."""
        for line in self.comments:
            (fields,) = _split([line.lstrip("".join(COMMENTS)).strip()], self.separator)
            names = [field.strip() for field in fields]
            if len(names) == len(self.first) > 1 and all(map(NAME.fullmatch, names)):
                return line, names
        return None


def layout(file: Path) -> Layout:
    """The layout of a file. Raises: DatasetError if it is empty, or not text."""
    head = _head(file)
    lines = [line.removesuffix("\r") for line in head.decode("utf-8-sig", "replace").split("\n")]
    whole = lines[:-1] if len(lines) > 1 and (len(head) >= HEAD_BYTES or not lines[-1]) else lines
    comments = next((i for i, line in enumerate(whole) if not _is_comment(i, line)), len(whole))
    body = whole[comments:]
    if not head or not body:
        raise DatasetError(f"{file}: {'has nothing but comments' if comments else 'is empty'}")
    if not body[0].strip():
        raise DatasetError(f"{file}: its first line is empty")
    separator = _separator(file, body, EXCELS.fullmatch(lines[0]))
    try:
        rows = _split(body, separator)
        header = _reader(body, separator)
        next(header)
    except csv.Error as error:
        if "new-line" in str(error):
            raise DatasetError(f"{file}: {LONE_CR}") from None
        raise DatasetError(f"{file}: not readable ({error})") from None
    if not _is_utf8(head.split(b"\n")[comments]):
        raise DatasetError(f"{file}: its first line {NO_UTF8}")
    if separator != BLANKS and header.line_num > 1:
        raise DatasetError(
            f"{file}: its first row, of {header.line_num} lines, has a line break in quotes: write names in one line"
        )
    first = [field.strip() for field in rows[0]]
    has_header = not all(NUMBER.fullmatch(field) for field in first)
    return Layout(separator, tuple(whole[:comments]), has_header, tuple(map(tuple, rows)))


def _is_comment(number: int, line: str) -> bool:
    return line.startswith(COMMENTS) or (not number and EXCELS.fullmatch(line) is not None)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def promised_separator(file: Path) -> str:
    """The separator that the file's ending promises."""
    return next(separator for suffix, separator in TEXT.items() if file.name.endswith(suffix))


def _separator(file: Path, lines: list[str], said: re.Match[str] | None) -> str:
    """The separator of Excel's line or of the ending, if the first line has it. Else the one that cuts every line of
    the head into equally many fields.

    Raises: DatasetError if two separators both fit.
    """
    if said and said[1] in lines[0]:
        return said[1]
    promised = promised_separator(file)
    sample = [line for line in lines[:20] if line.strip()]
    even = [separator for separator in SEPARATORS if _width(sample, separator) > 1]
    decimal = [len(DECIMAL_COMMA.findall(line)) for line in sample]  # commas of numbers
    if promised == "," and ";" in even and any(decimal) and decimal == [line.count(",") for line in sample]:
        return ";"
    both = [s for s in SEPARATORS if s != BLANKS and (s in even or s == promised) and s in sample[0]]
    if len(both) > 1 and not (promised == "\t" and "\t" in both):  # a tab is no part of a word
        return _plainer(file, sample, both)
    if promised in sample[0] or not even:
        return promised
    return even[0]


def _plainer(file: Path, lines: list[str], separators: Sequence[str]) -> str:
    """The separator by which the first two fields (the ends of an edge, or an id) contain no other separator in any
    line."""
    cuts = {one: _whole(_split(lines, one)) for one in separators}
    whole = [one for one, rows in cuts.items() if not any(field.count('"') % 2 for row in rows for field in row)]
    found = [
        one
        for one in whole
        if len(whole) == 1 or not any(other in "".join(row[:2]) for row in cuts[one] for other in whole if other != one)
    ]
    if len(found) == 1:
        return found[0]
    which = " and ".join(map(repr, separators))
    says = " or ".join(f"sep={one}" for one in separators)
    raise DatasetError(f"{file}: {which} may both separate its columns: a first line of {says} says which one does")


def _width(lines: list[str], separator: str) -> int:
    """Number of fields in every line; 0 if lines differ."""
    try:
        rows = _split(lines, separator)
    except csv.Error:
        return 0
    widths = {len(row) for row in _whole(rows)}
    return widths.pop() if len(widths) == 1 else 0


def _whole(rows: list[list[str]]) -> list[list[str]]:
    """The rows without the last, which may be cut within quotes."""
    return rows[:-1] if len(rows) > 2 else rows


def _split(lines: list[str], separator: str) -> list[list[str]]:
    if separator == BLANKS:
        return [re.split("[ \t]+", line.strip(" \t")) for line in lines]
    return list(_reader(lines, separator))


def _reader(lines: list[str], separator: str) -> Any:
    """csv.reader, for fields longer than its 131,072 characters: whole documents are."""
    csv.field_size_limit(max(csv.field_size_limit(), WIDEST_FIELD))
    return csv.reader(lines, delimiter=separator)


def column_names(file: Path) -> list[str]:
    """Names of the header; column numbers, from 0, if the first line is numbers.

    Raises: DatasetError if two are equal, if a header looks like data, numbers like a
    header, or the second line like one.
    """
    found = layout(file)
    numbers = [name for name in found.first if NUMBER.fullmatch(name.strip(BRACKETS))]
    counted = [list(map(str, range(start, start + len(numbers)))) for start in (0, 1)]  # of columns without names
    if found.has_header and numbers and (numbers not in counted or found.first[0] == numbers[0]):
        raise DatasetError(
            f"{file}: its first line, {shown(found)}, looks like data, not like names of columns: put "
            "a line of names above it"
        )
    if not found.has_header and len(numbers) > 2 and numbers == counted[0]:
        raise DatasetError(
            f"{file}: its first line, {shown(found)}, looks like numbers of columns, not like data: give the columns "
            "names, or leave the line out"
        )
    if twice := next((name for name, count in Counter(found.names).items() if name and count > 1), ""):
        raise DatasetError(f"{file}: has two columns {twice!r}")
    body = found.rows[1:]
    if found.has_header and body and _is_rule(body[0]):
        raise DatasetError(f"{file}: its second line, {found.separator.join(body[0])!r}, is no data: leave it out")
    if found.has_header and len(body) > 2 and _says_kinds(body[0]) and not any(map(_says_kinds, body[1:])):
        raise DatasetError(
            f"{file}: its second line, {found.separator.join(found.rows[1])!r}, says what columns are of, and "
            "is no data: leave it out"
        )
    return found.names


def check_commented(file: Path, place: Callable[[Sequence[str]], Sequence[int] | None], usual: Sequence[int]) -> None:
    """Looks for names in a comment, for a table whose header has no known ones. ``place``: finds the positions of the
    names in a line; ``usual``: their positions in a table without a header.

    Raises: DatasetError if the line below the comment would be lost as a header, or its columns taken for others.
    """
    found = layout(file)
    line, names = found.commented_names() or ("", found.first)
    if names != found.first and (found.has_header or place(names) not in (None, usual)):
        raise DatasetError(
            f"{file}: its comment {line!r} seems to name the columns: leave out the {line[0]!r} if it does, the line "
            "if it does not"
        )


def _is_rule(row: Sequence[str]) -> bool:
    """Whether a line is a rule below names, as in Markdown: |---|:--:|"""
    drawn = [field.strip() for field in row if field.strip()]
    return bool(drawn) and all(map(RULE.fullmatch, drawn))


def _says_kinds(row: Sequence[str]) -> bool:
    return all(KINDS.fullmatch(field.strip().lower()) for field in row)


def shown(found: Layout) -> str:
    return repr(found.separator.join(found.first[:6]) + ("…" if len(found.first) > 6 else ""))


def has_header(file: Path) -> bool:
    return layout(file).has_header


def values(file: Path, column: str) -> list[str]:
    """Values of a column that are not missing, in the head of the file; if all are missing, the first ones behind
    it."""
    status = file.stat()
    return heads(file, [column])[0] or _later(file, column, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _later(file: Path, column: str, *_identity: int) -> list[str]:
    """The first values of a column whose rows begin with missing ones, as in a table sorted by its labels."""
    try:
        for (block,) in (batch.columns for batch in batches(file, [column], ["string"])):
            found = [word.strip() for word in block.to_pylist()]
            if known := [word for word in found if word not in MISSING]:
                return known
    except (arrow("pyarrow").ArrowException, OSError):  # said, with its place, where all of it is read
        pass
    return []


def heads(file: Path, columns: Sequence[str]) -> list[list[str]]:
    """Values of columns that are not missing, in the head of the file."""
    names, found = column_names(file), layout(file)
    place = {name: i for i, name in enumerate(names)}
    rows = [[field.strip() for field in row] for row in found.rows[found.has_header :]]
    return [
        [row[at] for row in rows if at < len(row) and row[at] not in MISSING]
        for at in (place[column] for column in columns)
    ]


def are_bools(values: Sequence[str]) -> bool:
    """Whether all values are true or false, in any spelling, and there are some."""
    return bool(values) and all(value.lower() in ("true", "false") for value in values)


def as_written(file: Path, column: str) -> str:
    """The value of a column in the first row, with blanks around it."""
    found = layout(file)
    place = found.names.index(column)
    return next((row[place] for row in found.rows[found.has_header :] if place < len(row)), "")


def first_value(file: Path, column: str) -> str | None:
    """The first value of a column that is not missing; None if the head of the file has none.

    Raises: DatasetError for a word above numbers: a second line of names, of units.
    """
    found = values(file, column)
    if len(found) > 2 and not NUMBER.fullmatch(found[0]) and all(NUMBER.fullmatch(value) for value in found[1:]):
        raise DatasetError(
            f"{file}: column {column!r} is {found[0]!r} in its first row and numbers below: a second "
            "line of names? Leave it out"
        )
    return found[0] if found else None


def num_rows(file: Path) -> int:
    """An estimate from the length of the first lines."""
    head, found = _head(file), layout(file)
    compression = 1 if not file.name.endswith(".gz") else 4
    lines = head.count(b"\n") - found.has_header - len(found.comments)
    return lines if len(head) < HEAD_BYTES else int(compression * file.stat().st_size * lines / len(head))


def _head(file: Path) -> bytes:
    """The first bytes of the text. Raises: DatasetError if they are unreadable, or no text."""
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as stream:
            head = bytes(stream.read(HEAD_BYTES))
            while (
                len(head) >= HEAD_BYTES and head.count(b"\n") < HEAD_LINES and (line := stream.readline(WIDEST_FIELD))
            ):
                head += line  # of a wide table, the names alone may be longer
    except gzip.BadGzipFile as error:
        with file.open("rb") as stream:
            if stream.read(2) == b"\x1f\x8b":  # it is, and damaged
                raise DatasetError(f"{file}: not readable ({first_line_of(error)})") from None
        raise DatasetError(f"{file}: is not compressed by gzip: call it {file.name.removesuffix('.gz')}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable ({first_line_of(error)})") from None
    begin = head[:64].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for magic, advice in FOREIGN.items():
        if head.startswith(magic) or begin.startswith(magic.lower()):
            raise DatasetError(f"{file}: {advice.format(name=file.name)}")
    if b"\r" in head and b"\n" not in head:
        raise DatasetError(f"{file}: {LONE_CR}")
    if b"\0" in head:
        raise DatasetError(f"{file}: is no text: byte {head.index(0)} is zero")
    return head


# --- all of it --------------------------------------------------------------------------------------------------------


def batches(file: Path, columns: list[str], types: list[str], use_threads: bool = True) -> Iterator[Any]:
    """Arrow's batches of these columns; ``types`` are names of Arrow types."""
    pa, text, found = arrow("pyarrow"), arrow("pyarrow.csv"), layout(file)
    status = file.stat()
    if len(found.rows) == found.has_header and status.st_size < HEAD_BYTES:
        return  # pyarrow wants a line break behind a header that is all
    _check_quotes(file, found.separator, len(found.comments), status.st_ino, status.st_size, status.st_mtime_ns)
    names, spaced = column_names(file), found.has_header and found.first != list(found.rows[0])
    source: Any = str(file)
    if found.separator == BLANKS:
        source = pa.PythonFile(_Tabs(file), "r")
    with text.open_csv(
        source,
        read_options=text.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=use_threads,
            column_names=[name or f"column {i}" for i, name in enumerate(names)],
            skip_rows=len(found.comments) + found.has_header,
        ),
        parse_options=text.ParseOptions(
            delimiter="\t" if found.separator == BLANKS else found.separator, newlines_in_values=True
        ),
        convert_options=text.ConvertOptions(
            include_columns=columns,
            column_types={column: getattr(pa, type_)() for column, type_ in zip(columns, types, strict=True)},
            null_values=list(MISSING),
        ),
    ) as reader:
        yield from (_trimmed(file, batch) for batch in reader) if spaced else reader


@lru_cache(maxsize=1024)
def _check_quotes(file: Path, separator: str, comments: int, *_identity: int) -> None:
    """Checks for a quote that is not closed: Arrow makes one field of all rows up to the next quote, or to the end,
    without an error.

    Raises: DatasetError for a quoted field that does not end, or that no separator follows.
    """
    try:
        if not file.name.endswith(".gz") and not _has_quotes(file):
            return
        with _opened(file) as stream:
            for _ in range(comments):
                stream.readline()
            above = stream.tell()
            place = _unclosed(stream, b" \t" if separator == BLANKS else separator.encode())
        if place is not None:
            with _opened(file) as stream:
                line = 1 + stream.read(above + place).count(b"\n")
            raise DatasetError(
                f"{file}: line {line}: a quote begins a field and does not end it: close it, or write quotes "
                'inside of quotes as two ("")'
            )
    except (EOFError, zlib.error) as error:
        raise DatasetError(f"{file}: not readable ({first_line_of(error)})") from None


def _has_quotes(file: Path) -> bool:
    """Whether the file has quotes. Runs at the speed of memory: most files have none."""
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b'"') >= 0


def _opened(file: Path) -> Any:
    return gzip.open(file) if file.name.endswith(".gz") else file.open("rb")


def _unclosed(stream: Any, separators: bytes) -> int | None:
    """The position, in bytes from here, of such a quote; None without any."""
    apart = b"\r\n" + separators
    field = re.compile(rb'(?<![^%b])"[^"]*(?:""[^"]*)*("?)[ \t]*' % re.escape(apart))
    rest, begin, place = b"", 0, 0
    while True:
        read = stream.read(BLOCK_BYTES)
        block, rest = rest + read, b""
        for found in field.finditer(block, begin) if b'"' in block else ():
            behind = block[found.end() : found.end() + 1]
            if not behind and read and len(found[0]) < WIDEST_FIELD:  # whether it ends is in the next block
                rest, begin = block[found.start() :], 0
                break
            if not found[1] or (behind and behind not in apart and not found[0].endswith((b" ", b"\t"))):
                return place + found.start()
        if not read:
            return None
        if not rest:  # a quote that comes next begins a field only behind a separator
            rest, begin = block[-1:], 1
        place += len(block) - len(rest)


class _Tabs(io.RawIOBase):
    """A file with each run of blanks replaced by a tab, and without blanks at the ends of lines."""

    def __init__(self, file: Path) -> None:
        self._stream = gzip.open(file) if file.name.endswith(".gz") else file.open("rb")  # noqa: SIM115 (see close)
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            block = self._stream.read(BLOCK_BYTES // 8)
            block += self._stream.readline()  # no run of blanks is cut
            if not block:
                return 0
            block = re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", block)
            self._waiting = re.sub(rb"[ \t]+", b"\t", block)
        count = min(len(buffer), len(self._waiting))
        buffer[:count], self._waiting = self._waiting[:count], self._waiting[count:]
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def _trimmed(file: Path, batch: Any) -> Any:
    """Words without the blanks around them: ``alice, bob`` and ``bob, alice`` have two words, not four. DatasetError
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
    """Reads a bad file again on one thread: only then does pyarrow name the bad row.

    ``musts``: what the values of every column must be. Raises: DatasetError.
    """
    try:
        for _ in batches(file, columns, types, use_threads=False):
            pass
    except (arrow("pyarrow").ArrowException, OSError) as error:
        text = first_line_of(error)
        if "worker thread" in text:  # the file is not to blame
            raise GnnError(
                f"no thread can be started ({text}): ulimit -v and ulimit -u say what this process may have"
            ) from None
        raise DatasetError(f"{file}: {_where(file, columns, musts, text)}") from None
    raise DatasetError(f"{file}: changed while it was read")


def _where(file: Path, columns: list[str], musts: list[str], text: str) -> str:
    found = re.search(r"Row #(\d+)", text)
    if not found:
        return f"not readable ({text})"
    row = int(found[1]) - has_header(file) - len(layout(file).comments)
    if fields := re.search(r"Expected (\d+) columns, got (\d+)(?:: *(.*))?", text):
        if (fields[3] or "").startswith(COMMENTS):
            return f"row {row} begins with {fields[3][0]!r}: comments stand above the table alone, leave it out"
        return f"row {row} has {fields[2]} field{'s' if fields[2] != '1' else ''}, must have {fields[1]}"
    place = re.search(r"CSV column #(\d+)", text)
    column = column_names(file)[int(place[1])] if place else ""
    if column and (value := re.search(r"invalid value '(.*)'", text)):
        return f"row {row}: column {column!r} is {value[1]!r}, must be {musts[columns.index(column)]}"
    if column and "UTF8" in text:
        return f"row {row}: column {column!r} {NO_UTF8}"
    return f"row {row}: not readable ({text})"
