"""Seeded splits for graphs that come without one, and the edges that a split leaves to inductive training."""

from __future__ import annotations

import numpy as np

from siafu.errors import ConfigError
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph
from siafu.sparse import Array
from siafu.views import TRAINING


def per_class(labels: Array, train: int, val: int, seed: int) -> Array:
    """``train``, then ``val`` vertices of every class, the rest test; unlabelled vertices have no role: uint8 [N,
    1]."""
    rng = np.random.default_rng(seed)
    split = np.where(labels >= 0, np.uint8(TEST), np.uint8(NONE))  # [N]
    for label in np.unique(labels[labels >= 0]):
        members = rng.permutation(np.flatnonzero(labels == label))
        split[members[:train]] = TRAIN
        split[members[train : train + val]] = VAL
    return split[:, None]


def by_share(num_vertices: int, train: float, val: float, seed: int, among: Array | None = None) -> Array:
    """A random ``train`` share of the vertices, then a ``val`` share, the rest test: uint8 [N, 1].

    ``among``: bool [N], the vertices to share out; the others have no role. None: all.
    """
    rng = np.random.default_rng(seed)
    split = np.full(num_vertices, TEST, np.uint8)  # [N]
    members = np.arange(num_vertices) if among is None else np.flatnonzero(among)
    if among is not None:
        split[~among] = NONE
    order = rng.permutation(members)
    first, second = round(train * len(members)), round((train + val) * len(members))
    split[order[:first]] = TRAIN
    split[order[first:second]] = VAL
    return split[:, None]


def training_edges(graph: Graph, column: int) -> Array:
    """Type 0 for edges between training vertices of this split, type 1 for the others: uint16 [E].

    Raises: ConfigError if the graph has no such split.
    """
    if not 0 <= column < graph.split.shape[1]:
        raise ConfigError(f"inductive split {column}: {graph.name} has {graph.split.shape[1]} split(s), from 0 on")
    training = graph.split[:, column] == TRAIN
    among = training[graph.src] & training[graph.dst]
    return np.where(among, np.uint16(TRAINING), np.uint16(TRAINING + 1))
