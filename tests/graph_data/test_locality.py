from collections import OrderedDict

import numpy as np
import pytest

from graph_data import locality as module
from graph_data.locality import Sample, locality, sample_edges
from graph_data.orders import inners, ordered
from graph_data.prepare import resolve
from siafu.graph import row_starts, tidy
from tests.graph_data.graphs import random_graph


def lru_misses(stream, capacity):
    """Share of reads that miss an LRU cache which the same stream has filled before."""
    cache = OrderedDict()
    for _ in range(2):
        misses = 0
        for key in stream:
            if key not in cache:
                misses += 1
                cache[key] = None
                if len(cache) > capacity:
                    cache.popitem(last=False)
            cache.move_to_end(key)
    return misses / len(stream)


STREAMS = {
    "uniform": lambda rng: rng.integers(0, 2000, 20_000),
    "skewed": lambda rng: rng.zipf(1.5, 20_000) % 3000,
    "sliding": lambda rng: np.sort(rng.integers(0, 2000, 20_000)) + rng.integers(0, 30, 20_000),
}


@pytest.mark.parametrize("capacity", [50, 400, 10_000])
@pytest.mark.parametrize("kind", STREAMS)
def test_predicted_misses_are_those_of_an_lru_cache(kind, capacity):
    stream = STREAMS[kind](np.random.default_rng(0))
    gaps = module._gaps(np.arange(len(stream)), stream, 4000)
    assert module._misses(gaps, capacity) == pytest.approx(lru_misses(stream.tolist(), capacity), abs=0.005)


def test_nothing_misses_where_nothing_is_read():
    empty = np.empty(0, np.int64)
    found = locality(Sample(empty, empty, 1.0, np.zeros(5, np.int64)), np.arange(5))
    assert (found.l2_misses, found.l3_misses, found.row_ends, found.crossing, found.cost) == (0, 0, 0, 0, 1)


def judge(graph, orders, monkeypatch, l2_rows=100):
    monkeypatch.setattr(module, "L2_BYTES", l2_rows * module.ROW_BYTES)
    (inner,) = inners(graph, np.zeros(graph.num_vertices, np.int32), seed=0)
    sample = sample_edges(row_starts(graph.dst, graph.num_vertices), graph.src, inner.vertices, seed=0)
    return {name: locality(sample, ordered(inner, name)) for name in orders}


def test_clusters_miss_less_and_cross_less_than_a_random_order(monkeypatch):
    found = judge(tidy(resolve("digits").load()), ("metis+degree", "louvain+degree", "random"), monkeypatch)
    for name in ("metis+degree", "louvain+degree"):
        assert found[name].l2_misses < 0.5 * found["random"].l2_misses
        assert found[name].crossing < 0.5 * found["random"].crossing
        assert found[name].cost < found["random"].cost


def test_rows_sorted_by_length_end_where_they_are_foreseen(monkeypatch):
    found = judge(tidy(random_graph(n=400, edges=4000)), ("degree", "random"), monkeypatch)
    assert found["degree"].row_ends < 0.1 * found["random"].row_ends


def test_a_sample_predicts_what_all_edges_do(monkeypatch):
    graph = tidy(random_graph(n=4000, edges=100_000))
    whole = judge(graph, ("metis+degree",), monkeypatch, l2_rows=500)["metis+degree"]
    monkeypatch.setattr(module, "SAMPLED_EDGES", 40_000)
    sampled = judge(graph, ("metis+degree",), monkeypatch, l2_rows=500)["metis+degree"]
    assert sampled.l2_misses == pytest.approx(whole.l2_misses, rel=0.05)
    assert sampled.crossing == pytest.approx(whole.crossing, rel=0.05)


def test_a_partition_is_judged_by_its_own_rows_with_those_of_its_ghosts():
    graph = tidy(random_graph(n=300, edges=900))
    inner = inners(graph, np.arange(300, dtype=np.int32) % 3, seed=0)[1]
    sample = sample_edges(row_starts(graph.dst, 300), graph.src, inner.vertices, seed=0)
    assert set(sample.row) <= set(inner.vertices)
    assert not set(sample.column) <= set(inner.vertices)
    assert len(sample.row) == inner.row_lengths.sum()
    locality(sample, ordered(inner, "metis+degree"))


@pytest.mark.parametrize(("rows", "nbytes"), [(1000, 256), (100_000, 128), (200_000, 64), (2_000_000, 256)])
def test_a_row_is_as_wide_as_a_tile_that_stays_in_the_last_cache(rows, nbytes):
    assert module._row_bytes(rows) == nbytes
