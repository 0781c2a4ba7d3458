"""A lane's view of a partition: the vertices that it computes with, their intervals, and the edges between them.

Most lanes see all vertices. A lane sees fewer if training is inductive, or if all its steps serve the loss
(``Program.of_loss``) and few rows feed it. It then holds these rows alone, without gaps: rows of zeros are neither
packed nor summed (docs/adr/0043).
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
    shard: Shard  # restricted to these vertices; without features if they are not all
    bounds: Bounds  # rows of each interval
    rows: Array | None = None  # int64, ascending: which of the partition's vertices these are; None: all

    def among(self, keep: Array) -> LaneView:
        """Returns the view of the vertices where ``keep``, bool ``[n]``, is true."""
        before = np.append(0, np.cumsum(keep))  # by row: how many of them stand before it
        bounds = [(int(before[start]), int(before[stop])) for start, stop in self.bounds]
        kept = np.flatnonzero(keep)
        rows = kept if self.rows is None else self.rows[kept]
        return LaneView(views.among(self.shard, keep), bounds, rows)

    def take(self, values: Rows) -> Rows:
        """Takes the values of this view's vertices out of those of all the partition's, ``[n, ...]``."""
        return values if self.rows is None else ops.take(values, self.rows)
