"""Published epochs of other systems, and what the planner says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import published
from benchmarks.published import GLOO, NETWORK, PCIE

ROWS = published.published()


def of(paper: str, graph: str, parts: int) -> published.Published:
    return next(row for row in ROWS if (row.paper, row.graph, row.parts) == (paper, graph, parts))


def test_sizes_are_those_of_the_papers() -> None:
    assert {row.graph: row.vertices for row in ROWS} == {
        "Reddit": 232_965,
        "ogbn-products": 2_449_029,
        "Yelp": 716_847,
        "AmazonProducts": 1_569_960,
    }
    assert len(set(ROWS)) == len(ROWS)


def test_rows_of_others_are_those_that_were_published() -> None:
    row = of("AdaQP", "Reddit", 2)
    assert {entry.ghosts_in for entry in row.manifest.partitions} == {round(0.4154 * row.vertices / 2)}


def test_cards_of_two_machines_share_the_network() -> None:
    def rate(row: published.Published) -> float:  # that the planner takes
        return 0.5 * row.joined.peer_bytes_per_s

    staged = 2 / (0.5 * PCIE)
    assert rate(of("PipeGCN", "Reddit", 4)) == rate(of("AdaQP", "Reddit", 2)) == pytest.approx(1 / (staged + 1 / GLOO))
    # Of eight cards four share it; four sevenths of what each sends leaves the machine.
    shared = 0.5 * NETWORK / 4 / (4 / 7)
    assert rate(of("AdaQP", "ogbn-products", 8)) == pytest.approx(1 / (staged + 1 / min(GLOO, shared)))


def test_features_that_travel_in_every_epoch_are_counted() -> None:
    row = of("AdaQP", "Reddit", 2)
    card, ghosts = row.joined, round(0.4154 * row.vertices / 2)
    sent = ghosts * 602 * 4 / (0.5 * card.peer_bytes_per_s)
    gathered = card.gather_s(row.edges / 2, row.vertices / 2, 602 * 4)
    alone = replace(row, paper="PipeGCN").predicted_s()
    assert row.predicted_s() - alone == pytest.approx(sent + gathered, rel=1e-4)


def test_computing_is_what_communication_leaves() -> None:
    row = of("PipeGCN", "Reddit", 2)
    assert row.computing_s == pytest.approx(0.17, abs=0.01)  # Table 6
    assert 0 < row.predicted_s(travels=False) < row.predicted_s()
    assert of("AdaQP", "Yelp", 2).computing_s is None


def test_it_prints_a_row_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert published.main([]) == 0
    printed = capsys.readouterr().out
    assert all(f"| {row.words} |" in printed for row in ROWS)
    assert f"of {len(ROWS)}" in printed
