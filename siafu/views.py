"""Parts of a shard's edges: those of a lane, of one relation, or the pairs to predict.

A shard holds the union of all edges, so that ghosts, routes and schedules are made once, of everything.
Servers cut it up when they start. Cut edges keep the shard's columns: ghosts that no edge of a part
mentions are simply not read by it.
"""

from __future__ import annotations

import itertools
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
from siafu.sparse import Array
from siafu.tasks import Lane

TRAINING = 0  # inductive: the type of edges both of whose ends are training vertices
#: Links: the types of edges that are scored.
PAIRS = {Lane.TRAIN: (TRAIN_PAIR, TRAIN_NEGATIVE), Lane.EVAL: (VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE)}
#: Of all edges, the share that must be left out to be worth a second copy of the others.
LEAST_LEFT_OUT = 0.25
#: Of all rows, the most that are worth a copy of their constants, to be computed on alone.
MOST_THAT_FEED = 0.5
_BLOCK_EDGES = 1 << 22  # that are looked at together


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
    into = _where(shard.in_edges, lambda rows, columns, counts: np.repeat(train[rows], counts))
    out = _where(shard.out_edges, lambda rows, columns, counts: train[columns])
    whole = into is shard.in_edges and out is shard.out_edges
    return shard if whole else replace(shard, in_edges=into, out_edges=out)


def share_of_loss(share: float) -> float:
    """The share of edges that such a gather passes along, where this share of them leads into training vertices."""
    return share if share <= 1 - LEAST_LEFT_OUT else 1.0


def share_that_feeds(share: float) -> float:
    """The share of rows that stages before the loss's gather compute on, where it reads this share of them."""
    return share if share <= MOST_THAT_FEED else 1.0


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


def pairs(shard: Shard, types: Collection[int]) -> Shard:
    """The shard with the edges of these types alone, which keep their types: the pairs ``u -> v`` that v's server
    scores."""
    into = _of_types(shard.in_edges, types)
    return replace(shard, in_edges=into, out_edges=into if shard.undirected else _of_types(shard.out_edges, types))


def _of_types(edges: Edges, types: Collection[int]) -> Edges:
    assert edges.type is not None
    positions = np.flatnonzero(np.isin(edges.type, list(types)))
    return replace(_rows_at(edges, positions), type=np.asarray(edges.type)[positions])


def _along(shard: Shard, kind: int) -> Shard:
    """The shard with the edges of this type alone, which have no types then."""
    into = _of_type(shard.in_edges, kind)
    return replace(shard, in_edges=into, out_edges=into if shard.undirected else _of_type(shard.out_edges, kind))


def _of_type(edges: Edges, kind: int) -> Edges:
    assert edges.type is not None
    return _rows_at(edges, np.flatnonzero(np.asarray(edges.type) == kind))


def _where(edges: Edges, keeps: Callable[[slice, Array, Array], Array]) -> Edges:
    """The entries for which ``keeps`` says so, without their types; asked with a range of rows, the columns of their
    entries and how many each row has. All of them where that would leave out too few."""
    indptr = np.asarray(edges.indptr)
    cuts = np.unique(np.searchsorted(indptr, [*range(0, int(indptr[-1]), _BLOCK_EDGES), int(indptr[-1])]))

    def blocks() -> Iterator[tuple[int, int, slice, Array, Array]]:
        for start, stop in itertools.pairwise(cuts.tolist()):
            place = slice(int(indptr[start]), int(indptr[stop]))
            columns = np.asarray(edges.indices[place])
            yield start, stop, place, columns, keeps(slice(start, stop), columns, np.diff(indptr[start : stop + 1]))

    total = sum(int(chosen.sum()) for *_, chosen in blocks())
    if share_of_loss(total / max(1, len(edges.indices))) == 1.0:
        return edges
    kept = np.zeros_like(indptr)
    indices = np.empty(total, np.int32)
    weight = None if edges.weight is None else np.empty(total, np.float32)
    for start, stop, place, columns, chosen in blocks():
        kept[start + 1 : stop + 1] = (
            kept[start] + np.append(0, np.cumsum(chosen))[indptr[start + 1 : stop + 1] - place.start]
        )
        to = slice(int(kept[start]), int(kept[stop]))
        indices[to] = columns[chosen]
        if weight is not None and edges.weight is not None:
            weight[to] = np.asarray(edges.weight[place])[chosen]
    kept[cuts[-1] :] = kept[cuts[-1]]
    return Edges(kept, indices, weight)


def _rows_at(edges: Edges, positions: Array) -> Edges:
    """The entries at these ascending positions, without their types."""
    weight = None if edges.weight is None else np.asarray(edges.weight)[positions]
    indptr = np.searchsorted(positions, edges.indptr).astype(np.int64)
    return Edges(indptr, np.asarray(edges.indices)[positions], weight)
