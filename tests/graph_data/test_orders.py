import numpy as np
import pytest

from graph_data import orders
from graph_data.orders import ORDERS, order_vertices
from graph_data.partitioners import partition
from graph_data.prepare import resolve
from siafu.errors import ConfigError
from siafu.graph import tidy
from tests.graph_data.graphs import random_graph


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_permutes_the_vertices_of_each_partition(name, directed):
    graph = tidy(random_graph(n=300, edges=900), directed)
    owner = partition(graph, "random", 3, seed=0)
    for p, vertices in enumerate(order_vertices(graph, owner, name, seed=0)):
        assert sorted(vertices) == np.flatnonzero(owner == p).tolist()
        assert vertices.dtype == np.int64


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("num_vertices", [1, 31, 32, 33])
def test_an_order_takes_tiny_partitions(num_vertices, name):
    graph = tidy(random_graph(n=num_vertices, edges=20))
    (vertices,) = order_vertices(graph, np.zeros(num_vertices, np.int32), name, seed=0)
    assert sorted(vertices) == list(range(num_vertices))


@pytest.mark.parametrize("name", ORDERS)
def test_an_order_takes_a_graph_without_edges(name):
    graph = tidy(random_graph(n=40, edges=0))
    (vertices,) = order_vertices(graph, np.zeros(40, np.int32), name, seed=0)
    assert sorted(vertices) == list(range(40))


def crossing_share(graph, vertices, num_intervals):
    """Share of edges between different equal slices of the order."""
    interval = np.empty(graph.num_vertices, int)
    interval[vertices] = np.arange(graph.num_vertices) * num_intervals // graph.num_vertices
    return (interval[graph.src] != interval[graph.dst]).mean()


@pytest.mark.parametrize("num_intervals", [16, 32])
def test_slices_of_cluster_orders_of_cora_cross_few_edges(num_intervals, real_data):
    graph = tidy(resolve("cora").load())
    owner = np.zeros(graph.num_vertices, np.int32)
    share = {o: crossing_share(graph, order_vertices(graph, owner, o, 0)[0], num_intervals) for o in ORDERS}
    assert share["random"] > 0.9
    assert share["metis+degree"] < 0.26
    assert share["louvain+degree"] < 0.31


@pytest.mark.parametrize("name", ["metis", "louvain"])
def test_degree_sorts_inside_the_clusters_alone(name):
    graph = tidy(resolve("digits").load())
    (inner,) = orders.inners(graph, np.zeros(graph.num_vertices, np.int32), seed=0)
    cluster = inner.clusters if name == "metis" else inner.communities
    place = orders.ordered(inner, f"{name}+degree")
    assert (np.diff(cluster[place]) >= 0).all()
    within = np.diff(cluster[place]) == 0
    assert (np.diff(inner.row_lengths[place])[within] <= 0).all()
    assert len(np.unique(cluster)) > 1


def test_the_degree_order_counts_edges_from_other_partitions():
    graph = tidy(random_graph(n=300, edges=900))
    owner = partition(graph, "random", 3, seed=0)
    degree = np.bincount(graph.dst, minlength=300)
    for vertices in order_vertices(graph, owner, "degree", seed=0):
        assert (np.diff(degree[vertices]) <= 0).all()


def test_unknown_order_is_a_config_error():
    with pytest.raises(ConfigError, match="order 'magic': unknown, must be one of metis\\+degree"):
        order_vertices(tidy(random_graph()), np.zeros(40, np.int32), "magic", seed=0)
