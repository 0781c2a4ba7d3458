"""Tells when the rows of all peers have arrived for a training epoch. Pure."""

from __future__ import annotations


class Arrivals:
    def __init__(self) -> None:
        # All mutable state:
        self.due = 0  # messages with rows of peers in one epoch; 0: there are no peers
        self.epochs = 0  # whose rows are all in, in order
        self._seen: dict[int, set[tuple[int, int]]] = {}  # epoch -> (step, interval) of those that are in

    def begin(self, epoch: int) -> None:
        """The run starts there, or goes on from there: others may have started before we heard of it."""
        self.epochs = max(self.epochs, epoch)
        self._count()

    def add(self, epoch: int, pc: int, interval: int) -> bool:
        """Whether one more epoch is in. The same rows may come twice."""
        if epoch < self.epochs:
            return False
        self._seen.setdefault(epoch, set()).add((pc, interval))
        return self._count()

    def _count(self) -> bool:
        before = self.epochs
        while self.due and len(self._seen.get(self.epochs, ())) == self.due:
            del self._seen[self.epochs]
            self.epochs += 1
        return self.epochs > before
