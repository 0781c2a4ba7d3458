"""Describes the labels: their kind, their spread over the splits, and whether neighbours share them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_data.inspection.structure import Pairs
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph, labelled
from siafu.sparse import Array

ROLES = {"train": TRAIN, "val": VAL, "test": TEST}
BLOCK_PAIRS = 1 << 18


@dataclass(frozen=True)
class ClassCount:
    name: str
    vertices: int
    train: int  # in the first split
    val: int
    test: int


@dataclass(frozen=True)
class Split:
    train: int
    val: int
    test: int
    unused: int  # labelled vertices in none of them
    classes_without_train: int  # of the classes with a vertex


@dataclass(frozen=True)
class Homophily:
    """None where it has no meaning. Of classes: ``edge`` is the share of edges with equal labels; ``insensitive``
    corrects it for the sizes of classes (Lim et al., NeurIPS 2021, eq. 1), ``adjusted`` for what chance would give
    (Platonov et al., NeurIPS 2023, eq. 3). Of several labels per vertex, ``edge`` is the mean overlap (Jaccard) of
    neighbours' labels; of numbers, ``adjusted`` is the correlation of neighbours' labels, in the mean over columns."""

    edge: float | None
    insensitive: float | None
    adjusted: float | None


@dataclass(frozen=True)
class Labels:
    target: str
    classes: int
    names: tuple[str, ...]  # of the classes, if the source has words for them
    labelled: int
    counts: tuple[ClassCount, ...]  # of classes or labels that some vertex has, the most frequent first
    numbers: tuple[tuple[float, float, float, float], ...]  # of every column of numbers: min, mean, max, deviation
    homophily: Homophily
    splits: tuple[Split, ...]


def labels_of(graph: Graph, pairs: Pairs) -> Labels:
    known = labelled(graph)
    member = membership(graph)
    numbers = () if graph.target != "numbers" else tuple(_moments(column) for column in _columns(graph)[known].T)
    return Labels(
        target=graph.target,
        classes=graph.num_classes,
        names=tuple(graph.names.get("classes", ())),
        labelled=int(known.sum()),
        counts=_counts(graph, member),
        numbers=numbers,
        homophily=_homophily(graph, pairs),
        splits=tuple(_split(graph, column, member, known) for column in graph.split.T),
    )


def membership(graph: Graph) -> tuple[Array, Array]:
    """Vertices and classes of all labels, int64 [K] each; empty for numbers."""
    if graph.target == "classes":
        vertices = np.flatnonzero(graph.labels >= 0)
        return vertices, graph.labels[vertices]
    if graph.target == "labels":
        vertices, classes = np.nonzero(graph.labels > 0)
        return vertices, classes
    return np.empty(0, np.int64), np.empty(0, np.int64)


def _counts(graph: Graph, member: tuple[Array, Array]) -> tuple[ClassCount, ...]:
    vertices, classes = member
    role = graph.split[vertices, 0] if graph.split.shape[1] else np.zeros(len(vertices), np.uint8)
    table = np.zeros((TEST + 1, graph.num_classes), np.int64)
    np.add.at(table, (role, classes), 1)
    total = table.sum(axis=0)
    names = graph.names.get("classes") or tuple(map(str, range(graph.num_classes)))
    return tuple(
        ClassCount(names[c], int(total[c]), int(table[TRAIN, c]), int(table[VAL, c]), int(table[TEST, c]))
        for c in np.argsort(-total, kind="stable")[: int(np.count_nonzero(total))]
    )


def _split(graph: Graph, role: Array, member: tuple[Array, Array], known: Array) -> Split:
    vertices, classes = member
    there = np.unique(classes)
    trained = np.unique(classes[role[vertices] == TRAIN])
    count = np.bincount(role[known], minlength=TEST + 1)
    train, val, test, unused = (int(count[r]) for r in (TRAIN, VAL, TEST, NONE))
    return Split(train, val, test, unused, classes_without_train=len(there) - len(trained))


# --- homophily --------------------------------------------------------------------------------------------------------


def _ends(graph: Graph, pairs: Pairs) -> tuple[Array, Array]:
    """Classes of the two ends of every pair of labelled vertices."""
    low, high = graph.labels[pairs.low], graph.labels[pairs.high]
    both = (low >= 0) & (high >= 0)
    return low[both], high[both]


def _homophily(graph: Graph, pairs: Pairs) -> Homophily:
    if graph.target == "labels":
        return Homophily(_overlap(graph.labels > 0, labelled(graph), pairs), None, None)
    if graph.target == "numbers":
        return Homophily(None, None, _correlation(_columns(graph), pairs))
    (low, high), c = _ends(graph, pairs), graph.num_classes
    if not len(low):
        return Homophily(None, None, None)
    equal = low == high
    ends = np.bincount(low, minlength=c) + np.bincount(high, minlength=c)  # D_k
    size = np.bincount(graph.labels[graph.labels >= 0], minlength=c) / np.count_nonzero(graph.labels >= 0)
    own = np.divide(2 * np.bincount(low[equal], minlength=c), ends, out=np.zeros(c), where=ends > 0)
    there, edge = int(np.count_nonzero(size)), float(equal.mean())
    chance = float(((ends / (2 * len(low))) ** 2).sum())
    return Homophily(
        edge=edge,
        insensitive=float(np.maximum(own - size, 0).sum() / (there - 1)) if there > 1 else None,
        adjusted=(edge - chance) / (1 - chance) if chance < 1 else None,
    )


def _overlap(labels: Array, known: Array, pairs: Pairs) -> float | None:
    """Mean of |shared| / |any| over pairs of known labels of which one vertex has any."""
    total, count = 0.0, 0
    for start in range(0, len(pairs.low), BLOCK_PAIRS):
        chosen = slice(start, start + BLOCK_PAIRS)
        low, high = pairs.low[chosen], pairs.high[chosen]
        one, other = labels[low], labels[high]
        shared, any_ = (one & other).sum(axis=1), (one | other).sum(axis=1) * (known[low] & known[high])
        total += float((shared[any_ > 0] / any_[any_ > 0]).sum())
        count += int(np.count_nonzero(any_))
    return total / count if count else None


def _correlation(columns: Array, pairs: Pairs) -> float | None:
    """Correlation of the labels at the two ends of every edge, in both directions."""
    found = []
    for column in columns.T:
        one, other = column[pairs.low], column[pairs.high]
        both = ~np.isnan(one) & ~np.isnan(other)
        x, y = np.concatenate([one[both], other[both]]), np.concatenate([other[both], one[both]])
        if len(x) and x.std() > 0:
            found.append(float(((x - x.mean()) * (y - y.mean())).mean() / x.var()))
    return float(np.mean(found)) if found else None


def _columns(graph: Graph) -> Array:
    return graph.labels.reshape(graph.num_vertices, -1).astype(np.float64)


def _moments(column: Array) -> tuple[float, float, float, float]:
    known = column[~np.isnan(column)]
    if not len(known):
        return (float("nan"),) * 4
    return float(known.min()), float(known.mean()), float(known.max()), float(known.std())
