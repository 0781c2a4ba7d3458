"""Scores from counts, and counts from logits. Counts are integers: their sum over intervals and servers has no order."""

from __future__ import annotations

from typing import Any

import numpy as np

from siafu.sparse import Array

SPLITS = ("train", "val", "test")
TRUE_POSITIVE, FALSE_POSITIVE, FALSE_NEGATIVE = 0, 1, 2


def counts(logits: Array, labels: Array, split: Array) -> Array:
    """True positives, false positives and false negatives, int64 ``[3 splits, 3, C]``.

    logits [n, C]; labels int [n] (argmax decides), or {0, 1} [n, C] (a positive logit decides); split uint8 [n]: 1 train,
    2 validation, 3 test.
    """
    num_classes = logits.shape[1]
    result = np.zeros((3, 3, num_classes), np.int64)
    for i in range(3):
        rows = np.flatnonzero(split == i + 1)
        if labels.ndim == 2:
            predicted, true = logits[rows] > 0, labels[rows] > 0
            result[i] = (predicted & true).sum(0), (predicted & ~true).sum(0), (~predicted & true).sum(0)
        else:
            chosen, wanted = logits[rows].argmax(1), labels[rows]
            hit = chosen == wanted
            for row, classes in enumerate((wanted[hit], chosen[~hit], wanted[~hit])):
                result[i, row] = np.bincount(classes, minlength=num_classes)
    return result


def scores(tally: Array, *, multilabel: bool) -> dict[str, dict[str, float]]:
    """By split: ``acc`` (of multi-label graphs F1-micro), ``balanced_acc``, ``f1_micro``, ``f1_macro``; 0 for empty splits.

    tally: a sum of ``counts``. Balanced accuracy is the mean recall over classes that occur; F1-macro the mean over classes
    that occur or were predicted.
    """
    result = {}
    for split, (tp, fp, fn) in zip(SPLITS, tally, strict=True):
        f1_micro = _ratio(2 * tp.sum(), 2 * tp.sum() + fp.sum() + fn.sum())
        occurs, seen = tp + fn > 0, tp + fp + fn > 0
        result[split] = {
            "acc": f1_micro if multilabel else _ratio(tp.sum(), tp.sum() + fn.sum()),
            "balanced_acc": float(np.mean(tp[occurs] / (tp + fn)[occurs])) if occurs.any() else 0.0,
            "f1_micro": f1_micro,
            "f1_macro": float(np.mean((2 * tp / np.maximum(2 * tp + fp + fn, 1))[seen])) if seen.any() else 0.0,
        }
    return result


def _ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else 0.0
