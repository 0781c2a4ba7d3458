"""What of a graph a training epoch reaches, predicted from counts: ghosts whose rows travel, and vertices that stages
compute on (docs/adr/0038, 0039); an evaluation reaches what judged vertices read (0040). Pure."""

from __future__ import annotations

from siafu.shards import Manifest
from siafu.tasks import Lane, Step
from siafu.views import TRAINING


def share_that_counts(manifest: Manifest, split: int, lane: Lane) -> float:
    """Of all vertices, those whose outputs the lane wants: in training those that train, in evaluation those that are
    judged."""
    sizes = manifest.splits[split]
    number = sizes.train if lane is Lane.TRAIN else sizes.train + sizes.val + sizes.test
    return number / max(1, manifest.num_vertices)


def share_among_training(manifest: Manifest) -> float | None:
    """Of all edges, those between training vertices: inductive training gathers along them alone. None: training is not
    inductive."""
    if manifest.edge_types != "inductive":
        return None
    return manifest.type_counts[TRAINING] / max(1, manifest.num_edges)


def share_of_ghosts(step: Step, train: float, edges: float) -> float:
    """Of the ghosts of a Scatter's rows, those whose rows travel (ADR 0038). train: share of vertices that count;
    edges: from a ghost into a partition, on average.

    MEASURED (``benchmarks.acceptance.ghosts``): METIS, eleven graphs: 1.14 times the real share (median); ten graphs
    0.43 to 2 times, nell 4 to 5.5 times.
    """
    if not step.of_loss:
        return 1.0
    return train if step.backward else _leads(train, edges)


def share_that_feeds(train: float, degree: float) -> float:
    """Of all vertices, those whose rows the loss's gather reads (ADR 0039): training vertices, and those with an edge
    into one. degree: edges from a vertex, on average.

    MEASURED (``benchmarks.acceptance.ghosts``): eleven graphs with their public splits 0.90 to 1.31 times the real
    share, nell 3.4 times.
    """
    return train + (1 - train) * _leads(train, degree)


def _leads(train: float, edges: float) -> float:
    """The probability that at least one edge of a vertex leads to a training vertex. Assumed: the number of its edges,
    at least one, is geometric with mean ``edges``; training vertices lie anywhere."""
    return train / (train + (1 - train) / max(1.0, edges)) if train else 0.0
