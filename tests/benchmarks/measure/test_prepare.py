from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks.measure import prepare
from siafu.errors import ConfigError, DatasetError


def arguments(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    prepare.add_arguments(parser)
    return parser.parse_args(given)


@pytest.mark.long
def test_partitioners_are_compared_by_rate_memory_and_cut(tmp_path: Path):
    found = prepare.measure(
        arguments("--graph", "digits", "--partitioners", "metis,random", "--work", str(tmp_path), "--rounds", "1")
    )
    metis, random = found.rows
    assert (metis["partitioner"], random["partitioner"]) == ("metis", "random")
    assert metis["cut_share"] < random["cut_share"]
    assert metis["edges"] == random["edges"] > 0
    assert metis["edges_per_s"] == pytest.approx(metis["edges"] / metis["prepare_s"])
    assert metis["peak_mb"] > 20
    assert metis["vertex_balance"] >= 1
    assert found.summary["cuts_least"] == "metis"
    assert metis["hours_for_3_6_billion"] == pytest.approx(3.6e9 / metis["edges_per_s"] / 3600)
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_an_edge_list_is_synthesized_and_prepared(tmp_path: Path):
    pytest.importorskip("pyarrow")
    found = prepare.measure(arguments("--synthesize", "2e4", "--partitioners", "random", "--work", str(tmp_path)))
    (row,) = found.rows
    assert 20_000 < row["edges"] <= 40_000  # both directions, less what was there twice
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_mistakes_are_named(tmp_path: Path):
    with pytest.raises(ConfigError, match="--parts 0, --rounds 1: must be >= 1"):
        prepare.measure(arguments("--parts", "0"))
    with pytest.raises(ConfigError, match="--synthesize many: could not convert"):
        prepare.measure(arguments("--synthesize", "many"))
    with pytest.raises(DatasetError, match=r"digits, nobody: .*nobody"):
        prepare.measure(arguments("--graph", "digits", "--partitioners", "nobody", "--work", str(tmp_path)))
