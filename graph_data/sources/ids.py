"""Ids of vertices that are not 64-bit integers: text, UUIDs, dates, larger integers.

Edges carry a hash of 63 bits for every such id, and so take the way that integers take: through the census, buckets and
tables. The census keeps the values beside their hashes and compares them, so two values never pass for one. Vertices
are numbered in the ascending order of the values: text by its UTF-8 bytes, dates and numbers as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.sources import columns, textfile
from graph_data.sources.arrow import arrow, first_line_of
from graph_data.sources.columns import Kind, Where
from graph_data.sources.textfile import MISSING
from siafu.errors import DatasetError, one_of
from siafu.npy import mapped
from siafu.ops import splitmix
from siafu.shards import IDS, NAMED_IDS
from siafu.sparse import Array

HOWS = ("auto", "integer", "text")  # what ids may be said to be; auto: as the first one is
HUGE_DIGITS = 76  # of an integer that Arrow can hold
#: Of RE2: signs of control and format (zero width, direction, byte order mark), fillers and selectors of variants.
UNSEEN = (
    r"[\p{Cf}\x00-\x08\x0e-\x1f\x7f-\x{84}\x{86}-\x{9f}\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}"
    r"\x{2065}\x{2800}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}\x{e0000}-\x{e0fff}]"
)
COMMENT = "^(#|%|//)\\s"  # what a line between rows begins with, if it is none
MERGE_AT = 1 << 20  # new ids that wait until they are merged


class NamedIds:
    """The source's ids of vertices 0, 1, 2, ...: ascending and distinct."""

    def __init__(self, values: Any) -> None:
        """``values``: an Arrow array."""
        self.values = values
        hashed = hashes(values)
        self._order = np.argsort(hashed)
        self._hashes = hashed[self._order]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def hashed(self) -> tuple[Array, Array]:
        """Hashes of all ids, ascending, int64 [N], and the vertex of each, int64 [N]: other ids give other arrays."""
        return self._hashes, self._order

    def __getitem__(self, vertex: int) -> Any:
        value = self.values[int(vertex)].as_py()
        return value.hex() if isinstance(value, bytes) else int(value) if self.is_huge else value

    def __contains__(self, text: str) -> bool:
        """Whether this text is an id."""
        return arrow().types.is_large_string(self.values.type) and bool(
            np.isin(hashes(arrow().array([text], self.values.type)), self._hashes).any()
        )

    def alike(self) -> tuple[str, str] | None:
        """Two of the ids that ``alike`` finds."""
        return alike(self.values) if arrow().types.is_large_string(self.values.type) else None

    @property
    def is_huge(self) -> bool:
        return bool(arrow().types.is_decimal(self.values.type))

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self._order.nbytes + self._hashes.nbytes)

    def numbers(self, hashed: Array) -> Array:
        """int64 numbers of the vertices whose ids have these hashes; all must occur."""
        order = np.argsort(hashed)  # searching in order stays in the cache
        numbers = np.empty(len(hashed), np.int64)
        numbers[order] = self._order[np.searchsorted(self._hashes, hashed[order])]
        return numbers

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """The ids as numpy's or Python's values, [N]."""
        found: Array = self.values.to_numpy(zero_copy_only=False)
        return found

    def save(self, file: Path) -> None:
        pa = arrow("pyarrow")
        arrow("pyarrow.parquet").write_table(pa.table({"id": self.values}), file)


def alike(values: Any) -> tuple[str, str] | None:
    """Two texts of an Arrow array of distinct texts that differ only in blanks around them, in the kind of blanks, in
    invisible signs, or in how accents are composed."""
    compute = arrow("pyarrow.compute")
    foreign = compute.invert(compute.ascii_is_printable(values))
    plain = compute.replace_substring_regex(values.filter(foreign), UNSEEN, "")
    plain = compute.utf8_normalize(compute.replace_substring_regex(plain, r"\p{Zs}", " "), "NFC")
    plain = compute.utf8_trim_whitespace(compute.replace_with_mask(values, foreign, plain))
    changed = np.flatnonzero(compute.not_equal(plain, values).to_numpy(zero_copy_only=False))
    before: dict[str, str] = {}
    known = compute.is_in(plain, values).to_numpy(zero_copy_only=False) if len(changed) else ()
    for v in map(int, changed):
        text, meant = values[v].as_py(), plain[v].as_py()
        if known[v]:
            return meant, text
        if meant in before:
            return before[meant], text
        before[meant] = text
    return None


def check_alike(words: Sequence[str], what: str) -> None:
    """Raises: DatasetError for two words that ``alike`` finds: they would be two classes, types or categories. ``what``
    begins the message."""
    if words and (pair := alike(arrow().array(words, "large_string"))) is not None:
        raise DatasetError(f"{what}: {pair[0]!a} and {pair[1]!a} differ only in what is not seen: make them equal")


Ids = Array | NamedIds  # of Graph.ids: int64 [N], or names


def save(folder: Path, ids: Ids) -> None:
    """Writes ids.npy, or ids.parquet if ids are no 64-bit integers."""
    if isinstance(ids, NamedIds):
        ids.save(folder / NAMED_IDS)
    else:
        np.save(folder / IDS, ids)


def load(folder: Path) -> Ids | None:
    """The ids that ``save`` wrote; None if vertices are 0..N-1. Raises: DatasetError if unreadable."""
    try:
        if (folder / IDS).is_file():
            return np.array(mapped(folder / IDS))
        if (folder / NAMED_IDS).is_file():
            column = arrow("pyarrow.parquet").read_table(folder / NAMED_IDS).column(0)
            return NamedIds(column.combine_chunks())
    except (OSError, ValueError) as error:
        raise DatasetError(f"{folder}: ids of the source are not readable ({first_line_of(error)})") from None
    return None


def places(ids: Ids | None, num_vertices: int, keys: Array) -> tuple[Array, Array]:
    """The vertices with these ids (or hashes of ids), and whether each exists: int64 [k], bool [k]."""
    if ids is None:
        return keys, (keys >= 0) & (keys < num_vertices)
    if isinstance(ids, NamedIds):
        return ids.numbers(keys), np.ones(len(keys), bool)  # the census has seen every id of every table
    where = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
    return where, ids[where] == keys


# --- of which type they are -------------------------------------------------------------------------------------------


def type_of(files: Sequence[Path], ends: Sequence[str], how: str, tables: Sequence[tuple[Path, str]] = ()) -> Any:
    """The Arrow type of ids; None: integers of 64 bits. In text the first row decides, in Parquet the schema.

    ``ends`` are the columns that name vertices, ``tables`` those of other files. Integers with leading zeros, in any of
    these, are text: 007 and 7 are two ids. Raises: DatasetError if they are of no type that ids can have, or of two.
    """
    if how not in HOWS:
        raise DatasetError(f"ids {how!r}, {one_of(how, HOWS)}")
    pa = arrow()
    file = next((one for one in files if columns.num_rows(one) > 0), files[0])  # one without rows may have no types
    columns.check_columns(file, ends)
    if how != "auto":
        return pa.large_string() if how == "text" else None
    if not columns.is_parquet(file):
        listed = [*((file, end) for end in ends), *(table for table in tables if not columns.is_parquet(table[0]))]
        if any(textfile.LEADING_ZERO.fullmatch(value) for where in listed for value in textfile.values(*where)):
            return pa.large_string()
        first = [textfile.first_value(file, end) for end in ends]
        if not any(first):  # without edges the ids of vertices decide
            first = [textfile.first_value(*table) for table in tables if not columns.is_parquet(table[0])]
        return _type_of_text(first)
    found = [_kept_type(columns.column_type(file, end), Where(file, 1, end)) for end in ends]
    if any(kind == pa.uint64() for kind in found):
        tops = [columns.largest(one, end) or 0 for one in files for end in ends]
        found = [kind if kind != pa.uint64() or max(tops) > columns.LARGEST_ID else None for kind in found]
    if _family(found[0]) != _family(found[-1]):
        raise DatasetError(
            f"{file}: columns {ends[0]!r} and {ends[-1]!r} are {name_of(found[0])} and {name_of(found[-1])}, "
            "must be of one type; --ids text takes any"
        )
    return next((kind for kind in found if kind is not None), None)


def _type_of_text(first: list[str | None]) -> Any:
    """The type of ids by those of the first row."""
    pa = arrow()
    known = [value for value in first if value is not None]
    if not all(textfile.NUMBER.fullmatch(value) for value in known):
        return pa.large_string()
    whole = [int(value) for value in known if re.fullmatch(rf"[-+]?\d{{1,{HUGE_DIGITS}}}", value)]
    return pa.decimal256(HUGE_DIGITS, 0) if any(not -(2**63) <= value < 2**63 for value in whole) else None


def _kept_type(kind: Any, where: Where) -> Any:
    """The Arrow type in which ids of this type are kept; None: as int64."""
    pa, is_ = arrow(), arrow().types
    if kind == pa.uint64():
        return kind
    if is_.is_integer(kind) or is_.is_floating(kind):
        return None
    if is_.is_string(kind) or is_.is_large_string(kind) or str(kind) == "string_view":
        return pa.large_string()
    if is_.is_fixed_size_binary(kind) or is_.is_date(kind) or is_.is_timestamp(kind):
        return kind
    if is_.is_binary(kind) or is_.is_large_binary(kind) or str(kind) == "binary_view":
        return pa.large_binary()
    if is_.is_decimal(kind) and kind.scale == 0:
        return pa.decimal256(HUGE_DIGITS, 0)
    where.refuse_column(str(kind), "integers, text, bytes, dates or times: they are ids")


def _family(kind: Any) -> str:
    """The family of an Arrow type. Ids can be converted within a family."""
    text = "int64" if kind is None else str(kind)
    if text.startswith("timestamp") and "tz=" in text:
        return "timestamp of a zone"  # what hour one without a zone is, nobody knows
    return "integer" if text.startswith(("int", "uint", "decimal")) else re.split(r"[\[(]", text)[0]


# --- reading ----------------------------------------------------------------------------------------------------------


def kind_of(type_: Any, how: str, num_vertices: int | None, seen: Seen | None = None) -> Kind:
    """The kind that reads ids of this type, as int64: themselves, or hashes. ``seen`` gets the values of hashes."""
    if type_ is None:
        return columns.ids(num_vertices, "" if num_vertices or how != "auto" else "; --ids text takes any")

    def read(array: Any, where: Where) -> Array:
        codes, values = _encoded(array, type_, how, where)
        hashed = hashes(values)
        if seen is not None:
            seen.add(hashed, values)
        return hashed[codes]

    return Kind("string", _must(type_), read)


def _encoded(array: Any, type_: Any, how: str, where: Where) -> tuple[Array, Any]:
    """The number of the distinct id in every row of an Arrow array, int64 [n], and the distinct ids."""
    pa, compute, must = arrow(), arrow("pyarrow.compute"), _must(type_)
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    if array.null_count:
        columns.refuse_null(array, where, must)
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes, values = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    if values.type != type_:
        foreign = columns.is_parquet(where.file) and _family(_kept_type(values.type, where)) != _family(type_)
        if foreign and how != "text":
            where.refuse_column(str(values.type), f"{must}, as the other ids are; --ids text takes any")
        try:
            values = values.cast(type_)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            bad = next(i for i, value in enumerate(values) if not _fits(value, type_))
            where.refuse(int(np.argmax(codes == bad)), repr(values[bad].as_py()), f"{must}; --ids text takes any")
    if must == "text":
        if how != "text" and not columns.is_parquet(where.file):
            comments = compute.match_substring_regex(values, COMMENT).to_numpy(zero_copy_only=False)
            if comments.any():
                row = int(np.argmax(comments[codes]))
                word = values[int(codes[row])].as_py()
                where.refuse(row, repr(word), "an id: comments stand above the table alone; --ids text takes it")
        told = [word for word in MISSING if word] if how != "text" else []  # Namibia's code is NA: --ids text takes it
        nothing = compute.is_in(values, arrow().array(["", *told], values.type)).to_numpy(zero_copy_only=False)
        if nothing.any():
            row = int(np.argmax(nothing[codes]))
            word = values[int(codes[row])].as_py()
            where.refuse(
                row, f"missing ({word!r})" if word else "missing", f"text{'; --ids text takes it' if word else ''}"
            )
    return codes, values


def _fits(value: Any, type_: Any) -> bool:
    pa = arrow()
    try:
        value.cast(type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def name_of(type_: Any) -> str:
    """A message's name for an Arrow type."""
    text = str(type_)
    return "text" if text == "large_string" else "integers" if _family(type_) == "integer" else text


def _must(type_: Any) -> str:
    """A message's words for what an id must be."""
    return "an integer" if _family(type_) == "integer" else name_of(type_)


class Seen:
    """The distinct ids read so far, with their hashes."""

    def __init__(self) -> None:
        self._hashes = np.empty(0, np.int64)  # ascending
        self._values: Any = None  # an Arrow array: the ids in the order of their hashes
        self._waiting: list[tuple[Array, Any]] = []  # not merged yet: hashes, ascending, and their ids

    def add(self, hashed: Array, values: Any) -> None:
        """Raises: DatasetError if two ids have one hash: 1 chance in 200,000 at ten million ids."""
        order = np.argsort(hashed)
        hashed, values = hashed[order], values.take(_arrow_array(order))
        if len(self._hashes):
            place = np.minimum(np.searchsorted(self._hashes, hashed), len(self._hashes) - 1)
            known = self._hashes[place] == hashed
            _check_equal(self._values.take(_arrow_array(place[known])), values.filter(_arrow_array(known)))
            hashed, values = hashed[~known], values.filter(_arrow_array(~known))
        self._waiting.append((hashed, values))
        if sum(len(hashed) for hashed, _ in self._waiting) > max(MERGE_AT, len(self._hashes) // 2):
            self._merge()

    def ids(self) -> NamedIds:
        """All ids, ascending."""
        self._merge()
        return NamedIds(self._values.take(arrow("pyarrow.compute").sort_indices(self._values)))

    def _merge(self) -> None:
        known = [(self._hashes, self._values)] if len(self._hashes) else []
        parts = [*known, *self._waiting]
        hashed = np.concatenate([part for part, _ in parts])
        values = arrow().concat_arrays([part for _, part in parts])
        order = np.argsort(hashed, kind="stable")
        hashed, values = hashed[order], values.take(_arrow_array(order))
        again = np.flatnonzero(hashed[1:] == hashed[:-1]) + 1
        _check_equal(values.take(_arrow_array(again)), values.take(_arrow_array(again - 1)))
        first = np.ones(len(hashed), bool)
        first[again] = False
        self._hashes, self._values, self._waiting = hashed[first], values.filter(_arrow_array(first)), []


def _arrow_array(values: Array) -> Any:
    return arrow().array(values)


def _check_equal(one: Any, other: Any) -> None:
    if not one.equals(other):
        v = next(i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
        raise DatasetError(f"ids {one[v].as_py()!r} and {other[v].as_py()!r} have the same hash: rename one of them")


# --- hashes -----------------------------------------------------------------------------------------------------------


def hashes(values: Any) -> Array:
    """A 63-bit hash of every value of an Arrow array, int64 [n]: equal for equal bytes."""
    offsets, data = _bytes_of(values)
    length = np.diff(offsets)  # [n]
    found = splitmix(length.astype(np.uint64))
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # the eight bytes from every byte on
    rows = np.flatnonzero(length > 0)
    for start in range(0, int(length.max(initial=0)), 8):
        rows = rows[length[rows] > start]
        missing = np.maximum(8 - (length[rows] - start), 0).astype(np.uint64) * np.uint64(8)  # bits of the next value
        word = words[offsets[rows] + start] & (~np.uint64(0) >> missing)
        found[rows] = splitmix(found[rows] ^ splitmix(word))
    return (found >> np.uint64(1)).astype(np.int64)


def _bytes_of(values: Any) -> tuple[Array, Array]:
    """The start of every value, int64 [n + 1], in their bytes, and these bytes, with eight more behind them."""
    pa, n, start = arrow(), len(values), values.offset
    if pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type):
        _, ends, content = values.buffers()
        offsets = np.frombuffer(ends, np.int64)[start : start + n + 1] if n else np.zeros(1, np.int64)
    else:
        width, content = values.type.bit_width // 8, values.buffers()[1]
        offsets = np.arange(start, start + n + 1, dtype=np.int64) * width
    data = np.frombuffer(content, np.uint8) if content is not None and content.size else np.empty(0, np.uint8)
    used = data[offsets[0] : offsets[-1]]
    return offsets - offsets[0], np.concatenate([used, np.zeros(8, np.uint8)])
