"""Exchanges of servers before the first epoch: which rows each will send, and the features of ghosts.

1. Every server tells each peer which rows of which interval it will send, in both directions (``GhostMap``).
2. Once all maps are in, a server knows the place of every published row, and the edges between intervals
   (``Crossing``). Maps cover all edges; a Scatter sends the rows that are read along its lane's edges (``Travelling``).
3. A server sends features of the vertices that a peer gathers to each peer that wants them (``ConstantRows``). Layer 0
   needs them once, unless its aggregate is kept from an earlier run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_server.aggregate import edges_between
from graph_server.exchange import Bounds, GhostPlaces, ghosts_read, needed_rows
from graph_server.lane_view import LaneView
from graph_server.scheduler import Crossing
from siafu import ops
from siafu.address import Send, graph_server
from siafu.errors import RemoteProtocolError
from siafu.graph import NONE, TRAIN
from siafu.shards import Shard
from siafu.sparse import Array, EdgeRows, Rows, stack
from siafu.tasks import Lane, Step
from siafu.wire import ConstantRows, GhostMap


def counts(lane: Lane, split: Array) -> Array:
    """Returns bool, by vertex: whether its output counts in the lane. Training vertices count in training, vertices of
    any split in an evaluation."""
    return np.asarray(split == TRAIN if lane is Lane.TRAIN else split != NONE)


@dataclass(frozen=True)
class Travelling:
    """The rows of a Scatter that are sent to peers, and received from them."""

    #: Interval, own or a peer's -> positions of its rows in a base array of inner vertices followed by ghosts. For a
    #: peer's interval: only of the rows that we read, possibly none.
    places: dict[int, slice | Array]
    needed: dict[int, list[Array]]  # peer -> by interval: the rows that it reads, as in ``needed_rows``
    bounds: Bounds


class Ghosts:
    """The ghosts of one partition: which rows servers exchange, and their places. Tables have the keys ``False``
    (forward) and ``True`` (backward)."""

    def __init__(self, shard: Shard, intervals: list[int], bounds: Bounds, split: Array, *, wants_features: bool):
        """``split``: uint8 ``[n]``, the vertices' roles."""
        self.shard, self.intervals, self.bounds, self.wants_features = shard, intervals, bounds, wants_features
        self.split = split
        self.needed = {b: needed_rows(shard, bounds, backward=b) for b in (False, True)}
        self._places = {b: GhostPlaces(shard, intervals[0], bounds, backward=b) for b in (False, True)}
        # All mutable state:
        self._roles = np.zeros(len(shard.ghosts_out), np.uint8)  # of the ghosts backwards
        self._maps_due = (shard.num_partitions - 1) * len(intervals) * 2
        self._wanting: set[int] = set()  # peers that want features
        # a peer's interval -> features of those of its vertices that are ghosts here
        self._features: dict[int, Rows] = {}
        self._travelling: dict[tuple[Lane, str, bool, bool], Travelling] = {}  # once all maps are in, by ``_key``

    # --- 1 ------------------------------------------------------------------------------------------------------------

    def greet(self) -> list[Send]:
        vertices = np.asarray(self.shard.vertices)
        return [
            Send(
                graph_server(peer),
                GhostMap(
                    self.shard.index,
                    backward,
                    interval,
                    self.wants_features,
                    vertices[start + rows].astype(np.int64),
                    self.split[start + rows],
                ),
            )
            for backward, plan in self.needed.items()
            for peer, by_interval in plan.items()
            for interval, (start, _), rows in zip(self.intervals, self.bounds, by_interval, strict=True)
        ]

    def add_map(self, message: GhostMap) -> None:
        places = self._places[message.backward]
        places.add(message.server, message.interval, message.vertices)
        if message.roles.shape != message.vertices.shape:
            raise RemoteProtocolError(
                f"graph_server {message.server}: {len(message.roles)} roles of {len(message.vertices)} vertices"
            )
        if message.backward and len(message.vertices):
            place = np.asarray(places.places[message.interval])
            self._roles[place - len(self.shard.vertices)] = message.roles
        if message.wants_features:
            self._wanting.add(message.server)
        self._maps_due -= 1

    @property
    def mapped(self) -> bool:
        """Whether every peer has said what it will send."""
        return self._maps_due == 0

    # --- 2 ------------------------------------------------------------------------------------------------------------

    def counts(self, lane: Lane) -> Array:
        """Returns bool ``[n + g]``, for inner vertices and backward ghosts: whether each counts. Needs all maps."""
        return counts(lane, np.append(self.split, self._roles))

    def map_reads(self, lane: Lane, step: Step, along: Shard, seen: LaneView) -> dict[int, slice | Array]:
        """Finds the rows of the Scatter ``step`` that the lane reads, if it gathers along the edges ``along`` of the
        vertices ``seen``. Returns ``Travelling.places``. Needs all maps.

        Both ends of an edge find the same rows, so that no further message is needed. Steps of the loss read, forward,
        rows with an edge into a vertex that counts; backward, rows of vertices that count, since all others are zero.
        """
        key = _key(lane, step)
        if key not in self._travelling:
            self._travelling[key] = self._found(lane, step, along, seen)
        return self._travelling[key].places

    def _found(self, lane: Lane, step: Step, along: Shard, seen: LaneView) -> Travelling:
        backward, places, bounds = step.backward, self._places[step.backward].places, seen.bounds
        if along is self.shard and not step.of_loss:
            return Travelling(places, self.needed[backward], bounds)
        own, ghosts = np.split(self.counts(lane), [len(self.split)])
        own = np.asarray(seen.take(own))
        if step.of_loss and not backward:
            read = ghosts_read(along, backward=False, rows=own)
            needed = needed_rows(along, bounds, backward=False, read=ghosts)
        elif along is self.shard:  # the loss's backward: the edges need not be read again
            read, needed = ghosts, self.needed[True]
        else:
            read = ghosts_read(along, backward=backward)
            needed = needed_rows(along, bounds, backward=backward)
        if step.of_loss and backward:
            read = read & ghosts
            needed = {
                peer: [rows[own[start + rows]] for (start, _), rows in zip(bounds, by_interval, strict=True)]
                for peer, by_interval in needed.items()
            }
        inner = len(self.shard.vertices)
        mine: dict[int, slice | Array] = {i: slice(*rows) for i, rows in zip(self.intervals, bounds, strict=True)}
        for interval, place in places.items():
            if not isinstance(place, slice):
                ghost = place - inner
                mine[interval] = len(seen.shard.vertices) + ghost[read[ghost]]
        return Travelling(mine, needed, bounds)

    def rows_for(self, peer: int, local: int, lane: Lane, step: Step) -> Array | None:
        """Returns the rows of a local interval that a Scatter sends to the peer, possibly none, as row numbers of the
        lane's view. None: none of the interval's vertices is a ghost of the peer."""
        if not len(self.needed[step.backward][peer][local]):
            return None
        found = self._travelling[_key(lane, step)]
        return np.asarray(found.bounds[local][0] + found.needed[peer][local])

    def crossing(self, *, backward: bool) -> tuple[Crossing, list[Array]]:
        """Returns the scheduler's view of the edges between intervals, and for each of our intervals the others that it
        gathers from."""
        interval_of = self._places[backward].interval_of_row()
        return _crossing(edges_between(self.shard, interval_of, self.bounds, backward=backward), self.intervals)

    # --- 3 ------------------------------------------------------------------------------------------------------------

    def features_for_peers(self) -> list[Send]:
        sends = []
        for peer, by_interval in self.needed[False].items():
            if peer not in self._wanting:
                continue
            for interval, (start, stop), rows in zip(self.intervals, self.bounds, by_interval, strict=True):
                if len(rows):
                    features = ops.take(self.shard.features[start:stop], rows)
                    sends.append(
                        Send(graph_server(peer), ConstantRows(self.shard.index, interval, {"features": features}))
                    )
        return sends

    def add_features(self, message: ConstantRows) -> None:
        rows = message.rows.get("features")
        if rows is None or isinstance(rows, EdgeRows) or rows.shape[1:] != self.shard.features.shape[1:]:
            raise RemoteProtocolError(
                f"graph_server {message.server}: no features of {self.shard.features.shape[1]} columns"
            )
        self._features[message.interval] = rows

    @property
    def complete(self) -> bool:
        """Whether all maps are here, and the features of every ghost, if they are wanted."""
        wanted = len(self._places[False].places) - len(self.intervals) if self.wants_features else 0
        return self.mapped and len(self._features) >= wanted

    def take_features(self) -> Rows | None:
        """Returns the features of the ghosts ``[g, F]``, None if none were received; frees the received messages.

        Raises: RemoteProtocolError if the number of rows is not that of the interval's ghosts.
        """
        for interval, rows in self._features.items():
            place = self._places[False].places.get(interval)
            if not isinstance(place, np.ndarray) or len(place) != len(rows):
                raise RemoteProtocolError(
                    f"features of interval {interval}: {len(rows)} rows, not those of its ghosts here"
                )
        if not self._features:
            return None
        position = np.concatenate([np.asarray(self._places[False].places[i]) for i in self._features])
        received = stack(list(self._features.values()))
        self._features = {}
        return ops.take(received, np.argsort(position))


def _key(lane: Lane, step: Step) -> tuple[Lane, str, bool, bool]:
    """Returns the key of a Scatter in ``Ghosts._travelling``: Scatters with the same key send the same rows."""
    return lane, step.operator, step.backward, step.of_loss


def _crossing(between: list[tuple[Array, Array]], intervals: list[int]) -> tuple[Crossing, list[Array]]:
    """Builds the results of ``Ghosts.crossing``. ``between``: one entry per local interval, from ``edges_between``."""
    row = np.repeat(np.arange(len(between)), [len(sources) for sources, _ in between])
    column, count = (np.concatenate(parts) for parts in zip(*between, strict=True))
    other = column != np.asarray(intervals)[row]
    row, column, count = row[other], column[other], count[other]
    order = np.argsort(column, kind="stable")
    sources, first = np.unique(column[order], return_index=True)
    groups = np.split(order, first[1:]) if len(sources) else []
    crossing = Crossing(
        {int(j): row[group] for j, group in zip(sources, groups, strict=True)},
        {int(j): count[group] for j, group in zip(sources, groups, strict=True)},
        np.bincount(row, count, minlength=len(intervals)).astype(np.int64),
    )
    by_row = np.argsort(row, kind="stable")
    return crossing, np.split(column[by_row], np.searchsorted(row[by_row], np.arange(1, len(intervals))))
