"""Ranks and areas against their definitions, pair by pair, with many equal scores; and that tallies may be merged."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from siafu.graph import TEST_NEGATIVE, TEST_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.metrics import METRICS
from siafu.ranking import Ranked, _levels, auc
from siafu.sparse import EdgeRows

SPLIT = np.zeros(6, np.uint8)


def pairs(seed: int, dtype: str = "float32") -> tuple[EdgeRows, EdgeRows]:
    """Scores of few values, either side of 0, and types, of six vertices, one of which has no pair."""
    rng = np.random.default_rng(seed)
    indptr = np.array([0, 9, 9, 30, 31, 50, 80])
    kinds = rng.choice(np.array([VAL_PAIR, VAL_NEGATIVE, TEST_PAIR, TEST_NEGATIVE, TEST_NEGATIVE], np.uint8), (80, 1))
    return EdgeRows(indptr, rng.integers(-3, 3, (80, 1)) * np.array(0.7, dtype)), EdgeRows(indptr, kinds)


def by_definition(scores: EdgeRows, kinds: EdgeRows, positive: int, negative: int) -> tuple[list[float], float]:
    ranks, true, false = [], [], []
    for v in range(len(scores)):
        s, kind = scores[v : v + 1].values[:, 0], kinds[v : v + 1].values[:, 0]
        for score in s[kind == positive]:
            against = s[kind == negative]
            ranks.append(1 + (against > score).sum() + 0.5 * (against == score).sum())
        true += list(s[kind == positive])
        false += list(s[kind == negative])
    return ranks, float(roc_auc_score([1] * len(true) + [0] * len(false), true + false))


def log_loss(scores: EdgeRows, kinds: EdgeRows, positive: int, negative: int) -> float:
    """Of as many edges as false ones."""
    share = 1 / (1 + np.exp(-scores.values.astype(np.float64)))
    return float(
        -(np.log(share[kinds.values == positive]).mean() + np.log(1 - share[kinds.values == negative]).mean()) / 2
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_definition(seed: int, dtype: str):
    outputs, kinds = pairs(seed, dtype)
    metric = Ranked()
    found = metric.scores(metric.tally(outputs, kinds, SPLIT))
    for split, positive, negative in (("val", VAL_PAIR, VAL_NEGATIVE), ("test", TEST_PAIR, TEST_NEGATIVE)):
        ranks, area = by_definition(outputs, kinds, positive, negative)
        assert found[split]["mrr"] == found[split]["acc"] == pytest.approx(np.mean(1 / np.array(ranks)), abs=1e-12)
        assert found[split]["auc"] == pytest.approx(area, abs=1e-12)
        loss = log_loss(outputs, kinds, positive, negative)
        assert found[split]["loss"] == pytest.approx(loss, rel=1e-6)
        assert found[split]["hits@10"] == pytest.approx(np.mean(np.array(ranks) <= 10), abs=1e-12)
    assert found["train"] is None


def test_intervals_merge_to_the_whole():
    outputs, kinds = pairs(1)
    metric = Ranked()
    parts = [metric.tally(outputs[a:b], kinds[a:b], SPLIT[a:b]) for a, b in ((0, 2), (2, 2), (2, 6))]
    whole = metric.scores(metric.tally(outputs, kinds, SPLIT))
    merged = metric.scores(metric.merge(parts))
    for split in ("val", "test"):
        assert merged[split] == pytest.approx(whole[split], abs=1e-12)


def test_a_role_without_edges_scores_nothing():
    outputs, kinds = pairs(2)
    only_test = EdgeRows(kinds.indptr, np.where(kinds.values == VAL_PAIR, TEST_PAIR, kinds.values).astype(np.uint8))
    metric = METRICS["links"]
    tally = metric.tally(outputs, only_test, SPLIT)
    scores = metric.scores(tally)
    assert [scores[split] is None for split in ("train", "val", "test")] == [True, True, False]


def test_all_equal_scores_are_worth_a_coin():
    assert auc(np.ones(3), np.ones(5)) == 0.5
    assert auc(np.ones(3), np.ones(0)) == 0.0


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_no_number_ranks_highest_whatever_its_sign(dtype: str):
    order = np.array([-np.inf, -2.5, -1e-40, 0.0, 1e-40, 3.0, np.inf, np.nan], dtype)
    for shuffled in (order, order[::-1], order[[3, 1, 7, 0, 2, 6, 5, 4]]):
        assert np.argsort(_levels(shuffled)).tolist() == np.argsort(shuffled).tolist()
    same = _levels(np.array([0.0, -0.0, np.nan, -np.nan], dtype))
    assert same[0] == same[1] < same[2] == same[3] < 1 << 32
