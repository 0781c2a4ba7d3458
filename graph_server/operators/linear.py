"""The weighted sum over in-edges, or backwards over out-edges, which most models use: ``graph_server.aggregate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_server.aggregate import Gather
from graph_server.buffers import PublishedSlot, Store, TableStore
from graph_server.operators import Operator, Setting
from siafu.sparse import Array
from siafu.tasks import Step


class Linear(Operator):
    def __init__(self, setting: Setting):
        super().__init__(setting)
        shard = setting.shard
        self.gathers = {False: self._made(backward=False)}
        symmetric = shard.undirected and self.model.aggregate != "mean"
        self.gathers[True] = self.gathers[False] if symmetric else self._made(backward=True)

    def _made(self, *, backward: bool) -> Gather:
        s = self.setting
        return Gather(s.shard, self.model.aggregate, backward=backward, dtype=s.dtype, threads=s.threads)

    def scale(self, step: Step) -> Array | None:
        return self.gathers[step.backward].source_scale

    def scatter(
        self, step: Step, slot: PublishedSlot, interval: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        values = np.asarray(rows[str(step.publishes)])
        slot.write(interval, epoch, values)
        return {name: values if step.own == 1.0 else values * values.dtype.type(step.own) for name in step.writes}

    def gather(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        own: Array | None = None  # [stop - start, F]
        for name in step.reads:
            values = np.asarray(rows[name])
            values = values if step.own == 1.0 else values * values.dtype.type(step.own)
            own = values if own is None else own + values
        (target,) = step.writes
        return {target: self.summed(step, slot.store, start, stop, own, step.factor)}

    def summed(self, step: Step, store: Store, start: int, stop: int, own: Array | None, factor: float) -> Array:
        """Returns ``own`` + factor times the sums over edges, [stop - start, F]."""
        assert isinstance(store, TableStore)
        return self.gathers[step.backward](start, stop, store.table, add=own, factor=factor)
