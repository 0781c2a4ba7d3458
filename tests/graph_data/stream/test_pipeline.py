"""Over the disk or in memory: the same bytes. An interrupted preparation ends with the same bytes too."""

import os
import re
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from graph_data.partitioners import PARTITIONERS
from graph_data.prepare import prepare
from graph_data.stream import buckets, pipeline
from graph_data.stream.work import Work
from siafu.errors import ConfigError, DatasetError
from siafu.features import FEATURE_NORMS
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph

SHAPES = [
    {},
    {"weighted": True},
    {"sparse": True},
    {"multilabel": True},
    {"splits": 0},
    {"n": 2, "edges": 1},
    {"edges": 0},
]


@pytest.fixture(autouse=True)
def no_sync(monkeypatch):
    """Waiting for the disk is most of the time that these tests would take."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(params=["roomy", "tight"])
def blocks(request, monkeypatch):
    """With room for everything at once, and so tight that every loop runs many times."""
    if request.param == "tight":
        monkeypatch.setattr(pipeline, "MAX_BLOCK", 64)
        monkeypatch.setattr(pipeline, "MIN_BLOCK", 64)
        monkeypatch.setattr(buckets, "MAX_BUCKET_KEYS", 100)


def both(graph, tmp_path, **options):
    """The manifests of a graph prepared in memory and over the disk: they hold the sha256 of every file."""
    options = {"order": "given", **options}
    return (
        prepare(graph, tmp_path / "memory", stream=False, **options).manifest,
        prepare(graph, tmp_path / "disk", stream=True, **options).manifest,
    )


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("parts", [1, 2])
def test_every_kind_of_graph(parts, directed, shape, blocks, tmp_path):
    memory, disk = both(
        random_graph(seed=7, **{"n": 300, "edges": 2000, **shape}),
        tmp_path,
        parts=parts,
        partitioner="random",
        directed=directed,
    )
    assert memory == disk
    ShardSet.open(tmp_path / "disk").verify()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("partitioner", [name for name in PARTITIONERS if name != "metis"])
@pytest.mark.parametrize("directed", [False, True])
def test_every_partitioner_that_streams(directed, partitioner, blocks, tmp_path):
    graph = random_graph(n=500, edges=3000, weighted=True)
    memory, disk = both(graph, tmp_path, parts=5, partitioner=partitioner, directed=directed, seed=3)
    assert memory == disk
    assert memory.cut_edges > 0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("norm", FEATURE_NORMS)
def test_every_feature_norm(norm, sparse, tmp_path):
    memory, disk = both(random_graph(sparse=sparse), tmp_path, parts=3, partitioner="hash", feature_norm=norm)
    assert memory == disk


@pytest.mark.parametrize("dtype", [np.float64, np.float16, bool, np.int64])
def test_every_feature_dtype(dtype, tmp_path):
    graph = random_graph()
    memory, disk = both(replace(graph, features=graph.features.astype(dtype)), tmp_path, parts=2, partitioner="chunk")
    assert memory == disk


def test_weights_of_parallel_edges_are_summed_in_the_order_of_the_source(blocks, tmp_path):
    weight = np.float32(10) ** np.arange(-6, 6, dtype=np.float32)  # whose sum depends on the order
    src, dst = np.tile([0, 1], 500), np.tile([1, 0], 500)
    graph = replace(random_graph(n=3, edges=0), src=src, dst=dst, weight=np.resize(weight[::-1], 1000))
    memory, disk = both(graph, tmp_path)
    assert memory == disk


def test_metis_in_one_partition_is_no_metis(tmp_path):
    memory, disk = both(random_graph(), tmp_path, partitioner="metis")
    assert memory == disk


def test_files_give_the_same_as_their_graph_in_memory(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    ids = np.sort(rng.choice(2**60, 200, replace=False))
    for piece in range(3):
        columns = {"s": rng.choice(ids, 700), "d": rng.choice(ids, 700), "w": rng.uniform(0.1, 9, 700)}
        parquet.write_table(pa.table(columns), tmp_path / f"e{piece}.parquet")
    parquet.write_table(pa.table({"id": rng.permutation(ids), "x": rng.random(200)}), tmp_path / "x.parquet")
    source = f"{tmp_path}/e*.parquet?weight=w&features={tmp_path}/x.parquet"
    memory, disk = both(source, tmp_path, parts=3, partitioner="fennel", feature_norm="standard")
    assert memory == disk
    assert memory.num_vertices == 200
    assert (np.load(tmp_path / "disk" / "ids.npy") == np.load(tmp_path / "memory" / "ids.npy")).all()


def test_a_graph_in_memory_keeps_the_ids_of_its_source(tmp_path):
    ids = np.arange(40) * 1000 + 7
    memory, disk = both(replace(random_graph(), ids=ids), tmp_path, parts=2, partitioner="hash")
    assert memory == disk
    assert (np.load(tmp_path / "disk" / "ids.npy") == ids).all()


def test_another_graph_of_the_same_edges_is_not_continued(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        kill_at(patch, 6)
        with pytest.raises(Killed):
            prepare(random_graph(), tmp_path / "out", **OPTIONS)
    labels = np.zeros(40, np.int64)
    shards = prepare(replace(random_graph(), labels=labels), tmp_path / "out", **OPTIONS)
    assert all(not shards.partition(p).labels.any() for p in range(2))


# --- interrupted ------------------------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def kill_at(monkeypatch, step):
    """Makes the ``step``-th record of progress the last thing that happens."""
    calls, original = count(1), Work.record

    def record(self, name, value):
        original(self, name, value)
        if next(calls) == step:
            raise Killed

    monkeypatch.setattr(Work, "record", record)


OPTIONS = {"parts": 2, "partitioner": "ldg", "order": "given", "directed": True, "stream": True}


def steps_of(monkeypatch, tmp_path):
    names, original = [], Work.record
    with monkeypatch.context() as patch:
        patch.setattr(Work, "record", lambda self, name, value: (names.append(name), original(self, name, value)))
        prepare(random_graph(n=60, weighted=True), tmp_path / "steps", **OPTIONS)
    return names


def test_killed_behind_any_step_it_continues_with_the_next(monkeypatch, tmp_path):
    monkeypatch.setattr(buckets, "MAX_BUCKET_KEYS", 70)
    graph, expected = random_graph(n=60, weighted=True), None
    steps = steps_of(monkeypatch, tmp_path)
    assert len(steps) > 15
    expected = prepare(graph, tmp_path / "whole", **OPTIONS).manifest
    for step in range(1, len(steps) + 1):
        out, said = tmp_path / f"out{step}", []
        with monkeypatch.context() as patch:
            kill_at(patch, step)
            with pytest.raises(Killed):
                prepare(graph, out, **OPTIONS)
        assert not out.exists()
        assert prepare(graph, out, say=said.append, **OPTIONS).manifest == expected
        assert f"continuing behind step {steps[step - 1]!r} of an interrupted preparation" in said
        assert sum(line.startswith("census") for line in said) == 0
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []


def test_killed_inside_a_step_it_does_that_step_again(monkeypatch, tmp_path):
    graph = random_graph(n=60, weighted=True)
    expected = prepare(graph, tmp_path / "whole", **OPTIONS).manifest
    for function in ("deal", "merge", "owners", "keys_of", "write_rows", "weighted_degree"):
        with monkeypatch.context() as patch:
            original, calls = getattr(pipeline, function), count()

            def dying(*args, original=original, calls=calls):
                result = original(*args)
                if next(calls) == 0:
                    raise Killed
                return result

            patch.setattr(pipeline, function, dying)
            with pytest.raises(Killed):
                prepare(graph, tmp_path / "out", **OPTIONS)
        assert prepare(graph, tmp_path / "out", **OPTIONS).manifest == expected


def test_another_option_starts_over_and_says_so(monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        kill_at(patch, 4)
        with pytest.raises(Killed):
            prepare(random_graph(), tmp_path / "out", **OPTIONS)
    said = []
    shards = prepare(random_graph(), tmp_path / "out", say=said.append, **{**OPTIONS, "seed": 1})
    assert "the source or an option changed since an interrupted preparation: starting over" in said
    assert shards.manifest.seed == 1


def test_another_process_in_the_same_folder_is_refused(tmp_path):
    with (
        Work(tmp_path / ".out.work", "key", print),
        pytest.raises(DatasetError, match=r"\.out\.work: another process is preparing there$"),
    ):
        prepare(random_graph(), tmp_path / "out", **OPTIONS)


# --- refused ----------------------------------------------------------------------------------------------------------


def test_metis_names_what_it_would_take(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^partitioner 'metis' holds the graph in memory, which takes about .*: choose fennel"
    ):
        prepare(random_graph(), tmp_path / "out", parts=2, stream=True)


def test_an_order_that_needs_the_graph_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"^order 'random' holds the graph in memory, which takes about .*: choose given"
    ):
        prepare(random_graph(), tmp_path / "out", order="random", stream=True)


def test_a_feature_that_is_not_finite_is_refused_before_the_edges_are_sorted(tmp_path):
    features = np.zeros((40, 5), np.float32)
    features[7, 3] = np.nan
    said = []
    with pytest.raises(DatasetError, match=r"^random: feature 3 of vertex 7 is nan, must be finite$"):
        prepare(replace(random_graph(), features=features), tmp_path / "out", stream=True, say=said.append)
    assert not any(line.startswith("spread") for line in said)


@pytest.mark.parametrize("field", ["labels", "split"])
def test_rows_that_are_missing_are_refused(field, tmp_path):
    graph = random_graph()
    with pytest.raises(DatasetError, match=r"^random: 39 .*, must be 40$"):
        prepare(replace(graph, **{field: getattr(graph, field)[:-1]}), tmp_path / "out", stream=True)


BAD_ENDS = {
    "beyond": (np.array([1, 2, 40]), "edge 2 has target vertex 40, must be in 0..39"),
    "negative": (np.array([1, -1, 3]), "edge 1 has target vertex -1, must be in 0..39"),
    "wraps": (np.array([1, 2**63, 3], np.uint64), "edge 1 has target vertex 9223372036854775808, must be in 0..39"),
    "fraction": (np.array([1.0, 2.5, 3.0]), "edge targets are float64 [3], must be integers [E]"),
    "too_few": (np.array([1, 2]), "2 edge targets, must be 3"),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("end", BAD_ENDS)
def test_an_edge_to_no_vertex_is_refused(end, stream, tmp_path):
    """Over the disk, vertex -1 was the last one, and 2.5 vertex 2."""
    dst, words = BAD_ENDS[end]
    graph = replace(random_graph(), src=np.array([1, 2, 3]), dst=dst, weight=None)
    with pytest.raises(DatasetError, match=f"^random: {re.escape(words)}$"):
        prepare(graph, tmp_path / "out", stream=stream)
