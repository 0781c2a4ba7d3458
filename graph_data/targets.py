"""The kind of labels, where their values do not tell it: classes, several classes per vertex, or numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from siafu.errors import DatasetError
from siafu.graph import check_told, kept_numbers
from siafu.sparse import Array

TARGETS = ("auto", "classes", "labels", "numbers")


def labels_as(labels: Array, target: str, name: str) -> Array:
    """Labels [N] or [N, C], NaN or -1 = unknown, in the dtype and shape that show their kind in ``siafu.graph.Graph``.

    target: "classes" makes int64 [N], of one column or of one-hot rows; "labels" int8 or uint8 [N, C]; "numbers"
    float32; "auto" leaves them as they are. Raises: DatasetError for values that do not fit the kind; for "auto", also
    for floats of 0 and 1.
    """
    check_target(target)
    if target == "auto":
        check_told(labels, name)
        return labels
    if target == "numbers":
        return kept_numbers(labels, name)
    unknown = np.isnan(labels) if labels.dtype.kind == "f" else labels == -1
    known = np.where(unknown, -1, labels)
    if target == "classes" and labels.ndim == 2:
        return one_hot(known, name)
    good = (known == np.floor(known)) & (known >= -1) & ((known <= 1) | (target == "classes"))
    if not good.all():
        place = tuple(np.argwhere(~good)[0])
        must = "0 or 1" if target == "labels" else "an integer from 0 on"
        raise DatasetError(f"{name}: target is {target}, but vertex {place[0]} has {labels[place]:g}, must be {must}")
    if target == "classes":
        return known.astype(np.int64)
    return known.reshape(len(known), -1).astype(np.int8 if unknown.any() else np.uint8)


def check_target(target: str) -> None:
    """Raises: DatasetError for an unknown name."""
    if target not in TARGETS:
        raise DatasetError(f"target {target!r}, must be one of {', '.join(TARGETS)}")


def one_hot(rows: Array, name: str) -> Array:
    """The classes of one-hot rows [N, C], int64 [N]; a row of -1 alone has none. Raises:
    DatasetError for any other row."""
    ones, unknown = (rows == 1).sum(axis=1), (rows == -1).all(axis=1)
    good = unknown | ((ones == 1) & (((rows == 0) | (rows == 1)).all(axis=1)))
    if not good.all():
        v = int(np.argmin(good))
        raise DatasetError(
            f"{name}: target is classes, but the {rows.shape[1]} columns of vertex {v} are not one-hot (one 1, else "
            "0): target=labels is for several classes per vertex"
        )
    classes: Array = np.where(unknown, -1, np.argmax(rows, axis=1))
    return classes.astype(np.int64)


def renumbered(classes: Array) -> tuple[Array, tuple[str, ...]]:
    """Classes [N], -1 = unknown, as int64 0..C-1 in ascending order, and the old names of the C classes; () if they
    were 0..C-1.

    Without this, codes (10115, 80331) and classes that begin with 1 would make as many model outputs as the largest of
    them.
    """
    values = np.unique(classes[classes != -1])
    if np.array_equal(values, np.arange(len(values))):
        return classes.astype(np.int64), ()
    numbers = np.where(classes == -1, -1, np.searchsorted(values, classes))
    return numbers.astype(np.int64), tuple(str(int(value)) for value in values)


def numbered_note(names: Sequence[str], what: str = "classes") -> str:
    """A note for the user on the numbers that ``renumbered`` gave."""
    if len(names) == 1:
        return f"{what}: {names[0]} alone"
    return f"{len(names)} {what} are numbered in the order of their values, {names[0]} to {names[-1]}"
