"""Which rows of ghosts travel, and along which edges an interval reads dropped ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.exchange import bounds_of
from graph_server.ghosts import Ghosts
from graph_server.lane_view import LaneView
from siafu import views
from siafu.errors import RemoteProtocolError
from siafu.graph import NONE, TEST, TRAIN, VAL
from siafu.shards import Edges, Shard, ShardSet
from siafu.sparse import Array, EdgeRows
from siafu.tasks import Kind, Lane, Step
from siafu.wire import ConstantRows, GhostMap
from tests.graph_data.graphs import random_graph

INTERVALS, EPOCH = 3, 5

WAYS = ("in_edges", "out_edges")


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


def fleet_of(shards: ShardSet) -> list[Ghosts]:
    """Of every server, after all have heard from all."""
    per_server = 2
    every = [
        Ghosts(
            shard,
            [per_server * p, per_server * p + 1],
            bounds_of(len(shard.vertices), per_server),
            split_of(shard),
            wants_features=False,
        )
        for p, shard in enumerate(map(shards.partition, range(shards.manifest.num_partitions)))
    ]
    for sender in every:
        for send in sender.greet():
            assert isinstance(send.message, GhostMap)
            every[send.to.index].add_map(send.message)
    return every


def sent(sender: Ghosts, receiver: Ghosts, lane: Lane, step: Step, along: list[Shard]) -> tuple[list[int], int]:
    """The vertices whose rows of a Scatter one server sends another, which puts each where it belongs; and how many it
    would send along all edges."""
    one, other = sender.shard, receiver.shard
    sender.map_reads(lane, step, along[one.index], LaneView(one, sender.bounds))
    places = receiver.map_reads(lane, step, along[other.index], LaneView(other, receiver.bounds))
    table = np.append(other.vertices, other.ghosts_out if step.backward else other.ghosts_in)
    found: list[int] = []
    every = 0
    for local, interval in enumerate(sender.intervals):
        rows = sender.rows_for(other.index, local, lane, step)
        every += len(sender.needed[step.backward][other.index][local])
        if rows is None:
            assert interval not in places
            continue
        assert table[places[interval]].tolist() == one.vertices[rows].tolist()
        found += one.vertices[rows].tolist()
    return found, every


def read_by_hand(along: list[Shard], me: int, backward: bool, counted: set[int] | None) -> set[int]:
    """Forward the sources of edges into one of these vertices; backward the targets, if they are among these."""
    shard, found = along[me], set()
    edges, ghosts = (shard.out_edges, shard.ghosts_out) if backward else (shard.in_edges, shard.ghosts_in)
    table = np.append(shard.vertices, ghosts)
    for row, v in enumerate(shard.vertices.tolist()):
        for other in table[neighbours(edges, row)].tolist():
            if counted is None or (other if backward else v) in counted:
                found.add(other)
    return found - set(shard.vertices.tolist())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("of_loss", [False, True])
@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["all", "inductive", "links"])
def test_rows_travel_to_those_who_read_them(tmp_path: Path, kind: str, directed: bool, lane: Lane, of_loss: bool):
    """Along the edges of the lane; of the loss, where vertices that count alone gather: in training those that train,
    in evaluation those with a role. Both ends agree, in both directions."""
    roles = (TRAIN,) if lane is Lane.TRAIN else (TRAIN, VAL, TEST)
    graph = random_graph(seed=1, n=90, edges=300)
    few = np.where(np.arange(90)[:, None] % 2 == 0, graph.split, NONE).astype(np.uint8)  # else nearly all are judged
    more: dict[str, Any] = {"task": "link", "negatives": 2, "eval_negatives": 2} if kind == "links" else {}
    more |= {"directed": directed and kind != "links"} | ({"inductive": 0} if kind == "inductive" else {})
    shards = prepare(replace(graph, split=few), tmp_path / "shards", parts=3, **more)
    every = fleet_of(shards)
    whole = [one.shard for one in every]
    views_of = {"linear": [views.view(shard, shards.manifest.edge_types, lane) for shard in whole]}
    if kind == "links":
        views_of["pairs"] = [
            replace(shard, **{way: views.of_types(getattr(shard, way), views.PAIRS[lane]) for way in WAYS})
            for shard in whole
        ]
    split = {int(v): int(role) for shard in whole for v, role in zip(shard.vertices, split_of(shard), strict=True)}
    counted = {v for v, role in split.items() if role in roles} if of_loss else None
    for one in every:
        mine = [split[int(v)] in roles for v in one.shard.ghosts_out]
        assert one.counts(lane)[len(one.shard.vertices) :].tolist() == mine
    for operator, along in views_of.items():
        for step in (Step(k, 1, operator=operator, of_loss=of_loss) for k in (Kind.SC, Kind.SC_B)):
            travelled = possible = 0
            for receiver in every:
                got: list[int] = []
                for sender in every:
                    if sender is not receiver:
                        found, most = sent(sender, receiver, lane, step, along)
                        got, possible = got + found, possible + most
                travelled += len(got)
                assert len(got) == len(set(got))
                assert set(got) == read_by_hand(along, receiver.shard.index, step.backward, counted)
            cut = of_loss or kind == "links" or (kind == "inductive" and lane is Lane.TRAIN)
            assert 0 < travelled <= possible
            assert operator == "pairs" or (travelled < possible) == cut  # false pairs lead nearly everywhere


def test_a_map_with_fewer_roles_than_vertices_is_refused(tmp_path: Path):
    shard = prepare(random_graph(n=40), tmp_path / "shards", parts=2).partition(0)
    ghosts = Ghosts(shard, [0], bounds_of(len(shard.vertices), 1), split_of(shard), wants_features=True)
    vertices = np.asarray(shard.ghosts_out[:2], np.int64)
    with pytest.raises(RemoteProtocolError, match="graph_server 1: 1 roles of 2 vertices"):
        ghosts.add_map(GhostMap(1, True, 1, False, vertices, np.ones(1, np.uint8)))
