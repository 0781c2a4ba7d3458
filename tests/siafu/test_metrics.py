"""Scores of every kind of target, against textbook formulas on the whole; tallies of intervals merged in order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from siafu import metrics, ops
from siafu.metrics import LOSS, METRICS, SPLITS, TITLES
from siafu.sparse import Array

RNG = np.random.default_rng(0)
SPLIT = RNG.integers(0, 4, 60).astype(np.uint8)
CUTS = [0, 7, 7, 31, 60]  # intervals; one is empty


def merged(target: str, outputs: Array, labels: Array, split: Array = SPLIT) -> Array:
    metric = METRICS[target]
    parts = [slice(a, b) for a, b in itertools.pairwise(CUTS)]
    return metric.merge([metric.tally(outputs[p], labels[p], split[p]) for p in parts])


@pytest.mark.parametrize("shape", [(60,), (60, 1), (60, 3)])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_numbers_score_r2_and_mean_errors_of_each_split(shape: tuple[int, ...], offset: float):
    labels = (RNG.normal(size=shape) + offset).astype(np.float32)
    labels[SPLIT == 0] = np.nan  # no label: in no split
    outputs = labels.reshape(60, -1) + RNG.normal(size=(60, shape[1] if len(shape) > 1 else 1))
    found = METRICS["numbers"].scores(merged("numbers", outputs, labels))
    for i, split in enumerate(SPLITS):
        rows = np.flatnonzero(np.equal(SPLIT, i + 1))
        y, p = labels.reshape(60, -1)[rows].astype(np.float64), outputs[rows]
        r2 = np.mean(1 - ((y - p) ** 2).sum(0) / ((y - y.mean(0)) ** 2).sum(0))
        mse = ((y - p) ** 2).mean()
        expected = {"acc": r2, "loss": mse, "r2": r2, "mse": mse, "mae": np.abs(y - p).mean()}
        assert found[split] == pytest.approx(expected, rel=1e-9, abs=1e-9)  # an r2 may be near 0


@pytest.mark.parametrize(("error", "r2"), [(0.0, 1.0), (0.5, 0.0)])
def test_r2_of_equal_labels_is_1_where_nothing_is_wrong_else_0(error: float, r2: float):
    labels = np.full(60, 0.1, np.float32)
    outputs = labels.astype(np.float64)[:, None] + error
    assert METRICS["numbers"].scores(merged("numbers", outputs, labels))["val"]["r2"] == r2


def test_the_order_of_intervals_is_kept_so_that_sums_of_numbers_repeat_to_the_bit():
    labels, outputs = RNG.normal(size=60).astype(np.float32), RNG.normal(size=(60, 1))
    metric = METRICS["numbers"]
    parts = [metric.tally(outputs[i : i + 1], labels[i : i + 1], SPLIT[i : i + 1]) for i in range(60)]
    by_server = metric.merge([metric.merge(parts[:20]), metric.merge(parts[20:])])
    assert metric.scores(by_server) == metric.scores(metric.merge(parts))


@pytest.mark.parametrize("target", ["classes", "labels", "numbers"])
def test_a_split_without_vertices_has_no_score(target: str):
    labels = {"classes": RNG.integers(0, 3, 60), "labels": RNG.integers(0, 2, (60, 3)).astype(np.uint8)}
    outputs = RNG.normal(size=(60, 3))
    without = np.where(SPLIT == 2, 0, SPLIT).astype(np.uint8)
    tally = merged(target, outputs, labels.get(target, outputs), without)
    metric = METRICS[target]
    scores = metric.scores(tally)
    assert scores["val"] is None
    assert None not in (scores["train"], scores["test"])


def test_classes_and_sets_of_classes_are_counted():
    logits = np.array([[2.0, 1], [0, 3], [1, 0], [0, 1]])
    split = np.array([2, 2, 2, 3], np.uint8)
    metric = METRICS["classes"]
    found = metric.scores(metric.merge([metric.tally(logits, np.array([0, 1, 1, 1]), split)]))
    assert (found["val"]["acc"], found["test"]["acc"]) == (2 / 3, 1.0)
    assert found["val"]["balanced_acc"] == 0.75
    metric = METRICS["labels"]
    labels = np.array([[1, 0], [0, 1], [1, 1], [0, 1]], np.uint8)
    found = metric.scores(metric.tally(logits - 0.5, labels, split))
    assert found["val"]["acc"] == found["val"]["f1_micro"] == pytest.approx(2 * 3 / (2 * 3 + 1 + 1))


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("target", ["classes", "labels", "numbers"])
def test_the_loss_is_the_mean_of_what_training_minimises(target: str, dtype: type, scale: float):
    outputs = (scale * RNG.normal(size=(60, 5))).astype(dtype)
    labels = {
        "classes": RNG.integers(0, 5, 60),
        "labels": RNG.integers(0, 2, (60, 5)).astype(np.uint8),
        "numbers": RNG.normal(size=(60, 5)).astype(np.float32),
    }[target]
    loss = {"classes": ops.cross_entropy, "labels": ops.binary_cross_entropy, "numbers": ops.squared_error}[target]
    found = METRICS[target].scores(merged(target, outputs, labels))
    for i, split in enumerate(SPLITS):
        rows = np.flatnonzero(np.equal(SPLIT, i + 1))
        expected = loss(outputs[rows].astype(np.float64), labels[rows])[0] / len(rows)
        assert found[split]["loss"] == pytest.approx(expected, rel=1e-12 if dtype is np.float64 else 1e-6)


@pytest.mark.parametrize("target", ["classes", "labels"])
def test_counts_are_whole_numbers_and_losses_repeat_to_the_bit(target: str):
    labels = RNG.integers(0, 3, 60) if target == "classes" else RNG.integers(0, 2, (60, 3)).astype(np.uint8)
    outputs = RNG.normal(size=(60, 3)).astype(np.float32)
    first, second = (merged(target, outputs, labels) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    whole = METRICS[target].tally(outputs, labels, SPLIT)
    np.testing.assert_array_equal(first[:, :LOSS], whole[:, :LOSS])
    assert (first[:, :LOSS] == np.floor(first[:, :LOSS])).all()


@pytest.mark.parametrize("target", ["classes", "labels"])
def test_blocks_of_rows_change_nothing_but_the_rounding_of_losses(target: str, monkeypatch: pytest.MonkeyPatch):
    labels = RNG.integers(0, 3, 60) if target == "classes" else RNG.integers(0, 2, (60, 3)).astype(np.uint8)
    outputs = RNG.normal(size=(60, 3))
    before = outputs.copy()
    whole = METRICS[target].tally(outputs, labels, SPLIT)
    monkeypatch.setattr(metrics, "_BLOCK", 12)
    blocks = METRICS[target].tally(outputs, labels, SPLIT)
    np.testing.assert_array_equal(blocks[:, :LOSS], whole[:, :LOSS])
    np.testing.assert_allclose(blocks[:, LOSS], whole[:, LOSS], rtol=1e-12)
    np.testing.assert_array_equal(outputs, before)


def test_every_metric_has_a_title():
    assert {metric.name for metric in METRICS.values()} <= TITLES.keys()
