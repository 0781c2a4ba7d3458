"""Small random graphs with everything that real ones have: loops, parallel edges, isolated and unlabelled vertices."""

import numpy as np

from siafu.graph import Graph
from siafu.sparse import SparseRows


def random_graph(seed=0, n=40, edges=150, weighted=False, sparse=False, multilabel=False, splits=2, classes=3):
    rng = np.random.default_rng(seed)
    connected = max(1, n - n // 8)  # the vertices behind it have no edge
    features = rng.integers(0, 3, (n, 5)).astype(np.uint8)
    features[0] = 0
    if multilabel:
        labels = rng.integers(0, 2, (n, classes)).astype(np.uint8)
    else:
        labels = rng.integers(-1, classes, n)
    split = rng.integers(0, 4, (n, splits)).astype(np.uint8)
    if not multilabel:
        split[labels < 0] = 0
    return Graph(
        name="random",
        num_vertices=n,
        src=rng.integers(0, connected, edges),
        dst=rng.integers(0, connected, edges),
        weight=rng.uniform(0.5, 2.0, edges).astype(np.float32) if weighted else None,
        features=sparse_rows(features) if sparse else features,
        labels=labels,
        num_classes=classes,
        split=split,
        directed=True,
    )


def sparse_rows(matrix):
    row, column = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(matrix)))])
    return SparseRows(indptr, column.astype(np.int32), matrix[row, column], matrix.shape[1])


def edge_dict(graph):
    """{(src, dst): weight} of a tidy graph."""
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    return dict(zip(zip(graph.src.tolist(), graph.dst.tolist(), strict=True), weight.tolist(), strict=True))
