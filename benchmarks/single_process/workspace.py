"""What the layers of the single-process loop work with: threads' scratch rows, shared
buffers, the aggregation, 16-bit rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from siafu import kernels
from siafu.kernels.dense import matmul, matmul_transposed
from siafu.kernels.passes import column_sums
from siafu.shards import Edges, Shard
from siafu.sparse import Array

Weights = dict[str, Array]
SLICE_COLUMNS = 64  # of the features, aggregated at a time: layer 0's table stays small


class Worker:
    """One thread's scratch rows, and its share of what is summed over rows."""

    def __init__(self, weights: Weights, rounds: bool):
        """``rounds``: operands of products to bfloat16."""
        self._rounds = rounds
        self.gradients = {name: np.zeros_like(W) for name, W in weights.items()}
        self.loss, self.hits = 0.0, 0
        self._scratch: dict[tuple[str, int], Array] = {}

    def reset(self) -> None:
        self.loss, self.hits = 0.0, 0
        for gradient in self.gradients.values():
            gradient[:] = 0

    def rows(self, name: str, count: int, width: int) -> Array:
        """A buffer float32 [count, width], the same for the same name and width: whatever was in it is lost."""
        buffer = self._scratch.get((name, width))
        if buffer is None or len(buffer) < count:
            buffer = self._scratch[name, width] = np.empty((count, width), np.float32)
        return buffer[:count]

    def add_product(self, name: str, X: Array, D: Array) -> None:
        """gradient += Xᵀ D. X float32 or bfloat16 bits [rows, F], D [rows, G]."""
        matmul_transposed(X, D, out=self.gradients[name], add=True, rounds=self._rounds)

    def add_sum(self, name: str, D: Array) -> None:
        self.gradients[name] += column_sums(D)


class Memory:
    """The graph, its degrees, and buffers [n, width] that layers share where their uses do not overlap.

    All are made before threads run.
    """

    def __init__(self, shard: Shard, features: Any, threads: int, dtype: str):
        self.edges, self.out_edges = resident(shard.in_edges), resident(shard.out_edges)
        self.degree, self.features = np.asarray(shard.degree), features
        self.num_rows, self.threads, self.dtype = len(shard.vertices), threads, dtype
        self._tables: dict[int, kernels.Table] = {}
        self._buffers: dict[tuple[str, int], Array] = {}

    @property
    def rounds(self) -> bool:
        """Whether operands of products are rounded to bfloat16."""
        return self.dtype == "bfloat16"

    def times(self, X: Array, W: Array, out: Array, **more: Any) -> Array:
        """X W into out; X float32 or bfloat16 bits."""
        return matmul(X, W, out=out, rounds=self.rounds, **more)

    @property
    def attention_dtype(self) -> Literal["float32", "bfloat16"]:
        return "bfloat16" if self.dtype == "bfloat16" else "float32"

    def table(self, width: int) -> kernels.Table:
        """Where rows lie to be gathered, from ``start`` to ``gather``; one per width serves all layers."""
        if width not in self._tables:
            self._tables[width] = kernels.Table(self.num_rows, width, self.dtype, edges=self.edges.per_row)
        return self._tables[width]

    def buffer(self, name: str, width: int) -> Array:
        """float32 [n, width], the same for the same name."""
        if (name, width) not in self._buffers:
            self._buffers[name, width] = np.zeros((self.num_rows, width), np.float32)
        return self._buffers[name, width]

    def kept(self, width: int) -> Array:
        """Rows [n, width] in the dtype of activations, of this caller alone."""
        return np.zeros((self.num_rows, width), np.uint16 if self.dtype == "bfloat16" else np.float32)


def resident(edges: Edges) -> Edges:
    """The same edges as plain arrays on the mapped files."""
    weight = None if edges.weight is None else np.asarray(edges.weight)
    return Edges(np.asarray(edges.indptr), np.asarray(edges.indices), weight)


@dataclass(frozen=True)
class Aggregation:
    """A = D_target A' D_source (+ the same of the identity), and its transpose for backward."""

    target: Array | None  # float32 [n]; None: 1
    source: Array | None
    add_self: bool

    @classmethod
    def of(cls, model: str, degree: Array) -> Aggregation:
        if model == "gcn":
            scale = (1 / np.sqrt(degree + 1)).astype(np.float32)
            return cls(scale, scale, True)
        with np.errstate(divide="ignore"):
            return cls(np.where(degree > 0, 1 / degree, 0).astype(np.float32), None, False)

    def write(self, table: kernels.Table, b: slice, rows: Array, *, back: bool = False) -> None:
        scale = self.target if back else self.source
        table.write(b, rows, scale=None if scale is None else scale[b])

    def gather(self, memory: Memory, table: kernels.Table, out: Array, *, back: bool = False, **more: Any) -> None:
        kernels.gather(
            memory.out_edges if back else memory.edges,
            0,
            memory.num_rows,
            table,
            scale=self.source if back else self.target,
            add_self=self.add_self,
            out=out,
            threads=memory.threads,
            **more,
        )

    def of_constant(self, memory: Memory, X: Any) -> Array:
        """A X in the dtype of activations, made in slices of columns."""
        out = memory.kept(X.shape[1])
        for first in range(0, X.shape[1], SLICE_COLUMNS):
            columns = slice(first, min(first + SLICE_COLUMNS, X.shape[1]))
            width = columns.stop - columns.start
            table = kernels.Table(memory.num_rows, width, "float32", edges=memory.edges.per_row)
            for start in range(0, memory.num_rows, 1 << 14):
                b = slice(start, min(start + (1 << 14), memory.num_rows))
                self.write(table, b, np.asarray(X[b, columns], np.float32))
            part = np.empty((memory.num_rows, columns.stop - columns.start), np.float32)
            self.gather(memory, table, part)
            store(part, out[:, columns])
        return out


# --- rows in 32 or 16 bits --------------------------------------------------------------------------------------------


def as_float(X: Array) -> Array:
    return kernels.from_bfloat16(X) if X.dtype == np.uint16 else X


def store(rows: Array, out: Array) -> None:
    """Float rows into float32 or bfloat16 bits."""
    out[:] = kernels.to_bfloat16(rows) if out.dtype == np.uint16 else rows


def store_blocks(X: Any, out: Array) -> None:
    """A mapped matrix of any dtype, block by block."""
    for start in range(0, len(out), 1 << 14):
        store(np.asarray(X[start : start + (1 << 14)], np.float32), out[start : start + (1 << 14)])
