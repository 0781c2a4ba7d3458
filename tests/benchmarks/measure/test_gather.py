"""``python -m benchmarks measure gather``: the figures that are asked about, from the times of
contenders; and one small real run."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.measure import gather, graphs
from benchmarks.measure.rounds import Times
from run_coordinator import peers

GRAPH = "synthetic:reddit-small?scale=0.004"


class OneGigabyte:
    """A graph whose rows of 250 float32 are 1 GB over all edges."""

    num_edges, num_vertices = 1_000_000, 1000


OWN = (("siafu", 2.5), ("siafu bfloat16", 1.0), ("packed", 2.0), ("packed bfloat16", 0.8), ("limit", 1.5))


def times(seconds, own=OWN, value=1.0):
    against = {name: [its] for name, its in own}
    return Times(seconds=[seconds], against=against, check={"sample": [[value]]})


def test_rows_place_siafu_beside_its_limit_and_its_peers():
    found = {
        "siafu": times(2.5),
        "siafu bfloat16": times(1.0, value=1.001),
        "packed": times(2.0),
        "packed bfloat16": times(0.8),
        "limit": times(1.5),
        "limit bfloat16": times(0.5),
        "dgl": times(7.5),
        "scipy": times(9.0, value=1.5),
        "pyg": Times(failed="setup: no module"),
    }
    rows = {row["contender"]: row for row in gather._rows(found, OneGigabyte, 250)}
    assert list(rows) == ["siafu", "siafu bfloat16", "dgl", "scipy", "pyg"]
    mine = rows["siafu"]
    assert (mine["ms"], mine["GB/s"], mine["limit GB/s"]) == (2500, 0.4, pytest.approx(1 / 1.5))
    assert (mine["share_of_limit"], mine["ratio_vs_dgl"], mine["ratio_vs_best_peer"]) == (0.75, 3, 3)
    assert (rows["siafu bfloat16"]["GB/s"], rows["siafu bfloat16"]["ratio_vs_dgl"]) == (0.5, 7.5)
    assert rows["scipy"]["note"].startswith("WRONG by 5.0e-01")
    assert rows["pyg"]["note"] == "setup: no module"
    assert "ms" not in rows["pyg"]


def test_error_is_relative_to_the_largest_value():
    assert gather.relative_error([[1, 2], [3, 5]], [[1, 2], [3, 4]]) == 0.25
    assert gather.relative_error(None, [[1]]) is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--widths", "16,x"], "--widths 16,x: must be numbers >= 1 with commas between"),
        (["--widths", "0"], "--widths 0: must be"),
        (["--peers", "dgl,tf"], "--peers tf: unknown, must be of dgl, torch, pyg, scipy"),
        (["--threads", "0"], "--threads 0: must be >= 1"),
        (["--rounds", "0"], "--rounds 0: must be >= 1"),
        (["--skew", "--graph", "digits", "--peers", ""], "--skew: the graph has 11262 edges, must have at least 50000"),
    ],
)
def test_mistakes_are_named(words, message, capsys):
    assert main(["measure", "gather", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_measures_a_small_graph_beside_scipy(monkeypatch, capsys):
    monkeypatch.setattr(peers, "interpreter", lambda: sys.executable)
    monkeypatch.setattr(gather, "AT_LEAST_S", 0)
    words = ["--graph", GRAPH, "--widths", "5", "--peers", "scipy", "--rounds", "1", "--threads", "1", "--json"]
    assert main(["measure", "gather", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    errors = {row["contender"]: row["relative_error"] for row in found["rows"]}
    assert errors["siafu"] == 0
    assert errors["scipy"] < 1e-5
    assert 0 < errors["siafu bfloat16"] < 1e-2
    assert found["ratio_vs_best_peer"] > 0
    assert found["share_of_limit"] > 0
    assert found["triad_gb_per_s"] > 0


# --- skew -------------------------------------------------------------------------------------------------------------


def random_edges(n=2000, m=60_000):
    rng = np.random.default_rng(2)
    degree = np.bincount(rng.integers(0, n, m), minlength=n)
    indptr = np.concatenate([[0], np.cumsum(degree)])
    return indptr, np.sort(rng.integers(0, n, m)).astype(np.int32)


def test_hub_is_made_of_edges_that_others_had():
    indptr, indices = random_edges()
    hub_indptr, hub_indices = graphs.with_hub(indptr, indices, np.random.default_rng(0))
    assert np.diff(hub_indptr).max() >= graphs.HUB_AT_LEAST
    np.testing.assert_array_equal(np.sort(hub_indices), np.sort(indices))  # every edge keeps its source


def test_graph_with_a_hub_is_taken_as_it_is():
    indptr, indices = graphs.with_hub(*random_edges(), np.random.default_rng(0))
    again = graphs.with_hub(indptr, indices, np.random.default_rng(1))
    assert again[0] is indptr


def test_without_hubs_there_are_as_many_edges_from_the_same_sources():
    indptr, indices = graphs.with_hub(*random_edges(), np.random.default_rng(0))
    even_indptr, even_indices = graphs.without_hubs(indptr, indices, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(even_indices), np.sort(indices))
    assert np.diff(even_indptr).max() < 4 * len(indices) / 2000
    rows = np.repeat(np.arange(2000), np.diff(even_indptr))
    assert (np.diff(rows * 2000 + even_indices) >= 0).all()  # sorted in each row
