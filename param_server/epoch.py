"""One epoch's gradient in one replica: what has arrived, and what is missing before the optimiser may step.

E1  An epoch is *shared* when all graph servers have reported it, the intervals that they assign to us are done, and
    every layer has a gradient of each of them. Its own sums then go to the peers; nothing may be added afterwards.
E2  It is *complete* when it is shared and the sums of all peers are in, each layer from each peer once.
E3  Peers' sums wait unmerged until then, so that we share only our own sums.
E4  More intervals than were announced, or fewer leaves than the tree has in a complete epoch, is an error, never a
    hang.
"""

from __future__ import annotations

from collections.abc import Iterable

from param_server.summation import Node, OrderedSum, Value
from siafu.errors import RemoteProtocolError
from siafu.sparse import Array
from siafu.wire import EpochDone


class Epoch:
    """The gradient sums of one epoch while they arrive."""

    def __init__(self, epoch: int, layers: Iterable[int], num_leaves: int, num_graph_servers: int, num_peers: int):
        self.epoch, self.num_graph_servers, self.num_peers = epoch, num_graph_servers, num_peers
        # Everything that changes:
        self.shared = False
        self.done: set[int] = set()  # our intervals that are through
        self.reports: dict[int, EpochDone] = {}  # by graph server
        self.sums = {layer: OrderedSum(num_leaves) for layer in layers}
        self.peer_sums: dict[tuple[int, int], dict[Node, Value]] = {}  # by (peer, layer)

    @property
    def shareable(self) -> bool:
        """Whether our share is complete (E1). Raises: RemoteProtocolError if more arrived than was announced (E4)."""
        if len(self.reports) < self.num_graph_servers:
            return False
        announced = sum(report.intervals for report in self.reports.values())
        counts = [len(self.done), *(total.num_added for total in self.sums.values())]
        if max(counts) > announced:
            raise RemoteProtocolError(
                f"epoch {self.epoch}: {max(counts)} intervals were here, {announced} were announced"
            )
        return min(counts) == announced

    @property
    def complete(self) -> bool:
        return self.shared and len(self.peer_sums) == self.num_peers * len(self.sums)

    @property
    def num_pending(self) -> int:
        """The number of values held; each is as large as a layer."""
        own = sum(len(total.nodes()) for total in self.sums.values())
        return own + sum(len(nodes) for nodes in self.peer_sums.values())

    def gradient(self) -> dict[str, Array]:
        """Merges the peers' sums (E3), and returns the sum over all intervals of the graph, for all layers. Call it
        only once the epoch is complete. Raises: RemoteProtocolError if leaves are missing (E4)."""
        assert self.complete
        for (_, layer), nodes in sorted(self.peer_sums.items(), key=lambda item: item[0]):
            self.sums[layer].merge(nodes)
        gradient: dict[str, Array] = {}
        for layer, total in self.sums.items():
            if not total.complete:
                raise RemoteProtocolError(
                    f"epoch {self.epoch} layer {layer}: gradients of {total.num_added} intervals, "
                    f"must be {total.num_leaves}"
                )
            gradient.update(total.total())
        return gradient
