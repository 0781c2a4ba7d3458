"""Columns of words: class names, types of edges, and what a vertex is for."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.masks import PARTS, role_of
from graph_data.sources import columns, textfile
from graph_data.sources.arrow import arrow
from graph_data.sources.columns import Kind, Where
from graph_data.sources.textfile import MISSING
from siafu.errors import DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL
from siafu.sparse import Array

MAX_CLASSES = 1 << 20
ROLES = {"0": NONE, "1": TRAIN, "2": VAL, "3": TEST, **PARTS}
HEAD = 1 << 12  # rows that tell what a column is
MASK_VALUES = ("0", "1", "0.0", "1.0", "true", "false")
ROLES_ARE = "train, val (valid, validation), test, none, or 0 (none), 1 (train), 2 (validation), 3 (test)"


def is_words(file: Path, column: str) -> bool:
    """Whether the values of a column are words and not numbers: by the schema, or in text by the first value, or by
    leading zeros. True and False are words: names of classes."""
    if not columns.is_parquet(file):
        first, head = textfile.first_value(file, column), textfile.values(file, column)
        _check_points(file, column, head)
        codes = any(map(textfile.LEADING_ZERO.fullmatch, head))  # 01067 and 1067 are two
        return first is not None and (codes or not textfile.NUMBER.fullmatch(first))
    kind, is_ = columns.column_type(file, column), arrow().types
    return not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind) or is_.is_null(kind))


def _check_points(file: Path, column: str, head: Sequence[str]) -> None:
    """Raises: DatasetError for numbers with a decimal comma, as spreadsheets of many countries write them."""
    decimal = next((value for value in head if textfile.DECIMAL_COMMA.fullmatch(value)), None)
    if decimal and all(textfile.NUMBER.fullmatch(value.replace(",", ".")) for value in head):
        raise DatasetError(
            f"{file}: column {column!r} is {decimal!r}, a number with a decimal comma: must have a point"
        )


def of_words(file: Path, names: Sequence[str]) -> tuple[str, str] | None:
    """The first of these columns that has words, with its first value or its type; None if none has. Dates, true and
    false do not count. Raises: DatasetError for numbers with a decimal comma."""
    if not columns.is_parquet(file):
        for name, head in zip(names, textfile.heads(file, names), strict=True):
            _check_points(file, name, head)
            is_number = any(map(textfile.NUMBER.fullmatch, head)) or any(map(textfile.DECIMAL_COMMA.fullmatch, head))
            if head and not is_number and not textfile.are_bools(head):
                return name, repr(head[0])
        return None
    found = columns.text_columns(file) if columns.num_rows(file) else {}
    return next(((name, found[name]) for name in names if name in found), None)


def is_whole(file: Path, column: str) -> bool:
    """Whether the values of a column of numbers, or of true and false, are integers: by the schema, or in text by the
    first value."""
    if columns.is_bool(file, column):
        return True
    if not columns.is_parquet(file):
        first = textfile.first_value(file, column)
        return first is None or first.lstrip("+-").isdecimal()
    kind, is_ = columns.column_type(file, column), arrow().types
    return not (is_.is_floating(kind) or (is_.is_decimal(kind) and kind.scale != 0))


class Vocabulary:
    """Words numbered in the order in which they are read; -1 for a missing one."""

    def __init__(self, must: str, optional: bool) -> None:
        self._number: dict[str, int] = {}  # grows with every new word
        self.missing: Counter[str] = Counter()  # rows with each word that stands for nothing
        self._must, self._optional = must, optional
        self.kind = Kind("string", must, self._read)

    def sorted(self, numbers: Array) -> tuple[Array, tuple[str, ...]]:
        """The rank of each word in ascending order, by its old number, and the words in that order."""
        words = tuple(sorted(self._number))
        place = np.full(len(words) + 1, -1, np.int64)  # the last one is that of -1
        place[[self._number[word] for word in words]] = np.arange(len(words))
        return place[numbers], words

    def _read(self, array: Any, where: Where) -> Array:
        codes, words = coded(array, where, self._must)
        for code, word in enumerate(words):
            if word.strip() in MISSING and not self._optional:
                said = f"missing ({word!r})" if word else "missing"
                where.refuse(int(np.argmax(codes == code)), said, self._must)
            if word.strip() in MISSING:
                self.missing[word.strip()] += int(np.count_nonzero(codes == code))
        numbers = [
            -1 if word.strip() in MISSING else self._number.setdefault(word.strip(), len(self._number))
            for word in words
        ]
        return np.array(numbers, np.int64)[codes]


class Roles:
    """The roles of vertices as they are read."""

    def __init__(self) -> None:
        self.missing: Counter[str] = Counter()  # rows with each word that stands for nothing
        self.kind = Kind("string", ROLES_ARE, self._read)

    def _read(self, array: Any, where: Where) -> Array:
        codes, words = coded(array, where, ROLES_ARE)
        roles = np.empty(len(words), np.uint8)
        for code, word in enumerate(map(str.strip, words)):
            word = re.sub(r"^([0-3])\.0*$", r"\1", word)  # as pandas writes integers beside a missing one
            if word in MISSING and word.lower() != "none":
                self.missing[word] += int(np.count_nonzero(codes == code))
            elif word.lower() != "none" and word.lower() not in ROLES:
                where.refuse(int(np.argmax(codes == code)), repr(word), ROLES_ARE)
            roles[code] = ROLES.get(word.lower(), NONE)
        return roles[codes]


def coded(array: Any, where: Where, must: str) -> tuple[Array, list[str]]:
    """The number of the distinct word in every row of an Arrow array, and the words; "" for a missing one."""
    pa = arrow()
    _check_no_count(array, where, must)
    try:
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        if pa.types.is_boolean(array.type):  # as Python and pandas write them
            array = arrow("pyarrow.compute").if_else(array, "True", "False")
        if pa.types.is_floating(array.type):  # so too: Arrow writes 1e-05 as 0.00001
            encoded = array.dictionary_encode()
            texts = pa.array([str(value) for value in encoded.dictionary.to_numpy(zero_copy_only=False)], "string")
            array = texts.take(encoded.indices)
        text = array.cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        several = "; several classes of a vertex are a column of 0 and 1 for each class"
        where.refuse_column(str(array.type), must + (several if columns.is_list(array.type) else ""))
    encoded = text.fill_null("").dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _check_no_count(array: Any, where: Where, must: str) -> None:
    """Raises: DatasetError for a period or duration, which Arrow holds as a count: of months since 1970, say."""
    name = str(getattr(array.type, "extension_name", ""))
    if name.startswith("pandas.") or arrow().types.is_duration(array.type):
        where.refuse_column(
            name or str(array.type), f"{must}: as text, periods and durations are what they say, not counts"
        )


def _read_optional(array: Any, where: Where) -> Array:
    """Numbers as float64, NaN for a missing one."""
    pa = arrow()
    _check_no_count(array, where, "numbers")
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        found: Array = array.cast("float64").to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if pa.types.is_integer(array.type):  # an integer that a float would round
            values = array.fill_null(0).to_numpy(zero_copy_only=False)
            where.check((values <= 2**53) & (values >= -(2**53)), values, EXACT)
        where.refuse_column(str(array.type), "numbers")
    return found


EXACT = "within 2**53, which floats hold exactly: as words, with a letter in front, larger ones are classes too"


OPTIONAL_NUMBERS = Kind("float64", "a number", _read_optional)


def _read_mask(array: Any, where: Where) -> Array:
    """0, 1, or NaN for a missing one."""
    values = _read_optional(array, where)
    where.check(np.isin(values, (0, 1)) | np.isnan(values), values, "0 or 1, as a mask is")
    return values


MASK = Kind("float64", "0 or 1, as a mask is", _read_mask)


def is_split(file: Path, column: str) -> bool:
    """Whether the first values of a column of words are all train, val, test or none."""
    try:
        first, *_ = next(columns.blocks(file, [column], HEAD, [Roles().kind]), (np.empty(0, np.uint8),))
    except DatasetError:
        return False
    return bool(first.any())


def is_mask(file: Path, column: str) -> bool:
    """Whether a column is one part of a split, by its name (train, val_mask, ...) and its values. In Parquet, their
    type is boolean or a number; in text, all in the head of the file are 0 and 1, or true and false."""
    if not role_of(column):
        return False
    if not columns.is_parquet(file):
        return all(value.lower() in MASK_VALUES for value in textfile.values(file, column))
    kind, is_ = columns.column_type(file, column), arrow().types
    return bool(is_.is_boolean(kind) or is_.is_integer(kind) or is_.is_floating(kind) or is_.is_decimal(kind))


def _read_optional_integers(array: Any, where: Where) -> Array:
    """As ``_read_optional``. In text, a code with a leading zero is refused, as the zero would be lost."""
    pa, compute = arrow(), arrow("pyarrow.compute")
    if not columns.is_parquet(where.file):
        missing = compute.is_in(compute.utf8_trim_whitespace(array), pa.array(MISSING))
        array = compute.if_else(missing, pa.scalar("0"), array)
        array = columns.parsed(array, where, INTEGER, zeros=False)
        array = compute.if_else(missing, pa.scalar(None, array.type), array)
    return _read_optional(array, where)


INTEGER = "an integer, as the first value is"
OPTIONAL_INTEGERS = Kind("string", INTEGER, _read_optional_integers)
