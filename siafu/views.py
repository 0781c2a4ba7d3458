"""Parts of a shard's edges: those of a lane, of one relation, or the pairs to predict.

A shard holds the union of all edges, so that ghosts, routes and schedules are made once, of everything.
Servers cut it up when they start. Cut edges keep the shard's columns: ghosts that no edge of a part
mentions are simply not read by it.
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

TRAINING = 0  # inductive: the type of edges both of whose ends are training vertices
#: Links: the types of edges that are scored.
PAIRS = {Lane.TRAIN: (TRAIN_PAIR, TRAIN_NEGATIVE), Lane.EVAL: (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE)}
#: Of all edges, the share that must be left out to be worth a second copy of the others.
LEAST_LEFT_OUT = 0.25
#: Of all rows, the most that are worth a copy of their constants, to be computed on alone.
MOST_THAT_FEED = 0.5
_BLOCK_EDGES = 1 << 20  # that are looked at together


def view(shard: Shard, edge_types: EdgeTypes, lane: Lane) -> Shard:
    """The sub-graph that a model gathers along in that lane, with its degrees; the shard itself where nothing is cut.

    Links: the message edges, in both lanes. Inductive: training runs among training vertices, evaluation along all
    edges. Relations are all gathered along: ``typed`` parts them.
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
    """The edges that a gather must pass along whose sums only the loss reads: those into training vertices; or into the
    vertices that are judged.

    ``train``: bool ``[n + g]``, of inner vertices and of the ghosts that edges lead out to. A direction in which hardly
    an edge would be left out keeps all of them. Degrees are those of the shard, which is given back where nothing is
    left out.
    """
    if train.all():  # as where all vertices are judged: looking at every edge takes seconds where there are many
        return shard
    in_edges, out_edges = shard.in_edges, shard.out_edges
    into = _unless_most(
        in_edges, lambda rows, place: np.repeat(train[rows], np.diff(in_edges.indptr[rows.start : rows.stop + 1]))
    )
    out = _unless_most(out_edges, lambda rows, place: train[out_edges.indices[place]])
    whole = into is shard.in_edges and out is shard.out_edges
    return shard if whole else replace(shard, in_edges=into, out_edges=out)


def among(shard: Shard, keep: Array) -> Shard:
    """The sub-graph of the inner vertices for which ``keep``, bool ``[n]``, says so, with all ghosts and the edges from
    them: numbered anew, in the same order. Edges have no types then. Features are left out: they may be gigabytes."""
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
    """The share of edges that such a gather passes along, where this share of them leads into training vertices."""
    return share if share <= 1 - LEAST_LEFT_OUT else 1.0


def share_that_feeds(share: float) -> float:
    """The share of rows that stages before the loss's gather compute on, where it reads this share of them."""
    return share if share <= MOST_THAT_FEED else 1.0


def few(which: Array) -> bool:
    """Whether so few of these rows, bool ``[n]``, are meant that they are held, or computed on, apart from others."""
    return len(which) > 0 and share_that_feeds(float(which.mean())) < 1.0


def typed(edges: Edges, num_types: int) -> list[Edges]:
    """The edges of each type, 0 to ``num_types - 1``, as a CSR of its own; ``edges``
    themselves if they have no types."""
    if edges.type is None:
        assert num_types == 1, num_types
        return [edges]
    kind = np.asarray(edges.type)
    order = np.argsort(kind, kind="stable")  # a radix sort: its time does not grow with the number of types
    cuts = np.searchsorted(kind[order], np.arange(num_types + 1))
    return [_rows_at(edges, order[cuts[r] : cuts[r + 1]]) for r in range(num_types)]


def of_types(edges: Edges, types: Collection[int]) -> Edges:
    """The edges of these types alone, which keep their types: of a server's in-edges, the pairs ``u -> v`` that it
    scores."""
    kinds = edges.type
    assert kinds is not None

    def keeps(rows: slice, place: slice) -> Array:
        return np.asarray(np.logical_or.reduce([kinds[place] == kind for kind in types]))

    return _where(edges, keeps, _count(edges, keeps), typed=True)


def _along(shard: Shard, kind: int) -> Shard:
    """The shard with the edges of this type alone, which have no types then."""
    into = _of_type(shard.in_edges, kind)
    return replace(shard, in_edges=into, out_edges=into if shard.undirected else _of_type(shard.out_edges, kind))


def _of_type(edges: Edges, kind: int) -> Edges:
    kinds = edges.type
    assert kinds is not None

    def keeps(rows: slice, place: slice) -> Array:
        return np.asarray(kinds[place] == kind)

    return _where(edges, keeps, _count(edges, keeps))


#: Asked with a range of rows and that of their entries: bool, which of these entries are meant.
Keeps = Callable[[slice, slice], Array]


def _unless_most(edges: Edges, keeps: Keeps) -> Edges:
    """The entries for which ``keeps`` says so, without their types; all of them where that would leave out too few."""
    total = _count(edges, keeps)
    return edges if share_of_loss(total / max(1, len(edges.indices))) == 1.0 else _where(edges, keeps, total)


def _count(edges: Edges, keeps: Keeps) -> int:
    return sum(int(np.count_nonzero(keeps(rows, place))) for rows, place in _in_blocks(edges))


def _where(edges: Edges, keeps: Keeps, total: int, *, typed: bool = False) -> Edges:
    """The ``total`` entries for which ``keeps`` says so; ``typed``: with their types. In blocks, and counted before:
    positions of all entries would take more than the entries, and so would parts that are joined in the end."""
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
    """Ranges of rows, and those of their entries."""
    indptr = np.asarray(edges.indptr)
    for start, stop in blocks(indptr, _BLOCK_EDGES):
        yield slice(start, stop), slice(int(indptr[start]), int(indptr[stop]))


def _rows_at(edges: Edges, positions: Array) -> Edges:
    """The entries at these ascending positions, without their types."""
    weight = None if edges.weight is None else np.asarray(edges.weight)[positions]
    indptr = np.searchsorted(positions, edges.indptr).astype(np.int64)
    return Edges(indptr, np.asarray(edges.indices)[positions], weight)
