"""The counts of a graph in one line, so that a user who converts it sees whether it is complete."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np

from siafu.errors import DatasetError
from siafu.features import check_shape
from siafu.graph import Graph, check, labelled, pack_typed
from siafu.sparse import Array

log = logging.getLogger(__name__)
FEW = 0.05  # of vertices with a label in no edge: more are said


@dataclass(frozen=True)
class Counts:
    """Counts of a graph as its source lists it. An edge is parallel if an earlier one has the same ends and type."""

    vertices: int
    edges: int
    edge_types: int
    features: int
    classes: int
    target: str  # what the classes are: see ``Graph.target``
    splits: int
    self_loops: int
    parallel_edges: int

    def line(self) -> str:
        what = {"classes": "classes", "labels": "labels", "numbers": "numbers"}[self.target]
        splits = "split" if self.splits == 1 else "splits"
        types = f" of {self.edge_types} types" if self.edge_types > 1 else ""
        return (
            f"{self.vertices:,} vertices, {self.edges:,} edges{types}, {self.features:,} features, {self.classes} "
            f"{what}, {self.splits} {splits}, {self.self_loops:,} self-loops, {self.parallel_edges:,} parallel edges"
        )


def counts_of(graph: Graph) -> Counts:
    """Checks the graph, then counts. Raises: DatasetError, in one line, if it is malformed."""
    check(graph)
    check_shape(graph.features, graph.num_vertices, graph.name)
    return Counts(
        vertices=graph.num_vertices,
        edges=graph.num_edges,
        edge_types=graph.num_edge_types,
        features=graph.num_features,
        classes=graph.num_classes,
        target=graph.target,
        splits=int(graph.split.shape[1]),
        self_loops=int(np.count_nonzero(graph.src == graph.dst)),
        parallel_edges=_repeats(
            pack_typed(graph.dst, graph.src, graph.edge_type, graph.num_vertices, graph.num_edge_types)
        ),
    )


def _repeats(keys: Array) -> int:
    keys.sort()
    return int(np.count_nonzero(keys[1:] == keys[:-1]))


def check_labels_met(graph: Graph, met: Array) -> None:
    """Warns if many labelled vertices are in no edge. met: whether each vertex is in an edge, bool [N].

    Raises: DatasetError if no labelled vertex is in an edge: then labels and edges use different ids.
    """
    known = labelled(graph)
    total, apart = int(known.sum()), int((known & ~met).sum())
    if not met.any() or apart <= FEW * total:
        return
    if apart == total:
        raise DatasetError(
            f"{graph.name}: none of its {total:,} vertices with a label is in an edge: do ids of labels "
            "and of edges mean the same?"
        )
    log.warning("%s: %d of %d vertices with a label are in no edge", graph.name, apart, total)
