"""A graph's counts: as told, from sources, and cut on paper as it was cut in truth."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from cost_planner import reach
from cost_planner.plan import graphs
from run_coordinator import prepared
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import ShardSet


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("65.6M", 65_600_000),
        ("3.6B", 3_600_000_000),
        ("32", 32),
        ("1e9", 10**9),
        ("10k", 10_000),
        ("1_000", 1000),
        ("2t", 2 * 10**12),
    ],
)
def test_counts_as_people_write_them(text, number):
    assert graphs.count(text, "edges") == number


@pytest.mark.parametrize("text", ["", "many", "-3", "0", "0.2", "3.6 B x", "1e999", "nan"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(ConfigError, match=f"^--edges {re.escape(text)}: must be a number"):
        graphs.count(text, "edges")


def test_ghosts_are_distinct_and_remote():
    def ghosts(cut: float, parts: int = 32, shared: float = 1.0) -> int:
        graph = graphs.of_counts(65_600_000, 3_600_000_000, 32, 50, cut=cut)
        return replace(graph, shared=shared).manifest(parts).partitions[0].ghosts_in

    assert ghosts(0.0) == ghosts(0.5, parts=1) == 0
    sparse = 1e-4  # hardly any vertex is hit twice
    assert ghosts(sparse) == pytest.approx(sparse * 31 / 32 * 3_600_000_000 / 32, rel=1e-3)
    assert ghosts(0.5) < ghosts(1.0) < 65_600_000 * 31 / 32
    assert ghosts(0.5, shared=2.0) == ghosts(0.5) // 2


def test_real_shards_say_how_they_are_cut(tmp_path):
    config = Config().replace({"data.source": "digits", "data.cache_dir": str(tmp_path)})
    graph = graphs.of_source(config)
    assert graph.shards is not None
    assert graph.manifest(graphs.TRIAL_PARTS) is graph.shards
    assert graph.cut == graph.shards.cut_edges / graph.shards.num_edges
    paper = replace(graph, shards=None)
    real = [entry.ghosts_in for entry in graph.shards.partitions]
    assert paper.manifest(4).partitions[0].ghosts_in == pytest.approx(sum(real) / 4, rel=0.02)
    with pytest.raises(ConfigError, match="the shards say it"):
        graphs.of_source(config, cut=0.3)


@pytest.mark.parametrize("parts", [2, 8])
def test_a_trial_cut_foretells_others(parts, tmp_path):
    """Better than a share of the random cut does, as this was foretold before; benchmarks.acceptance.ghosts has eleven
    real graphs."""
    config = Config().replace({"data.source": "digits", "data.cache_dir": str(tmp_path)})
    foreseen = graphs.of_source(config)
    real = ShardSet.open(prepared.shards_of(config.replace({"data.parts": parts}))).manifest
    cut = real.cut_edges / real.num_edges
    share = foreseen.cut / (1 - 1 / foreseen.cut_parts) * (1 - 1 / parts)
    assert abs(math.log(foreseen.crossing(parts) / cut)) < abs(math.log(share / cut))
    ghosts = sum(entry.ghosts_in for entry in real.partitions) / parts
    assert 0.4 < foreseen.manifest(parts).partitions[0].ghosts_in / ghosts < 2.5


def test_no_more_edges_cross_than_of_a_random_cut():
    graph = graphs.Graph("", 1000, 10_000, 4, 2, cut=0.7, cut_parts=4)
    assert graph.crossing(4) == pytest.approx(0.7)
    assert graph.crossing(64) == 1 - 1 / 64
    assert graph.crossing(1) == 0


def test_a_synthetic_graph_is_counted_and_not_made():
    graph = graphs.of_source(Config().replace({"data.source": "synthetic:friendster"}))
    assert (graph.vertices, graph.edges, graph.classes) == (65_600_000, 3_600_000_000, 50)


def test_an_inductive_graph_that_nobody_has_prepared_has_training_edges():
    """As of random ends, of the 66% that are assumed to train."""
    synthetic = graphs.of_source(Config().replace({"data.source": "synthetic:friendster", "data.inductive": True}))
    for graph in (synthetic, graphs.of_counts(1_000_000, 10_000_000, 4, 2, inductive=True)):
        manifest = graph.manifest(4)
        assert reach.share_among_training(manifest) == pytest.approx(graphs.TRAINS**2)
        assert sum(manifest.type_counts) == graph.edges
        assert manifest.edge_types == "inductive"
    assert reach.share_among_training(graphs.of_counts(1000, 10_000, 4, 2).manifest(4)) is None


def test_a_cut_is_a_share():
    with pytest.raises(ConfigError, match="--cut 2"):
        graphs.of_counts(1000, 10_000, 4, 2, cut=2.0)
