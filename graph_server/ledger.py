"""Sums of unfinished training epochs (losses, ghost bytes, ages of rows), until their reports can be sent. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from siafu.address import COORDINATOR, Send, param_server
from siafu.wire import EpochDone, EpochReport


@dataclass
class Entry:
    """One epoch."""

    losses: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))  # by interval
    by_param_server: Counter[int] = field(default_factory=Counter)  # intervals that are through
    ghost_bytes: int = 0
    ages: Counter[int] = field(default_factory=Counter)  # gathers by the age of the oldest row they read, in epochs


class Ledger:
    def __init__(self, server: int, intervals: list[int], num_param_servers: int):
        self.server, self.intervals, self.num_param_servers = server, intervals, num_param_servers
        # All mutable state:
        self._entries: defaultdict[int, Entry] = defaultdict(Entry)

    def __getitem__(self, epoch: int) -> Entry:
        return self._entries[epoch]

    def close(self, epoch: int, usage: Callable[[], str]) -> list[Send]:
        """Returns the reports of an epoch once all its intervals are through; before that, none.

        The coordinator's report comes first. If the server dies after it, the losses are known without the weights, and
        the run continues from an earlier version. Weights with unknown losses would be useless
        (``run_coordinator.states``).
        """
        entry = self._entries[epoch]
        if entry.by_param_server.total() < len(self.intervals):
            return []
        del self._entries[epoch]
        ages = (
            np.bincount(list(entry.ages), list(entry.ages.values())).astype(np.int64)
            if entry.ages
            else np.zeros(1, np.int64)
        )
        losses = np.array([entry.losses[interval] for interval in self.intervals])
        return [
            Send(COORDINATOR, EpochReport(self.server, epoch, losses, entry.ghost_bytes, ages, usage())),
            *(
                Send(param_server(q), EpochDone(self.server, epoch, entry.by_param_server[q]))
                for q in range(self.num_param_servers)
            ),
        ]
