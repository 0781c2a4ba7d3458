"""Finds vertices that are copies of others: a model need not understand a test vertex whose copy it has seen in
training.

Two rows are called equal if their 64-bit hashes are: of ten million rows, that is wrong
about a pair once in 400,000 graphs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_data.inspection.structure import Pairs
from siafu.features import Matrix, blocks
from siafu.graph import TEST, TRAIN, Graph, labelled
from siafu.ops import splitmix
from siafu.sparse import Array, SparseRows


@dataclass(frozen=True)
class Copies:
    """Vertices that share something with another vertex, and test vertices that share it with a training vertex."""

    vertices: int
    in_train: tuple[int, ...]  # of test vertices, per split


@dataclass(frozen=True)
class Twins:
    """``neighbours``: the same label and the same targets of their edges as listed, at least one (as in squirrel and
    chameleon: Platonov et al., ICLR 2023); ``features``: the same feature row, not of zeros alone; ``both``: the same
    features and targets."""

    neighbours: Copies
    features: Copies
    both: Copies
    zero_features: int  # vertices whose features are zeros


def twins_of(graph: Graph, pairs: Pairs) -> Twins:
    targets, linked = _targets(pairs)
    rows, filled = _features(graph.features)
    label = _labels(graph)
    split = graph.split
    known = np.ones(len(label), bool) if graph.target == "numbers" else labelled(graph)
    return Twins(
        neighbours=_copies(splitmix(targets ^ splitmix(label)), linked & known, split),
        features=_copies(rows, filled, split),
        both=_copies(splitmix(targets ^ splitmix(rows)), linked & filled, split),
        zero_features=int(np.count_nonzero(~filled)),
    )


def _copies(hashes: Array, counts: Array, split: Array) -> Copies:
    """The counted vertices whose hash another counted vertex has."""
    vertices = np.flatnonzero(counts)
    _, group, size = np.unique(hashes[vertices], return_inverse=True, return_counts=True)
    twin = size[group] > 1
    leaked = []
    for role in split[vertices].T:
        trained = np.zeros(len(size), bool)
        trained[group[role == TRAIN]] = True
        leaked.append(int(np.count_nonzero(trained[group] & (role == TEST))))
    return Copies(int(np.count_nonzero(twin)), tuple(leaked))


# --- hashes -----------------------------------------------------------------------------------------------------------


def _targets(pairs: Pairs) -> tuple[Array, Array]:
    """A hash of every vertex' set of targets, uint64 [N], and whether it has any."""
    indptr, dst = pairs.neighbours()
    return _row_sums(splitmix(dst.astype(np.uint64)), indptr), np.diff(indptr) > 0


def _features(features: Matrix | SparseRows) -> tuple[Array, Array]:
    """A hash of each row, equal for dense and sparse rows, uint64 [N], and whether the row has a value other than 0."""
    if isinstance(features, SparseRows):
        terms = np.where(features.data != 0, _term(features.data, features.indices), np.uint64(0))
        filled = _row_sums((features.data != 0).astype(np.uint64), features.indptr) > 0
        return _row_sums(terms, features.indptr), filled
    hashes, filled = np.empty(len(features), np.uint64), np.empty(len(features), bool)
    column = np.arange(features.shape[1])
    for start, block in blocks(features):
        terms = np.where(block != 0, _term(block, column), np.uint64(0))
        hashes[start : start + len(block)] = terms.sum(axis=1, dtype=np.uint64)
        filled[start : start + len(block)] = (block != 0).any(axis=1)
    return hashes, filled


def _term(values: Array, column: Array) -> Array:
    return splitmix(values.astype(np.float64).view(np.uint64) ^ splitmix(column.astype(np.uint64)))


def _labels(graph: Graph) -> Array:
    if graph.target == "classes":
        return graph.labels.astype(np.uint64)
    return _features(graph.labels.reshape(graph.num_vertices, -1))[0]


def _row_sums(terms: Array, indptr: Array) -> Array:
    """Sums of rows modulo 2^64: an overflow of the running sum cancels in the differences."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(terms, dtype=np.uint64)])
    sums: Array = total[indptr[1:]] - total[indptr[:-1]]
    return sums
