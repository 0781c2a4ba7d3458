"""A graph in one of the field's formats, before it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL
from siafu.sparse import Array


@dataclass(frozen=True)
class Found:
    name: str  # of the graph
    files: tuple[Path, ...]  # all that it is read from, there or not
    shown: str  # what users call it: a file, or a pattern of files


def split_by(num_vertices: int, train: Array, val: Array, test: Array, shown: str) -> Array:
    """uint8 [N, 1] of the numbers of vertices. Raises: DatasetError for a number that is no vertex, or in two parts."""
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
    """Raises: DatasetError about the first that is no vertex."""
    wrong = (numbers < 0) | (numbers >= num_vertices)
    if wrong.any():
        raise DatasetError(f"{shown}: vertex {numbers[np.argmax(wrong)]}, must be in 0..{num_vertices - 1}")
