import numpy as np

from datasets.splits import by_share, per_class
from siafu.graph import NONE, TEST, TRAIN, VAL

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


def test_a_split_depends_on_its_seed_only():
    assert np.array_equal(per_class(LABELS, 3, 2, seed=1), per_class(LABELS, 3, 2, seed=1))
    assert not np.array_equal(per_class(LABELS, 3, 2, seed=1), per_class(LABELS, 3, 2, seed=2))
    assert np.array_equal(by_share(50, 0.6, 0.2, seed=1), by_share(50, 0.6, 0.2, seed=1))
    assert not np.array_equal(by_share(50, 0.6, 0.2, seed=1), by_share(50, 0.6, 0.2, seed=2))
