"""The mean over the in-edges of each relation separately, as R-GCN gathers. R relations:

    expand   Z_v = [mean_1 | ... | mean_R] of H_u        slot Z is R times as wide as what it gathers
    sum      Z_v = mean_1 of T_1u + ... + mean_R of T_Ru    T_u = [T_1u | ... | T_Ru]; slot Z is as wide as one of them

mean_r is Σ w_uv X_u / c_vr over the edges u -> v of relation r, c_vr the sum of their weights; it is zero without such
edges. Backward, v's published rows include c_v, so that no server needs to know the c of a ghost. A sum's dZ_v is sent
once for all relations.

    SC'  expand: publishes [dZ_v1 / c_v1 | ... | dZ_vR / c_vR];  sum: [dZ_v | 1 / c_v1 ... 1 / c_vR], as R products
    GA'  dH_u or dT_ru = Σ w_uv (dZ_vr / c_vr)              along out-edges of relation r; dH sums over r, too
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graph_server.buffers import Index, PublishedSlot, Store, TableStore
from graph_server.operators import Operator, Setting
from siafu import kernels, views
from siafu.shards import Edges
from siafu.sparse import Array
from siafu.tasks import Kind, Step


class SideBySide:
    """Store of rows in blocks of columns, each in its own table."""

    def __init__(self, blocks: list[TableStore]):
        self.blocks = blocks

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        columns, dtype = self.blocks[0].travelling
        return columns * len(self.blocks), dtype

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        for block, part in self._parts(*columns):
            block.write(place, part, scale=scale)

    def read(self, place: Index) -> Array:
        return np.concatenate([block.read(place) for block in self.blocks], axis=1)

    def cut(self, place: Index) -> Array:
        return np.concatenate([block.cut(place) for block in self.blocks], axis=1)

    def paste(self, place: Index, rows: Array) -> None:
        for block, part in self._parts(rows):
            block.paste(place, part)

    def _parts(self, *columns: Array) -> Iterator[tuple[TableStore, Array]]:
        parts = columns if len(columns) > 1 else np.split(columns[0], len(self.blocks), axis=1)
        return zip(self.blocks, parts, strict=True)


class Multiplied:
    """Store of rows with a factor for each block. Rows are written and sent with their factors; each block's table
    keeps the rows times its factor."""

    def __init__(self, blocks: list[TableStore]):
        self.blocks = blocks
        num_rows, self._width = blocks[0].table.shape
        real = np.float64 if blocks[0].storage == "float64" else np.float32
        self._rows = np.zeros((num_rows, self._width + len(blocks)), real)  # as they were written

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        return self._rows.shape[1], self._rows.dtype

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        (rows,) = columns
        self._rows[place] = rows
        for i, block in enumerate(self.blocks):
            block.write(place, rows[:, : self._width], scale=rows[:, self._width + i])

    def read(self, place: Index) -> Array:
        return self._rows[place].copy()

    def cut(self, place: Index) -> Array:
        return self.read(place)

    def paste(self, place: Index, rows: Array) -> None:
        self.write(place, rows)


class Typed(Operator):
    def __init__(self, setting: Setting):
        super().__init__(setting)
        shard, self.num_types = setting.shard, setting.model.spec.num_edge_types
        self.edges = {False: views.typed(shard.in_edges, self.num_types)}
        self.edges[True] = self.edges[False] if shard.undirected else views.typed(shard.out_edges, self.num_types)
        self.inverse = [_inverse_degree(edges, setting.dtype) for edges in self.edges[False]]  # 1 / c, [n] by relation
        self._width: dict[str, int] = {}  # published slot -> width of a block of its columns
        for step in self.model.program(setting.lane).steps:
            if step.operator == "typed" and step.kind is Kind.GA:
                width = min(self.model.width(str(step.gathers)), self.model.width(step.writes[0]))
                self._width |= {str(step.gathers): width, f"d{step.writes[0]}": width}

    def store(self, step: Step, num_rows: int) -> Store:
        slot = str(step.publishes)
        width = self._width[slot]
        num_blocks = self.num_types if step.backward else self.model.width(slot) // width
        blocks = [TableStore(num_rows, width, self.setting.storage, self.setting.threads) for _ in range(num_blocks)]
        return Multiplied(blocks) if step.backward and self._sums(slot) else SideBySide(blocks)

    def scatter(
        self, step: Step, slot: PublishedSlot, interval: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        values = np.asarray(rows[str(step.publishes)])  # [k, F] or [k, R F]
        published = [values]
        if step.backward:
            factors = [inverse[slot.places[interval]][:, None] for inverse in self.inverse]  # [k, 1] each
            if self._sums(str(step.publishes)):
                published = [np.concatenate([values, *factors], axis=1)]
            else:
                blocks = np.split(values, self.num_types, axis=1)
                published = [dZ * c for dZ, c in zip(blocks, factors, strict=True)]
        slot.write(interval, epoch, *published)
        return dict.fromkeys(step.writes, values)

    def _sums(self, gradient: str) -> bool:
        """Whether the forward slot of this gradient was summed over relations."""
        return self.model.width(gradient) == self._width[gradient]

    def gather(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        assert isinstance(slot.store, SideBySide | Multiplied)
        (target,) = step.writes
        blocks, width = slot.store.blocks, self._width[str(step.gathers)]
        expands = self.model.width(target) > width
        shape = stop - start, self.model.width(target)
        out = np.empty(shape, self.setting.dtype) if expands else None  # else a sum, on top of the interval's own rows
        total: Array | None
        (total,) = [np.asarray(rows[name]) for name in step.reads] or (None,)
        for r, edges in enumerate(self.edges[step.backward]):
            total = kernels.gather(
                edges,
                start,
                stop,
                blocks[r % len(blocks)].table,
                scale=None if step.backward else self.inverse[r],
                add=None if expands else total,
                out=None if out is None else out[:, r * width : (r + 1) * width],
                threads=self.setting.threads,
            )
        assert total is not None
        return {target: total if out is None else out}


def _inverse_degree(edges: Edges, dtype: np.dtype[Any]) -> Array:
    """Returns 1 / (the sum of the weights of a row's edges) for each row; 0 for a row without edges."""
    counts = np.diff(edges.indptr)
    degree: Array = counts.astype(np.float64)  # [n]
    if edges.weight is not None:
        row = np.repeat(np.arange(len(counts)), counts)
        degree = np.bincount(row, np.asarray(edges.weight, np.float64), len(counts))
    with np.errstate(divide="ignore"):
        return np.where(degree > 0, 1 / degree, 0).astype(dtype)
