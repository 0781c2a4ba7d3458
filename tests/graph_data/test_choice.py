import numpy as np
import pytest

from graph_data import choice
from graph_data.choice import candidates, choose_order, pick
from graph_data.locality import Locality
from graph_data.orders import order_vertices
from graph_data.partitioners import partition
from graph_data.prepare import prepare, resolve
from siafu.errors import ConfigError
from siafu.graph import tidy
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph

LIMIT = choice.MAX_METIS_EDGES


def worth(l2_misses, crossing):
    return Locality(l2_misses=l2_misses, l3_misses=0.0, row_ends=0.0, crossing=crossing)


# --- the rules --------------------------------------------------------------------------------------------------------


def test_auto_trades_no_crossing_edges_for_a_cheaper_gather():  # rule 1
    found = {"metis+degree": worth(0.3, 0.2), "given": worth(0.1, 0.9)}
    assert pick(found) == "metis+degree"


def test_auto_keeps_the_order_of_the_source_where_it_is_as_good():  # rule 1
    found = {"metis+degree": worth(0.3, 0.2), "given": worth(0.1, 0.21)}
    assert pick(found) == "given"


def test_equal_orders_are_decided_by_their_place_in_the_table():
    assert pick({"metis+degree": worth(0.3, 0.2), "given": worth(0.3, 0.2)}) == "metis+degree"


def test_auto_looks_for_communities_where_metis_cannot_hold_the_graph():  # rule 2
    assert candidates(LIMIT) == ["metis+degree", "given"]
    assert candidates(LIMIT + 1) == ["louvain+degree", "given"]


def test_a_huge_graph_is_left_as_it_is():  # rule 2
    assert candidates(10**10) == ["given"]


def test_without_compiled_kernels_communities_are_looked_for_in_smaller_graphs(monkeypatch):  # rule 2
    monkeypatch.setattr(choice, "LIBRARY", None)
    assert candidates(60_000_000) == ["louvain+degree", "given"]
    assert candidates(100_000_000) == ["given"]


# --- on graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parts", [1, 3])
def test_every_partition_gets_the_order_that_is_chosen(parts):  # rule 3
    graph = tidy(random_graph(n=300, edges=900))
    owner = partition(graph, "random", parts, seed=0)
    found = choose_order(graph, owner, "auto", seed=0)
    for mine, named in zip(found.parts, order_vertices(graph, owner, found.name, seed=0), strict=True):
        assert np.array_equal(mine, named)


def test_clusters_are_chosen_for_a_graph_that_has_them():
    graph = tidy(resolve("digits").load())
    found = choose_order(graph, np.zeros(graph.num_vertices, np.int32), "auto", seed=0)
    assert found.name == "metis+degree"
    assert found.scores["metis+degree"]["crossing"] < 0.3 < 0.8 < found.scores["given"]["crossing"]


def test_a_named_order_is_not_judged():
    graph = tidy(random_graph())
    found = choose_order(graph, np.zeros(40, np.int32), "degree", seed=0)
    assert (found.name, found.scores) == ("degree", {})


def test_an_unknown_order_is_a_config_error():
    with pytest.raises(ConfigError, match=r"order 'magic': unknown, must be one of auto, metis\+degree"):
        choose_order(tidy(random_graph()), np.zeros(40, np.int32), "magic", seed=0)


def test_the_manifest_keeps_the_scores(tmp_path):
    made = prepare(random_graph(), tmp_path / "out", order="auto").manifest
    assert made.order in made.order_scores
    assert made.order_scores["given"].keys() == {"cost", "crossing"}
    assert ShardSet.open(tmp_path / "out").manifest == made
