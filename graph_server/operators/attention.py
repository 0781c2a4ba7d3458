"""GAT's attention over in-edges, on ``siafu.kernels.attention``: no array has a row per edge, unless ApplyEdge is a
tensor task.

Slots come in the order of the formulas there, and hold rows of the interval's own vertices. K: heads, D: their width.

    SC   (T, s)                                             publishes T, with s beside
    GA   (t) -> (Z[, leaned, log_total, leaned_total])      the last three while training
    SC'  (dZ, Z, leaned, log_total, leaned_total, t) -> (dt)    publishes dZ, with t, log_total and delta beside
    GA'  (T, s) -> (dT, ds)

With ApplyEdge as a tensor task (E: ``EdgeRows``; each row begins with the edge to
itself), ``siafu.kernels.coefficients``:

    AE   (t) + E of s -> (E of alpha, log_total)            GA   (E of alpha, log_total) -> (Z[, leaned, leaned_total])
    GA'  (T) -> (E of products)                             m <T_u, dZ_v>: rows never leave
    AE'  (s, E of products) + E of t, log_total, delta -> (E of alpha, ds)
    GA'  (E of alpha) -> (dT)

The rows sent to an edge task have the edges' weights as their last column, if the edges have weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_server.buffers import Index, PublishedSlot, Store
from graph_server.operators import Operator, Setting
from siafu import kernels, ops
from siafu.kernels import Attended, EdgeDropout, Records
from siafu.ops import BFLOAT16
from siafu.shards import Edges
from siafu.sparse import Array, EdgeRows, TaskRows
from siafu.tasks import Lane, Step, is_of_edges

SCORES = np.dtype("<f4")  # beside rows of 16 bits, as they travel: two columns each
FORWARD, BACKWARD = 1, 3  # scores beside T: s; beside dZ: t, log_total and delta
LOG_TOTAL = 1  # of those beside dZ


class RecordStore:
    """``Records`` as one array: the columns of the rows, then those of each score."""

    def __init__(self, records: Records):
        self.records = records
        self._num_scores = records.num_scores * records.heads
        self._bits16 = records.dtype == "bfloat16"

    @property
    def travelling(self) -> tuple[int, np.dtype[Any]]:
        if self._bits16:
            return self.records.columns + 2 * self._num_scores, BFLOAT16
        return self.records.columns + self._num_scores, self.records.real

    def write(self, place: Index, *columns: Array, scale: Array | None = None) -> None:
        assert scale is None, "what is gathered by attention is not scaled"
        self.records.write(place, *columns)

    def read(self, place: Index) -> Array:
        return np.concatenate([ops.real(self.records.memory[place], self.records.real), self._scores(place)], axis=1)

    def cut(self, place: Index) -> Array:
        if not self._bits16:
            return self.read(place)
        scores = np.ascontiguousarray(self._scores(place), SCORES).view(BFLOAT16)
        return np.concatenate([self.records.memory[place], scores], axis=1)

    def paste(self, place: Index, rows: Array) -> None:
        columns = self.records.columns
        scores = rows[:, columns:]
        if self._bits16:
            scores = np.ascontiguousarray(scores).view(SCORES)
        self.records.memory[place] = rows[:, :columns]
        self.records.scores[place] = scores.reshape(len(scores), self.records.num_scores, self.records.heads)

    def _scores(self, place: Index) -> Array:
        scores = self.records.scores[place]
        return scores.reshape(len(scores), self._num_scores)


class Attention(Operator):
    def __init__(self, setting: Setting):
        super().__init__(setting)
        self.spec = self.model.spec
        shard = setting.shard
        self.edges = {False: shard.in_edges, True: shard.out_edges}
        self._ids: dict[bool, Array] = {}  # global ids of inner vertices and ghosts, where coefficients are dropped
        if self.spec.attn_dropout and setting.lane is Lane.TRAIN:
            self._ids[False] = _ids(shard.vertices, shard.ghosts_in)
            self._ids[True] = self._ids[False] if shard.undirected else _ids(shard.vertices, shard.ghosts_out)

    # --- publishing ---------------------------------------------------------------------------------------------------

    def store(self, step: Step, num_rows: int) -> Store:
        heads, num_scores = self.model.width(step.reads[-1]), BACKWARD if step.backward else FORWARD
        width = self.model.width(str(step.publishes)) // heads
        storage: Any = self.setting.storage
        records = Records(num_rows, heads, width, num_scores=num_scores, dtype=storage)
        if step.of_loss and step.backward:  # rows of ghosts that do not train never arrive
            records.scores[:, LOG_TOTAL] = np.inf
        return RecordStore(records)

    def scatter(
        self, step: Step, slot: PublishedSlot, interval: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        if not step.backward:
            slot.write(interval, epoch, *(np.asarray(rows[name]) for name in step.reads))
            return {}
        dZ, Z, leaned, log_total, leaned_total, t = (np.asarray(rows[name]) for name in step.reads)
        dt, delta = kernels.target_gradient(Attended(Z, log_total, leaned, leaned_total), dZ)
        slot.write(interval, epoch, dZ, t, log_total, delta)
        (target,) = step.writes
        return {target: dt}

    # --- gathering ----------------------------------------------------------------------------------------------------

    def gather(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Any]:
        place = self.edges[step.backward], start, stop
        own, records, how = [rows[name] for name in step.reads], _records(slot), self._how(step, epoch)
        if not step.backward:
            return self._attended(step, place, own, records, how)
        if is_of_edges(step.writes[0]):
            products = kernels.edge_dot(*place, own[0], records, **how)
            return {step.writes[0]: EdgeRows(kernels.segments(*place, add_self=True), products)}
        made: tuple[Array, ...]
        if is_of_edges(step.reads[0]):
            made = (kernels.rows_gradient(*place, records, own[0].values, **how),)
        else:
            made = kernels.attend_backward(*place, records, *own, slope=self.spec.slope, **how)
        return dict(zip(step.writes, made, strict=True))

    def _attended(
        self, step: Step, place: tuple[Edges, int, int], own: list[Any], records: Records, how: dict[str, Any]
    ) -> dict[str, Array]:
        training, slope = len(step.writes) > 1, self.spec.slope
        kept: tuple[Array, ...]
        if is_of_edges(step.reads[0]):
            alpha, log_total = own
            made = kernels.attend_given(*place, records, alpha.values, log_total, slope=slope, training=training, **how)
            kept = (made.leaned, made.leaned_total)
        else:
            made = kernels.attend(*place, records, own[0], slope=slope, training=training, **how)
            kept = (made.leaned, made.log_total, made.leaned_total)
        return dict(zip(step.writes, (made.Z, *kept[: 3 * training]), strict=True))

    def _how(self, step: Step, epoch: int) -> dict[str, Any]:
        dropout = None
        if self._ids:
            key = ops.edge_key(self.spec.seed, epoch, step.layer)
            dropout = EdgeDropout(self.spec.attn_dropout, key, self._ids[step.backward])
        return {"add_self": True, "dropout": dropout, "threads": self.setting.threads}

    # --- what ApplyEdge is sent ---------------------------------------------------------------------------------------

    def edge_rows(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, TaskRows]:
        """Returns the scores stored beside the rows of ``step.gathers``, edge by edge, as slot E of that name."""
        edges = self.edges[step.backward]
        scores = kernels.edge_scores(edges, start, stop, _records(slot), add_self=True)
        if edges.weight is not None:
            scores = np.concatenate([scores, _weights(edges, start, stop)[:, None].astype(scores.dtype)], axis=1)
        return {f"E{step.gathers}": EdgeRows(kernels.segments(edges, start, stop, add_self=True), scores)}


def _records(slot: PublishedSlot) -> Records:
    assert isinstance(slot.store, RecordStore)
    return slot.store.records


def _weights(edges: Edges, start: int, stop: int) -> Array:
    """Returns the weights of the rows' edges; each row begins with 1, for the edge to itself."""
    assert edges.weight is not None
    first, last = int(edges.indptr[start]), int(edges.indptr[stop])
    return np.insert(np.asarray(edges.weight[first:last]), np.asarray(edges.indptr[start:stop]) - first, 1)


def _ids(vertices: Array, ghosts: Array) -> Array:
    return np.concatenate([vertices, ghosts]).astype(np.int64, copy=False)
