"""Which rows of ghosts travel, and along which edges an interval reads dropped ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.exchange import bounds_of
from graph_server.ghosts import Ghosts
from siafu.errors import RemoteProtocolError
from siafu.graph import NONE, TEST, TRAIN, VAL
from siafu.shards import Edges, Shard
from siafu.sparse import Array, EdgeRows
from siafu.tasks import Lane
from siafu.wire import ConstantRows, GhostMap
from tests.graph_data.graphs import random_graph

INTERVALS, EPOCH = 3, 5


def split_of(shard: Shard) -> Array:
    return np.asarray(shard.split[:, 0])


def edges_to(edges: Edges, bounds: list[tuple[int, int]], interval: int) -> list[int]:
    """How many of the interval's edges come from each one."""
    start, stop = bounds[interval]
    columns = np.asarray(edges.indices[edges.indptr[start] : edges.indptr[stop]])
    return [int(((columns >= low) & (columns < high)).sum()) for low, high in bounds]


def neighbours(edges: Edges, row: int) -> Array:
    return np.asarray(edges.indices[edges.indptr[row] : edges.indptr[row + 1]])


def test_only_rows_of_the_features_width_are_features(tmp_path: Path):
    shard = prepare(random_graph(n=40), tmp_path / "shards", parts=2).partition(0)
    ghosts = Ghosts(shard, [0], bounds_of(len(shard.vertices), 1), split_of(shard), wants_features=True)
    width = shard.features.shape[1]
    rows = np.ones((3, width), np.float32)
    edges = EdgeRows(np.arange(4), rows)
    for wrong in ({}, {"labels": rows}, {"features": rows[:, 1:]}, {"features": edges}):
        with pytest.raises(RemoteProtocolError, match=f"graph_server 1: no features of {width} columns"):
            ghosts.add_features(ConstantRows(1, 1, wrong))
    ghosts.add_features(ConstantRows(1, 1, {"features": rows}))


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("directed", [False, True])
def test_where_only_vertices_that_count_gather_no_other_rows_travel(tmp_path: Path, directed: bool, lane: Lane):
    """In training those that train, in evaluation those with a role."""
    roles = (TRAIN,) if lane is Lane.TRAIN else (TRAIN, VAL, TEST)
    graph = random_graph(seed=1, n=60, edges=300)
    few = np.where(np.arange(60)[:, None] % 2 == 0, graph.split, NONE).astype(np.uint8)  # else nearly all are judged
    shards = prepare(replace(graph, split=few), tmp_path / "shards", parts=2, directed=directed)
    both = [shards.partition(p) for p in range(2)]
    bounds = [bounds_of(len(shard.vertices), 2) for shard in both]
    here, there = (
        Ghosts(shard, [2 * p, 2 * p + 1], bounds[p], split_of(shard), wants_features=False)
        for p, shard in enumerate(both)
    )
    for sender, receiver in ((here, there), (there, here)):
        for send in sender.greet():
            assert isinstance(send.message, GhostMap)
            receiver.add_map(send.message)
    for one in (here, there):
        one.map_loss(lane)
    shard = both[0]
    split = {int(v): int(role) for one in both for v, role in zip(one.vertices, one.split[:, 0], strict=True)}
    counted = here.counts(lane)[len(shard.vertices) :]
    assert [split[int(v)] in roles for v in shard.ghosts_out] == counted.tolist()
    table = np.append(shard.vertices, shard.ghosts_out)  # what stands in a row of the base array
    travelled = 0
    for local in range(2):
        rows = there.rows_for(0, local, backward=True, of_loss=lane)
        every = there.rows_for(0, local, backward=True, of_loss=None)
        assert rows is not None
        assert every is not None
        sent = both[1].vertices[rows]
        assert sent.tolist() == [v for v in both[1].vertices[every] if split[int(v)] in roles]
        assert table[here.places(backward=True, of_loss=lane)[2 + local]].tolist() == sent.tolist()
        travelled += len(rows)
    assert 0 < travelled < len(shard.ghosts_out)
    table, travelled = np.append(shard.vertices, shard.ghosts_in), 0
    into = {
        int(table[c])
        for v in np.flatnonzero(here.counts(lane)[: len(shard.vertices)])
        for c in neighbours(shard.in_edges, v)
    }
    for local in range(2):
        rows = there.rows_for(0, local, backward=False, of_loss=lane)
        every = there.rows_for(0, local, backward=False, of_loss=None)
        if rows is None or every is None:
            assert rows is every
            continue
        sent = both[1].vertices[rows]
        assert sent.tolist() == [v for v in both[1].vertices[every] if int(v) in into]
        assert table[here.places(backward=False, of_loss=lane)[2 + local]].tolist() == sent.tolist()
        travelled += len(rows)
    assert 0 < travelled < len(shard.ghosts_in)


def test_a_map_with_fewer_roles_than_vertices_is_refused(tmp_path: Path):
    shard = prepare(random_graph(n=40), tmp_path / "shards", parts=2).partition(0)
    ghosts = Ghosts(shard, [0], bounds_of(len(shard.vertices), 1), split_of(shard), wants_features=True)
    vertices = np.asarray(shard.ghosts_out[:2], np.int64)
    with pytest.raises(RemoteProtocolError, match="graph_server 1: 1 roles of 2 vertices"):
        ghosts.add_map(GhostMap(1, True, 1, False, vertices, np.ones(1, np.uint8)))
