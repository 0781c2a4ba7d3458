"""The operators of one partition: of every name in a lane's program, and apart from them those that only
vertices that count gather with (docs/adr/0038, 0040)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graph_server import operators
from graph_server.backends import on_device
from graph_server.operators import Operator, Setting
from graph_server.operators.pairs import Pairs
from siafu import views
from siafu.config import Config
from siafu.models import Model
from siafu.shards import EdgeTypes, Shard
from siafu.sparse import Array
from siafu.tasks import Lane, Program, Step


class OperatorTable:
    def __init__(
        self,
        config: Config,
        model: Model,
        shard: Shard,
        edge_types: EdgeTypes,
        programs: Mapping[Lane, Program],
        lanes: Sequence[Lane],
        threads: int,
    ):
        """``edge_types``: what the shard's stand for; ``threads``: that one call may use."""
        self._config, self._model, self._shard, self._threads = config, model, shard, threads
        self._steps = {lane: programs[lane].steps for lane in lanes}
        self.one_view = edge_types != "inductive"  # whether both lanes look along the same edges
        self.along: dict[Lane, Shard] = {}
        self.made: dict[tuple[Lane, str, bool], Operator] = {}  # by lane, name, and whether step.of_loss
        for lane in lanes:
            same = Lane.TRAIN in self.along and self.one_view
            self.along[lane] = self.along[Lane.TRAIN] if same else views.view(shard, edge_types, lane)
            for name in {step.operator for step in self._steps[lane]}:
                # Pairs are none of the edges that are gathered along. Of linear gathers both lanes share one operator:
                # it holds the edges.
                known = self.made.get((Lane.TRAIN, name, False)) if same and name == "linear" else None
                along = shard if name == "pairs" else self.along[lane]
                self.made[lane, name, False] = known or self._build(name, along, lane)

    def of(self, lane: Lane, step: Step) -> Operator:
        return self.made[lane, step.operator, step.of_loss]

    def read_along(self, lane: Lane, operator: str) -> Shard:
        """The edges at whose other ends the lane's steps with this operator read rows; the shard itself: all."""
        if operator != "pairs":
            return self.along[lane]
        pairs = self.made[lane, operator, False]
        assert isinstance(pairs, Pairs)
        return pairs.along(self._shard)

    def edges_of_loss(self, lane: Lane, counts: Array) -> Shard | None:
        """What the lane's marked steps gather along, None if it has none; ``counts``: bool ``[n + ghosts backwards]``,
        the vertices that count. Takes seconds where there are many edges, and changes nothing here."""
        if not any(step.of_loss for step in self._steps[lane]):
            return None
        every = self.along[lane]
        # A card's memory is too dear for edges a second time.
        return every if on_device(self._config) else views.into_training(every, counts)

    def add(self, lane: Lane, of_loss: Shard) -> None:
        """Makes the operators of the lane's marked steps, which look along these edges."""
        for name in {step.operator for step in self._steps[lane] if step.of_loss}:
            whole = of_loss is self.along[lane]
            known = self.made[lane, name, False]
            self.made[lane, name, True] = known if whole else self._build(name, of_loss, lane)

    def feeding(self, of_loss: Shard, counts: Array) -> Array:
        """The rows that marked gathers read, bool ``[n]``: vertices that count, and those with an edge into one.
        ``counts``: bool ``[n]``."""
        # Where the view has all edges, a row with any counts: those that are read are among them.
        return counts | (np.diff(of_loss.out_edges.indptr) > 0)

    def _build(self, name: str, along: Shard, lane: Lane) -> Operator:
        return operators.build(name, Setting(self._config, self._model, along, lane, self._threads))
