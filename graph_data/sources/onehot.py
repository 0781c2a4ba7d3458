"""Categories as features: a column of 0 and 1 for each word that occurs in a column of a table.

A missing value is 0 in all of them. A number is its digits, so that 1 and 1.0 are one category. So are a date and its
midnight, a time in seconds or nanoseconds, +0100 and +01:00, true and True: what a file says of them depends on who
wrote it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.sources import columns
from graph_data.sources.columns import Kind, Where
from graph_data.sources.ids import check_alike
from graph_data.sources.textfile import MISSING
from graph_data.sources.words import coded
from siafu.errors import DatasetError, counted
from siafu.sparse import Array

ENDING = ":onehot"  # of a column in FILE#COLUMN,COLUMN
MAX_CATEGORIES = 4096  # more are ids, and make features that take gigabytes
WHOLE = re.compile(r"([-+]?\d+)\.0*")  # an integer in a column of floats
#: A date, if there is one, its time of day without zeros behind the seconds, and its zone.
TIME = re.compile(r"(?:(\d{4}-\d\d-\d\d)[ T])?(\d\d:\d\d:\d\d(?:\.\d*[1-9])?)(?:\.?0*)(Z|[-+]\d\d:?\d\d)?")
MUST = "a word or number"
ROWS = 1 << 20


class Categories:
    """The words of a column, in ascending order."""

    def __init__(self, files: Sequence[Path], column: str) -> None:
        """Reads the column. Raises: DatasetError for more than MAX_CATEGORIES words, or for lists."""
        self.column = column
        self.missing: Counter[str] = Counter()  # rows with each word that stands for nothing
        found: set[str] = set()
        kind = Kind("string", MUST, lambda array, where: self._read(array, where, found))
        for file in files:
            for _ in columns.blocks(file, [column], ROWS, [kind]):
                pass
            if len(found) > MAX_CATEGORIES:
                raise DatasetError(
                    f"{file}: column {column!r} has {len(found):,} categories, must have <= {MAX_CATEGORIES:,}: "
                    f"#-{column} leaves it out"
                )
        if not found:
            raise DatasetError(f"{files[0]}: column {column!r} has no category: #-{column} leaves it out")
        self.names = tuple(sorted(found))
        check_alike(self.names, f"{files[0]}: column {column!r}: categories")
        self._number = {name: i for i, name in enumerate(self.names)}
        self.kind = Kind("string", MUST, self._rows)

    def _read(self, array: Any, where: Where, found: set[str]) -> Array:
        codes, words = coded(array, where, MUST)
        for code, word in enumerate(words):
            if word.strip() in MISSING:
                self.missing[word.strip()] += int(np.count_nonzero(codes == code))
            else:
                found.add(_category(word))
        return codes

    def _rows(self, array: Any, where: Where) -> Array:
        """float32 [n, categories] of 0 and 1."""
        codes, words = coded(array, where, MUST)
        place = np.array([self._number.get(_category(word), len(self.names)) for word in words], np.int64)
        rows = np.eye(len(self.names) + 1, len(self.names), dtype=np.float32)  # the last one, of zeros, for missing
        found: Array = rows[place[codes]] if len(words) else rows[:0]
        return found

    def note(self, file: Path) -> str:
        """A note on the columns that were made of the column."""
        said = ", ".join(repr(word) for word in sorted(self.missing) if word)
        count = self.missing.total()
        missing = f", all 0 in {counted(count, 'row')} without any{f' ({said})' if said else ''}"
        return (
            f"{file.name}: [{self.column}] is {counted(len(self.names), 'column')} of 0 and 1{missing if count else ''}"
        )


def _category(word: str) -> str:
    """The category of a value. Exported models do the same: ``run_coordinator.export.modules.nets.category``."""
    text = word.strip()
    if text.lower() in ("true", "false"):
        return text.capitalize()
    if time := TIME.fullmatch(text):
        date, clock, zone = time.groups("")
        zone = "Z" if zone in ("Z", "+0000", "+00:00") else f"{zone[:3]}:{zone[-2:]}" if zone else ""
        return date if date and clock == "00:00:00" and not zone else f"{date} {clock}{zone}".strip()
    whole = WHOLE.fullmatch(text)
    number = whole[1] if whole else text
    return "0" if number == "-0" else number
