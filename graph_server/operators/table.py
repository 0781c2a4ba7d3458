"""The operators of one partition by name, and each lane's view of the partition (docs/adr/0043).

Steps of the loss have operators of their own: they gather only for vertices that count in a loss or an evaluation
(docs/adr/0038, 0040).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from graph_server import operators
from graph_server.backends import on_device
from graph_server.exchange import Bounds
from graph_server.lane_view import LaneView
from graph_server.operators import Operator, Setting
from graph_server.operators.pairs import Pairs
from siafu import views
from siafu.config import Config
from siafu.graph import TRAIN
from siafu.models import Model
from siafu.shards import EdgeTypes, Shard
from siafu.sparse import Array
from siafu.tasks import Lane, Program, Step


class OfLoss(NamedTuple):
    """The edges along which a lane's steps of the loss gather, and the rows that they read."""

    edges: Shard  # edges into vertices that count, of the vertices of ``seen``
    feeding: Array  # bool, by vertex of ``seen``: whether its row is read
    seen: LaneView  # the lane's view from now on


class OperatorTable:
    def __init__(
        self,
        config: Config,
        model: Model,
        shard: Shard,
        bounds: Bounds,
        edge_types: EdgeTypes,
        programs: Mapping[Lane, Program],
        lanes: Sequence[Lane],
        threads: int,
    ):
        """``edge_types``: the meaning of the shard's edge types; ``threads``: for one call of an operator."""
        self._config, self._model, self._shard, self._threads = config, model, shard, threads
        self._programs = {lane: programs[lane] for lane in lanes}
        self.one_view = edge_types != "inductive"  # whether both lanes gather along the same edges
        self.seen: dict[Lane, LaneView] = {}
        self.made: dict[tuple[Lane, str, bool], Operator] = {}  # by lane, name, and whether step.of_loss
        for lane in lanes:
            same = Lane.TRAIN in self.seen and self.one_view
            if same:
                self.seen[lane] = self.seen[Lane.TRAIN]
            else:
                self.seen[lane] = LaneView(views.view(shard, edge_types, lane), bounds)
            if edge_types == "inductive" and lane is Lane.TRAIN:
                trains = np.asarray(shard.split[:, config.data.split] == TRAIN)
                if views.share_of_loss(float(trains.mean()) if len(trains) else 1.0) < 1.0:
                    self.seen[lane] = self.seen[lane].among(trains)
            for name in self._names(lane):
                # Pairs use edges that no gather uses. Both lanes share one linear operator, because it holds the edges.
                known = self.made.get((Lane.TRAIN, name, False)) if same and name == "linear" else None
                along = shard if name == "pairs" else self.seen[lane].shard
                self.made[lane, name, False] = known or self._build(name, along, lane)

    def of(self, lane: Lane, step: Step) -> Operator:
        return self.made[lane, step.operator, step.of_loss]

    def read_along(self, lane: Lane, operator: str) -> Shard:
        """Returns the edges at whose other ends the lane's steps with this operator read rows; the shard itself: all
        edges."""
        if operator != "pairs":
            return self.seen[lane].shard
        pairs = self.made[lane, operator, False]
        assert isinstance(pairs, Pairs)
        return pairs.along(self._shard)

    def of_loss(self, lane: Lane, counts: Array) -> OfLoss | None:
        """Finds the edges of the lane's steps of the loss; None if it has no such steps. ``counts``: bool
        ``[n + ghosts backwards]``, whether each vertex counts. Takes seconds if there are many edges. Changes no
        state."""
        if not any(step.of_loss for step in self._programs[lane].steps):
            return None
        seen, n = self.seen[lane], len(self._shard.vertices)
        mine = np.asarray(seen.take(counts[:n]))
        if on_device(self._config):  # GPU memory is too scarce for a second copy of edges
            return OfLoss(seen.shard, np.ones(len(mine), bool), seen)
        edges = views.into_training(seen.shard, np.append(mine, counts[n:]))
        # Vertices that count, and vertices with an edge into one. If the view has all edges, every row with an edge is
        # included: the rows that are read are among them.
        feeding = mine | (np.diff(edges.out_edges.indptr) > 0)
        if self._programs[lane].of_loss and views.few(feeding):
            few = LaneView(edges, seen.bounds, seen.rows).among(feeding)
            return OfLoss(few.shard, np.ones(len(few.shard.vertices), bool), few)
        return OfLoss(edges, feeding, seen)

    def add(self, lane: Lane, found: OfLoss) -> None:
        """Makes the operators of the lane's steps of the loss. If the lane's view shrinks to the rows that feed them,
        all its steps are of the loss, and these operators replace the others."""
        every, self.seen[lane] = self.seen[lane], found.seen
        marked = {step.operator for step in self._programs[lane].steps if step.of_loss}
        for name in marked:
            known = self.made[lane, name, False]
            self.made[lane, name, True] = known if found.edges is every.shard else self._build(name, found.edges, lane)
        if found.seen is not every:
            self.made |= {(lane, name, False): self.made[lane, name, True] for name in marked}

    def _names(self, lane: Lane) -> set[str]:
        return {step.operator for step in self._programs[lane].steps}

    def _build(self, name: str, along: Shard, lane: Lane) -> Operator:
        return operators.build(name, Setting(self._config, self._model, along, lane, self._threads))
