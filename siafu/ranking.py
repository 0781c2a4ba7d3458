"""Ranking metrics of held-out edges: the rank of each true edge among false ones.

    MRR, hits@10   an edge u -> v is ranked by v among v's own false edges of the same role; of equal scores half are
                   above. MRR is the mean of 1 / rank over edges, hits@10 the share of ranks of at most 10
    AUC            the share of (edge, false edge) of a role, whichever vertex ranks them, in which the edge scores
                   higher; equal scores count half
    loss           sigmoid cross-entropy: the mean over true edges and the mean over false edges count half each, as
                   training sees about as many of both

A tally has a row for each pair: role (0: validation, 1: test), rank (0: a false edge), score, in the scores' dtype. All
scores are sent to the coordinator, because AUC compares pairs of different servers: 12 bytes per pair and evaluation,
in float32.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from siafu.graph import TEST_NEGATIVE, TEST_PAIR, VAL_NEGATIVE, VAL_PAIR
from siafu.kernels import functions
from siafu.run_files import BySplit, Scores
from siafu.sparse import Array, EdgeRows, blocks

ROLES = {"val": (VAL_PAIR, VAL_NEGATIVE), "test": (TEST_PAIR, TEST_NEGATIVE)}
ROLE, RANK, SCORE = range(3)
RANKED_TOGETHER = 1 << 16  # pairs


class Ranked:
    """The metric of link prediction. Training edges are not scored: split "train" is None."""

    name = "mrr"

    def tally(self, outputs: EdgeRows, labels: EdgeRows, split: Array) -> Array:
        """Ranks one interval's pairs. outputs: scores; labels: types of the same pairs; both in the order of the
        interval's vertices."""
        # Some vertices at a time: sorting takes ten times as much memory as the scores.
        cuts = blocks(outputs.indptr, RANKED_TOGETHER)
        return np.concatenate([part for a, b in cuts for part in _ranked(outputs[a:b], labels[a:b])])

    def merge(self, tallies: Sequence[Array]) -> Array:
        return np.concatenate(tallies)

    def scores(self, tally: Array) -> BySplit:
        """Returns ``mrr`` (also ``acc``), ``loss``, ``auc`` and ``hits@10`` by split; None for a role without edges."""
        val, test = (self._of_role(tally[tally[:, ROLE] == role]) for role in range(len(ROLES)))
        return BySplit(train=None, val=val, test=test)

    def _of_role(self, part: Array) -> Scores | None:
        true = part[:, RANK] > 0
        if not true.any():
            return None
        ranks = part[true, RANK].astype(np.float64)
        mrr = float(np.mean(1 / ranks))
        found = auc(part[true, SCORE], part[~true, SCORE])
        wrong = np.where(true, -part[:, SCORE], part[:, SCORE])
        terms = np.maximum(wrong, 0) + functions.log1p(functions.exp(-np.abs(wrong)))
        loss = float(np.mean([terms[of].mean(dtype=np.float64) for of in (true, ~true) if of.any()]))
        return {"acc": mrr, "loss": loss, "mrr": mrr, "auc": found, "hits@10": float(np.mean(ranks <= 10))}


def _ranked(outputs: EdgeRows, labels: EdgeRows) -> list[Array]:
    """Returns the rows of a tally for each role: true edges, then false ones."""
    scores, kind = outputs.values[:, 0], labels.values[:, 0]
    vertex = np.repeat(np.arange(len(outputs)), np.diff(outputs.indptr))
    parts = []
    for role, (positive, negative) in enumerate(ROLES.values()):
        true, false = np.flatnonzero(kind == positive), np.flatnonzero(kind == negative)
        ranks = _ranks(vertex[true], scores[true], vertex[false], scores[false])
        part = np.zeros((len(true) + len(false), 3), scores.dtype)
        part[:, ROLE] = role
        part[: len(true), RANK] = ranks
        part[:, SCORE] = scores[np.concatenate([true, false])]
        parts.append(part)
    return parts


def auc(true: Array, false: Array) -> float:
    """Returns the share of pairs (true, false) in which the true score is larger; equal ones count half. 0 if either is
    empty."""
    if not len(true) or not len(false):
        return 0.0
    true, false = np.sort(true), np.sort(false)  # sorted, both: each search begins where the one before it ended
    below, up_to = np.searchsorted(false, true, "left"), np.searchsorted(false, true, "right")
    return float((below + up_to).sum(dtype=np.int64) / (2 * len(true) * len(false)))


def _ranks(vertex: Array, score: Array, false_vertex: Array, false_score: Array) -> Array:
    """Returns ranks: 1 + the false edges of the same vertex that score higher + half of those that score the same.
    Vertices must ascend."""
    level = _levels(np.concatenate([score, false_score]))
    keys = (vertex.astype(np.uint64) << np.uint64(32)) | level[: len(score)]
    false_keys = np.sort((false_vertex.astype(np.uint64) << np.uint64(32)) | level[len(score) :])
    first, stop = np.searchsorted(false_vertex, vertex, "left"), np.searchsorted(false_vertex, vertex, "right")
    below = np.searchsorted(false_keys, keys, "left") - first
    equal = np.searchsorted(false_keys, keys, "right") - first - below
    return 1 + (stop - first - below - equal) + equal / 2


def _levels(scores: Array) -> Array:
    """Returns uint64 below 2^32 in the order of the scores; NaN is the highest."""
    if scores.dtype != np.float32:
        return np.unique(scores, return_inverse=True)[1].astype(np.uint64)
    bits = (scores + np.float32(0)).view(np.int32)  # of -0, those of 0
    bits ^= (bits >> np.int32(31)) & np.int32(0x7FFFFFFF)  # of what is below 0, the larger are the lower
    bits[np.isnan(scores)] = np.iinfo(np.int32).max
    return (bits.astype(np.int64) + (1 << 31)).astype(np.uint64)
