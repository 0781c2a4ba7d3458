"""The parts of a shard whose edges have types: what a lane gathers along, one relation, the pairs that are predicted.

A shard holds the union of all edges, so that ghosts, routes and schedules are made once, of everything.
Servers cut it up when they start. Cut edges keep the shard's columns: ghosts that no edge of a part
mentions are simply not read by it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from siafu.graph import MESSAGE
from siafu.shards import Edges, EdgeTypes, Shard
from siafu.sparse import Array
from siafu.tasks import Lane

TRAINING = 0  # inductive: the type of edges both of whose ends are training vertices


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


def pairs(shard: Shard, types: Collection[int]) -> Edges:
    """The in-edges of these types, with their types: the pairs ``u -> v`` that v's server scores."""
    assert shard.in_edges.type is not None
    chosen = np.isin(shard.in_edges.type, list(types))
    positions = np.flatnonzero(chosen)
    return replace(_rows_at(shard.in_edges, positions), type=np.asarray(shard.in_edges.type)[positions])


def _along(shard: Shard, kind: int) -> Shard:
    """The shard with the edges of this type alone, which have no types then."""
    into = _of_type(shard.in_edges, kind)
    return replace(shard, in_edges=into, out_edges=into if shard.undirected else _of_type(shard.out_edges, kind))


def _of_type(edges: Edges, kind: int) -> Edges:
    assert edges.type is not None
    return _rows_at(edges, np.flatnonzero(np.asarray(edges.type) == kind))


def _rows_at(edges: Edges, positions: Array) -> Edges:
    """The entries at these ascending positions, without their types."""
    weight = None if edges.weight is None else np.asarray(edges.weight)[positions]
    indptr = np.searchsorted(positions, edges.indptr).astype(np.int64)
    return Edges(indptr, np.asarray(edges.indices)[positions], weight)
