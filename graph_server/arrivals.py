"""Tells when the rows of all peers have arrived for a training epoch. Pure."""

from __future__ import annotations


class Arrivals:
    def __init__(self) -> None:
        # All mutable state:
        self.due = 0  # messages with rows of peers in one epoch; 0: there are no peers
        self.epochs = 0  # leading epochs whose rows are all in
        self._seen: dict[int, set[tuple[int, int]]] = {}  # epoch -> (step, interval) of those that are in

    def begin(self, epoch: int) -> None:
        """Starts or resumes the run at ``epoch``. Rows of peers that started earlier may already be in, so it counts
        them."""
        self.epochs = max(self.epochs, epoch)
        self._count()

    def add(self, epoch: int, pc: int, interval: int) -> bool:
        """Records the arrival of one interval's rows; the same rows may come twice. Returns whether one more epoch is
        complete."""
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
