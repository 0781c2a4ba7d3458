"""Edges in blocks: what is read twice where they do not fit in memory, be they in files or in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from siafu.graph import Graph
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


@dataclass(frozen=True)
class GraphEdges:
    """The edges of a graph in memory, as one piece."""

    graph: Graph

    @property
    def pieces(self) -> tuple[str, ...]:
        return (self.graph.name,)

    @property
    def weight_dtype(self) -> np.dtype[Any] | None:
        if self.graph.weight is None:
            return None
        return np.dtype(np.float32 if self.graph.weight.dtype == np.float32 else np.float64)

    def blocks(self, piece: int, rows: int) -> Iterator[Block]:
        graph, dtype = self.graph, self.weight_dtype
        for start in range(0, graph.num_edges, rows):
            chosen = slice(start, start + rows)
            weight = None if graph.weight is None else graph.weight[chosen].astype(dtype, copy=False)
            yield graph.src[chosen].astype(np.int64), graph.dst[chosen].astype(np.int64), weight
