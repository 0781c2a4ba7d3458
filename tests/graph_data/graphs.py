"""Small random graphs with everything that real ones have: loops, parallel edges, isolated and unlabelled vertices."""

import numpy as np

from siafu.graph import Graph
from siafu.sparse import SparseRows


def random_graph(
    seed=0, n=40, edges=150, weighted=False, sparse=False, multilabel=False, splits=2, classes=3, types=1, numbers=0
):
    """``types`` of edges; ``numbers`` of labels per vertex, some of them unknown, in place of classes."""
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
    if numbers:
        labels = rng.standard_normal((n, numbers))
        labels[:: max(2, n // 5), -1] = np.nan
        split[np.isnan(labels[:, -1])] = 0
        labels = labels[:, 0] if numbers == 1 else labels
    return Graph(
        name="random",
        num_vertices=n,
        src=rng.integers(0, connected, edges),
        dst=rng.integers(0, connected, edges),
        weight=rng.uniform(0.5, 2.0, edges).astype(np.float32) if weighted else None,
        features=sparse_rows(features) if sparse else features,
        labels=labels,
        num_classes=numbers or classes,
        split=split,
        directed=True,
        edge_type=rng.integers(0, types, edges) if types > 1 else None,
        num_edge_types=types,
    )


def sparse_rows(matrix):
    row, column = np.nonzero(matrix)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(matrix)))])
    return SparseRows(indptr, column.astype(np.int32), matrix[row, column], matrix.shape[1])


def edge_dict(graph):
    """{(src, dst): weight} of a tidy graph."""
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    return dict(zip(zip(graph.src.tolist(), graph.dst.tolist(), strict=True), weight.tolist(), strict=True))


def typed_edge_dict(graph):
    """{(src, dst, type): weight} of a tidy graph whose edges have types."""
    weight = np.ones(graph.num_edges) if graph.weight is None else graph.weight
    ends = zip(graph.src.tolist(), graph.dst.tolist(), graph.edge_type.tolist(), strict=True)
    return dict(zip(ends, weight.tolist(), strict=True))


def edges_of_shards(shards, side="in"):
    """{(src, dst, type): weight} in global ids, from the in-edges (or out-edges) of all
    shards; type None where there is none."""
    found = {}
    for shard in shards:
        edges, ids = getattr(shard, f"{side}_edges"), np.concatenate([shard.vertices, getattr(shard, f"ghosts_{side}")])
        row = np.repeat(shard.vertices, np.diff(edges.indptr)).tolist()
        column = ids[edges.indices].tolist()
        kind = [None] * len(row) if edges.type is None else edges.type.tolist()
        weight = [1.0] * len(row) if edges.weight is None else edges.weight.tolist()
        src, dst = (column, row) if side == "in" else (row, column)
        here = dict(zip(zip(src, dst, kind, strict=True), weight, strict=True))
        assert len(here) == len(row)
        assert not here.keys() & found.keys()
        found |= here
    return found
