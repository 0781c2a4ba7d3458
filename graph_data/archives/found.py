"""A graph in one of the field's formats, before it is read; and the parts that several formats share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.objects.arrays import labels_of, num_classes_of
from graph_data.targets import numbered_note, renumbered
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, Graph
from siafu.npy import mapped
from siafu.sparse import Array, Rows

CLASSES = 1 << 31  # a class of JSON may be any number: beyond, none is


@dataclass(frozen=True)
class Found:
    name: str  # of the graph
    files: tuple[Path, ...]  # all that it is read from, there or not
    shown: str  # what users call it: a file, or a pattern of files


def graph_of(
    found: Found,
    given: Mapping[str, str],
    edges: tuple[Array, Array, Array | None],
    features: Rows,
    labels: Array,
    split: Array | None = None,
    classes: Sequence[str] | int = (),
    notes: tuple[str, ...] = (),
) -> Graph:
    """The graph of src, dst and weight, each edge as it is listed; as many vertices as labels.

    given: the user's options, of which ``target`` says what labels are. split: uint8 [N, S]; None: none is published.
    classes: their words, or how many there are, where the archive tells; else classes with gaps between them are
    numbered 0..C-1, and a note says so.
    """
    target = given.get("target", "auto")
    labels = labels_of(labels, target, found.shown)
    words = () if isinstance(classes, int) or labels.ndim == 2 or target == "numbers" else tuple(classes)
    if not classes and labels.ndim == 1 and labels.dtype.kind == "i" and labels.min(initial=0) >= -1:
        labels, words = renumbered(labels)
        notes = (*notes, f"{found.shown}: {numbered_note(words)}") if words else notes
    if (
        not isinstance(classes, int)
        and labels.ndim == 1
        and labels.dtype.kind == "i"
        and (unknown := int((labels == -1).sum()))
    ):
        notes = (*notes, f"{found.shown}: {unknown:,} of {len(labels):,} vertices have no label")
    src, dst, weight = edges
    return Graph(
        name=found.name,
        num_vertices=len(labels),
        src=src,
        dst=dst,
        weight=weight,
        features=features,
        labels=labels,
        num_classes=max(
            len(words), classes if isinstance(classes, int) and labels.ndim == 1 else 0, num_classes_of(labels)
        ),
        split=np.zeros((len(labels), 0), np.uint8) if split is None else split,
        directed=True,
        names={"classes": words} if words else {},
        numbers_said=target == "numbers",
        notes=notes,
    )


def split_by(num_vertices: int, train: Array, val: Array, test: Array, shown: str) -> Array:
    """The split with these vertex numbers, uint8 [N, 1]. Raises: DatasetError for a number that is no vertex, or in two
    parts."""
    split = np.zeros((num_vertices, 1), np.uint8)
    for kind, chosen in ((TRAIN, train), (VAL, val), (TEST, test)):
        check_within(chosen, num_vertices, shown)
        if split[chosen].any():
            raise DatasetError(
                f"{shown}: vertex {chosen[np.argmax(split[chosen, 0] > 0)]} is in two parts of the split"
            )
        split[chosen] = kind
    return split


def check_within(numbers: Array, num_vertices: int, shown: str) -> None:
    """Raises: DatasetError about the first number that is no vertex."""
    wrong = (numbers < 0) | (numbers >= num_vertices)
    if wrong.any():
        raise DatasetError(f"{shown}: vertex {numbers[np.argmax(wrong)]}, must be in 0..{num_vertices - 1}")


def check_each(numbers: Array, num_vertices: int, file: Path) -> None:
    """Raises: DatasetError about a number that is no vertex, or occurs twice."""
    check_within(numbers, num_vertices, str(file))
    if len(np.unique(numbers)) < len(numbers):
        raise DatasetError(f"{file}: a vertex twice")


def read_json(file: Path) -> dict[str, Any]:
    """Reads a JSON object. Raises: DatasetError if the file holds none."""
    try:
        made = json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise DatasetError(f"{file}: not readable as JSON ({str(error)[:80]})") from None
    if not isinstance(made, dict):
        raise DatasetError(f"{file}: must be a JSON object")
    return made


def integers(values: Iterable[Any], file: Path) -> Array:
    """Integers, or texts of integers, as int64. Raises: DatasetError for anything else."""
    try:
        return np.array([value if type(value) is int else _integer(value) for value in values], np.int64)
    except (ValueError, TypeError, OverflowError):
        raise DatasetError(f"{file}: a vertex or a class that is no integer") from None


def _integer(value: Any) -> int:
    if type(value) not in (str, np.int64) and value != int(value):  # 24.5 is none
        raise ValueError
    return int(value)


def labels_by(numbers: Array, given: Iterable[Any], num_vertices: int, file: Path) -> Array:
    """Labels of all vertices: int64 [N], or int8 [N, C] if each is a list of 0 and 1; -1 for vertices that are not in
    ``numbers``.

    Raises: DatasetError for a number that is no vertex, or labels that are neither.
    """
    check_each(numbers, num_vertices, file)
    try:
        values = np.array(list(given))
    except ValueError:
        values = np.empty(0, object)
    if values.dtype.kind not in "biuf" or len(values) != len(numbers) or values.ndim not in (1, 2):
        raise DatasetError(f"{file}: must be a class, or a list of 0 and 1 of one length, for each vertex")
    if (
        (values != np.floor(values)).any()
        or (abs(values) > CLASSES).any()
        or (values.ndim == 2 and not np.isin(values, (0, 1)).all())
    ):
        raise DatasetError(f"{file}: a label that is no class, or a list of other numbers than 0 and 1")
    labels = np.full((num_vertices, *values.shape[1:]), -1, np.int64 if values.ndim == 1 else np.int8)
    labels[numbers] = values
    return labels


def rows_of(file: Path) -> Array:
    """The matrix of a ``.npy`` file, on disk. Raises: DatasetError."""
    try:
        return mapped(file)
    except (ValueError, OSError) as error:
        raise DatasetError(f"{file}: not a readable .npy file ({error})") from None
