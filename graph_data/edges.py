"""Edges in blocks: what is read twice where they do not fit in memory, be they in files or in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from siafu.sparse import Array

Block = tuple[Array, Array, "Array | None"]  # int64 src, int64 dst, and weight of some edges, in the source's order


class EdgeSource(Protocol):
    """A list of edges that can be read again and again, always in the same order."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """Names of the parts that can be read apart from each other: files."""

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        """float32 or float64; None: every edge weighs 1."""

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        """The edges of one piece in blocks of about ``rows``."""
