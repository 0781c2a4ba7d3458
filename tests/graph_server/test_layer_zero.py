"""Layer 0's aggregate: equal to one product, whatever its blocks; kept on disk, and found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graph_server import layer_zero
from graph_server.aggregate import Gather
from graph_server.layer_zero import Kept, aggregate
from siafu import ops, verified
from siafu.kernels import Table
from siafu.shards import AGGREGATE
from siafu.sparse import Array, SparseRows
from siafu.verified import MEMORY
from tests.graph_server.shards import base_vertices, cut
from tests.toy_graphs import random_graph, sparse

F64 = np.dtype(np.float64)


def nowhere(shape: tuple[int, int], dtype: np.dtype[np.generic] = F64) -> Kept:
    return Kept.of(None, "", "", shape, dtype)


def expected(gather: Gather, base: Array) -> Array:
    table = Table(len(base), base.shape[1], "float64")
    table.write(slice(None), base, gather.source_scale)
    return gather(0, len(gather.edges.indptr) - 1, table)


@pytest.mark.parametrize("aggregation", ["gcn", "mean", "sum"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("width", [1, 64, 65, 200])
@pytest.mark.parametrize("feature_dtype", [np.uint8, np.float16, np.float32])
def test_blocks_of_columns_make_the_whole(monkeypatch, aggregation, parts, width, feature_dtype):
    monkeypatch.setattr(layer_zero, "BLOCK_BYTES", 1)
    monkeypatch.setattr(layer_zero, "CONVERTED_BYTES", 2000)  # a few rows
    X = np.random.default_rng(1).integers(0, 9, (23, width)).astype(feature_dtype)
    for shard in cut(random_graph(5), parts):
        gather = Gather(shard, aggregation, backward=False, dtype=F64)
        base = X[base_vertices(shard, backward=False)]
        inner, ghosts = base[: len(shard.vertices)], base[len(shard.vertices) :]
        Z = aggregate(gather, inner, ghosts if len(ghosts) else None, nowhere(inner.shape), F64)
        np.testing.assert_allclose(np.asarray(Z), expected(gather, base.astype(np.float64)), rtol=1e-13)


def test_sparse_features_stay_sparse():
    (shard,) = cut(random_graph(5), 1)
    gather = Gather(shard, "gcn", backward=False, dtype=F64)
    X = np.zeros((23, 300))
    X[np.arange(23), 7 * np.arange(23)] = 1
    Z = aggregate(gather, sparse(X), None, nowhere(X.shape), F64)
    assert isinstance(Z, SparseRows)
    np.testing.assert_allclose(Z.dense(), expected(gather, X), rtol=1e-13)


def test_bfloat16_is_the_rounded_sum():
    (shard,) = cut(random_graph(5), 1)
    gather = Gather(shard, "gcn", backward=False, dtype=np.float32)
    X = np.random.default_rng(2).normal(size=(23, 20)).astype(np.float32)
    exact = np.asarray(aggregate(gather, X, None, nowhere(X.shape, np.dtype(np.float32)), np.dtype(np.float32)))
    short = np.asarray(aggregate(gather, X, None, nowhere(X.shape, ops.BFLOAT16), np.dtype(np.float32)))
    assert short.dtype == ops.BFLOAT16
    np.testing.assert_allclose(ops.real(short, np.dtype(np.float32)), exact, rtol=2**-8)


# --- from run to run --------------------------------------------------------------------------------------------------


def made(kept: Kept) -> Array:
    (shard,) = cut(random_graph(5), 1)
    gather = Gather(shard, "gcn", backward=False, dtype=F64)
    return np.asarray(aggregate(gather, np.ones((23, 3), np.float32), None, kept, F64))


def test_it_is_found_by_the_next_run(tmp_path: Path):
    kept = Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)
    assert kept.load() is None
    Z = made(kept)
    found = kept.load()
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, Z)
    assert AGGREGATE.fullmatch(the_file(tmp_path).name)
    with pytest.raises(ValueError, match="read-only"):
        Z[0] = 0


@pytest.mark.parametrize("other", [("other", "gcn", F64), ("digest", "mean", F64), ("digest", "gcn", np.dtype("f4"))])
def test_other_shards_aggregations_and_dtypes_do_not_find_it(tmp_path: Path, other):
    made(Kept.of(tmp_path, "digest", "gcn", (23, 3), F64))
    assert Kept.of(tmp_path, other[0], other[1], (23, 3), other[2]).load() is None


SIZE = 23 * 3 * 8  # of the values; a header of 128 bytes comes before


@pytest.mark.parametrize(
    "damaged",
    [
        lambda content: b"",
        lambda content: b"no array",
        lambda content: content[:-1],
        lambda content: content[:-SIZE] + b"\x07" * SIZE,
        lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
    ],
    ids=["empty", "no array", "cut short", "overwritten with 7s", "one bit"],
)
@pytest.mark.parametrize("remembered", [True, False])
def test_a_file_that_is_not_as_it_was_made_is_made_again_with_one_warning(tmp_path: Path, damaged, remembered, caplog):
    kept = Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)
    Z = made(kept).copy()  # what is mapped changes with the file
    file = the_file(tmp_path)
    if not remembered:
        (tmp_path / MEMORY).unlink()
    file.write_bytes(damaged(file.read_bytes()))
    assert kept.load() is None
    assert [record.getMessage().endswith("layer 0's aggregate is made again") for record in caplog.records] == [True]
    assert file.name in caplog.text
    assert kept.load() is None  # without a word: it is gone
    assert len(caplog.records) == 1
    np.testing.assert_array_equal(made(kept), Z)
    np.testing.assert_array_equal(np.asarray(kept.load()), Z)


def test_one_that_other_kernels_made_is_made_again(tmp_path: Path, monkeypatch, caplog):
    kept = Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)
    made(kept)
    before = the_file(tmp_path)
    monkeypatch.setattr(layer_zero.kernels, "VERSION", "later")
    assert kept.load() is None
    assert "made by another version of siafu; layer 0's aggregate is made again" in caplog.text
    made(kept)
    assert the_file(tmp_path) != before
    assert kept.load() is not None


def test_it_is_compared_once_not_at_every_start(tmp_path: Path, monkeypatch):
    kept = Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)
    made(kept)
    monkeypatch.setattr(verified, "_read", None)  # not to be called
    assert kept.load() is not None


def the_file(folder: Path) -> Path:
    """The aggregate, and no other and no draft."""
    (file,) = (path for path in folder.iterdir() if path.name != MEMORY)
    return file


def test_where_nothing_can_be_written_it_stays_in_memory(tmp_path: Path):
    kept = Kept.of(tmp_path / "there is no such folder", "digest", "gcn", (23, 3), F64)
    assert not isinstance(made(kept), np.memmap)
    assert kept.load() is None


@pytest.mark.parametrize("refusal", [OSError(28, "No space left on device"), OSError(30, "Read-only file system")])
def test_a_disk_that_is_full_or_read_only_costs_only_the_file(tmp_path: Path, monkeypatch, refusal):
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(layer_zero, "_allocate", refuse)
    assert not isinstance(made(Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)), np.memmap)
    assert list(tmp_path.iterdir()) == []


def test_shards_that_are_gone_meanwhile_cost_only_the_file(tmp_path: Path):
    kept = Kept.of(tmp_path / "part", "digest", "gcn", (23, 3), F64)
    (tmp_path / "part").mkdir()
    rows, draft = kept.begin()
    rows[:] = 1
    (tmp_path / "part").rename(tmp_path / "elsewhere")
    assert kept.finish(rows, draft).sum() == 69


def test_an_aggregation_that_fails_leaves_no_draft(tmp_path: Path, monkeypatch):
    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(layer_zero, "_aggregate_columns", fail)
    with pytest.raises(MemoryError):
        made(Kept.of(tmp_path, "digest", "gcn", (23, 3), F64))
    assert list(tmp_path.iterdir()) == []


def test_drafts_of_runs_that_were_killed_are_removed_and_those_of_others_are_not(tmp_path: Path, monkeypatch):
    kept = Kept.of(tmp_path, "digest", "gcn", (23, 3), F64)
    _, other = kept.begin()
    made(kept)
    assert other is not None
    assert other.exists()
    monkeypatch.setattr(layer_zero, "ABANDONED_S", -1.0)
    made(kept)
    assert AGGREGATE.fullmatch(the_file(tmp_path).name)
