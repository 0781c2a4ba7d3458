"""Parts of a shard's edges: those of a lane, of one relation, or the pairs to predict.

A shard holds the union of all edges, so that ghosts, routes and schedules are made once, for all of them. Servers cut
it up when they start. Cut edges keep the shard's columns: ghosts without an edge in a part are simply not read there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace

import numpy as np

from siafu.graph import (
    MESSAGE,
    TEST_NEGATIVE,
    TEST_PAIR,
    TRAIN_NEGATIVE,
    TRAIN_PAIR,
    VAL_NEGATIVE,
    VAL_PAIR,
)
from siafu.shards import Edges, EdgeTypes, Shard
from siafu.sparse import Array, blocks
from siafu.tasks import Lane

TRAINING = 0  # inductive: the type of edges between two training vertices
#: Links: the types of edges that are scored.
PAIRS = {Lane.TRAIN: (TRAIN_PAIR, TRAIN_NEGATIVE), Lane.EVAL: (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE)}
#: The least share of edges left out that is worth a second copy of the others.
LEAST_LEFT_OUT = 0.25
#: The largest share of rows for which a separate computation is worth a copy of their constants.
MOST_THAT_FEED = 0.5
_BLOCK_EDGES = 1 << 20  # edges per block


def view(shard: Shard, edge_types: EdgeTypes, lane: Lane) -> Shard:
    """Returns the sub-graph along which a model gathers in a lane, with its degrees; the shard itself if it is whole.

    Links: the message edges, in both lanes. Inductive: edges among training vertices in training, all edges in an
    evaluation. Relations: all edges; ``typed`` separates them.
    """
    if edge_types == "links":
        return _along(shard, MESSAGE)
    if edge_types == "inductive" and lane is Lane.TRAIN:
        into, out = shard.train_degree_ghosts_in, shard.train_degree_ghosts_out
        assert shard.train_degree is not None
        assert into is not None
        assert out is not None
        degrees = replace(shard, degree=shard.train_degree, degree_ghosts_in=into, degree_ghosts_out=out)
        return _along(degrees, TRAINING)
    return shard


def into_training(shard: Shard, train: Array) -> Shard:
    """Returns the shard with only the edges into vertices that count: the edges needed by a gather whose sums only the
    loss, or only an evaluation, reads.

    ``train``: bool ``[n + g]``, whether each inner vertex and each ghost at the end of an out-edge counts. A direction
    in which few edges would be left out keeps all of them. Degrees are unchanged. Returns the shard itself if nothing
    is left out.
    """
    if train.all():  # such as if all vertices are judged: reading all edges of a large graph takes seconds
        return shard
    in_edges, out_edges = shard.in_edges, shard.out_edges
    into = _unless_most(
        in_edges, lambda rows, place: np.repeat(train[rows], np.diff(in_edges.indptr[rows.start : rows.stop + 1]))
    )
    out = _unless_most(out_edges, lambda rows, place: train[out_edges.indices[place]])
    whole = into is shard.in_edges and out is shard.out_edges
    return shard if whole else replace(shard, in_edges=into, out_edges=out)


def among(shard: Shard, keep: Array) -> Shard:
    """Returns the sub-graph of the inner vertices where ``keep``, bool ``[n]``, is true, with all ghosts and their
    edges. Vertices are renumbered in the same order. Types of edges are left out, and features, which may be
    gigabytes."""
    g = max(len(shard.ghosts_in), len(shard.ghosts_out))
    rows = np.flatnonzero(keep)
    number = np.append(np.cumsum(keep) - 1, len(rows) + np.arange(g)).astype(np.int32)  # of a column
    stays = np.append(keep, np.ones(g, bool))

    def cut(edges: Edges) -> Edges:
        indptr = edges.indptr

        def keeps(rows: slice, place: slice) -> Array:
            row = np.repeat(keep[rows], np.diff(indptr[rows.start : rows.stop + 1]))
            return np.asarray(row & stays[edges.indices[place]])

        total = _count(edges, keeps)
        found = replace(edges, type=None) if total == len(edges.indices) else _where(edges, keeps, total)
        renumbered = np.empty(total, np.int32)
        for _, place in _in_blocks(found):
            renumbered[place] = number[found.indices[place]]
        return Edges(np.append(0, np.asarray(found.indptr[1:])[keep]), renumbered, found.weight)

    in_edges = cut(shard.in_edges)
    degree = shard.train_degree
    return replace(
        shard,
        vertices=np.asarray(shard.vertices)[rows],
        in_edges=in_edges,
        out_edges=in_edges if shard.undirected else cut(shard.out_edges),
        degree=np.asarray(shard.degree)[rows],
        features=shard.features[:0],
        labels=np.asarray(shard.labels)[rows],
        split=np.asarray(shard.split)[rows],
        train_degree=None if degree is None else np.asarray(degree)[rows],
    )


def share_of_loss(share: float) -> float:
    """Returns the share of edges that a gather of the loss uses, if this share of edges leads into training
    vertices."""
    return share if share <= 1 - LEAST_LEFT_OUT else 1.0


def share_that_feeds(share: float) -> float:
    """Returns the share of rows that stages before the loss's gather compute on, if that gather reads this share."""
    return share if share <= MOST_THAT_FEED else 1.0


def few(which: Array) -> bool:
    """Whether so few rows are chosen, bool ``[n]``, that holding them apart, and computing on them alone, pays."""
    return len(which) > 0 and share_that_feeds(float(which.mean())) < 1.0


def typed(edges: Edges, num_types: int) -> list[Edges]:
    """Returns the edges of each type, 0 to ``num_types - 1``, as a CSR of its own; ``edges`` themselves if they have no
    types."""
    if edges.type is None:
        assert num_types == 1, num_types
        return [edges]
    kind = np.asarray(edges.type)
    order = np.argsort(kind, kind="stable")  # a radix sort: its time does not grow with the number of types
    cuts = np.searchsorted(kind[order], np.arange(num_types + 1))
    return [_rows_at(edges, order[cuts[r] : cuts[r + 1]]) for r in range(num_types)]


def of_types(edges: Edges, types: Collection[int]) -> Edges:
    """Returns only the edges of these types, with their types. Of in-edges these are the pairs ``u -> v`` that a server
    scores."""
    kinds = edges.type
    assert kinds is not None

    def keeps(rows: slice, place: slice) -> Array:
        return np.asarray(np.logical_or.reduce([kinds[place] == kind for kind in types]))

    return _where(edges, keeps, _count(edges, keeps), typed=True)


def _along(shard: Shard, kind: int) -> Shard:
    """Returns the shard with only the edges of this type, without types."""
    into = _of_type(shard.in_edges, kind)
    return replace(shard, in_edges=into, out_edges=into if shard.undirected else _of_type(shard.out_edges, kind))


def _of_type(edges: Edges, kind: int) -> Edges:
    kinds = edges.type
    assert kinds is not None

    def keeps(rows: slice, place: slice) -> Array:
        return np.asarray(kinds[place] == kind)

    return _where(edges, keeps, _count(edges, keeps))


#: (Range of rows, range of their entries) -> bool, whether to keep each of these entries.
Keeps = Callable[[slice, slice], Array]


def _unless_most(edges: Edges, keeps: Keeps) -> Edges:
    """Returns the entries that ``keeps`` selects, without types; ``edges`` themselves if too few would be left out."""
    total = _count(edges, keeps)
    return edges if share_of_loss(total / max(1, len(edges.indices))) == 1.0 else _where(edges, keeps, total)


def _count(edges: Edges, keeps: Keeps) -> int:
    return sum(int(np.count_nonzero(keeps(rows, place))) for rows, place in _in_blocks(edges))


def _where(edges: Edges, keeps: Keeps, total: int, *, typed: bool = False) -> Edges:
    """Returns the ``total`` entries that ``keeps`` selects; ``typed``: with their types. Works in blocks, with the
    total known: positions of all entries would take more memory than the entries, and so would joining parts."""
    indptr = np.zeros(len(edges.indptr), np.int64)
    whole = (edges.indices, edges.weight, edges.type if typed else None)
    indices, weight, kind = (None if values is None else np.empty(total, values.dtype) for values in whole)
    assert indices is not None
    for rows, place in _in_blocks(edges):
        positions = np.flatnonzero(keeps(rows, place))
        ends = np.asarray(edges.indptr[rows.start + 1 : rows.stop + 1]) - place.start
        indptr[rows.start + 1 : rows.stop + 1] = indptr[rows.start] + np.searchsorted(positions, ends)
        to = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
        for values, found in zip(whole, (indices, weight, kind), strict=True):
            if values is not None and found is not None:
                found[to] = np.asarray(values[place])[positions]
    return Edges(indptr, indices, weight, kind)


def _in_blocks(edges: Edges) -> Iterator[tuple[slice, slice]]:
    """Yields (range of rows, range of their entries) of each block."""
    indptr = np.asarray(edges.indptr)
    for start, stop in blocks(indptr, _BLOCK_EDGES):
        yield slice(start, stop), slice(int(indptr[start]), int(indptr[stop]))


def _rows_at(edges: Edges, positions: Array) -> Edges:
    """Returns the entries at these ascending positions, without types."""
    weight = None if edges.weight is None else np.asarray(edges.weight)[positions]
    indptr = np.searchsorted(positions, edges.indptr).astype(np.int64)
    return Edges(indptr, np.asarray(edges.indices)[positions], weight)
