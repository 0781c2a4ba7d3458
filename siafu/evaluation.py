"""Decides which epochs are evaluated, after which the weights are saved, and what a result reports of them. Graph
servers run the evaluation, parameter servers keep its weights; both must agree.

Rules for the default interval between evaluations (``usual_eval_every``):

1. On a graph of up to ``SMALL`` vertices and edges an evaluation takes milliseconds: every epoch is evaluated, and the
   best epoch and patience are exact.
2. On a larger graph, every 10th epoch. An evaluation is a training epoch's forward pass, which is less work than the
   epoch itself: so evaluations take less than a tenth of the time.
3. If an evaluation uses more edges than an epoch, it is proportionally rarer. This is so in link prediction, which
   ranks each held-out edge among its false ones, and in inductive training, which uses a part of the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from siafu.config import Run, Train
from siafu.graph import TRAIN_PAIR, VAL_PAIR
from siafu.run_files import BySplit, Evaluation, Outcome
from siafu.shards import Manifest
from siafu.views import TRAINING

#: The most vertices and edges, as gathered, of a graph whose every epoch is evaluated.
SMALL = 1_000_000
#: Epochs between two evaluations of a larger one.
LARGE_EVERY = 10


def usual_eval_every(manifest: Manifest) -> int:
    """Returns the value of ``train.eval_every`` that -1 stands for on a graph, by the rules above."""
    if manifest.num_vertices + manifest.num_edges <= SMALL:
        return 1
    trained = evaluated = 1
    if manifest.edge_types == "links":  # of a training edge's pool of false ones, an epoch draws one
        trained, evaluated = 2 * manifest.type_counts[TRAIN_PAIR], sum(manifest.type_counts[VAL_PAIR:])
    elif manifest.edge_types == "inductive":
        trained, evaluated = manifest.type_counts[TRAINING], sum(manifest.type_counts)
    return max(LARGE_EVERY, -(-LARGE_EVERY * evaluated // max(1, trained)))


def rounds(train: Train) -> int:
    """Returns the number of epochs by which tasks are numbered. Without training (epochs = 0) it is one, for an
    evaluation of the first weights."""
    return max(1, train.epochs)


def evaluated_version(epoch: int, train: Train) -> int:
    """Returns the version of the weights evaluated after ``epoch``: the number of optimiser steps taken."""
    return min(epoch + 1, train.epochs)


def is_evaluated(epoch: int, train: Train) -> bool:
    """Whether the weights after ``epoch`` are evaluated: every ``eval_every`` epochs, and the last epoch."""
    return epoch == rounds(train) - 1 or (epoch + 1) % _every(train) == 0


def _every(train: Train) -> int:
    """Returns the epochs between evaluations: ``eval_every``; 0: only the last epoch; 1 while it is -1, not yet
    resolved for a graph."""
    return abs(train.eval_every) or rounds(train)


class EvaluatedEpochs(Sequence[int]):
    """The evaluated epochs, ascending. They are computed on demand: a run that ends by its limits may have any number
    of epochs."""

    def __init__(self, train: Train):
        self._rounds = rounds(train)
        self._every = _every(train)

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
        """Returns the first evaluated epoch after ``epoch`` (-1 or more); None if there is none."""
        place = (epoch + 1) // self._every
        return self[place] if place < len(self) and epoch < self._rounds - 1 else None


def is_checkpoint(epoch: int, run: Run) -> bool:
    """Whether the weights after ``epoch`` are saved: every ``checkpoint_every`` epochs (0: never)."""
    return run.checkpoint_every > 0 and (epoch + 1) % run.checkpoint_every == 0


def outcome(kept: Evaluation | None, final: Evaluation | None, train: Train) -> Outcome:
    """Returns the part of a result on evaluations. ``kept``: the record of the evaluation whose weights are
    model.safetensors; ``final``: the last one's; None if there was none. ``best_epoch`` is None without validation
    vertices."""
    test, val = ((kept[split] if kept else None) or {} for split in ("test", "val"))
    why = f"the best by validation {train.stop_on}" if val else "no validation vertices: the last epoch is kept"
    return {
        "test_acc": test.get("acc"),
        "val_acc": val.get("acc"),
        "val_loss": val.get("loss"),
        "best_epoch": kept["epoch"] if kept and val else None,
        "kept": {"epoch": kept["epoch"], "why": why} if kept else None,
        "scores": by_split(kept),
        "final_scores": by_split(final),
    }


def by_split(record: Evaluation | None) -> BySplit | None:
    return None if record is None else BySplit(train=record["train"], val=record["val"], test=record["test"])
