"""A lane's view of a partition: the vertices that it computes with, their intervals, and the edges between them.

Most lanes see all vertices. Where training is inductive, or a program is of the loss alone (``Program.of_loss``) and
few rows feed it, a lane holds those rows alone, side by side: no row of zeros is packed or summed (docs/adr/0043).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_server.exchange import Bounds
from siafu import ops, views
from siafu.shards import Shard
from siafu.sparse import Array, Rows


@dataclass(frozen=True)
class LaneView:
    shard: Shard  # of these vertices; of some alone, without features
    bounds: Bounds  # rows of each interval
    rows: Array | None = None  # int64, ascending: which of the partition's vertices these are; None: all

    def among(self, keep: Array) -> LaneView:
        """What is seen of the vertices for which ``keep``, bool ``[n]``, says so."""
        before = np.append(0, np.cumsum(keep))  # by row: how many of them stand before it
        bounds = [(int(before[start]), int(before[stop])) for start, stop in self.bounds]
        kept = np.flatnonzero(keep)
        rows = kept if self.rows is None else self.rows[kept]
        return LaneView(views.among(self.shard, keep), bounds, rows)

    def take(self, values: Rows) -> Rows:
        """Of values of all the partition's vertices ``[n, ...]``, theirs."""
        return values if self.rows is None else ops.take(values, self.rows)
