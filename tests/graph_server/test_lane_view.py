"""Rows of a lane that sees some of a partition's vertices alone: theirs, in their order, interval by interval."""

from __future__ import annotations

import numpy as np

from graph_data.prepare import prepare
from graph_server.exchange import bounds_of
from graph_server.lane_view import LaneView
from tests.toy_graphs import random_graph, with_sparse_features


def test_intervals_keep_their_vertices_and_may_be_left_with_none(tmp_path):
    graph = with_sparse_features(random_graph(3))
    shard = prepare(graph, tmp_path / "shards", parts=2).partition(1)
    n = len(shard.vertices)
    bounds = bounds_of(n, 4)
    keep = np.arange(n) % 3 == 1
    keep[slice(*bounds[2])] = False
    whole = LaneView(shard, bounds)
    view = whole.among(keep)
    assert whole.take(shard.labels) is shard.labels
    assert len(view.bounds) == 4
    assert view.bounds[2][0] == view.bounds[2][1]
    for (start, stop), (first, last) in zip(bounds, view.bounds, strict=True):
        wanted = start + np.flatnonzero(keep[start:stop])
        assert view.rows[first:last].tolist() == wanted.tolist()
        np.testing.assert_array_equal(view.shard.vertices[first:last], np.asarray(shard.vertices)[wanted])
    np.testing.assert_array_equal(view.take(shard.labels), view.shard.labels)
    np.testing.assert_array_equal(view.take(shard.features).dense(), shard.features.dense()[keep])
    again = np.arange(len(view.shard.vertices)) % 2 == 0
    few = view.among(again)
    assert few.rows.tolist() == view.rows[again].tolist()
    np.testing.assert_array_equal(few.shard.vertices, np.asarray(shard.vertices)[few.rows])
    assert few.bounds[-1][1] == len(few.rows)
