import numpy as np
import pytest

from graph_data.splits import by_share, per_class, training_edges
from siafu.errors import ConfigError
from siafu.graph import NONE, TEST, TRAIN, VAL
from tests.graph_data.graphs import random_graph

LABELS = np.array([0] * 10 + [1] * 4 + [-1] * 3)


def counts(split, of):
    return [int((split[of, 0] == role).sum()) for role in (NONE, TRAIN, VAL, TEST)]


def test_each_class_gives_training_then_validation_then_test():
    split = per_class(LABELS, train=3, val=2, seed=0)
    assert split.shape == (17, 1)
    assert counts(split, LABELS == 0) == [0, 3, 2, 5]
    assert counts(split, LABELS == 1) == [0, 3, 1, 0]  # a small class runs out
    assert counts(split, LABELS == -1) == [3, 0, 0, 0]


def test_shares_are_exact_to_a_vertex():
    assert counts(by_share(101, 0.6, 0.2, seed=0), slice(None)) == [0, 61, 20, 20]


def test_shares_may_be_of_some_vertices():
    split = by_share(17, 0.5, 0.25, seed=0, among=LABELS >= 0)
    assert counts(split, LABELS >= 0) == [0, 7, 3, 4]
    assert counts(split, LABELS < 0) == [3, 0, 0, 0]


def test_training_edges_have_both_ends_among_the_training_vertices_of_their_split():
    graph = random_graph(splits=2)
    for column in range(2):
        training = set(np.flatnonzero(graph.split[:, column] == TRAIN).tolist())
        ends = zip(graph.src.tolist(), graph.dst.tolist(), strict=True)
        assert training_edges(graph, column).tolist() == [0 if {u, v} <= training else 1 for u, v in ends]


@pytest.mark.parametrize("column", [-1, 2])
def test_a_split_that_is_not_there_has_no_training_edges(column):
    with pytest.raises(ConfigError, match=rf"^inductive split {column}: random has 2 split\(s\), from 0 on$"):
        training_edges(random_graph(splits=2), column)


def test_a_split_depends_on_its_seed_only():
    assert np.array_equal(per_class(LABELS, 3, 2, seed=1), per_class(LABELS, 3, 2, seed=1))
    assert not np.array_equal(per_class(LABELS, 3, 2, seed=1), per_class(LABELS, 3, 2, seed=2))
    assert np.array_equal(by_share(50, 0.6, 0.2, seed=1), by_share(50, 0.6, 0.2, seed=1))
    assert not np.array_equal(by_share(50, 0.6, 0.2, seed=1), by_share(50, 0.6, 0.2, seed=2))
