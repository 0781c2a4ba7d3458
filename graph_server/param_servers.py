"""Parameter servers as a graph server sees them: their versions, and which of them each interval uses. Pure."""

from __future__ import annotations


class ParamServers:
    """Seen by graph server ``index`` of ``num_intervals`` intervals."""

    def __init__(self, index: int, count: int, num_intervals: int):
        self.index, self.per_run = index, run_of(num_intervals, count)
        # All mutable state:
        self._versions = [0] * count  # the newest of each
        self._load = [0] * count  # stashes of ours that each holds
        self._load_of_others = [0] * count  # and those of other graph servers, as it said last
        self._used: dict[int, int] = {}  # interval -> its parameter server in its current epoch

    @property
    def slowest(self) -> int:
        """Optimiser steps that all of them have taken."""
        return min(self._versions)

    @property
    def stashes(self) -> int:
        """That they hold for us."""
        return sum(self._load)

    def begin(self, epoch: int) -> None:
        """The run starts there, or goes on from there."""
        self._versions = [max(version, epoch) for version in self._versions]

    def told(self, server: int, version: int, load: int) -> None:
        """``load``: stashes of other graph servers. What is not newer tells nothing."""
        if version > self._versions[server]:
            self._versions[server], self._load_of_others[server] = version, load

    def first(self, interval: int) -> int:
        """One that has the weights, for who needs no stash."""
        return interval % len(self._load)

    def use(self, interval: int) -> int:
        """The one that holds the interval's stash, from its first call in an epoch on."""
        if interval not in self._used:
            self._used[interval] = self._least_loaded(interval)
            self._load[self._used[interval]] += 1
        return self._used[interval]

    def release(self, interval: int) -> int:
        """The interval is through with its epoch; returns the one that it has used."""
        server = self._used.pop(interval)
        self._load[server] -= 1
        return server

    def _least_loaded(self, interval: int) -> int:
        """That which holds the fewest stashes, ours and those that it told of (Dorylus §5.1). Of servers within a run
        of it, that of the interval's run, whose gradients it can then sum further before it must send them to its
        peers; else ours first, so that graph servers spread (docs/adr/0032)."""
        loads = [ours + others for ours, others in zip(self._load, self._load_of_others, strict=True)]
        start = interval - interval % self.per_run
        for sibling in range(start, start + self.per_run):
            server = self._used.get(sibling)
            if server is not None and loads[server] < min(loads) + self.per_run:
                return server
        return min(range(len(loads)), key=lambda q: (loads[q], (q - self.index) % len(loads)))


def run_of(intervals: int, param_servers: int) -> int:
    """How many neighbouring intervals of a graph server's use one parameter server, if none is more loaded than the
    others: a subtree of the sum of gradients (docs/adr/0002), of at most half a parameter server's share."""
    return 1 << max(0, (intervals // (2 * param_servers)).bit_length() - 1)
