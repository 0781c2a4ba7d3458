"""What training reaches, against sums over all numbers of edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cost_planner import reach
from graph_data.prepare import prepare
from siafu.tasks import Kind, Lane, Step
from tests.toy_graphs import random_graph

DEGREES = np.arange(1, 20_000)


def by_hand(train: float, edges: float) -> float:
    """That one of a vertex's edges leads to a training vertex, where their numbers are geometric with this mean."""
    chance = (1 / edges) * (1 - 1 / edges) ** (DEGREES - 1)
    return float((chance * (1 - (1 - train) ** DEGREES)).sum())


@pytest.mark.parametrize("train", [0.003, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("edges", [1.0, 1.5, 40.0])
def test_rows_that_feed_are_those_of_geometric_numbers_of_edges(train: float, edges: float):
    assert reach.share_that_feeds(train, edges) == pytest.approx(train + (1 - train) * by_hand(train, edges), rel=1e-6)


@pytest.mark.parametrize("train", [0.003, 0.1, 0.6, 1.0])
@pytest.mark.parametrize(("edges", "spread"), [(0.01, 0.05), (1.0, 0.3), (1.9, 1.0), (40.0, 1.0), (3.0, 50.0)])
def test_ghosts_that_are_read_are_those_of_negative_binomial_numbers_of_edges(
    train: float, edges: float, spread: float
):
    """METIS leaves most vertices without an edge into another partition, and some with many; a random cut leaves few
    without."""
    none = (1 + edges / spread) ** -spread
    terms = np.log((np.arange(20_000) + spread) / (np.arange(20_000) + 1) * edges / (edges + spread))
    chance = none * np.exp(np.cumsum(terms))  # of 1, 2, 3, ... edges
    assert none + chance.sum() == pytest.approx(1)
    read = float((chance * (1 - (1 - train) ** np.arange(1, 20_001))).sum()) / (1 - none)
    crossing = reach.Crossing(edges, 1 - none)
    assert crossing.leads(train) == pytest.approx(read, rel=1e-6)
    step = Step(Kind.SC, 0, of_loss=True)
    assert reach.share_of_ghosts(step, train, crossing) == crossing.leads(train)
    among = 0.8 * train * train
    assert reach.share_of_ghosts_among(train, among, crossing) == train * crossing.leads(among / train)


@pytest.mark.parametrize("train", [0.003, 0.6])
def test_where_every_vertex_is_a_ghost_edges_are_spread_evenly(train: float):
    """Poisson's numbers."""
    found = reach.Crossing(5.0, 1.0).leads(train)
    assert found == pytest.approx((1 - np.exp(-5 * train)) / (1 - np.exp(-5)))


def test_one_partition_has_no_ghosts(tmp_path: Path):
    manifest = prepare(random_graph(0), tmp_path / "shards", parts=1).manifest
    assert reach.Crossing.of(manifest) == reach.Crossing(0.0, 0.0)
    assert reach.Crossing.of(manifest).leads(0.5) == 0.5


def test_without_training_vertices_nothing_is_reached_and_other_rows_all_travel():
    crossing = reach.Crossing(5.0, 0.7)
    assert reach.share_that_feeds(0.0, 5.0) == 0.0
    assert reach.share_of_ghosts_among(0.0, 0.0, crossing) == 0.0
    assert reach.share_of_ghosts(Step(Kind.SC, 0, of_loss=True), 0.0, crossing) == 0.0
    assert reach.share_of_ghosts(Step(Kind.SC, 0), 0.1, crossing) == 1.0
    assert reach.share_of_ghosts(Step(Kind.SC_B, 1, of_loss=True), 0.1, crossing) == 0.1


def test_ghosts_of_links_are_read_along_the_edges_of_their_step(tmp_path: Path):
    """Of vertices that are cut anyhow, all types of edges cross alike."""
    graph, options = random_graph(2, 200, num_edges=900, directed=False), {"negatives": 2, "eval_negatives": 5}
    shards = prepare(graph, tmp_path / "shards", parts=4, partitioner="random", task="link", **options)
    manifest = shards.manifest
    assert reach.Links.of(prepare(graph, tmp_path / "whole", parts=4).manifest) is None
    links = reach.Links.of(manifest)
    assert links is not None
    assert sum(links.edges) == pytest.approx(1)
    assert sum(links.crossing) == pytest.approx(1)
    assert links.crossing == pytest.approx(links.edges, rel=0.1)
    entries = manifest.partitions
    ghosts, crossing = sum(entry.ghosts_in for entry in entries), reach.Crossing.of(manifest)
    for lane, operator, kinds in (
        (Lane.TRAIN, "linear", {0}),
        (Lane.EVAL, "linear", {0}),
        (Lane.TRAIN, "pairs", {1, 2}),
        (Lane.EVAL, "pairs", {3, 4, 5, 6}),
    ):
        read = 0
        for shard in map(shards.partition, range(4)):
            column = np.asarray(shard.in_edges.indices)[np.isin(shard.in_edges.type, list(kinds))]
            read += len(np.unique(column[column >= len(shard.vertices)]))
        step = Step(Kind.SC, 0, operator=operator)
        found = links.share_of_ghosts(step, lane, crossing)
        assert found == pytest.approx(read / ghosts, rel=0.1)
