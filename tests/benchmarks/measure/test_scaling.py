from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks.measure import bookkeeping, scaling
from siafu.errors import ConfigError


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    scaling.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.long
def test_one_table_has_a_line_per_size_of_every_part():
    found = scaling.measure(arguments("--edges", "2e4,4e4", "--width", "8", "--intervals", "4,9", "--rounds", "1"))
    cases = [(row["part"], row["case"]) for row in found.rows]
    assert cases[:2] == [("gather", "20,000 edges"), ("gather", "40,000 edges")]
    assert [part for part, _ in cases].count("bookkeeping") == 2
    assert all(row["value"] > 0 for row in found.rows)
    assert set(found.summary) == {"edge_growth", "server_task_growth"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "gather,nothing"], "--only gather,nothing: must be of gather, bookkeeping"),
        (["--rounds", "0"], "--rounds 0, .*: must be >= 1"),
        (["--edges", "1e6,many"], "--edges 1e6,many: could not convert"),
        (["--edges", "1e6,0"], "--edges 1e6,0: must all be > 0"),
    ],
)
def test_mistakes_are_named(given: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        scaling.measure(arguments(*given))


# --- edges ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_edges", [1, 50, 99_999])
def test_random_edges_are_as_many_as_asked_for_and_end_at_vertices(num_edges: int):
    edges = scaling.random_edges(num_edges, seed=1)
    n = len(edges.indptr) - 1
    assert edges.indptr[0] == 0
    assert edges.indptr[-1] == len(edges.indices) == num_edges
    assert (np.diff(edges.indptr) >= 0).all()
    assert edges.indices.min() >= 0
    assert edges.indices.max() < n


def test_random_edges_are_mildly_skewed_and_the_same_for_a_seed():
    edges = scaling.random_edges(500_000, seed=1)
    counts = np.sort(np.bincount(edges.indices))[::-1]
    assert 0.15 < counts[: len(counts) // 10].sum() / counts.sum() < 0.35
    assert np.array_equal(edges.indices, scaling.random_edges(500_000, seed=1).indices)


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["pipe", "async"])
def test_a_whole_partition_gets_through_with_a_backend_that_answers_at_once(mode: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bookkeeping, "NUM_TASKS", 100)
    assert bookkeeping.seconds_per_task(5, mode) > 0
