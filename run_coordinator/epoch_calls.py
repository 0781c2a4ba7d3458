"""Calls the user's function ``on_epoch`` for each epoch, in the user's process.

Epochs are read from metrics.jsonl, which every run writes as it goes: on this machine, on Ray, on AWS, the ranks of a
baseline, trials in processes of their own.

Rules:
1. Epochs are reported in order, each once: epochs that a restart repeats are not reported again.
2. An epoch whose weights are evaluated is reported when its scores, or those of a later epoch, are known.
3. The function's return value is ignored, as in Keras and Lightning. An exception in it ends the run: the state is
   saved, and the caller gets the exception unchanged. After it the function is not called again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from run_coordinator.actions import Status
from siafu.config import Train
from siafu.evaluation import is_evaluated
from siafu.run_files import BySplit, Epoch, GrowingLines, Record

#: metrics.jsonl is read when the status shows a new epoch or evaluation, and after so many seconds.
EVERY_S = 0.5


@dataclass(frozen=True)
class EpochEnd:
    """An epoch that has ended: the argument of ``on_epoch``."""

    epoch: int  # from 1
    loss: float  # of training
    scores: BySplit | None  # by split, then by name ("acc", "loss", ...); None: not evaluated (train.eval_every)
    seconds: float  # since the epoch before ended
    run_dir: Path  # tells runs apart, of siafu.repeat and siafu.search

    @property
    def val_acc(self) -> float | None:
        """Validation score; None without one."""
        found = self.scores["val"] if self.scores else None
        return found["acc"] if found else None


OnEpoch = Callable[[EpochEnd], object]


class Ends:
    """Pairs epochs with their scores by rules 1 and 2. Pure: records in, ended epochs out."""

    def __init__(self, run_dir: Path, train: Train, after: int = 0):
        """``after``: epochs that a resumed run has already."""
        self._dir, self._train = run_dir, train
        # All mutable state:
        self._told = after
        self._waiting: dict[int, Epoch] = {}
        self._scores: dict[int, BySplit] = {}

    def take(self, records: Iterable[Record]) -> Iterator[EpochEnd]:
        for record in records:
            if record["event"] == "epoch":
                self._waiting[record["epoch"]] = record
            elif record["event"] == "evaluation":
                self._scores[record["epoch"]] = {"train": record["train"], "val": record["val"], "test": record["test"]}
        while (following := self._told + 1) in self._waiting and self._is_judged(following):
            yield self._end(following)

    def rest(self) -> Iterator[EpochEnd]:
        """The epochs that remain when the run has ended: no more evaluations come."""
        while (following := self._told + 1) in self._waiting:
            yield self._end(following)

    def _is_judged(self, epoch: int) -> bool:
        return not is_evaluated(epoch - 1, self._train) or max(self._scores, default=0) >= epoch

    def _end(self, epoch: int) -> EpochEnd:
        self._told = epoch
        record = self._waiting.pop(epoch)
        return EpochEnd(epoch, record["loss"], self._scores.pop(epoch, None), record["epoch_s"], self._dir)


class Calls:
    """Calls ``on_epoch`` for each new epoch in metrics.jsonl. Use in ``with as_raised()``."""

    def __init__(self, on_epoch: OnEpoch | None, run_dir: Path, train: Train, after: int = 0):
        self._lines, self._ends = GrowingLines(run_dir), Ends(run_dir, train, after)
        # All mutable state:
        self._on_epoch = on_epoch  # None: nobody is told (any more)
        self._seen: tuple[int, object] = (-1, None)
        self._looked_at = -float("inf")

    def look(self) -> None:
        if self._on_epoch is not None:
            self._tell(self._ends.take(self._lines.new()))

    def end(self) -> None:
        """Calls ``on_epoch`` for the epochs that remain when the run has ended."""
        self.look()
        self._tell(self._ends.rest())

    def beside(self, on_status: Callable[[Status], None]) -> Callable[[Status], None]:
        """Wraps ``on_status`` so that each status also reads new lines."""

        def tell(status: Status) -> None:
            on_status(status)
            now, seen = time.monotonic(), (status.epoch, status.evaluation)
            if seen != self._seen or now - self._looked_at >= EVERY_S:
                self._seen, self._looked_at = seen, now
                self.look()

        return tell

    def _tell(self, ends: Iterable[EpochEnd]) -> None:
        for end in ends:
            if (on_epoch := self._on_epoch) is None:
                return
            try:
                on_epoch(end)
            except Exception as error:
                self._on_epoch = None
                raise _Raised(error) from None


class _Raised(Exception):
    """Carries an exception of the caller through a run that is ending. A GnnError of the caller is no failure of the
    run, so no advice is added and nothing is restarted."""

    def __init__(self, error: Exception):
        super().__init__(f"on_epoch: {error!r}")
        self.error = error


@contextmanager
def as_raised() -> Iterator[None]:
    """Raises again the exception that ``on_epoch`` raised in a call of ``Calls`` in this block."""
    raised: Exception | None = None
    try:
        yield
    except _Raised as error:
        raised = error.error
    if raised is not None:
        raise raised from raised.__cause__
