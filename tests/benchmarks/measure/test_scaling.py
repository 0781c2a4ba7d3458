from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure import bookkeeping, scaling
from siafu.errors import ConfigError, GnnError


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    scaling.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.long
def test_one_table_has_a_line_per_size_of_every_part():
    found = scaling.measure(
        arguments(
            "--only", "gather,bookkeeping", "--edges", "2e4,4e4", "--width", "8", "--intervals", "4,9", "--rounds", "1"
        )
    )
    cases = [(row["part"], row["case"]) for row in found.rows]
    assert cases[:2] == [("gather", "20,000 edges"), ("gather", "40,000 edges")]
    assert [part for part, _ in cases].count("bookkeeping") == 2
    assert all(row["value"] > 0 for row in found.rows)
    assert set(found.summary) == {"edge_growth", "server_task_growth"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "gather,nothing"], "--only gather,nothing: must be of gather, bookkeeping, intervals, parts"),
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


# --- trainings --------------------------------------------------------------------------------------------------------


def test_every_case_runs_once_in_each_round_and_its_median_counts(monkeypatch: pytest.MonkeyPatch):
    ran: list[tuple[str, ...]] = []
    links: list[float] = []

    @contextlib.contextmanager
    def link(gbit_per_s: float) -> Iterator[tuple[str, ...]]:
        links.append(gbit_per_s)
        yield ("within",) if gbit_per_s else ()

    def trained_s(words: list[str], num_epochs: int, run_dir: Path, within: tuple[str, ...]) -> float:
        assert not run_dir.exists()
        assert within == (("within",) if links[-1] else ())
        ran.append(tuple(words))
        return len(ran) / 1000

    monkeypatch.setattr(scaling, "_link", link)
    monkeypatch.setattr(scaling, "trained_s", trained_s)
    found = scaling._trainings(["intervals", "parts"], "g", rounds=3)
    each = len(ran) // 3
    assert each == len(found) == 2 * len(scaling.INTERVALS) + len(scaling.LINKS) * len(scaling.PARTITIONS)
    assert ran[:each] == ran[each : 2 * each] == ran[2 * each :]
    assert [row["value"] for row in found] == [each + 1.0 + number for number in range(each)]
    assert {words[0] for words in ran} == {"g"}
    # A link for as many servers as there are.
    assert links[each - 4 : each] == [1.0, 2.0, 4.0, 8.0]
    assert links[: each - 8] == [0.0] * (each - 8)


def test_what_fails_behind_a_link_is_not_called_the_link(monkeypatch: pytest.MonkeyPatch):
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(scaling.subprocess, "run", lambda command, check: ran.append(command))
    with pytest.raises(OSError, match="the disk is full"), scaling._link(10):
        raise OSError("the disk is full")
    assert ran[-1] == ("ip", "netns", "del", scaling.NAMESPACE)


def test_a_link_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch):
    def refused(command: tuple[str, ...], check: bool) -> None:
        if check:
            raise FileNotFoundError("no ip here")

    monkeypatch.setattr(scaling.subprocess, "run", refused)
    with pytest.raises(GnnError, match=r"^no link of 10 Gbit/s can be made here: no ip here"), scaling._link(10):
        pass
