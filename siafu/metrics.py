"""Metrics of a model's outputs: a table with one for each kind of target.

A metric works in three steps. Graph servers ``tally`` each interval's outputs against its labels; tallies are
``merge``d, on a server in the order of its intervals and by the coordinator in the order of the servers; the
coordinator makes ``scores`` of the whole. To add one: a class with these methods and its line in ``METRICS``.

Scores of a split are numbers by name. "acc" is the score that picks the best epoch, whichever metric it is
(``Metric.name``); higher is better. "loss" is the mean training loss, without dropout, label smoothing and weight
decay. A split without scored vertices has None instead: null in JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from siafu.kernels import functions
from siafu.ranking import Ranked
from siafu.run_files import BySplit, Scores, Split
from siafu.sparse import Array

SPLITS: tuple[Split, ...] = ("train", "val", "test")
TRUE_POSITIVE, FALSE_POSITIVE, FALSE_NEGATIVE, TERMS, LOSS = range(5)
COUNT, SUM, SPREAD, SQUARED_ERROR, ABSOLUTE_ERROR = range(5)
#: A share of a mean loss is never negative; rounding does not make it smaller than this.
LEAST_LOSS = -1e-3
#: Labels whose squared spread is smaller than this share of their squared mean are all equal: rounding leaves 1e-32 per
#: vertex, two float32 that differ leave 1e-15.
_EQUAL = 1e-20
#: Logits counted at a time: intermediate arrays stay in a core's caches.
_BLOCK = 1 << 16


class Metric(Protocol):
    """The scores of one kind of target."""

    name: str  # the name of "acc" in results

    def tally(self, outputs: Any, labels: Any, split: Array) -> Array:
        """Tallies one interval. outputs [n, C], labels as in shards, split uint8 [n]: 1 train, 2 validation, 3 test.

        In link prediction, outputs are the scores of pairs and labels their types: ``siafu.ranking``.
        """

    def merge(self, tallies: Sequence[Array]) -> Array:
        """Merges tallies, at least one, into one. They come in a fixed order, whichever was done first, so that the
        result has the same bits."""

    def scores(self, tally: Array) -> BySplit: ...


class Counted:
    """The metric of classes and sets of classes. Tallies: float64 ``[3 splits, 5, C]``, with losses summed in a fixed
    order."""

    def __init__(self, name: str, *, multilabel: bool):
        self.name, self.multilabel = name, multilabel

    def tally(self, outputs: Array, labels: Array, split: Array) -> Array:
        return counts(outputs, labels, split)

    def merge(self, tallies: Sequence[Array]) -> Array:
        return np.asarray(np.sum(tallies, axis=0))

    def scores(self, tally: Array) -> BySplit:
        return scores(tally, multilabel=self.multilabel)


class Measured:
    """The metric of numbers. Tallies: float64 ``[intervals, 3 splits, 5, C]``; each interval keeps its row, so that
    sums have a fixed order.

    Entries of a column: the number of vertices, and the sums of their labels, of squared distances to the interval's
    mean label (not of squares: labels may lie far from 0), of squared errors, and of absolute errors.
    """

    name = "r2"

    def tally(self, outputs: Array, labels: Array, split: Array) -> Array:
        columns = outputs.shape[1]
        wanted = np.asarray(labels, np.float64).reshape(len(outputs), columns)
        error = outputs.astype(np.float64) - wanted  # [n, C]
        tally = np.zeros((1, 3, 5, columns))
        for i in range(3):
            rows = np.flatnonzero(split == i + 1)
            if len(rows):
                y, e = wanted[rows], error[rows]
                apart = ((y - y.mean(0)) ** 2).sum(0)
                tally[0, i] = np.full(columns, len(rows)), y.sum(0), apart, (e**2).sum(0), np.abs(e).sum(0)
        return tally

    def merge(self, tallies: Sequence[Array]) -> Array:
        return np.concatenate(tallies)

    def scores(self, tally: Array) -> BySplit:
        """Returns ``r2`` (also ``acc``), ``mse`` (also ``loss``) and ``mae``: means over the columns. r2 = 1 - squared
        error / squared spread of the labels; for a column of equal labels it is 1 if all outputs are exact, else 0."""
        train, val, test = (self._of_split(tally[:, i]) for i in range(len(SPLITS)))
        return BySplit(train=train, val=val, test=test)

    def _of_split(self, part: Array) -> dict[str, float] | None:
        count, total = part[:, COUNT, 0].sum(), part[:, SUM].sum(0)
        if not count:
            return None
        filled = part[part[:, COUNT, 0] > 0]
        from_mean = filled[:, SUM] / filled[:, COUNT] - total / count  # [intervals, C]
        spread = (filled[:, SPREAD] + filled[:, COUNT] * from_mean**2).sum(0)
        error = filled[:, SQUARED_ERROR].sum(0)
        known = spread > _EQUAL * (total / count) ** 2
        r2 = float(np.mean(np.where(known, 1 - error / np.where(known, spread, 1), error == 0)))
        mse, mae = float(np.mean(error / count)), float(np.mean(filled[:, ABSOLUTE_ERROR].sum(0) / count))
        return {"acc": r2, "loss": mse, "r2": r2, "mse": mse, "mae": mae}


#: Kind of target (``ModelSpec.target``) -> its metric.
METRICS: Mapping[str, Metric] = {
    "classes": Counted("accuracy", multilabel=False),
    "labels": Counted("f1_micro", multilabel=True),
    "numbers": Measured(),
    "links": Ranked(),
}

#: Metric -> its usual spelling.
TITLES = {"accuracy": "accuracy", "f1_micro": "F1-micro", "r2": "R²", "mrr": "MRR"}


def counts(logits: Array, labels: Array, split: Array) -> Array:
    """Counts by class the true positives, false positives and false negatives, and the terms of the loss, and sums the
    loss. Returns float64 ``[3 splits, 5, C]``, in which counts are exact.

    labels int [n] (argmax decides; a term is a vertex), or {0, 1} [n, C] (a positive logit decides; a vertex has C
    terms).
    """
    found = np.zeros((3, 5, logits.shape[1]))
    count = _of_sets if labels.ndim == 2 else _of_classes
    step = max(1, _BLOCK // logits.shape[1])
    for i in range(3):
        rows = np.flatnonzero(split == i + 1)
        for start in range(0, len(rows), step):
            block = rows[start : start + step]
            found[i] += count(logits.take(block, 0), labels[block])
    return found


def _of_classes(logits: Array, labels: Array) -> Array:
    """Returns [5, C]; the loss is softmax cross-entropy, in the logits' precision as in training (``siafu.ops``).
    Overwrites logits."""
    row, num_classes = np.arange(len(labels)), logits.shape[1]
    chosen = logits.argmax(1)
    logits -= logits[row, chosen][:, None]
    own = logits[row, labels].astype(np.float64)
    loss = functions.log(functions.exp(logits, out=logits).sum(1)) - own  # [n]
    hit = chosen == labels
    counted = [np.bincount(c, minlength=num_classes) for c in (labels[hit], chosen[~hit], labels[~hit], labels)]
    return np.array([*counted, np.bincount(labels, loss, num_classes)])


def _of_sets(logits: Array, labels: Array) -> Array:
    """Returns [5, C]; the loss is sigmoid cross-entropy."""
    predicted, true = logits > 0, labels > 0
    loss = np.maximum(logits, 0) - logits * true  # [n, C]
    loss += functions.log1p(functions.exp(-np.abs(logits)))
    hits, positives, wanted = (mask.sum(0, dtype=np.uint32) for mask in (predicted & true, predicted, true))
    terms = np.full(logits.shape[1], len(logits))
    return np.array([hits, positives - hits, wanted - hits, terms, loss.sum(0, dtype=np.float64)])


def scores(tally: Array, *, multilabel: bool) -> BySplit:
    """Returns by split ``acc`` (F1-micro of multi-label graphs), ``loss``, ``balanced_acc``, ``f1_micro`` and
    ``f1_macro``; None for empty splits.

    tally: a sum of ``counts``. Balanced accuracy is the mean recall over classes that occur; F1-macro the mean over
    classes that occur or were predicted.
    """
    train, val, test = (_of_counts(*part, multilabel=multilabel) for part in tally)
    return BySplit(train=train, val=val, test=test)


def _of_counts(tp: Array, fp: Array, fn: Array, terms: Array, loss: Array, *, multilabel: bool) -> Scores | None:
    if not terms.any():
        return None
    f1_micro = ratio(2 * tp.sum(), 2 * tp.sum() + fp.sum() + fn.sum())
    occurs, seen = tp + fn > 0, tp + fp + fn > 0
    return {
        "acc": f1_micro if multilabel else ratio(tp.sum(), tp.sum() + fn.sum()),
        "loss": ratio(loss.sum(), terms.sum()),
        "balanced_acc": float(np.mean(tp[occurs] / (tp + fn)[occurs])) if occurs.any() else 0.0,
        "f1_micro": f1_micro,
        "f1_macro": float(np.mean((2 * tp / np.maximum(2 * tp + fp + fn, 1))[seen])) if seen.any() else 0.0,
    }


def ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else 0.0


def mean_of_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
