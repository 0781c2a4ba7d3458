import hashlib
import json
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest

from graph_data.cut import shards_of
from graph_data.options import Options
from graph_data.prepare import prepare
from siafu import verified
from siafu.errors import DatasetError
from siafu.graph import tidy
from siafu.shards import MANIFEST, VERSION, FileEntry, Manifest, Shard, ShardSet
from siafu.sparse import SparseRows
from siafu.verified import MEMORY, Verified
from tests.graph_data.graphs import random_graph

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
    ("plain", False): "dd71a8cc18df18ef",
    ("plain", True): "826282acbea353f4",
    ("weighted", False): "9f9187c03b971b1d",
    ("weighted", True): "4d913d070749f3a8",
    ("sparse", False): "8b05ee392878a3af",
    ("sparse", True): "34d21a4973709eee",
    ("multilabel", False): "1e6f63c5fb5db691",
    ("multilabel", True): "399cc6111c74dd8d",
}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("shape", ["plain", "weighted", "sparse", "multilabel"])
def test_shards_without_types_have_the_content_that_they_always_had(shape, directed, tmp_path):
    graph = random_graph(**({} if shape == "plain" else {shape: True}))
    options = {"parts": 3, "partitioner": "fennel", "order": "random", "seed": 5, "directed": directed}
    manifest = prepare(graph, tmp_path / "out", **options).manifest
    files = [[name, entry.sha256] for part in manifest.partitions for name, entry in sorted(part.files.items())]
    assert hashlib.sha256(json.dumps(files).encode()).hexdigest()[:16] == GOLDEN[shape, directed]


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
    assert (raw["format"], raw["version"], raw["digest"]) == ("siafu-shards", VERSION, prepared.manifest.digest)


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
    "older version": ({"version": 1}, rf"version 1, must be {VERSION}: prepared by an older siafu, prepare it again$"),
    "newer version": (
        {"version": 99},
        rf"format 'siafu-shards' version 99, must be 'siafu-shards' version {VERSION}: another siafu prepared it",
    ),
    "other format": (
        {"format": "parquet"},
        rf"format 'parquet' version {VERSION}, must be 'siafu-shards' version {VERSION}$",
    ),
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
    with pytest.raises(DatasetError, match=rf"{name}: sha256 \w+, must be \w+: it was altered; delete .*out, and pre"):
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
    with pytest.raises(DatasetError, match=rf"{name}: sha256 \w+, must be \w+: it was altered; "):
        ShardSet.open(named.path).verify()
    file.write_bytes(whole[:-1])
    with pytest.raises(DatasetError, match=rf"{name}: {len(whole) - 1} bytes, must be {len(whole)} bytes$"):
        ShardSet.open(named.path)
    ShardSet.open(named.path, (0,)).partition(0)  # of a server that has its partition alone


def test_a_manifest_lists_no_other_file_beside_the_partitions(named):
    foreign = replace(named.manifest, files={"../../etc/passwd": FileEntry(1, "", 0)})
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
    content = file.read_bytes()
    files = {**part.files, name: FileEntry(len(content), hashlib.sha256(content).hexdigest(), zlib.crc32(content))}
    parts = (replace(part, files=files), *prepared.manifest.partitions[1:])
    manifest = replace(prepared.manifest, partitions=parts)
    (prepared.path / MANIFEST).write_text(json.dumps({**manifest.body(), "digest": manifest.digest}))
    return ShardSet.open(prepared.path)


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
    for look in (lambda: shards.partition(0), shards.verify):
        with pytest.raises(DatasetError, match=rf"part-000/{name}: {complaint}"):
            look()
    shards.partition(1)


def put(at, value):
    """A change that puts a value at a place."""

    def change(array):
        array.flat[at] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("in_indices.npy", put(3, -5), r"value 3 is -5, must be in 0\.\.\d+; delete .*, and prepare the graph again$"),
        ("in_indices.npy", put(-1, 40), r"value \d+ is 40, must be in 0\.\.\d+"),
        ("in_indices.npy", lambda a: a[::-1].copy(), r"value \d+ is \d+ after \d+, must not fall within a row"),
        ("in_indptr.npy", put(2, 10**12), r"value 2 is 1000000000000, must be in 0\.\.\d+"),
        ("in_indptr.npy", put(2, -1), r"value 2 is -1, must be in 0\.\.\d+"),
        ("in_indptr.npy", put(9, 0), r"value 9 is 0 after \d+, must not fall"),
        ("vertices.npy", put(0, 40), r"value 0 is 40, must be in 0\.\.39"),
        ("ghosts_in.npy", put(0, -1), r"value 0 is -1, must be in 0\.\.39"),
        ("ghosts_in_owner.npy", put(0, 2), r"value 0 is 2, must be in 0\.\.1"),
        ("degree.npy", put(1, np.nan), r"value 1 is nan, must be finite"),
        ("labels.npy", put(4, 99), r"value 4 is 99, must be in -1\.\.\d+"),
        ("split.npy", put(5, 4), r"value 5 is 4, must be in 0\.\.3"),
    ],
)
def test_a_value_that_indexes_nothing_is_refused_although_its_checksum_is_right(name, change, complaint, prepared):
    """The compiled kernels index with these, and look at none."""
    shards = rewrite(prepared, name, change)
    for look in (lambda: shards.partition(0), shards.verify):
        with pytest.raises(DatasetError, match=rf"part-000/{name}: {complaint}"):
            look()


@pytest.mark.parametrize("shape", [{"types": 3}, {"sparse": True}, {"weighted": True}], ids=str)
def test_types_weights_and_sparse_features_are_held_to_their_limits_too(shape, tmp_path):
    shards = prepare(random_graph(**shape), tmp_path / "out", parts=2, partitioner="chunk")
    name, value, wrong = {
        "types": ("in_type.npy", 3, r"value 0 is 3, must be in 0\.\.2"),
        "sparse": ("features_indices.npy", 999, r"value 0 is 999, must be in 0\.\.\d+"),
        "weighted": ("in_weight.npy", np.inf, "value 0 is inf, must be finite"),
    }[next(iter(shape))]
    with pytest.raises(DatasetError, match=rf"part-000/{name}: {wrong}"):
        rewrite(shards, name, put(0, value)).partition(0)


def test_a_file_that_the_manifest_does_not_list_is_not_mapped(prepared):
    part = prepared.manifest.partitions[0]
    files = {name: entry for name, entry in part.files.items() if name != "labels.npy"}
    parts = (replace(part, files=files), *prepared.manifest.partitions[1:])
    with pytest.raises(DatasetError, match=r"labels\.npy: is not in the manifest"):
        ShardSet(prepared.path, replace(prepared.manifest, partitions=parts)).partition(0)


# --- compared by default, once per change -----------------------------------------------------------------------------


def alter(file):
    """One bit of the last value, in a file of the same size."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize("name", ["in_indices.npy", "features.npy", "labels.npy", "split.npy"])
def test_a_partition_of_which_a_byte_was_altered_is_never_mapped(name, remembered, prepared):
    if remembered:
        settle(prepared)
    alter(prepared.path / "part-000" / name)
    with pytest.raises(
        DatasetError, match=rf"part-000/{name}: checksum \w{{8}}, must be \w{{8}}: it was altered; delete "
    ):
        ShardSet.open(prepared.path).partition(0)
    ShardSet.open(prepared.path).partition(1)  # another machine's


def test_another_valid_column_is_noticed_too(prepared):
    """Nothing but the checksum can see it: it gave other weights, and exit code 0."""
    file = prepared.path / "part-000" / "in_indices.npy"
    columns, indptr = np.load(file), np.load(file.with_name("in_indptr.npy"))
    first = int(indptr[np.argmax(np.diff(indptr) >= 2)])
    columns[first + 1] = columns[first]  # in range, and sorted
    np.save(file, columns)
    with pytest.raises(DatasetError, match="it was altered"):
        ShardSet.open(prepared.path).partition(0)


def settle(shards):
    """Opens every partition until all its files are remembered: no more than the
    clock's step after they were written."""
    deadline = time.monotonic() + 10
    for p, entry in enumerate(shards.manifest.partitions):
        memory = shards.path / f"part-{p:03d}" / MEMORY
        while not memory.exists() or len(json.loads(memory.read_text())["files"]) < len(entry.files):
            assert time.monotonic() < deadline
            shards.partition(p)


def test_what_was_found_good_is_not_read_again(prepared, monkeypatch):
    settle(prepared)
    monkeypatch.setattr(verified, "_read", None)  # not to be called
    ShardSet.open(prepared.path).partition(0)
    with pytest.raises(TypeError):
        prepared.verify()  # whatever is remembered


def test_other_shards_in_their_place_are_read(prepared):
    """The memory is of one manifest: files that another one describes were compared with nothing of it."""
    settle(prepared)
    other = replace(prepared.manifest, name="other")
    read = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verified, "_read", lambda file, look: read.append(file.name) or (0, None))
        with pytest.raises(DatasetError):
            ShardSet(prepared.path, other).partition(0)
    assert read


def test_shards_that_cannot_be_written_to_are_verified_each_time(prepared, monkeypatch):
    monkeypatch.setattr(Verified, "_clock", lambda self: 0)  # as where nothing can be written: root may write anywhere
    prepared.partition(0)
    assert not (prepared.path / "part-000" / MEMORY).exists()
    alter(prepared.path / "part-000" / "features.npy")
    with pytest.raises(DatasetError, match="altered"):
        prepared.partition(0)
