"""Scores of predictions, class by class or column by column. Metrics are scikit-learn's.

precision, recall, F1   of each class; 0 where nothing is predicted, or nothing is
AUC                     of each class against the others; None where all or none of the vertices are of it
log loss                mean of -log(probability of the true class), of several labels of each label
calibration             expected calibration error (Guo et al., ICML 2017, eq. 5): |accuracy - confidence| of
                        ``BINS`` equal bins of confidence, weighted by their vertices
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from siafu.metrics import mean_of_known, ratio
from siafu.sparse import Array

BINS = 15
#: A probability is at least so much in log loss, as in scikit-learn.
EPS = np.finfo(np.float64).eps


class OfClass(TypedDict):
    name: str
    precision: float
    recall: float
    f1: float
    support: int  # vertices of this class
    auc: float | None


class Bin(TypedDict):
    """Vertices whose confidence (the predicted class's probability) lies in one of ``BINS`` equal intervals."""

    low: float
    high: float
    count: int
    confidence: float  # mean
    accuracy: float


class OfColumn(TypedDict):
    """Scores of one column of a regression."""

    name: str
    r2: float
    rmse: float
    mae: float


class Scored(NamedTuple):
    scores: Mapping[str, float | None]  # "accuracy", "balanced_accuracy", "f1_macro", ...; "r2", "rmse", "mae"
    classes: Sequence[OfClass] = ()
    columns: Sequence[OfColumn] = ()
    confusion: Array | None = None  # int64 [C, C]: true class, predicted class; None of several labels and numbers
    calibration: Sequence[Bin] = ()  # without empty bins


def of_classes(true: Array, chosen: Array, p: Array, names: Sequence[str]) -> Scored:
    """Scores of classes. true, chosen: int64 [n]; p: probabilities [n, C]."""
    from sklearn import metrics

    every = np.arange(p.shape[1])
    confusion = metrics.confusion_matrix(true, chosen, labels=every)
    hits, wanted, said = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    occurs, is_right = wanted > 0, true == chosen
    classes = [_of_class(name, hits[i], said[i], wanted[i], true == i, p[:, i]) for i, name in enumerate(names)]
    f1 = np.array([one["f1"] for one in classes])
    bins = calibrated(p[np.arange(len(p)), chosen], is_right)
    scores: dict[str, float | None] = {
        "accuracy": float(is_right.mean()),
        "balanced_accuracy": float((hits[occurs] / wanted[occurs]).mean()),
        "f1_macro": float(f1[occurs | (said > 0)].mean()),
        "f1_weighted": float(f1 @ wanted / wanted.sum()),
        "auc_macro": mean_of_known(one["auc"] for one in classes),
        "log_loss": float(-np.log(np.maximum(p[np.arange(len(p)), true], EPS)).mean()),
        "calibration_error": error_of(bins),
    }
    return Scored(scores, classes, confusion=confusion, calibration=bins)


def of_sets(true: Array, chosen: Array, p: Array, names: Sequence[str]) -> Scored:
    """Scores of label sets. true, chosen: bool [n, C]; p: probability of each label [n, C]."""
    hits, wanted, said = (true & chosen).sum(0), true.sum(0), chosen.sum(0)
    classes = [_of_class(name, hits[i], said[i], wanted[i], true[:, i], p[:, i]) for i, name in enumerate(names)]
    seen = (wanted > 0) | (said > 0)
    sure = np.where(chosen, p, 1 - p)
    bins = calibrated(sure.ravel(), (true == chosen).ravel())
    likely = np.maximum(np.where(true, p, 1 - p), EPS)
    scores: dict[str, float | None] = {
        "f1_micro": ratio(2 * hits.sum(), wanted.sum() + said.sum()),
        "f1_macro": float(np.mean([one["f1"] for one, is_seen in zip(classes, seen, strict=True) if is_seen] or [0.0])),
        "all_labels_right": float((true == chosen).all(1).mean()),
        "auc_macro": mean_of_known(one["auc"] for one in classes),
        "log_loss": float(-np.log(likely).mean()),
        "calibration_error": error_of(bins),
    }
    return Scored(scores, classes, calibration=bins)


def of_numbers(true: Array, values: Array, names: Sequence[str]) -> Scored:
    """Scores of a regression. true: float [n] or [n, K]; values [n, K]."""
    from sklearn import metrics

    wanted = true.reshape(len(values), -1).astype(np.float64)
    columns: list[OfColumn] = [
        {
            "name": names[i] if names else str(i),
            "r2": float(metrics.r2_score(wanted[:, i], values[:, i])) if len(wanted) > 1 else 0.0,
            "rmse": float(np.sqrt(np.mean((wanted[:, i] - values[:, i]) ** 2))),
            "mae": float(np.abs(wanted[:, i] - values[:, i]).mean()),
        }
        for i in range(values.shape[1])
    ]
    means: dict[str, float | None] = {
        "r2": mean_of_known(column["r2"] for column in columns),
        "rmse": mean_of_known(column["rmse"] for column in columns),
        "mae": mean_of_known(column["mae"] for column in columns),
    }
    return Scored(means, columns=columns)


def _of_class(name: str, hits: Any, said: Any, wanted: Any, is_it: Array, p: Array) -> OfClass:
    """Counts, and of each vertex whether it is of the class, bool [n], and its probability [n]."""
    from sklearn import metrics

    both = 0 < int(wanted) < len(is_it)
    return {
        "name": name,
        "precision": ratio(hits, said),
        "recall": ratio(hits, wanted),
        "f1": ratio(2 * hits, said + wanted),
        "support": int(wanted),
        "auc": float(metrics.roc_auc_score(is_it, p)) if both else None,
    }


def calibrated(confidence: Array, is_right: Array) -> list[Bin]:
    """Reliability bins of confidences (float [n] in 0 to 1) and of correctness (bool [n]), without empty bins."""
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    sure, right = (np.bincount(place, values, BINS) for values in (confidence, is_right.astype(np.float64)))
    return [
        {
            "low": i / BINS,
            "high": (i + 1) / BINS,
            "count": int(counts[i]),
            "confidence": float(sure[i] / counts[i]),
            "accuracy": float(right[i] / counts[i]),
        }
        for i in np.flatnonzero(counts).tolist()
    ]


def error_of(bins: Sequence[Bin]) -> float:
    """The expected calibration error."""
    total = sum(one["count"] for one in bins)
    return sum(one["count"] * abs(one["accuracy"] - one["confidence"]) for one in bins) / total
