from dataclasses import replace

import numpy as np
import pytest

from graph_data import partitioners
from graph_data.partitioners import PARTITIONERS, partition
from graph_data.prepare import resolve
from siafu.errors import ConfigError, DatasetError
from siafu.graph import row_starts, tidy
from tests.graph_data.graphs import random_graph


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
    with pytest.raises(
        ConfigError, match="partitioner 'magic': unknown, must be one of metis, chunk, random, hash, ldg, fennel"
    ):
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
    monkeypatch.setattr(partitioners, "metis", lambda sides, parts, seed: np.zeros(len(sides[0].indptr) - 1, np.int32))
    owner = partition(tidy(random_graph(n=5, edges=3)), "metis", 3, seed=0)
    assert owner.tolist() == [0, 0, 0, 2, 1]
    assert caplog.messages[0] == "partitioner metis left partition 1 empty; it got a vertex of partition 0"


# --- streaming --------------------------------------------------------------------------------------------------------


def planted(communities=8, size=200, inside=12, across=2, seed=0):
    """A graph of dense communities with shuffled ids."""
    rng = np.random.default_rng(seed)
    n = communities * size
    src = rng.integers(0, n, n * (inside + across))
    dst = np.where(
        rng.random(len(src)) < inside / (inside + across),
        src // size * size + rng.integers(0, size, len(src)),
        rng.integers(0, n, len(src)),
    )
    name = rng.permutation(n)
    return tidy(replace(random_graph(n=n), src=name[src], dst=name[dst]))


def load_balance(graph, owner):
    degree = np.diff(row_starts(graph.dst, graph.num_vertices))
    load = np.bincount(owner, degree + degree.mean())
    return load.max() / load.mean()


@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize("name", ["ldg", "fennel"])
def test_streaming_partitioners_find_planted_communities(name, parts):
    graph = planted()
    owner = partition(graph, name, parts, seed=0)
    assert cut_share(graph, owner) < 0.5 * cut_share(graph, partition(graph, "random", parts, seed=0))
    assert load_balance(graph, owner) <= 1.06


@pytest.mark.parametrize("name", ["ldg", "fennel"])
def test_more_passes_cut_fewer_edges(name):
    graph = planted()
    shares = [cut_share(graph, partition(graph, f"{name}:{passes}", 4, seed=0)) for passes in (1, 3, 10)]
    assert shares[0] > shares[1] >= shares[2]


@pytest.mark.parametrize("name", ["ldg", "fennel"])
def test_beside_a_hub_with_half_of_all_edges_there_is_little_else(name):
    star = tidy(replace(random_graph(n=1000), src=np.arange(1, 1000), dst=np.zeros(999, np.int64)))
    owner = partition(star, name, 4, seed=0)
    counts = np.bincount(owner, minlength=4)
    assert counts[owner[0]] < 50
    assert np.delete(counts, owner[0]).min() > 300


@pytest.mark.parametrize("name", ["fennel:0", "ldg:-1", "fennel:many", "ldg:1001"])
def test_passes_must_be_a_number_in_range(name):
    with pytest.raises(ConfigError, match=rf"^partitioner '{name}': '.*' passes, must be a number in 1\.\.1000$"):
        partition(tidy(random_graph()), name, 2, seed=0)


def test_other_partitioners_take_no_passes():
    with pytest.raises(ConfigError, match="partitioner 'hash:3': unknown, must be one of"):
        partition(tidy(random_graph()), "hash:3", 2, seed=0)
