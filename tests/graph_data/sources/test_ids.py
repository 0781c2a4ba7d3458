"""Vertices that are called anything: numbered in the order of their names, alike in memory and over the disk."""

import datetime
import uuid

import numpy as np
import pytest

from graph_data.prepare import prepare as prepare_any
from graph_data.sources import edgelist, ids
from graph_data.sources.ids import NamedIds, Seen, hashes
from siafu.errors import DatasetError
from siafu.shards import ShardSet
from tests.graph_data.random_features import for_edges

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
load, prepare = for_edges(edgelist.load), for_edges(prepare_any)

UUIDS = [uuid.UUID(int=7 * 2**100 + 3).bytes, uuid.UUID(int=5).bytes, uuid.UUID(int=2**127).bytes]
DAY = datetime.date(1969, 12, 31)
DAYS = [DAY + datetime.timedelta(days) for days in (3, 0, 400)]

#: An Arrow array of three ids, out of order.
KINDS = {
    "text": pa.array(["bob", "alice", "żółw"]),
    "large text": pa.array(["bob", "alice", "żółw"], pa.large_string()),
    "categories": pa.array(["bob", "alice", "żółw"]).dictionary_encode(),
    "prefixes": pa.array(["a" * 17, "a" * 16, "a" * 17 + "b"]),
    "UUIDs": pa.array(UUIDS, pa.binary(16)),
    "bytes": pa.array([b"b\0", b"b", b"c"]),
    "dates": pa.array(DAYS),
    "times": pa.array([datetime.datetime(2020, 1, 2), datetime.datetime(1950, 1, 1), datetime.datetime(2021, 1, 1)]),
    "negative": pa.array([5, -7, 2**62]),
    "most negative": pa.array([0, -(2**63), 2**63 - 1]),
    "unsigned": pa.array([7, 0, 2**64 - 1], pa.uint64()),
    "decimals": pa.array([10**30, -(10**30), 10**30 + 1], pa.decimal128(38, 0)),
}


def edges_of(column, tmp_path, ends=((0, 1), (2, 0), (1, 2), (2, 1))):
    """An edge list in Parquet between the vertices that an Arrow array names."""
    src, dst = (pa.array([place[end] for place in ends]) for end in (0, 1))
    parquet.write_table(pa.table({"s": column.take(src), "d": column.take(dst)}), tmp_path / "e.parquet")
    return str(tmp_path / "e.parquet")


# --- numbering --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_vertices_are_numbered_in_the_order_of_their_ids(kind, tmp_path):
    graph = load(edges_of(KINDS[kind], tmp_path))
    assert (graph.src.tolist(), graph.dst.tolist()) == ([1, 2, 0, 2], [0, 1, 2, 0])
    value = {"UUIDs": bytes.hex, "bytes": bytes.hex, "decimals": int}.get(kind, lambda value: value)
    found = [KINDS[kind].take(pa.array([place])).to_pylist()[0] for place in (1, 0, 2)]
    assert [graph.ids[v] for v in range(3)] == [value(one) for one in found]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_shards_keep_ids_of_any_kind_and_give_them_back(kind, tmp_path):
    out = prepare(edges_of(KINDS[kind], tmp_path), tmp_path / "out").path
    kept = ids.load(out)
    assert isinstance(kept, np.ndarray) == kind.endswith("negative")
    assert (out / "ids.npy").is_file() == kind.endswith("negative")
    assert [kept[v] for v in range(3)] == [load(str(tmp_path / "e.parquet")).ids[v] for v in range(3)]


def test_ids_of_text_are_text_for_numpy(tmp_path):
    assert np.asarray(load(edges_of(KINDS["text"], tmp_path)).ids).tolist() == ["alice", "bob", "żółw"]


def test_text_in_csv_is_numbered_as_in_parquet(tmp_path):
    (tmp_path / "e.csv").write_text("s,d,w\nbob,alice,1\nżółw,bob,2\n", "utf-8")
    graph = load(f"{tmp_path}/e.csv?weight=w")
    assert (graph.src.tolist(), graph.dst.tolist(), list(graph.ids)) == ([1, 2], [0, 1], ["alice", "bob", "żółw"])


def test_huge_integers_in_csv_are_ordered_as_numbers(tmp_path):
    (tmp_path / "e.csv").write_text(f"s,d\n{10**40},7\n-3,{10**40}\n")
    graph = load(f"{tmp_path}/e.csv")
    assert [graph.ids[v] for v in range(3)] == [-3, 7, 10**40]


def test_integers_can_be_taken_for_text(tmp_path):
    (tmp_path / "e.csv").write_text("s,d\n10,9\nabc,10\n")
    assert list(load(f"{tmp_path}/e.csv?ids=text").ids) == ["10", "9", "abc"]
    parquet.write_table(pa.table({"s": [10], "d": ["x"]}), tmp_path / "e.parquet")
    assert list(load(f"{tmp_path}/e.parquet?ids=text").ids) == ["10", "x"]


def test_tables_of_vertices_go_by_the_same_ids(tmp_path):
    path = edges_of(KINDS["dates"], tmp_path)
    (tmp_path / "v.csv").write_text(
        f"day,x,y\n{DAYS[0]},1,b\n{DAYS[1]},0,a\n{DAYS[2]},2,\n{DAY.replace(year=1900)},9,c\n"
    )
    graph = load(f"{path}?features={tmp_path}/v.csv&labels={tmp_path}/v.csv%23y")
    assert graph.features.tolist() == [[9], [0], [1], [2]]
    assert graph.labels.tolist() == [2, 0, 1, -1]


# --- over the disk ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "int"])
def test_the_disk_gives_the_same_as_memory(kind, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda file: None)
    monkeypatch.setattr(ids, "MERGE_AT", 50)
    rng = np.random.default_rng(0)
    names = (
        np.array([f"user-{v:x}" for v in rng.integers(0, 2**60, 300)])
        if kind == "text"
        else rng.integers(-(2**60), 2**60, 300)
    )
    for piece in range(3):
        ends = {end: rng.choice(names, 500) for end in ("s", "d")}
        parquet.write_table(
            pa.table({**ends, "w": rng.uniform(1, 2, 500)}), tmp_path / f"e{piece}.parquet", row_group_size=100
        )
    table = {"id": rng.permutation(names), "x": rng.random(300), "y": rng.choice(["cat", "dog"], 300)}
    parquet.write_table(pa.table(table), tmp_path / "v.parquet")
    source = f"{tmp_path}/e*.parquet?weight=w&features={tmp_path}/v.parquet&labels={tmp_path}/v.parquet%23y"
    options = {"parts": 2, "partitioner": "hash", "order": "given"}
    memory = prepare(source, tmp_path / "memory", stream=False, **options)
    disk = prepare(source, tmp_path / "disk", stream=True, **options)
    assert memory.manifest == disk.manifest
    assert (
        np.asarray(ids.load(disk.path)).tolist() == np.asarray(ids.load(memory.path)).tolist() == sorted(names.tolist())
    )
    assert (disk.path / "names.json").read_text() == (memory.path / "names.json").read_text()
    ShardSet.open(disk.path).verify()


# --- hashes -----------------------------------------------------------------------------------------------------------


def test_hashes_depend_on_every_byte_and_on_the_length():
    text = ["", "a", "a\0", "b", "a" * 8, "a" * 9, "a" * 16, "a" * 15 + "b", "x" * 1000, "x" * 999 + "y", "\0", "\0\0"]
    found = hashes(pa.array(text, pa.large_string()))
    assert len(set(found.tolist())) == len(text)
    assert found.min() >= 0


@pytest.mark.parametrize("kind", ["text", "UUIDs", "dates"])
def test_a_hash_does_not_depend_on_where_the_value_stands(kind):
    type_ = pa.large_string() if kind == "text" else KINDS[kind].type
    values = KINDS[kind].cast(type_)
    assert (
        hashes(values)[1:].tolist()
        == hashes(values.slice(1)).tolist()
        == hashes(values.take(pa.array([1, 2]))).tolist()
    )


def all_of(*blocks):
    """The ids of blocks of hashes and values."""
    seen = Seen()
    for hashed, values in blocks:
        seen.add(np.array(hashed), pa.array(values, pa.large_string()))
    return seen.ids()


@pytest.mark.parametrize("merge_at", [0, 1 << 20])
def test_two_ids_with_one_hash_are_never_taken_for_one(merge_at, monkeypatch):
    monkeypatch.setattr(ids, "MERGE_AT", merge_at)
    sound = ([5, 6], ["a", "b"]), ([6, 7], ["b", "c"])
    assert list(all_of(*sound)) == ["a", "b", "c"]
    with pytest.raises(DatasetError, match=r"^ids '.' and '.' have the same hash: rename one of them$"):
        all_of(*sound, ([5], ["x"]))
    with pytest.raises(DatasetError, match=r"have the same hash"):
        all_of(([5, 5], ["a", "b"]))


def test_numbers_are_found_by_hash():
    names = NamedIds(pa.array([f"{v:05d}" for v in range(5000)], pa.large_string()))
    asked = np.random.default_rng(1).integers(0, 5000, 777)
    assert np.array_equal(names.numbers(hashes(names.values.take(pa.array(asked)))), asked)
    assert "00017" in names
    assert "17" not in names
