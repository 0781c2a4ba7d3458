from dataclasses import replace

import numpy as np
import pytest

from datasets import partitioners
from datasets.partitioners import ORDERS, PARTITIONERS, chosen_order, order_vertices, partition
from datasets.prepare import resolve
from siafu.errors import ConfigError, DatasetError
from siafu.graph import row_starts, tidy
from tests.datasets.graphs import random_graph


def cut_share(graph, owner):
    return (owner[graph.src] != owner[graph.dst]).mean()


# --- owners -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 7, 40])
@pytest.mark.parametrize("name", PARTITIONERS)
def test_every_partition_owns_a_vertex(name, parts, directed):
    graph = tidy(random_graph(n=40), directed)
    owner = partition(graph, name, parts, seed=0)
    assert owner.dtype == np.int32
    assert (np.bincount(owner, minlength=parts) > 0).all()
    assert len(np.bincount(owner)) == parts


@pytest.mark.parametrize("name", PARTITIONERS)
def test_owners_are_the_same_for_the_same_seed(name):
    graph = tidy(random_graph(n=200, edges=1000))
    assert np.array_equal(partition(graph, name, 4, seed=5), partition(graph, name, 4, seed=5))


def test_more_partitions_than_vertices_are_refused():
    with pytest.raises(DatasetError, match=r"^random: 41 partitions, must be in 1\.\.40, its vertex count$"):
        partition(tidy(random_graph(n=40)), "hash", 41, seed=0)


def test_no_partition_is_refused():
    with pytest.raises(DatasetError, match="random: 0 partitions"):
        partition(tidy(random_graph(n=40)), "hash", 0, seed=0)


def test_unknown_partitioner_is_a_config_error():
    with pytest.raises(ConfigError, match="partitioner 'magic' is not one of metis, chunk, random, hash"):
        partition(tidy(random_graph()), "magic", 1, seed=0)


def test_random_owners_differ_by_seed_and_have_equal_counts():
    graph = tidy(random_graph(n=41))
    assert sorted(np.bincount(partition(graph, "random", 4, seed=0))) == [10, 10, 10, 11]
    assert not np.array_equal(partition(graph, "random", 4, seed=0), partition(graph, "random", 4, seed=1))


def test_hash_is_splitmix64_of_the_id():
    # first outputs of the generator seeded with 0: 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F
    owner = partition(tidy(random_graph()), "hash", 16, seed=0)
    assert owner[:3].tolist() == [0xF, 0x4, 0xF]


def test_chunks_are_contiguous_and_balance_vertices_and_edges():
    graph = tidy(random_graph(n=1000, edges=20_000))
    owner = partition(graph, "chunk", 4, seed=0)
    assert (np.diff(owner) >= 0).all()
    cost = 8 * 3 * np.bincount(owner) + np.bincount(owner[graph.dst])
    assert cost.max() - cost.min() <= 2 * (8 * 3 + np.diff(row_starts(graph.dst, 1000)).max())


@pytest.mark.parametrize("hub", [0, 7])
def test_chunks_beside_a_hub_still_get_a_vertex(hub):
    leaves = np.delete(np.arange(8), hub)
    star = tidy(replace(random_graph(n=8), src=leaves, dst=np.full(7, hub)), directed=True)
    assert partition(star, "chunk", 8, seed=0).tolist() == list(range(8))


def test_metis_balances_vertices_with_edges_and_cuts_less_than_random():
    graph = tidy(resolve("digits").load())
    owner = partition(graph, "metis", 4, seed=0)
    load = np.bincount(owner, np.diff(row_starts(graph.dst, graph.num_vertices)) + graph.num_edges / graph.num_vertices)
    assert load.max() / load.mean() < 1.05
    assert cut_share(graph, owner) < 0.1 < 0.7 < cut_share(graph, partition(graph, "random", 4, seed=0))


def test_partitions_that_metis_leaves_empty_get_a_vertex(monkeypatch, caplog):
    monkeypatch.setattr(partitioners, "metis", lambda graph, parts, seed: np.zeros(graph.num_vertices, np.int32))
    owner = partition(tidy(random_graph(n=5, edges=3)), "metis", 3, seed=0)
    assert owner.tolist() == [0, 0, 0, 2, 1]
    assert caplog.messages[0] == "partitioner metis left partition 1 empty; it got a vertex of partition 0"


# --- order inside a partition -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_permutes_the_vertices_of_each_partition(name, directed):
    graph = tidy(random_graph(n=300, edges=900), directed)
    owner = partition(graph, "random", 3, seed=0)
    for p, vertices in enumerate(order_vertices(graph, owner, name, seed=0)):
        assert sorted(vertices) == np.flatnonzero(owner == p).tolist()
        assert vertices.dtype == np.int64


@pytest.mark.parametrize("num_vertices", [1, 31, 32, 33])
def test_the_metis_order_takes_tiny_partitions(num_vertices):
    graph = tidy(random_graph(n=num_vertices, edges=20))
    (vertices,) = order_vertices(graph, np.zeros(num_vertices, np.int32), "metis", seed=0)
    assert sorted(vertices) == list(range(num_vertices))


def crossing_share(graph, vertices, num_intervals):
    """Share of edges between different equal slices of the order."""
    interval = np.empty(graph.num_vertices, int)
    interval[vertices] = np.arange(graph.num_vertices) * num_intervals // graph.num_vertices
    return cut_share(graph, interval)


@pytest.mark.parametrize("num_intervals", [16, 32])
def test_slices_of_the_metis_order_of_cora_cross_few_edges(num_intervals, real_data):
    graph = tidy(resolve("cora").load())
    owner = np.zeros(graph.num_vertices, np.int32)
    share = {o: crossing_share(graph, order_vertices(graph, owner, o, 0)[0], num_intervals) for o in ORDERS}
    assert share["random"] > 0.9
    assert share["metis"] < 0.25


def test_auto_order_is_metis_unless_the_graph_is_large(caplog):
    caplog.set_level("INFO")
    limit = partitioners.AUTO_ORDER_MAX_EDGES
    assert (chosen_order("auto", limit), chosen_order("auto", limit + 1)) == ("metis", "given")
    assert len(caplog.messages) == 2
    assert chosen_order("random", limit) == "random"


def test_unknown_order_is_a_config_error():
    with pytest.raises(ConfigError, match="order 'magic' is not one of metis, given, random"):
        order_vertices(tidy(random_graph()), np.zeros(40, np.int32), "magic", seed=0)
