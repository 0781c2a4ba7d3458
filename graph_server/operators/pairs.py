"""Pairs of vertices to be scored, as in-edges u -> v of v. ApplyEdge is sent H_u, and H_v, which v's server has.

In training the pairs are the training edges and the false edges that this epoch draws from a pool. The draw hashes
(seed, epoch, u, v), with u and v interchangeable, so the servers of both ends agree without a message. In an evaluation
the pairs are the held-out ones. Rows are published and read unchanged; nothing is summed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graph_server.buffers import PublishedSlot
from graph_server.operators import Operator, Setting
from siafu import kernels, ops, views
from siafu.graph import TRAIN_PAIR
from siafu.models.link_prediction import TRUE
from siafu.shards import Shard
from siafu.sparse import Array, EdgeRows, TaskRows, numbered
from siafu.tasks import Lane, Step


class Pairs(Operator):
    def __init__(self, setting: Setting):
        """``setting.shard`` must have all edges, not only those that the model gathers along."""
        super().__init__(setting)
        self.spec, shard = self.model.spec, setting.shard
        typed = views.of_types(shard.in_edges, views.PAIRS[setting.lane])
        assert typed.type is not None
        self.kind = typed.type.astype(np.uint8)[:, None]  # [m, 1]
        self.edges = replace(typed, type=None)
        self.ids = np.concatenate([shard.vertices, shard.ghosts_in]).astype(np.int64, copy=False)

    def along(self, shard: Shard) -> Shard:
        """Returns the shard with these pairs as its edges in both directions; with a single partition, where no rows
        are exchanged, as its in-edges alone."""
        if shard.num_partitions == 1:
            return replace(shard, in_edges=self.edges)
        return replace(
            shard,
            in_edges=self.edges,
            out_edges=views.of_types(shard.out_edges, views.PAIRS[self.setting.lane]),
        )

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
            return {name: self._others(slot, indptr, columns)}
        key = ops.edge_key(self.spec.seed, epoch, step.layer)
        share = 1 - 1 / self.spec.negatives  # of false edges that are not drawn
        kind, own = self.kind[first:last, 0], self.ids[start:stop]
        indptr, columns, true = kernels.draw_pairs(
            indptr, columns, kind, TRAIN_PAIR, self.ids, own, share, key, self.setting.threads
        )
        return {name: self._others(slot, indptr, columns), TRUE: EdgeRows(indptr, true)}

    def _others(self, slot: PublishedSlot, indptr: Array, columns: Array) -> EdgeRows:
        """Returns the rows of these vertices, by pair. Each row is read once, however many pairs it is in."""
        chosen, index = numbered(columns, len(self.ids))
        return EdgeRows(indptr, slot.store.read(chosen), index)

    def types(self, start: int, stop: int) -> EdgeRows:
        """Returns the types of the pairs of the vertices ``start:stop``, uint8 [m, 1], in the order of their scores."""
        first, last, indptr = self._range(start, stop)
        return EdgeRows(indptr, self.kind[first:last])

    def _range(self, start: int, stop: int) -> tuple[int, int, Array]:
        indptr = np.asarray(self.edges.indptr[start : stop + 1])
        return int(indptr[0]), int(indptr[-1]), indptr - indptr[0]
