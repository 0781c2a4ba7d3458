"""Adds up the evaluation of a partition, interval by interval; reports an epoch when all intervals are in. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_server.lane_view import LaneView
from graph_server.operators.pairs import Pairs
from siafu.metrics import METRICS
from siafu.shards import Shard
from siafu.sparse import Array, TaskRows
from siafu.wire import EvalReport


class Evaluation:
    def __init__(self, shard: Shard, split: Array, target: str, intervals: Sequence[int]):
        """split: uint8 ``[n]``, the roles of the partition's vertices; target: the kind of target, a key of METRICS."""
        self.shard, self.metric, self.intervals = shard, METRICS[target], intervals
        # All mutable state:
        self.labels, self.split = shard.labels, split
        self._tallies: dict[int, dict[int, Array]] = {}  # evaluated epoch -> interval -> its tally

    def judge(self, view: LaneView) -> None:
        """Restricts the evaluation to the vertices of ``view``: later outputs are of these alone."""
        self.labels, self.split = np.asarray(view.take(self.labels)), np.asarray(view.take(self.split))

    def tally(self, outputs: TaskRows, start: int, stop: int, pairs: Pairs | None) -> Array:
        """Scores the outputs of rows ``start:stop`` against the labels, or against the types of ``pairs``. Changes no
        state."""
        labels = np.asarray(self.labels[start:stop]) if pairs is None else pairs.types(start, stop)
        return self.metric.tally(outputs, labels, self.split[start:stop])

    def add(self, epoch: int, interval: int, tally: Array) -> EvalReport | None:
        """Adds an interval's tally; returns the epoch's report once the tallies of all intervals are in."""
        mine = self._tallies.setdefault(epoch, {})
        mine[interval] = tally
        if len(mine) < len(self.intervals):
            return None
        del self._tallies[epoch]
        return EvalReport(self.shard.index, epoch, self.metric.merge([mine[one] for one in self.intervals]))
