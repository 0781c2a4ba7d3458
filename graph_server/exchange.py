"""The plan of Scatter: which rows of each interval go to which peer, and where rows of peers are stored here.

Both ends derive the plan once, before the first epoch. The owner of a vertex knows from its shard which peers have an
edge with it, and tells them (``GhostMap``) the order of each interval's rows. So a published row is sent once to each
server that needs it, and without an id.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from siafu.errors import RemoteProtocolError
from siafu.shards import Shard
from siafu.sparse import Array, Edges

Bounds = list[tuple[int, int]]
#: Edges per block: a second copy of all edges of a partition may not fit into memory. About 30 bytes each meanwhile.
EDGES_AT_ONCE = 1 << 20


def bounds_of(num_rows: int, num_intervals: int) -> Bounds:
    """Row ranges of a partition's intervals: equal slices of its vertex order, which prepare cut along clusters."""
    cuts = [num_rows * i // num_intervals for i in range(num_intervals + 1)]
    return list(itertools.pairwise(cuts))


def needed_rows(shard: Shard, bounds: Bounds, *, backward: bool, read: Array | None = None) -> dict[int, list[Array]]:
    """Returns peer -> for each interval the rows that the peer gathers: int64, ascending, relative to the interval.

    Forward a peer gathers the source of an edge into it; backward, the target of an edge out of it. ``read``: bool, by
    ghost at the other ends of our edges: peers gather for these alone.
    """
    edges, owner = (shard.in_edges, shard.ghosts_in_owner) if backward else (shard.out_edges, shard.ghosts_out_owner)
    num_inner, owner_of = len(shard.vertices), np.asarray(owner)
    is_needed = np.zeros((shard.num_partitions, num_inner), bool)
    for row, ghost in _crossing_edges(edges, num_inner) if len(owner_of) else ():
        if read is not None:
            chosen = read[ghost]
            row, ghost = row[chosen], ghost[chosen]
        is_needed[owner_of[ghost], row] = True
    plan = {}
    for peer in (p for p in range(shard.num_partitions) if p != shard.index):
        rows = np.flatnonzero(is_needed[peer])
        cuts = np.searchsorted(rows, [start for start, _ in bounds] + [num_inner])
        plan[peer] = [rows[cuts[i] : cuts[i + 1]] - start for i, (start, _) in enumerate(bounds)]
    return plan


def ghosts_read(shard: Shard, *, backward: bool, rows: Array | None = None) -> Array:
    """Returns bool, by ghost of the direction: whether a gather reads it. ``rows``: bool ``[n]``, the only rows that
    gather; None: all do.

    Forward a gather reads the source of an edge into us; backward, the target of an edge out of us.
    """
    edges, ghosts = (shard.out_edges, shard.ghosts_out) if backward else (shard.in_edges, shard.ghosts_in)
    found = np.zeros(len(ghosts), np.bool_)
    for row, ghost in _crossing_edges(edges, len(shard.vertices)) if len(found) else ():
        found[ghost if rows is None else ghost[rows[row]]] = True
    return found


def _crossing_edges(edges: Edges, num_inner: int) -> Iterator[tuple[Array, Array]]:
    """Yields, in blocks, the edges between an inner vertex and a ghost: (rows, ghosts' numbers)."""
    indptr = np.asarray(edges.indptr)
    for first in range(0, len(edges.indices), EDGES_AT_ONCE):
        column = np.asarray(edges.indices[first : first + EDGES_AT_ONCE])
        remote = np.flatnonzero(column >= num_inner)
        yield np.searchsorted(indptr, first + remote, side="right") - 1, column[remote] - num_inner


class GhostPlaces:
    """The positions of every interval's rows in a base array of inner vertices followed by ghosts, in one direction."""

    def __init__(self, shard: Shard, first_interval: int, bounds: Bounds, *, backward: bool):
        self._ghosts = np.asarray(shard.ghosts_out if backward else shard.ghosts_in)
        self._owner = np.asarray(shard.ghosts_out_owner if backward else shard.ghosts_in_owner)
        self._num_inner = len(shard.vertices)
        self._per_server = len(bounds)
        self.places: dict[int, slice | Array] = {
            first_interval + i: slice(start, stop) for i, (start, stop) in enumerate(bounds)
        }

    def add(self, peer: int, interval: int, vertices: Array) -> None:
        """Records that the rows of a peer's interval will be those of these vertices. Raises: RemoteProtocolError if
        one is not a ghost of the peer's here, or the interval is not the peer's."""
        if interval // self._per_server != peer:
            raise RemoteProtocolError(f"graph_server {peer}: interval {interval} is not its own")
        first, last = np.searchsorted(self._owner, [peer, peer + 1])
        mine = self._ghosts[first:last]
        found = np.searchsorted(mine, vertices)
        if (found >= len(mine)).any() or (mine[found] != vertices).any():
            raise RemoteProtocolError(f"graph_server {peer}: a vertex of interval {interval} is not a ghost here")
        if len(vertices):
            self.places[interval] = self._num_inner + first + found

    def interval_of_row(self) -> Array:
        """Returns the global interval number of every row of the base array. Raises: RemoteProtocolError if a ghost has
        no interval."""
        interval = np.full(self._num_inner + len(self._ghosts), -1, np.int64)
        for number, place in self.places.items():
            interval[place] = number
        if (interval < 0).any():
            ghost = int(np.flatnonzero(interval < 0)[0]) - self._num_inner
            raise RemoteProtocolError(
                f"graph_server {self._owner[ghost]}: will not send the rows of vertex {self._ghosts[ghost]}"
            )
        return interval
