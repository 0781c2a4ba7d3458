"""Writes predictions to a file, block by block; the file's ending chooses one of ``WRITERS``."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from graph_data.rowfile import GrowingFile
from graph_data.sources.arrow import arrow
from run_coordinator.predict.plan import Kind
from siafu import outputs
from siafu.errors import ConfigError, DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL, Target
from siafu.kernels import functions
from siafu.run_files import draft_of
from siafu.sparse import Array

#: What the roles of vertices are called.
SPLITS = {NONE: None, TRAIN: "train", VAL: "val", TEST: "test"}
#: What a column of values is called, with its number or class.
COLUMN: dict[Kind, str] = {"probabilities": "p", "labels": "p", "logits": "logit", "numbers": "y", "embedding": "h"}


@dataclass(frozen=True)
class Sheet:
    """The properties that all blocks of a prediction share."""

    kind: Kind
    num_classes: int
    names: tuple[str, ...] = ()  # of the classes, or of the columns of a regression; (): their numbers
    target: Target = "classes"  # what the labels are that ``Block.true`` has

    @property
    def classifies(self) -> bool:
        return self.kind in ("probabilities", "labels", "logits")

    def name(self, number: int) -> str | int:
        return self.names[number] if self.names else number

    def columns(self, width: int) -> list[str]:
        """Names of the columns of values."""
        named = self.kind != "embedding" and len(self.names) == width
        return [f"{COLUMN[self.kind]}_{self.names[i] if named else i}" for i in range(width)]


@dataclass(frozen=True)
class Block:
    """Consecutive vertices."""

    ids: Any  # int64 [n], or an Arrow array
    values: Array  # [n, F]
    decided: Array  # int64 [n]: the class; bool [n, F] of several; empty where nothing is classified
    true: Array | None = None  # labels as in a shard, [n] or [n, C]; None: the graph has none
    split: Array | None = None  # uint8 [n]; None: no vertex is in any

    @classmethod
    def of(cls, kind: Kind, ids: Any, rows: Array, true: Array | None = None, split: Array | None = None) -> Block:
        """A block of ``rows``, the model's output. Classes are decided as in an evaluation: before probabilities are
        rounded."""
        if kind in ("numbers", "embedding"):
            return cls(ids, rows, np.empty(0, np.int64), true, split)
        if kind == "labels":
            with np.errstate(over="ignore"):
                return cls(ids, 1 / (1 + functions.exp(-rows)), rows > 0, true, split)
        decided = rows.argmax(1)
        return cls(ids, softmax(rows) if kind == "probabilities" else rows, decided, true, split)


def softmax(logits: Array) -> Array:
    """The softmax of each row."""
    shifted = functions.exp(logits - logits.max(1, keepdims=True))
    total: Array = shifted / shifted.sum(1, keepdims=True)
    return total


class Writer(Protocol):
    def __init__(self, path: Path): ...

    def write(self, sheet: Sheet, block: Block) -> None: ...

    def close(self) -> None: ...


class CsvFile:
    """id, class and true (several: a list as in JSON), split, then a column for each value."""

    def __init__(self, path: Path):
        self._file = path.open("w", newline="", encoding="utf-8")
        self._csv = csv.writer(self._file, lineterminator="\n")
        self._begun = False

    def write(self, sheet: Sheet, block: Block) -> None:
        said = leading(sheet, block)
        if not self._begun:
            self._begun = True
            self._csv.writerow([*said, *sheet.columns(block.values.shape[1])])
        values = block.values.astype(str).tolist()  # the shortest digits that are the same number
        heads = zip(*([_cell(word) for word in words] for words in said.values()), strict=True)
        self._csv.writerows([*head, *row] for head, row in zip(heads, values, strict=True))

    def close(self) -> None:
        self._file.close()


def _cell(word: Any) -> Any:
    if isinstance(word, list):
        return json.dumps(word, ensure_ascii=False)  # whatever separated names, a name might have it
    if isinstance(word, bytes):  # as messages call ids that are UUIDs or other bytes
        return word.hex()
    return "" if word is None else word


class NpyFile:
    """The values alone: row v is vertex v."""

    def __init__(self, path: Path):
        self._path = path
        self._file: GrowingFile | None = None

    def write(self, sheet: Sheet, block: Block) -> None:
        if self._file is None:
            self._file = GrowingFile(self._path, block.values.dtype, row=block.values.shape[1:])
        self._file.append(block.values)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class ParquetFile:
    """Columns id, class and true (lists, where a vertex may have several), split, and the values as one list of a fixed
    size."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: Any = None
        self._pa, self._parquet = arrow(), arrow("pyarrow.parquet")

    def write(self, sheet: Sheet, block: Block) -> None:
        flat = self._pa.array(np.ascontiguousarray(block.values).reshape(-1))
        kind = "probabilities" if sheet.kind == "labels" else sheet.kind
        values = self._pa.FixedSizeListArray.from_arrays(flat, block.values.shape[1])
        table = self._pa.table({**in_arrow(sheet, block), kind: values})
        if self._writer is None:
            self._writer = self._parquet.ParquetWriter(self._path, table.schema)
        self._writer.write_table(table)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


WRITERS: dict[str, type[Writer]] = {".parquet": ParquetFile, ".csv": CsvFile, ".npy": NpyFile}


# --- the columns before the values ------------------------------------------------------------------------------------


def leading(sheet: Sheet, block: Block) -> dict[str, list[Any]]:
    """The columns id, class, true and split, where they exist: a word or number for each vertex. A list of them if a
    vertex may have several; None if nothing is known."""
    found: dict[str, list[Any]] = {
        "id": block.ids.tolist() if isinstance(block.ids, np.ndarray) else block.ids.to_pylist()
    }
    if sheet.classifies:
        found["class"] = (
            [_named(sheet, row) for row in block.decided]
            if sheet.kind == "labels"
            else [sheet.name(int(c)) for c in block.decided]
        )
    if block.true is not None:
        found["true"] = _true(sheet, block.true)
    if block.split is not None:
        found["split"] = [SPLITS[role] for role in block.split]
    return found


def _named(sheet: Sheet, row: Array) -> list[str | int]:
    return [sheet.name(int(c)) for c in np.flatnonzero(row > 0)]


def _true(sheet: Sheet, labels: Array) -> list[Any]:
    if sheet.target == "labels":
        return [None if (row < 0).all() else _named(sheet, row) for row in labels]
    if sheet.target == "classes":
        return [sheet.name(int(c)) if c >= 0 else None for c in labels]
    if labels.ndim == 2 and labels.shape[1] > 1:
        return [None if np.isnan(row).all() else row.tolist() for row in labels]
    return [None if np.isnan(value) else value for value in labels.reshape(-1).tolist()]


def in_arrow(sheet: Sheet, block: Block) -> dict[str, Any]:
    """The ``leading`` columns as Arrow arrays. Types are the same for all blocks: a block without any class does not
    show the type."""
    pa = arrow()
    said = leading(sheet, block)
    word = pa.string() if sheet.names else pa.int64()
    several = pa.list_(pa.float32() if sheet.target == "numbers" else word)
    true = {"classes": word, "labels": several, "numbers": pa.float32()}[sheet.target]
    if block.true is not None and sheet.target == "numbers" and block.true.ndim == 2 and block.true.shape[1] > 1:
        true = several
    types = {"class": pa.list_(word) if sheet.kind == "labels" else word, "true": true, "split": pa.string()}
    ids = pa.array(block.ids) if isinstance(block.ids, np.ndarray) else block.ids
    return {"id": ids} | {key: pa.array(words, types[key]) for key, words in said.items() if key != "id"}


def check(out: str | Path) -> None:
    """Raises: ConfigError if predictions cannot be written to ``out``, as far as that is known before."""
    path = Path(out)
    if path.suffix not in WRITERS:
        raise ConfigError(f"out = {out}: must end with one of {', '.join(WRITERS)}")
    outputs.check_file("out", out)
    if path.suffix == ".parquet":
        arrow()


@contextlib.contextmanager
def opened(out: str | Path) -> Iterator[Callable[[Sheet, Block], None]]:
    """Yields a function that writes blocks to a draft beside ``out``, renamed to ``out`` at the end."""
    path = Path(out)
    try:
        with draft_of(path) as draft, contextlib.closing(WRITERS[path.suffix](draft)) as writer:
            yield writer.write
    except OSError as error:
        raise DatasetError(f"{path}: cannot be written: {error.strerror or error}") from error
