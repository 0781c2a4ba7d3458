"""What a gather reads does not change while it runs, whatever arrives and whoever scatters meanwhile (docs/adr/0033).

In ``tests.fleet`` a computation begins in one event and is carried out in a later one: between the two, anything may
happen that pool threads and the server's thread may do beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.buffers import PublishedSlot
from graph_server.operators.attention import Attention
from graph_server.operators.linear import Linear
from graph_server.partition import Partition
from siafu.config import Config
from siafu.shards import ShardSet
from siafu.sparse import Array
from siafu.tasks import Step, TaskId
from tests.fleet import Fleet
from tests.toy_graphs import random_graph

SETTINGS: dict[str, Any] = {
    "data.parts": 2,
    "data.directed": True,
    "model.hidden": 4,
    "model.dropout": 0.0,
    "model.dtype": "float64",
    "train.epochs": 4,
    "train.intervals": 3,
    "train.mode": "async",
    "train.freshness": 0.0,
    "train.staleness": 1,
    "train.ahead": 1.0,
    "servers.backend": "cpu",
}


GAT = {"model.name": "gat", "model.heads": 2, "model.out_heads": 2}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    folder: Path = tmp_path_factory.mktemp("graph") / "shards"
    return prepare(random_graph(1), folder, parts=2, partitioner="random", order="random", directed=True)


class Watched:
    """Rows as they were when a gather began, compared with those that it finds."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.changed: list[str] = []
        self.seen: Counter[str] = Counter()
        self._before: dict[tuple[int, int, int, int], list[tuple[Any, Array]]] = {}
        begun = Partition._note_staleness

        def begin(partition: Partition, task: TaskId, step: Step, slot: PublishedSlot) -> None:
            local = task.interval - partition.intervals[0]
            read = [*partition._sources[step.backward][local].tolist(), task.interval]
            rows = [(slot.places[interval], slot.store.read(slot.places[interval])) for interval in read]
            self._before[self._key(step, slot, partition._bounds(task)[0], task.epoch)] = rows
            begun(partition, task, step, slot)

        patch.setattr(Partition, "_note_staleness", begin)
        for operator, name in (Linear, "gather"), (Attention, "gather"), (Attention, "edge_rows"):
            patch.setattr(operator, name, self._reads(name, getattr(operator, name)))

    def _reads(self, name: str, of: Callable[..., Any]) -> Callable[..., Any]:
        def reads(operator: Any, step: Step, slot: PublishedSlot, start: int, stop: int, epoch: int, *more: Any) -> Any:
            self.seen[name] += 1
            for place, rows in self._before.pop(self._key(step, slot, start, epoch)):
                if not np.array_equal(slot.store.read(place), rows):
                    self.changed.append(f"{step.name} of rows from {start}, epoch {epoch}")
            return of(operator, step, slot, start, stop, epoch, *more)

        return reads

    @staticmethod
    def _key(step: Step, slot: PublishedSlot, start: int, epoch: int) -> tuple[int, int, int, int]:
        return id(step), id(slot), start, epoch


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"train.freshness": 0.9},
        {"train.staleness": 0},
        {**GAT},
        {**GAT, "lambda.apply_edge": "lambda", "servers.backend": "lambda"},
    ],
    ids=str,
)
def test_rows_do_not_change_while_a_gather_reads_them(
    shards: ShardSet, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    for seed in range(6):
        run = Fleet(Config().replace({**SETTINGS, **options}), shards, seed, num_threads=3)
        assert len(run.train()["loss_history"]) == 4
        assert not any(partition._held for partition in run.partitions)
    assert watched.seen["gather"] > 200
    assert watched.seen["edge_rows"] > 0 or "lambda.apply_edge" not in options
    assert watched.changed == []
