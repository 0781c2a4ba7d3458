"""The files that predictions are written to, block by block: the file's ending says which of ``WRITERS`` it is."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from graph_data.sources.arrow import arrow
from run_coordinator.predict.plan import Kind
from siafu.errors import ConfigError, DatasetError
from siafu.kernels import functions
from siafu.sparse import Array

#: What a column of values is called, with its number.
COLUMN: dict[Kind, str] = {"probabilities": "p", "labels": "p", "logits": "logit", "numbers": "y", "embedding": "h"}


@dataclass(frozen=True)
class Sheet:
    """What every block holds."""

    kind: Kind
    num_classes: int
    names: tuple[str, ...] = ()  # of the classes; (): their numbers

    @property
    def classifies(self) -> bool:
        return self.kind in ("probabilities", "labels", "logits")

    def name(self, number: int) -> str | int:
        return self.names[number] if self.names else number


@dataclass(frozen=True)
class Block:
    """Consecutive vertices."""

    ids: Any  # int64 [n], or an Arrow array
    values: Array  # [n, F]
    decided: Array  # int64 [n]: the class; bool [n, F] of several; empty where nothing is classified

    @classmethod
    def of(cls, kind: Kind, ids: Any, rows: Array) -> Block:
        """``rows``: as the model gives them. A class is decided as in an evaluation: before probabilities round."""
        if kind in ("numbers", "embedding"):
            return cls(ids, rows, np.empty(0, np.int64))
        if kind == "labels":
            with np.errstate(over="ignore"):
                return cls(ids, 1 / (1 + functions.exp(-rows)), rows > 0)
        decided = rows.argmax(1)
        return cls(ids, softmax(rows) if kind == "probabilities" else rows, decided)


def softmax(logits: Array) -> Array:
    """Of each row."""
    shifted = functions.exp(logits - logits.max(1, keepdims=True))
    total: Array = shifted / shifted.sum(1, keepdims=True)
    return total


class Writer(Protocol):
    def __init__(self, path: Path): ...

    def write(self, sheet: Sheet, block: Block) -> None: ...

    def close(self) -> None: ...


class CsvFile:
    """id, class (several: with blanks between), then a column for each value."""

    def __init__(self, path: Path):
        self._file = path.open("w", newline="", encoding="utf-8")
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._begun = False

    def write(self, sheet: Sheet, block: Block) -> None:
        if not self._begun:
            self._begun = True
            values = [f"{COLUMN[sheet.kind]}_{column}" for column in range(block.values.shape[1])]
            self._csv.writerow(["id", *(["class"] if sheet.classifies else []), *values])
        ids = block.ids.tolist() if isinstance(block.ids, np.ndarray) else block.ids.to_pylist()
        values = block.values.astype(str).tolist()  # the shortest digits that are the same number
        classes = [[" ".join(map(str, word))] for word in _words(sheet, block)] if sheet.classifies else [[]] * len(ids)
        self._csv.writerows([id_, *found, *row] for id_, found, row in zip(ids, classes, values, strict=True))

    def close(self) -> None:
        self._file.close()


class NpyFile:
    """The values alone: row v is vertex v."""

    def __init__(self, path: Path):
        self._file: BinaryIO = path.open("wb")
        self._num_rows = 0
        self._row: tuple[str, int] = ("<f4", 0)

    def write(self, sheet: Sheet, block: Block) -> None:
        if not self._num_rows:
            self._row = block.values.dtype.str, block.values.shape[1]
            self._header()
        self._num_rows += len(block.values)
        self._file.write(np.ascontiguousarray(block.values).data)

    def _header(self) -> None:
        """Of one length whatever the number of rows is: numpy leaves room for it to grow."""
        head = {"descr": self._row[0], "fortran_order": False, "shape": (self._num_rows, self._row[1])}
        np.lib.format.write_array_header_1_0(self._file, head)

    def close(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.close()


class ParquetFile:
    """Columns id, class (a list, where a vertex may have several), and the values as one list of a fixed size."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: Any = None
        self._pa, self._parquet = arrow(), arrow("pyarrow.parquet")

    def write(self, sheet: Sheet, block: Block) -> None:
        pa = self._pa
        flat = pa.array(np.ascontiguousarray(block.values).reshape(-1))
        columns = {"id": pa.array(block.ids) if isinstance(block.ids, np.ndarray) else block.ids}
        if sheet.classifies:
            words = _words(sheet, block)
            one = pa.string() if sheet.names else pa.int64()  # a block without any class does not tell
            columns["class"] = (
                pa.array(words, pa.list_(one)) if sheet.kind == "labels" else pa.array([word for (word,) in words], one)
            )
        columns[
            "embedding" if sheet.kind == "embedding" else sheet.kind if sheet.kind != "labels" else "probabilities"
        ] = pa.FixedSizeListArray.from_arrays(flat, block.values.shape[1])
        table = pa.table(columns)
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


WRITERS: dict[str, type[Writer]] = {".parquet": ParquetFile, ".csv": CsvFile, ".npy": NpyFile}


def _words(sheet: Sheet, block: Block) -> list[list[str | int]]:
    """The classes of each vertex, by name if they have names."""
    if sheet.kind == "labels":
        return [[sheet.name(int(c)) for c in np.flatnonzero(row)] for row in block.decided]
    return [[sheet.name(int(c))] for c in block.decided]


def check(out: str | Path) -> None:
    """Raises: ConfigError if ``out`` can be told beforehand to be no file that predictions are written to."""
    path = Path(out)
    if path.suffix not in WRITERS:
        raise ConfigError(f"out = {out}: must end with one of {', '.join(WRITERS)}")
    if not path.parent.is_dir() or path.is_dir():
        raise ConfigError(
            f"out = {out}: {path.parent if not path.is_dir() else path} is {'a' if path.is_dir() else 'no'} folder"
        )
    if path.suffix == ".parquet":
        arrow()


@contextmanager
def opened(out: str | Path) -> Iterator[Callable[[Sheet, Block], None]]:
    """What writes blocks to ``out``: beside it, and under its name once all is there."""
    path = Path(out)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        writer = WRITERS[path.suffix](beside)
        try:
            yield writer.write
        finally:
            writer.close()
        os.replace(beside, path)
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)
