"""Parameter servers as a graph server sees them: their versions, and which of them each interval uses. Pure."""

from __future__ import annotations


class ParamServers:
    """The parameter servers, from the view of graph server ``index``, which has ``num_intervals`` intervals."""

    def __init__(self, index: int, count: int, num_intervals: int):
        self.index, self.per_run = index, run_of(num_intervals, count)
        # All mutable state:
        self._versions = [0] * count  # the newest version of each
        self._load = [0] * count  # our stashes on each
        self._load_of_others = [0] * count  # stashes of other graph servers on each, by its last message
        self._used: dict[int, int] = {}  # interval -> its parameter server in its current epoch

    @property
    def slowest(self) -> int:
        """The number of optimiser steps that all parameter servers have taken."""
        return min(self._versions)

    @property
    def stashes(self) -> int:
        """The number of stashes that the parameter servers hold for us."""
        return sum(self._load)

    def begin(self, epoch: int) -> None:
        """Starts or resumes the run at ``epoch``."""
        self._versions = [max(version, epoch) for version in self._versions]

    def told(self, server: int, version: int, load: int) -> None:
        """Records a parameter server's version and its ``load``, the stashes of other graph servers. Ignores a version
        that is not newer."""
        if version > self._versions[server]:
            self._versions[server], self._load_of_others[server] = version, load

    def first(self, interval: int) -> int:
        """Returns a parameter server to fetch weights from without a stash."""
        return interval % len(self._load)

    def use(self, interval: int) -> int:
        """Returns the parameter server that holds the interval's stash; the first call in an epoch chooses it."""
        if interval not in self._used:
            self._used[interval] = self._least_loaded(interval)
            self._load[self._used[interval]] += 1
        return self._used[interval]

    def release(self, interval: int) -> int:
        """Ends the interval's epoch, and returns the parameter server that it has used."""
        server = self._used.pop(interval)
        self._load[server] -= 1
        return server

    def _least_loaded(self, interval: int) -> int:
        """Returns the parameter server with the fewest stashes, ours and others' (Dorylus §5.1).

        A server that an interval of the same run (``run_of``) uses is preferred, if it has less than ``per_run``
        stashes more than the fewest: it can then sum the run's gradients before it sends them to its peers. Ties go to
        the server nearest after our own index, so that graph servers spread (docs/adr/0032).
        """
        loads = [ours + others for ours, others in zip(self._load, self._load_of_others, strict=True)]
        start = interval - interval % self.per_run
        for sibling in range(start, start + self.per_run):
            server = self._used.get(sibling)
            if server is not None and loads[server] < min(loads) + self.per_run:
                return server
        return min(range(len(loads)), key=lambda q: (loads[q], (q - self.index) % len(loads)))


def run_of(intervals: int, param_servers: int) -> int:
    """Returns how many neighbouring intervals of a graph server use one parameter server while all are equally loaded.

    It is a power of two, a subtree of the sum of gradients (docs/adr/0002), of at most half a parameter server's share.
    """
    return 1 << max(0, (intervals // (2 * param_servers)).bit_length() - 1)
