"""What training reaches, against sums over all numbers of edges."""

from __future__ import annotations

import numpy as np
import pytest

from cost_planner import reach
from siafu.tasks import Kind, Step

DEGREES = np.arange(1, 20_000)


def by_hand(train: float, edges: float) -> float:
    """That one of a vertex's edges leads to a training vertex, where their numbers are geometric with this mean."""
    chance = (1 / edges) * (1 - 1 / edges) ** (DEGREES - 1)
    return float((chance * (1 - (1 - train) ** DEGREES)).sum())


@pytest.mark.parametrize("train", [0.003, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("edges", [1.0, 1.5, 40.0])
def test_shares_are_those_of_geometric_numbers_of_edges(train: float, edges: float):
    step = Step(Kind.SC, 0, of_loss=True)
    assert reach.share_of_ghosts(step, train, edges) == pytest.approx(by_hand(train, edges), rel=1e-6)
    assert reach.share_that_feeds(train, edges) == pytest.approx(train + (1 - train) * by_hand(train, edges), rel=1e-6)


def test_without_training_vertices_nothing_is_reached_and_other_rows_all_travel():
    assert reach.share_that_feeds(0.0, 5.0) == 0.0
    assert reach.share_of_ghosts(Step(Kind.SC, 0, of_loss=True), 0.0, 5.0) == 0.0
    assert reach.share_of_ghosts(Step(Kind.SC, 0), 0.1, 5.0) == 1.0
    assert reach.share_of_ghosts(Step(Kind.SC_B, 1, of_loss=True), 0.1, 5.0) == 0.1
