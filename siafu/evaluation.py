"""Which epochs are evaluated: graph servers run the evaluation, parameter servers keep its weights; both must agree.
And after which the weights are saved; what a result says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from siafu.config import Run, Train
from siafu.metrics import SPLITS


def rounds(train: Train) -> int:
    """Epochs by which tasks are numbered. Where nothing is trained (epochs = 0) there is one, an evaluation of the first weights."""
    return max(1, train.epochs)


def evaluated_version(epoch: int, train: Train) -> int:
    """Of the weights that the evaluation after ``epoch`` is of: optimiser steps that were taken."""
    return min(epoch + 1, train.epochs)


def is_evaluated(epoch: int, train: Train) -> bool:
    """Whether the weights after ``epoch`` are evaluated: every ``eval_every`` epochs (0: never), and the last epoch."""
    return epoch == rounds(train) - 1 or (train.eval_every > 0 and (epoch + 1) % train.eval_every == 0)


class EvaluatedEpochs(Sequence[int]):
    """Those, ascending, without a list of them: a run that is to end by its limits may be given any number of epochs."""

    def __init__(self, train: Train):
        self._rounds = rounds(train)
        self._every = train.eval_every or self._rounds

    def __len__(self) -> int:
        return -(-self._rounds // self._every)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return min((range(len(self))[place] + 1) * self._every, self._rounds) - 1

    def after(self, epoch: int) -> int | None:
        """The next of them; ``epoch``: from -1 on. None: there is none."""
        place = (epoch + 1) // self._every
        return self[place] if place < len(self) and epoch < self._rounds - 1 else None


def is_checkpoint(epoch: int, run: Run) -> bool:
    """Whether the weights after ``epoch`` are saved: every ``checkpoint_every`` epochs (0: never)."""
    return run.checkpoint_every > 0 and (epoch + 1) % run.checkpoint_every == 0


def outcome(kept: Mapping[str, Any], final: Mapping[str, Any], train: Train) -> dict[str, Any]:
    """What a result says of evaluations. ``kept``: the record of the one whose weights are model.safetensors; ``final``: the last
    one's; empty where there was none. ``best_epoch`` is None where no validation vertices chose it."""
    test, val = (kept.get(split) or {} for split in ("test", "val"))
    version = kept["epoch"] if kept else None
    why = f"the best by validation {train.stop_on}" if val else "no validation vertices: the last epoch is kept"
    return {
        "test_acc": test.get("acc"), "val_acc": val.get("acc"), "val_loss": val.get("loss"),
        "best_epoch": version if val else None, "kept": {"epoch": version, "why": why} if kept else None,
        "scores": _by_split(kept), "final_scores": _by_split(final),
    }  # fmt: skip


def _by_split(record: Mapping[str, Any]) -> dict[str, Any] | None:
    return {split: record[split] for split in SPLITS} if record else None
