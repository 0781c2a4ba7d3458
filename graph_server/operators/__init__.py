"""Operators of graph steps: how an interval publishes rows, and computes from the rows of its neighbours.

To add one: a subclass of ``Operator`` in ``graph_server/operators/<name>.py``, its line in ``OPERATORS``, and its name
in ``siafu.tasks.Operator``. An operator belongs to one partition and one view of its edges (``siafu.views``). It has no
mutable state, since pool threads call its methods at the same time. Rows that change from epoch to epoch belong to the
``PublishedSlot``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_server.backends import on_device
from graph_server.buffers import PublishedSlot, Store, TableStore
from siafu.config import Config
from siafu.models import Model
from siafu.shards import Shard
from siafu.sparse import Array, TaskRows
from siafu.table import loaded
from siafu.tasks import Lane, Step

OPERATORS = {
    "attention": "graph_server.operators.attention:Attention",
    "linear": "graph_server.operators.linear:Linear",
    "pairs": "graph_server.operators.pairs:Pairs",
    "typed": "graph_server.operators.typed:Typed",
}


@dataclass(frozen=True)
class Setting:
    """The arguments of an operator's constructor."""

    config: Config
    model: Model
    shard: Shard  # with the edges that the operator gathers along
    lane: Lane
    threads: int  # for one call

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.config.model.dtype)

    @property
    def storage(self) -> str:
        """The storage type of rows that are gathered: "float32", "float64" or "bfloat16"."""
        return "bfloat16" if self.config.model.rows == "bfloat16" else self.dtype.name


class Operator:
    """Base class of operators: defaults, and the methods that each must implement. Argument ``rows``: the slots in
    ``step.reads`` and the interval's constants, by name."""

    def __init__(self, setting: Setting):
        self.setting, self.model = setting, setting.model

    def store(self, step: Step, num_rows: int) -> Store:
        """Makes the store of the rows that the Scatter ``step`` publishes: of inner vertices, then ghosts."""
        setting, width = self.setting, self.model.width(str(step.publishes))
        edges = setting.shard.out_edges if step.backward else setting.shard.in_edges
        return TableStore(num_rows, width, setting.storage, setting.threads, edges.per_row)

    def scale(self, step: Step) -> Array | None:
        """Returns the factors by which rows of that store are multiplied when written, ``[num_rows]``; None: no
        factors."""
        return None

    def scatter(
        self, step: Step, slot: PublishedSlot, interval: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Writes the interval's rows into the slot; returns the slots in ``step.writes``."""
        raise NotImplementedError

    def gather(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, Array]:
        """Computes the slots in ``step.writes`` for the vertices ``start:stop``. Programs never call it for pairs,
        which are scored one by one."""
        raise NotImplementedError

    def edge_rows(
        self, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, rows: Mapping[str, Any]
    ) -> dict[str, TaskRows]:
        """AE, AE': returns the tensor task's inputs besides ``step.reads``: the published rows that its edges need.
        Programs call it for attention and pairs alone: sums have no ApplyEdge."""
        raise NotImplementedError


def build(name: str, setting: Setting) -> Operator:
    operator: Operator = loaded({**OPERATORS, **on_device(setting.config)}[name])(setting)
    return operator
