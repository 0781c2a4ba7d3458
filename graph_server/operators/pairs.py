"""Pairs of vertices to be scored, as the in-edges u -> v of their second end: AE is sent
H_u beside what v's server has, H_v.

While training those are the training edges and, of the pool of false ones, those that this epoch draws: by a hash of
(seed, epoch, u, v) that does not care which is which, so the servers of both ends agree and nothing is told. In
evaluation, those held out. Rows are published and read as they are; nothing is summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_server.buffers import PublishedSlot
from graph_server.operators import Operator, Setting
from siafu import ops, views
from siafu.graph import TRAIN_PAIR
from siafu.models.link_prediction import TRUE
from siafu.sparse import Array, EdgeRows, TaskRows
from siafu.tasks import Lane, Step


class Pairs(Operator):
    def __init__(self, setting: Setting):
        """``setting.shard``: all edges, not those alone that the model gathers along."""
        super().__init__(setting)
        self.spec, shard = self.model.spec, setting.shard
        self.edges = views.pairs(shard, views.PAIRS[setting.lane]).in_edges
        assert self.edges.type is not None
        self.kind = self.edges.type.astype(np.uint8)[:, None]  # [m, 1]
        self.ids = np.concatenate([shard.vertices, shard.ghosts_in]).astype(np.int64, copy=False)

    def scatter(
        self, step: Step, slot: PublishedSlot, interval: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        slot.write(interval, epoch, np.asarray(rows[str(step.publishes)]))
        return {}

    def edge_rows(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, TaskRows]:
        first, last, indptr = self._range(start, stop)
        columns, name = np.asarray(self.edges.indices[first:last]), f"E{step.gathers}"
        if self.setting.lane is Lane.EVAL:
            return {name: EdgeRows(indptr, slot.store.read(columns))}
        kind = self.kind[first:last]
        drawn = kind[:, 0] == TRAIN_PAIR
        row = np.repeat(np.arange(start, stop), np.diff(indptr))
        false = np.flatnonzero(~drawn)
        drawn[false] = self._drawn(row[false], columns[false], epoch, step.layer)
        indptr = np.concatenate([[0], np.cumsum(drawn)])[indptr]
        true = (kind[drawn] == TRAIN_PAIR).astype(np.uint8)
        return {name: EdgeRows(indptr, slot.store.read(columns[drawn])), TRUE: EdgeRows(indptr, true)}

    def types(self, start: int, stop: int) -> EdgeRows:
        """What the pairs of the vertices ``start:stop`` are, uint8 [m, 1], in the order of their scores."""
        first, last, indptr = self._range(start, stop)
        return EdgeRows(indptr, self.kind[first:last])

    def _range(self, start: int, stop: int) -> tuple[int, int, Array]:
        indptr = np.asarray(self.edges.indptr[start : stop + 1])
        return int(indptr[0]), int(indptr[-1]), indptr - indptr[0]

    def _drawn(self, row: Array, column: Array, epoch: int, layer: int) -> Array:
        """Which of these false pairs the epoch trains with: each with probability 1 /
        (so many in the pool for an edge)."""
        one, other = self.ids[row], self.ids[column]
        key = ops.edge_key(self.spec.seed, epoch, layer)
        kept = ops.edge_dropout(np.minimum(one, other), np.maximum(one, other), 1, 1 - 1 / self.spec.negatives, key)
        return kept[:, 0] > 0
