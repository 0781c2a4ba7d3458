"""Small random graphs with everything that can go wrong in them: directions, weights, vertices without any edge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from siafu.graph import NONE, TEST, TRAIN, VAL, Graph
from siafu.sparse import Array, SparseRows


def random_graph(
    seed: int,
    num_vertices: int = 23,
    *,
    num_edges: int = 70,
    num_features: int = 7,
    num_classes: int = 4,
    directed: bool = True,
    weighted: bool = True,
    multilabel: bool = False,
) -> Graph:
    """A graph without self-loops or parallel edges, two splits, features that are zero in every second place.

    Its first vertex has no edge at all, its second only out-edges, its third only in-edges (if directed).
    """
    rng = np.random.default_rng(seed)
    allowed = ~np.eye(num_vertices, dtype=bool)  # [src, dst]
    allowed[0, :] = allowed[:, 0] = False
    allowed[:, 1] = allowed[2, :] = False
    if not directed:
        allowed = np.triu(allowed)
    pairs = rng.permutation(np.argwhere(allowed))[:num_edges]  # [E, 2]
    weight = rng.uniform(0.5, 2, len(pairs)).astype(np.float32)
    if not directed:
        pairs, weight = np.concatenate([pairs, pairs[:, ::-1]]), np.tile(weight, 2)
    features = rng.normal(size=(num_vertices, num_features)) * (rng.random((num_vertices, num_features)) < 0.5)
    labels = (
        rng.integers(0, 2, (num_vertices, num_classes)).astype(np.uint8)
        if multilabel
        else rng.integers(0, num_classes, num_vertices)
    )
    return Graph(
        name=f"random-{seed}",
        num_vertices=num_vertices,
        src=pairs[:, 0].copy(),
        dst=pairs[:, 1].copy(),
        weight=weight if weighted else None,
        features=features.astype(np.float32),
        labels=labels,
        num_classes=num_classes,
        split=rng.choice(np.array([NONE, TRAIN, TRAIN, VAL, TEST], np.uint8), (num_vertices, 2)),
        directed=directed,
    )


def with_sparse_features(graph: Graph) -> Graph:
    return replace(graph, features=sparse(np.asarray(graph.features)))


def sparse(X: Array) -> SparseRows:
    """The rows of a dense matrix without their zeros."""
    row, column = np.nonzero(X)
    indptr = np.searchsorted(row, np.arange(len(X) + 1)).astype(np.int64)
    return SparseRows(indptr, column.astype(np.int32), X[row, column], X.shape[1])
