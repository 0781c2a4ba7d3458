"""Along which edges an interval reads dropped rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.exchange import bounds_of
from graph_server.ghosts import Ghosts
from siafu import views
from siafu.errors import RemoteProtocolError
from siafu.shards import Edges
from siafu.sparse import EdgeRows
from siafu.tasks import Lane
from siafu.wire import ConstantRows
from tests.graph_data.graphs import random_graph

INTERVALS, EPOCH = 3, 5


def edges_to(edges: Edges, bounds: list[tuple[int, int]], interval: int) -> list[int]:
    """How many of the interval's edges come from each one."""
    start, stop = bounds[interval]
    columns = np.asarray(edges.indices[edges.indptr[start] : edges.indptr[stop]])
    return [int(((columns >= low) & (columns < high)).sum()) for low, high in bounds]


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("inductive", [False, True])
def test_dropped_rows_are_made_up_for_along_the_edges_that_training_sees(tmp_path: Path, inductive: bool, loops: bool):
    how = {"inductive": 0} if inductive else {}
    shards = prepare(random_graph(n=80), tmp_path / "shards", parts=1, **how)
    shard = shards.partition(0)
    bounds = bounds_of(len(shard.vertices), INTERVALS)
    view = views.view(shard, shards.manifest.edge_types, Lane.TRAIN)
    if inductive:
        assert 0 < len(view.out_edges.indices) < len(shard.out_edges.indices)
    ghosts = Ghosts(shard, list(range(INTERVALS)), bounds, wants_features=False)
    reading = ghosts.reading(view, loops=loops)
    for interval, (start, stop) in enumerate(bounds):
        edges = edges_to(view.out_edges, bounds, interval)
        edges[interval] += loops * (stop - start)
        for fresh in ([0], [0, 2], [1, 2], [0, 1, 2]):
            epoch_of = np.full(INTERVALS, EPOCH - 1)
            epoch_of[fresh] = EPOCH
            there = sum(edges[source] for source in fresh)
            assert reading[interval].share(epoch_of, EPOCH) == sum(edges) / max(there, 1)


def test_only_rows_of_the_features_width_are_features(tmp_path: Path):
    shard = prepare(random_graph(n=40), tmp_path / "shards", parts=2).partition(0)
    ghosts = Ghosts(shard, [0], bounds_of(len(shard.vertices), 1), wants_features=True)
    width = shard.features.shape[1]
    rows = np.ones((3, width), np.float32)
    edges = EdgeRows(np.arange(4), rows)
    for wrong in ({}, {"labels": rows}, {"features": rows[:, 1:]}, {"features": edges}):
        with pytest.raises(RemoteProtocolError, match=f"graph_server 1: no features of {width} columns"):
            ghosts.add_features(ConstantRows(1, 1, wrong))
    ghosts.add_features(ConstantRows(1, 1, {"features": rows}))
