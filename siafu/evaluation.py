"""Which epochs are evaluated: graph servers run the evaluation, parameter servers keep its weights; both must agree.
And after which the weights are saved."""

from __future__ import annotations

from siafu.config import Run, Train


def rounds(train: Train) -> int:
    """Epochs by which tasks are numbered. Where nothing is trained (epochs = 0) there is one, an evaluation of the first weights."""
    return max(1, train.epochs)


def evaluated_version(epoch: int, train: Train) -> int:
    """Of the weights that the evaluation after ``epoch`` is of: optimiser steps that were taken."""
    return min(epoch + 1, train.epochs)


def is_evaluated(epoch: int, train: Train) -> bool:
    """Whether the weights after ``epoch`` are evaluated: every ``eval_every`` epochs (0: never), and the last epoch."""
    return epoch == rounds(train) - 1 or (train.eval_every > 0 and (epoch + 1) % train.eval_every == 0)


def is_checkpoint(epoch: int, run: Run) -> bool:
    """Whether the weights after ``epoch`` are saved: every ``checkpoint_every`` epochs (0: never)."""
    return run.checkpoint_every > 0 and (epoch + 1) % run.checkpoint_every == 0
