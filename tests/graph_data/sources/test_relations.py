import numpy as np
import pytest

from graph_data.prepare import estimate, resolve
from graph_data.sources.relations import RANDOM_EDGES, SHARES, SIGNAL, WRONG_LABELS, load
from siafu.errors import DatasetError
from siafu.graph import TRAIN, VAL, tidy


@pytest.fixture(scope="module")
def graph():
    return tidy(load(""))


def kinds(graph):
    """What the features show of each vertex: the nearest of the means, which are those of four groups far apart."""
    rng = np.random.default_rng(0)
    rng.integers(0, 4, 4000)
    return rng.integers(0, 4, 4000)  # as load draws them


def test_counts_are_those_asked_for(graph):
    assert (graph.num_vertices, graph.num_edge_types, graph.num_classes) == (4000, 4, 4)
    assert graph.num_edges == pytest.approx(4000 * 16, rel=0.02)
    assert np.bincount(graph.edge_type) == pytest.approx(4000 * 4, rel=0.03)
    assert [(graph.split == role).mean() for role in (TRAIN, VAL)] == pytest.approx(SHARES, abs=1e-3)


def test_a_relation_tells_the_label_from_the_kind_of_a_neighbour(graph):
    told = (kinds(graph)[graph.src] - graph.edge_type) % 4 == graph.labels[graph.dst]
    right_by_chance = 1 / 4
    expected = (1 - RANDOM_EDGES) * (1 - WRONG_LABELS) + (RANDOM_EDGES + WRONG_LABELS) * right_by_chance
    assert told.mean() == pytest.approx(expected, abs=0.02)
    for kind in range(4):
        assert told[graph.edge_type == kind].mean() == pytest.approx(expected, abs=0.03)


def test_without_relations_neighbours_tell_nothing(graph):
    table = np.zeros((4, 4))
    np.add.at(table, (graph.labels[graph.dst], kinds(graph)[graph.src]), 1)
    shares = table / table.sum(axis=1, keepdims=True)
    assert np.abs(shares - 1 / 4).max() < 0.03


def test_features_show_the_kind(graph):
    kind = kinds(graph)
    means = np.stack([graph.features[kind == k].mean(axis=0) for k in range(4)])
    nearest = ((graph.features[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == kind).mean() > 0.8
    assert np.linalg.norm(means, axis=1).mean() == pytest.approx(SIGNAL, rel=0.3)


def test_the_same_options_give_the_same_graph():
    one, same, other = (load(f"vertices=200&seed={seed}") for seed in (1, 1, 2))
    assert np.array_equal(one.src, same.src)
    assert np.array_equal(one.features, same.features)
    assert not np.array_equal(one.features, other.features)


def test_its_name_is_a_source_whose_size_is_known():
    graph = resolve("synthetic:typed?vertices=300&relations=3&degree=6").load()
    assert (graph.num_vertices, graph.num_edge_types) == (300, 3)
    guess = estimate("synthetic:typed?vertices=300&relations=3&degree=6")
    assert guess.num_vertices == 300
    assert graph.num_edges < guess.num_edges < 1.2 * graph.num_edges


def test_one_relation_is_a_graph_without_types():
    assert load("relations=1&vertices=100").edge_type is None


REFUSED = {
    "colour=3": (
        "synthetic:typed has no option 'colour', only vertices, relations, classes, degree, feature_noise, seed"
    ),
    "vertices=many": "synthetic:typed?vertices=many: invalid literal for int() with base 10: 'many'",
    "classes=1": "classes must be >= 2, vertices >= 2 classes^2, relations in 1..65536, degree in 1..vertices/2",
    "vertices=20": "classes must be >= 2, vertices >= 2 classes^2",
    "relations=0": "relations in 1..65536",
    "feature_noise=nan": "feature_noise and seed >= 0",
}


@pytest.mark.parametrize("query", REFUSED)
def test_what_cannot_be_is_refused(query):
    with pytest.raises(DatasetError) as caught:
        load(query)
    assert REFUSED[query] in str(caught.value)
