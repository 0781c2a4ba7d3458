"""The types of an edge list's edges. Words or integers of one column are numbered in ascending order; integers stay
as they are where the number of types is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.sources import columns, words
from graph_data.sources.columns import Identity
from graph_data.sources.ids import check_alike
from siafu.errors import DatasetError
from siafu.graph import MAX_EDGE_TYPES, Graph
from siafu.sparse import Array

ROWS = 1 << 21  # edges that are read together


@dataclass(frozen=True, eq=False)
class EdgeTypes:
    """The type of every listed edge, and the source's names of types, if they are not 0, 1, 2, ..."""

    number: Array  # uint16 [E]
    names: tuple[str, ...]
    count: int

    @classmethod
    def read(
        cls, files: Sequence[Path], identities: Sequence[Identity], column: str, count: int | None = None
    ) -> EdgeTypes:
        """Reads the types. ``identities`` of the files when the edges were read. ``count``: types are 0..count-1 as
        they stand; None: they are renumbered.

        Raises: DatasetError for a missing type, a type that is neither word nor integer, or beyond ``count``; for too
        many types; for a file that has changed.
        """
        wordy = words.is_words(files[0], column)
        if count is not None:
            if wordy:
                raise DatasetError(
                    f"{files[0]}: column {column!r} is of words, which are counted: num_edge_types is for integers"
                )
            return cls(_read(files, identities, column, _below(count)).astype(np.uint16), (), count)
        if wordy:
            vocabulary = words.Vocabulary("a word: every edge has a type", optional=False)
            number, names = vocabulary.sorted(_read(files, identities, column, vocabulary.kind))
            check_alike(names, f"{files[0]}: column {column!r}: types of edges")
        else:
            values, number = np.unique(
                _read(files, identities, column, columns.ids(hint=", as the first one is")), return_inverse=True
            )
            names = () if np.array_equal(values, np.arange(len(values))) else tuple(map(str, values.tolist()))
        count = len(names) or int(number.max(initial=0)) + 1
        if count > MAX_EDGE_TYPES:
            raise DatasetError(
                f"{files[0]}: column {column!r} has {count} types of edges, must have <= {MAX_EDGE_TYPES}"
            )
        return cls(number.astype(np.uint16), names, count)

    def of(self, graph: Graph) -> Graph:
        """The graph with these types."""
        named = {**graph.names, "edge_types": self.names} if self.names else graph.names
        return replace(graph, edge_type=self.number, num_edge_types=self.count, names=named)


def _below(count: int) -> columns.Kind:
    """The kind of integers in 0..count-1."""
    integers = columns.ids()

    def read(array: Any, where: columns.Where) -> Array:
        values = integers.read(array, where)
        where.check((values >= 0) & (values < count), values, f"in 0..{count - 1}: there are {count} types")
        return values

    return columns.Kind(integers.text, integers.must, read)


def _read(files: Sequence[Path], identities: Sequence[Identity], column: str, kind: columns.Kind) -> Array:
    blocks = [np.empty(0, np.int64)]
    for file, before in zip(files, identities, strict=True):
        for (found,) in columns.blocks(file, [column], ROWS, [kind]):
            blocks.append(found)
        columns.check_unchanged(file, before)
    return np.concatenate(blocks)
