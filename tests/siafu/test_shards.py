import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from datasets.cut import shards_of
from datasets.options import Options
from datasets.prepare import prepare
from siafu.errors import DatasetError
from siafu.graph import tidy
from siafu.shards import MANIFEST, FileEntry, Manifest, Shard, ShardSet
from siafu.sparse import SparseRows
from tests.datasets.graphs import random_graph

SHAPES = [
    {},
    {"weighted": True},
    {"sparse": True},
    {"multilabel": True},
    {"edges": 0},
    {"directed": True, "weighted": True},
    {"types": 3},
    {"types": 3, "directed": True, "weighted": True},
    {"numbers": 1},
    {"numbers": 2},
]


@pytest.fixture
def prepared(tmp_path):
    return prepare(random_graph(), tmp_path / "out", parts=2)


def assert_same(found, expected):
    """Equal values and dtypes, field by field."""
    if not hasattr(expected, "__dataclass_fields__"):
        assert type(found) is type(expected) or isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, expected, strict=True)  # NaN is NaN
        return
    for field in expected.__dataclass_fields__:
        assert_same(getattr(found, field), getattr(expected, field))


# --- what is written is read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_shard_comes_back_as_it_was_written(shape, tmp_path):
    graph = random_graph(**{k: v for k, v in shape.items() if k != "directed"})
    directed = shape.get("directed", False)
    prepare(graph, tmp_path / "out", parts=2, partitioner="chunk", order="given", directed=directed)
    shards = ShardSet.open(tmp_path / "out")
    shards.verify()
    tidied = tidy(graph, directed)
    parts = [np.array(shards.partition(p).vertices) for p in range(2)]
    for p, expected in enumerate(shards_of(tidied, parts)):
        assert_same(shards.partition(p), expected)


TYPED = {
    "links": {"task": "link", "negatives": 2, "eval_negatives": 5},
    "inductive": {"inductive": 1},
    "inductive, directed": {"inductive": 1, "directed": True},
}


@pytest.mark.parametrize("case", TYPED)
def test_a_shard_with_types_of_our_own_comes_back_as_it_was_written(case, tmp_path):
    graph, options = random_graph(weighted=True), TYPED[case]
    prepare(graph, tmp_path / "out", parts=2, partitioner="chunk", order="given", **options)
    shards = ShardSet.open(tmp_path / "out")
    shards.verify()
    chosen = Options.of({**prepare.__kwdefaults__, **options})
    typed = chosen.with_types(chosen.with_split(tidy(graph, chosen.directed)))
    parts = [np.array(shards.partition(p).vertices) for p in range(2)]
    for p, expected in enumerate(shards_of(typed, parts, shards.manifest.edge_types)):
        assert_same(shards.partition(p), expected)
    counts = np.bincount(typed.edge_type, minlength=typed.num_edge_types).tolist()
    assert (shards.manifest.num_edge_types, shards.manifest.type_counts) == (typed.num_edge_types, tuple(counts))


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ({}, {}, ("none", 1, "classes", -1)),
        ({"types": 3}, {}, ("relations", 3, "classes", -1)),
        ({"multilabel": True}, {"inductive": 1}, ("inductive", 2, "labels", 1)),
        ({"numbers": 2}, TYPED["links"], ("links", 7, "numbers", -1)),
    ],
    ids=["none", "relations", "inductive", "links"],
)
def test_the_manifest_tells_what_types_and_labels_are(shape, options, expected, tmp_path):
    prepare(random_graph(**shape), tmp_path / "out", **options)
    m = ShardSet.open(tmp_path / "out").manifest
    assert (m.edge_types, m.num_edge_types, m.target, m.inductive_split) == expected


GOLDEN = {  # of the version that knew no types; random, fennel, 3 partitions, seed 5
    ("plain", False): "a575d7b9fa03ff39",
    ("plain", True): "ae8b40c2fb80e72d",
    ("weighted", False): "fc1163dd98b32591",
    ("weighted", True): "39adc397624f8c6d",
    ("sparse", False): "fc10a4427ce6bc55",
    ("sparse", True): "2dd9c7b69390fcf0",
    ("multilabel", False): "6042f80c1d32c39f",
    ("multilabel", True): "e511c1d434d40968",
}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", ["plain", "weighted", "sparse", "multilabel"])
def test_shards_without_types_have_the_digests_that_they_always_had(shape, directed, tmp_path):
    graph = random_graph(**({} if shape == "plain" else {shape: True}))
    options = {"parts": 3, "partitioner": "fennel", "order": "random", "seed": 5, "directed": directed}
    manifest = prepare(graph, tmp_path / "out", **options).manifest
    assert replace(manifest, siafu="").digest[:16] == GOLDEN[shape, directed]


def test_dtypes_are_those_of_the_format(tmp_path):
    shard = prepare(random_graph(weighted=True, sparse=True), tmp_path / "out", directed=True, parts=2).partition(0)
    assert isinstance(shard, Shard)
    assert isinstance(shard.features, SparseRows)
    dtypes = {
        "int64": [shard.vertices, shard.in_edges.indptr, shard.ghosts_in, shard.features.indptr, shard.labels],
        "int32": [shard.in_edges.indices, shard.out_edges.indices, shard.ghosts_out_owner, shard.features.indices],
        "float32": [shard.in_edges.weight, shard.out_edges.weight],
        "float64": [shard.degree, shard.degree_ghosts_in, shard.degree_ghosts_out],
        "uint8": [shard.split, shard.features.data],
    }
    for dtype, arrays in dtypes.items():
        assert {array.dtype for array in arrays} == {np.dtype(dtype)}


def test_arrays_are_mapped_read_only(prepared):
    features = prepared.partition(0).features
    assert isinstance(features, np.memmap)
    assert not features.flags.writeable


def test_undirected_edges_are_stored_once(prepared):
    shard = prepared.partition(1)
    assert shard.undirected
    assert not any(name.startswith("out_") for name in prepared.manifest.partitions[1].files)


def test_manifest_counts_are_those_of_the_shards(prepared):
    m = prepared.manifest
    shards = [prepared.partition(p) for p in range(2)]
    assert m.num_vertices == sum(len(s.vertices) for s in shards)
    assert m.num_edges == sum(len(s.in_edges.indices) for s in shards)
    assert m.cut_edges == sum(int((s.in_edges.indices >= len(s.vertices)).sum()) for s in shards) > 0
    assert [(e.ghosts_in, e.ghosts_out) for e in m.partitions] == [
        (len(s.ghosts_in), len(s.ghosts_out)) for s in shards
    ]
    split = np.concatenate([s.split for s in shards])
    assert [(z.train, z.val, z.test) for z in m.splits] == [
        tuple(int((split[:, i] == role).sum()) for role in (1, 2, 3)) for i in range(2)
    ]


def test_manifest_on_disk_equals_the_one_in_memory(prepared):
    assert ShardSet.open(prepared.path).manifest == prepared.manifest
    raw = json.loads((prepared.path / MANIFEST).read_text())
    assert (raw["format"], raw["version"], raw["digest"]) == ("siafu-shards", 1, prepared.manifest.digest)


def test_digest_covers_every_field(prepared):
    assert replace(prepared.manifest, seed=1).digest != prepared.manifest.digest


def test_manifest_json_round_trips(prepared):
    text = (prepared.path / MANIFEST).read_text()
    assert Manifest.from_json(text, prepared.path) == prepared.manifest


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_partition_that_is_not_there_is_refused(prepared):
    with pytest.raises(DatasetError, match=r"out: partition 2, must be in 0\.\.1$"):
        prepared.partition(2)


def test_a_folder_without_manifest_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"no prepared graph there \(manifest.json: No such file or directory\)$"):
        ShardSet.open(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"x"', "{}", '{"format": "siafu-shards"}'])
def test_a_manifest_that_is_none_is_refused(text, prepared):
    (prepared.path / MANIFEST).write_text(text)
    with pytest.raises(DatasetError, match=r"manifest.json: not a manifest of prepared shards$"):
        ShardSet.open(prepared.path)


def edit_manifest(shards, **changes):
    file = shards.path / MANIFEST
    raw = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in raw.items() if value != "gone"}))


EDITS = {
    "other version": ({"version": 2}, r"format 'siafu-shards' version 2, must be 'siafu-shards' version 1$"),
    "other format": ({"format": "parquet"}, r"format 'parquet' version 1, must be 'siafu-shards' version 1$"),
    "count altered": ({"num_edges": 7}, r"digest \w+, but its content has \w+: the file was altered$"),
    "digest gone": ({"digest": "gone"}, r"digest None, but its content has \w+: the file was altered$"),
    "field gone": ({"seed": "gone"}, r"manifest fields missing, unknown or malformed: seed$"),
    "field unknown": ({"colour": 1}, r"manifest fields missing, unknown or malformed: colour$"),
    "partitions malformed": ({"partitions": [{"files": 3}]}, r"malformed: splits or partitions$"),
}


@pytest.mark.parametrize("case", EDITS)
def test_a_foreign_or_altered_manifest_is_refused_with_its_reason(case, prepared):
    changes, message = EDITS[case]
    edit_manifest(prepared, **changes)
    with pytest.raises(DatasetError, match=message):
        ShardSet.open(prepared.path)


@pytest.mark.parametrize("name", ["features.npy", "in_indices.npy", "split.npy"])
def test_a_truncated_file_is_refused_when_opened(name, prepared):
    file = prepared.path / "part-001" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match=rf"{name}: {len(whole) - 1} bytes, must be {len(whole)} bytes$"):
        ShardSet.open(prepared.path)


def test_a_missing_file_is_refused_when_opened(prepared):
    (prepared.path / "part-000" / "labels.npy").unlink()
    with pytest.raises(DatasetError, match=r"labels\.npy: missing, must be \d+ bytes$"):
        ShardSet.open(prepared.path)


@pytest.mark.parametrize("name", ["features.npy", "in_indptr.npy", "ghosts_in.npy"])
def test_an_altered_byte_is_found_by_verify(name, prepared):
    file = prepared.path / "part-000" / name
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    shards = ShardSet.open(prepared.path)
    with pytest.raises(DatasetError, match=rf"{name}: sha256 \w+, must be \w+: it was altered$"):
        shards.verify()


@pytest.fixture
def named(tmp_path):
    """What the source calls vertices and classes lies beside the partitions."""
    graph = replace(random_graph(), ids=np.arange(40) * 10, names={"classes": ("ant", "bee", "wasp")})
    return prepare(graph, tmp_path / "out", parts=2)


@pytest.mark.parametrize("name", ["ids.npy", "names.json"])
def test_damage_beside_the_partitions_is_found_too(name, named):
    named.verify()
    file = named.path / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"x")
    with pytest.raises(DatasetError, match=rf"{name}: sha256 \w+, must be \w+: it was altered$"):
        ShardSet.open(named.path).verify()
    file.write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match=rf"{name}: {len(whole) - 1} bytes, must be {len(whole)} bytes$"):
        ShardSet.open(named.path)
    ShardSet.open(named.path, (0,)).verify((0,))  # of a server that has its partition alone


def test_a_manifest_of_before_says_nothing_of_files_beside_the_partitions(named):
    before = replace(named.manifest, files={})
    assert "files" not in before.body()
    assert (before.content, before.digest == named.manifest.digest) == (named.manifest.content, False)


def test_a_manifest_lists_no_other_file_beside_the_partitions(named):
    foreign = replace(named.manifest, files={"../../etc/passwd": FileEntry(1, "")})
    edit_manifest(named, **foreign.body(), digest=foreign.digest)
    with pytest.raises(DatasetError, match=r"manifest.json: lists files beside its partitions, must be of ids.npy, "):
        ShardSet.open(named.path)


def test_an_unreadable_array_is_refused_when_mapped(prepared):
    file = prepared.path / "part-000" / "features.npy"
    file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(DatasetError, match=r"features\.npy: not a readable array"):
        ShardSet.open(prepared.path).partition(0)


def rewrite(prepared, name, change):
    """A file with other values, in a manifest that says so: what a mistaken program, or a forger, would leave."""
    file = prepared.path / "part-000" / name
    np.save(file, change(np.load(file)))
    part = prepared.manifest.partitions[0]
    files = {**part.files, name: FileEntry(file.stat().st_size, hashlib.sha256(file.read_bytes()).hexdigest())}
    parts = (replace(part, files=files), *prepared.manifest.partitions[1:])
    manifest = replace(prepared.manifest, partitions=parts)
    (prepared.path / MANIFEST).write_text(json.dumps({**manifest.body(), "digest": manifest.digest}))
    shards = ShardSet.open(prepared.path)
    shards.verify()
    return shards


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("vertices.npy", lambda a: a[:-1], r"int64 \[\d+\], must be int64 \[\d+\]"),
        ("degree.npy", lambda a: a.astype(np.float32), r"float32 \[\d+\], must be float64 \[\d+\]"),
        ("in_indices.npy", lambda a: np.append(a, a[:1]), r"int32 \[\d+\], must be int32 \[\d+\]"),
        ("in_indptr.npy", lambda a: a + 1, r"from 1 to \d+, must be from 0 to \d+"),
        (
            "features.npy",
            lambda a: a[:, :-1],
            r"\w+ \[\d+, \d+\], must be uint8 or float16 or float32 \[\d+, \d+\]",
        ),
        ("features.npy", lambda a: a.astype(np.int64), r"int64 \[\d+, \d+\], must be uint8 or float16 or float32"),
        ("labels.npy", lambda a: a[:, None, None], r"int64 \[\d+, 1, 1\], must be int64 \[\d+, …\]"),
        ("split.npy", lambda a: a[:, :0], r"uint8 \[\d+, 0\], must be uint8 \[\d+, 2\]"),
    ],
)
def test_an_array_that_the_manifest_s_counts_do_not_fit_is_refused(name, change, complaint, prepared):
    shards = rewrite(prepared, name, change)
    with pytest.raises(DatasetError, match=rf"part-000/{name}: {complaint}"):
        shards.partition(0)
    shards.partition(1)


def test_a_machine_verifies_its_own_partition_alone(prepared):
    file = prepared.path / "part-001" / "degree.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    prepared.verify((0,))
    with pytest.raises(DatasetError, match=r"part-001/degree\.npy: sha256"):
        prepared.verify((1,))
