import numpy as np
import pytest

from graph_data.sources import synthetic
from graph_data.sources.synthetic import FAMILIES, WRONG_LABELS, load
from siafu.errors import DatasetError
from siafu.graph import TRAIN, VAL, tidy

TINY = {
    "reddit-small": 0.01,
    "reddit-large": 0.002,
    "amazon": 0.0005,
    "friendster": 0.0001,
    "ogbn-products": 0.002,
}


@pytest.fixture(scope="module")
def amazon():
    return load("amazon?scale=0.001&seed=1")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_keeps_its_counts_at_a_small_scale(name):
    family, graph = FAMILIES[name], load(f"{name}?scale={TINY[name]}")
    n = round(family.num_vertices * TINY[name])
    assert (graph.name, graph.num_vertices, graph.num_classes) == (name, n, family.num_classes)
    assert graph.features.shape == (n, family.num_features)
    assert graph.features.dtype == np.float32
    degree = min(family.num_edges / family.num_vertices, n / 8)
    assert graph.num_edges == pytest.approx(n * degree, abs=2)
    assert set(np.unique(graph.labels)) == set(range(family.num_classes))
    assert [(graph.split == role).mean() for role in (TRAIN, VAL)] == pytest.approx(
        [family.train, family.val], abs=1e-3
    )


def test_edges_are_distinct_symmetric_and_no_loops(amazon):
    tidied = tidy(amazon)
    assert tidied.num_edges == amazon.num_edges
    assert not (amazon.src == amazon.dst).any()
    assert amazon.src.dtype == np.int32


def test_degrees_are_skewed(amazon):
    degree = np.bincount(amazon.dst, minlength=amazon.num_vertices)
    assert degree.max() > 8 * degree.mean()
    assert np.median(degree) < degree.mean()


def test_neighbours_share_classes_and_ids_tell_nothing(amazon):
    same = (amazon.labels[amazon.src] == amazon.labels[amazon.dst]).mean()
    assert 0.4 < same < 0.7
    assert (amazon.labels[:-1] == amazon.labels[1:]).mean() < 0.1


def accuracy(features, graph):
    """Of the nearest class mean, as learnt from the training vertices."""
    train = graph.split[:, 0] == TRAIN
    means = np.stack([features[train & (graph.labels == c)].mean(axis=0) for c in range(graph.num_classes)])
    score = features @ means.T - (means**2).sum(axis=1) / 2
    return (score.argmax(axis=1) == graph.labels)[~train].mean()


def smoothed(graph):
    total = graph.features.copy()
    np.add.at(total, graph.dst, graph.features[graph.src])
    return total / (1 + np.bincount(graph.dst, minlength=graph.num_vertices))[:, None]


def test_the_neighbourhood_tells_more_than_the_vertex_but_not_all(amazon):
    own, neighbourhood = accuracy(amazon.features, amazon), accuracy(smoothed(amazon), amazon)
    assert 0.1 < own < neighbourhood - 0.2
    assert neighbourhood < 1 - WRONG_LABELS / 2


def test_noise_hides_the_classes():
    quiet, loud = load("amazon?scale=0.0005&feature_noise=0.2"), load("amazon?scale=0.0005&feature_noise=3")
    assert accuracy(quiet.features, quiet) > 0.9
    assert accuracy(loud.features, loud) < 0.3


def test_the_same_argument_gives_the_same_graph_and_another_seed_another():
    one, same, other = (load(f"reddit-small?scale=0.002&seed={seed}") for seed in (3, 3, 4))
    for field in ("src", "dst", "labels", "split", "features"):
        assert np.array_equal(getattr(one, field), getattr(same, field))
        assert not np.array_equal(getattr(one, field), getattr(other, field))


def test_blocks_of_draws_and_rows_may_end_anywhere(monkeypatch):
    monkeypatch.setattr(synthetic, "DRAWS", 1000)
    monkeypatch.setattr(synthetic, "FEATURE_ROWS", 7)
    graph = load("reddit-small?scale=0.002")
    assert tidy(graph).num_edges == graph.num_edges
    assert np.isfinite(graph.features).all()


REFUSED = {
    "cora": "synthetic graph 'cora' is not one of reddit-small, reddit-large, amazon, friendster, ogbn-products",
    "amazon?size=1": "synthetic:amazon has no option 'size', only scale, seed, feature_noise",
    "amazon?scale=big": r"synthetic:amazon\?scale=big: could not convert string to float: 'big'",
    "amazon?scale=0": r"synthetic:amazon\?scale=0: scale must be > 0, seed >= 0, feature_noise >= 0",
    "amazon?scale=nan": r"scale must be > 0",
    "amazon?seed=-1": r"seed >= 0",
    "friendster?scale=1000": (
        r"friendster\?scale=1000 takes about \d+ GiB to make, this machine has \d+: lower its scale"
    ),
}


@pytest.mark.parametrize("argument", REFUSED)
def test_an_argument_that_cannot_be_is_refused(argument):
    with pytest.raises(DatasetError, match=REFUSED[argument]):
        load(argument)
