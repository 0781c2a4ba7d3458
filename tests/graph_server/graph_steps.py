"""The graph steps of one server that owns a whole graph, by the real operators, without server or scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graph_data.cut import shards_of
from graph_server import operators
from graph_server.buffers import PublishedSlot
from graph_server.operators import Setting
from siafu.config import Config
from siafu.graph import Graph, tidy
from siafu.models import Model
from siafu.shards import Shard
from siafu.tasks import Kind, Lane, Step


def whole(graph: Graph) -> Shard:
    """One partition, in which vertices stand in their order."""
    (shard,) = shards_of(tidy(graph, graph.directed, "none"), [np.arange(graph.num_vertices)])
    return shard


class GraphSteps:
    """``bounds``: of the intervals; ``rows``: what an interval holds, by slot."""

    def __init__(
        self, graph: Graph, model: Model, lane: Lane, bounds: Sequence[int], options: Mapping[str, Any] | None = None
    ):
        shard, steps = whole(graph), model.program(lane).steps
        config = Config().replace({"model.dtype": model.spec.dtype, **(options or {})})
        setting = Setting(config, model, shard, lane, 1)
        self.intervals = list(pairwise(bounds))
        self.operators = {name: operators.build(name, setting) for name in {step.operator for step in steps}}
        places = {i: slice(*interval) for i, interval in enumerate(self.intervals)}
        self.published: dict[str, PublishedSlot] = {}
        for step in steps:
            if step.publishes:
                operator = self.operators[step.operator]
                store = operator.store(step, graph.num_vertices)
                self.published[step.publishes] = PublishedSlot(store, dict(places), scale=operator.scale(step))

    def run(self, step: Step, interval: int, epoch: int, rows: Mapping[str, Any]) -> dict[str, Any]:
        """The slots that a GA, an SC or a backward of theirs writes."""
        operator = self.operators[step.operator]
        if step.kind in (Kind.SC, Kind.SC_B):
            return operator.scatter(step, self.published[str(step.publishes)], interval, epoch, rows)
        slot, (start, stop) = self.published[str(step.gathers)], self.intervals[interval]
        return operator.gather(step, slot, start, stop, epoch, rows)

    def edge_rows(self, step: Step, interval: int, epoch: int, rows: Mapping[str, Any]) -> dict[str, Any]:
        """What an AE or AE' gets besides its own slots."""
        slot, (start, stop) = self.published[str(step.gathers)], self.intervals[interval]
        return dict(self.operators[step.operator].edge_rows(step, slot, start, stop, epoch, rows))
