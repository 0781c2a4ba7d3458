"""Seeded splits for the graphs that come without one."""

from __future__ import annotations

import numpy as np

from siafu.graph import NONE, TEST, TRAIN, VAL
from siafu.sparse import Array


def per_class(labels: Array, train: int, val: int, seed: int) -> Array:
    """``train``, then ``val`` vertices of every class, the rest test; those without a label in none: uint8 [N, 1]."""
    rng = np.random.default_rng(seed)
    split = np.where(labels >= 0, np.uint8(TEST), np.uint8(NONE))  # [N]
    for label in np.unique(labels[labels >= 0]):
        members = rng.permutation(np.flatnonzero(labels == label))
        split[members[:train]] = TRAIN
        split[members[train : train + val]] = VAL
    return split[:, None]


def by_share(num_vertices: int, train: float, val: float, seed: int) -> Array:
    """A random ``train`` share of the vertices, then a ``val`` share, the rest test: uint8 [N, 1]."""
    rng = np.random.default_rng(seed)
    split = np.full(num_vertices, TEST, np.uint8)  # [N]
    order = rng.permutation(num_vertices)
    first, second = round(train * num_vertices), round((train + val) * num_vertices)
    split[order[:first]] = TRAIN
    split[order[first:second]] = VAL
    return split[:, None]
