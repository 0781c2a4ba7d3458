"""Who needs what is compared with the edges of the whole graph, read one by one."""

from __future__ import annotations

import numpy as np
import pytest

from graph_server.exchange import Bounds, GhostPlaces, bounds_of, needed_rows
from siafu.errors import RemoteProtocolError
from siafu.shards import Shard
from siafu.sparse import Array
from tests.graph_server.shards import base_vertices, cut
from tests.toy_graphs import random_graph

K = 3  # intervals per server

#: (seed, directed, parts, backward)
CASES = [(s, d, p, b) for s in range(3) for d in (True, False) for p in (1, 2, 3, 4) for b in (False, True)]
cases = pytest.mark.parametrize(("seed", "directed", "parts", "backward"), CASES)


def bounds(shard: Shard) -> Bounds:
    return bounds_of(len(shard.vertices), K)


def plans(shards: list[Shard], backward: bool) -> list[dict[int, list[Array]]]:
    return [needed_rows(shard, bounds(shard), backward=backward) for shard in shards]


def places(shards: list[Shard], me: int, backward: bool) -> GhostPlaces:
    """Where the rows stand at server ``me``, after every peer has told it what it will send."""
    made = GhostPlaces(shards[me], me * K, bounds(shards[me]), backward=backward)
    for peer, plan in enumerate(plans(shards, backward)):
        if peer != me:
            for i, ((start, _), rows) in enumerate(zip(bounds(shards[peer]), plan[me], strict=True)):
                made.add(peer, peer * K + i, shards[peer].vertices[start + rows])
    return made


# --- intervals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_rows", "num_intervals"), [(10, 1), (10, 3), (3, 3), (2, 5), (0, 4), (1000, 7)])
def test_intervals_are_a_cut_of_the_rows_into_equal_slices(num_rows: int, num_intervals: int):
    made = bounds_of(num_rows, num_intervals)
    assert len(made) == num_intervals
    assert [row for start, stop in made for row in range(start, stop)] == list(range(num_rows))
    sizes = [stop - start for start, stop in made]
    assert max(sizes) - min(sizes) <= 1


# --- who needs what ---------------------------------------------------------------------------------------------------


@cases
def test_a_peer_needs_what_its_edges_reach(seed: int, directed: bool, parts: int, backward: bool):
    graph = random_graph(seed, directed=directed)
    shards = cut(graph, parts, seed)
    owner = {int(v): p for p, shard in enumerate(shards) for v in shard.vertices}
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    # forward a peer gathers the sources of edges into it; backward the targets of edges out of it
    needed = {(owner[v], u) for u, v in edges} if not backward else {(owner[u], v) for u, v in edges}
    for p, (shard, plan) in enumerate(zip(shards, plans(shards, backward), strict=True)):
        assert set(plan) == set(range(parts)) - {p}
        for peer, by_interval in plan.items():
            for (start, stop), rows in zip(bounds(shard), by_interval, strict=True):
                mine = shard.vertices[start:stop]
                assert rows.tolist() == [i for i, v in enumerate(mine.tolist()) if (peer, v) in needed]


@cases
def test_every_ghost_stands_in_one_place(seed: int, directed: bool, parts: int, backward: bool):
    shards = cut(random_graph(seed, directed=directed), parts, seed)
    interval_of = {
        int(v): p * K + i
        for p, shard in enumerate(shards)
        for i, (start, stop) in enumerate(bounds(shard))
        for v in shard.vertices[start:stop]
    }
    for me, shard in enumerate(shards):
        made = places(shards, me, backward)
        vertices = base_vertices(shard, backward=backward)
        covered = np.concatenate([np.arange(len(vertices))[place] for place in made.places.values()])
        assert sorted(covered.tolist()) == list(range(len(vertices)))
        assert made.interval_of_row().tolist() == [interval_of[v] for v in vertices.tolist()]


@cases
def test_rows_that_are_sent_arrive_at_their_vertices(seed: int, directed: bool, parts: int, backward: bool):
    shards = cut(random_graph(seed, directed=directed), parts, seed)
    for me, shard in enumerate(shards):
        base = np.full(len(base_vertices(shard, backward=backward)), -1)
        made = places(shards, me, backward)
        for peer, plan in enumerate(plans(shards, backward)):
            for i, (start, stop) in enumerate(bounds(shards[peer])):
                values = shards[peer].vertices[start:stop]  # every row holds the number of its vertex
                if peer == me:
                    base[made.places[me * K + i]] = values
                elif peer * K + i in made.places:
                    base[made.places[peer * K + i]] = values[plan[me][i]]
        assert base.tolist() == base_vertices(shard, backward=backward).tolist()


# --- what peers may not say -------------------------------------------------------------------------------------------


def test_a_vertex_that_is_no_ghost_of_the_peer_is_refused():
    shards = cut(random_graph(0), 3)
    made = places(shards, 0, False)
    inner = shards[0].vertices[:1]
    of_another = shards[0].ghosts_in[shards[0].ghosts_in_owner == 2][:1]
    for vertices in (inner, of_another, np.array([10**6]), np.array([-1])):
        with pytest.raises(RemoteProtocolError, match=r"^graph_server 1: a vertex of interval 3 is not a ghost here$"):
            made.add(1, K, vertices)


@pytest.mark.parametrize("interval", [-1, 0, K - 1, 2 * K, 3 * K])
def test_an_interval_that_is_not_the_peers_is_refused(interval: int):
    made = GhostPlaces(cut(random_graph(0), 3)[0], 0, [(0, 1)] * K, backward=False)
    with pytest.raises(RemoteProtocolError, match=rf"^graph_server 1: interval {interval} is not its own$"):
        made.add(1, interval, np.zeros(0, np.int64))


def test_a_ghost_that_nobody_will_send_is_refused():
    shards = cut(random_graph(0), 2)
    made = GhostPlaces(shards[0], 0, bounds(shards[0]), backward=False)
    first = int(shards[0].ghosts_in[0])
    with pytest.raises(RemoteProtocolError, match=rf"^graph_server 1: will not send the rows of vertex {first}$"):
        made.interval_of_row()
