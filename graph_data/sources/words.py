"""Columns of words: class names, types of edges, and what a vertex is for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.sources import columns, textfile
from graph_data.sources.arrow import arrow
from graph_data.sources.columns import Kind, Where
from graph_data.sources.textfile import MISSING
from siafu.graph import NONE, TEST, TRAIN, VAL
from siafu.sparse import Array

MAX_CLASSES = 1 << 20
ROLES = {
    "0": NONE, "train": TRAIN, "training": TRAIN, "1": TRAIN,
    "val": VAL, "valid": VAL, "validation": VAL, "dev": VAL, "2": VAL, "test": TEST, "testing": TEST, "3": TEST,
}  # fmt: skip
ROLES_ARE = "train, val (valid, validation), test, none, or 0 (none), 1 (train), 2 (validation), 3 (test)"


def is_words(file: Path, column: str) -> bool:
    """Whether the values of a column are words and not numbers: by the schema, or in text by the first value."""
    if not columns.is_parquet(file):
        first = textfile.first_value(file, column)
        return first is not None and not textfile.NUMBER.fullmatch(first)
    kind, is_ = columns.column_type(file, column), arrow().types
    return not (is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_null(kind))


def is_whole(file: Path, column: str) -> bool:
    """Whether the values of a column of numbers are integers, seen as above."""
    if not columns.is_parquet(file):
        first = textfile.first_value(file, column)
        return first is None or first.lstrip("+-").isdecimal()
    return not arrow().types.is_floating(columns.column_type(file, column))


class Vocabulary:
    """Words as they are read, numbered in the order in which they come; -1 where there is none."""

    def __init__(self, must: str, optional: bool) -> None:
        self._number: dict[str, int] = {}  # grows with every new word
        self.missing: Counter[str] = Counter()  # rows with each word that stands for nothing
        self._must, self._optional = must, optional
        self.kind = Kind("string", must, self._read)

    def sorted(self, numbers: Array) -> tuple[Array, tuple[str, ...]]:
        """The numbers of the words in ascending order for those of before, and the words in that order."""
        words = tuple(sorted(self._number))
        place = np.full(len(words) + 1, -1, np.int64)  # the last one is that of -1
        place[[self._number[word] for word in words]] = np.arange(len(words))
        return place[numbers], words

    def _read(self, array: Any, where: Where) -> Array:
        codes, words = coded(array, where, self._must)
        for code, word in enumerate(words):
            if word in MISSING and not self._optional:
                said = f"missing ({word!r})" if word else "missing"
                where.refuse(int(np.argmax(codes == code)), said, self._must)
            if word in MISSING:
                self.missing[word] += int(np.count_nonzero(codes == code))
        numbers = [-1 if word in MISSING else self._number.setdefault(word, len(self._number)) for word in words]
        return np.array(numbers, np.int64)[codes]


def _read_roles(array: Any, where: Where) -> Array:
    codes, words = coded(array, where, ROLES_ARE)
    for code, word in enumerate(words):
        if word not in MISSING and word.lower() not in ROLES:
            where.refuse(int(np.argmax(codes == code)), repr(word), ROLES_ARE)
    return np.array([NONE if word in MISSING else ROLES[word.lower()] for word in words], np.uint8)[codes]


ROLE = Kind("string", ROLES_ARE, _read_roles)


def coded(array: Any, where: Where, must: str) -> tuple[Array, list[str]]:
    """Which of the distinct words of an Arrow array stands in every row, and the words; "" where there is none."""
    pa = arrow()
    try:
        text = (array.dictionary_decode() if pa.types.is_dictionary(array.type) else array).cast("string")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        where.refuse_column(str(array.type), must)
    encoded = text.fill_null("").dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary.to_pylist()


def _read_optional(array: Any, where: Where) -> Array:
    """float64, NaN where there is none."""
    pa = arrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    try:
        found: Array = array.cast("float64").to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        where.refuse_column(str(array.type), "numbers")
    return found


OPTIONAL_NUMBERS = Kind("float64", "a number", _read_optional)
OPTIONAL_INTEGERS = Kind("int64", "an integer, as the first value is", _read_optional)
