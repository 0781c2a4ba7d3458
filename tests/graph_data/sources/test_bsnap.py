import struct

import numpy as np
import pytest

from graph_data.convert import convert
from graph_data.partitioners import partition
from graph_data.prepare import prepare
from graph_data.sources import bsnap
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import NONE, TRAIN, VAL, tidy
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph


def write(folder, edges=((0, 1), (2, 0)), vertices=3, features=((1, 2), (3, 4), (5, 6)), labels=(1, 0, 1), kinds=2):
    """A folder as Dorylus' own tools write it, byte by byte."""
    folder.mkdir(exist_ok=True)
    pairs = b"".join(struct.pack("<II", *edge) for edge in edges)
    (folder / "graph.bsnap").write_bytes(struct.pack("<iIQ", 4, vertices, len(edges)) + pairs)
    rows = b"".join(struct.pack(f"<{len(row)}f", *row) for row in features)
    (folder / "features.bsnap").write_bytes(struct.pack("<I", len(features[0])) + rows)
    (folder / "labels.bsnap").write_bytes(struct.pack("<I", kinds) + struct.pack(f"<{len(labels)}I", *labels))
    return str(folder)


def test_dorylus_files_become_the_graph(tmp_path):
    graph = bsnap.load(write(tmp_path / "tiny"))
    assert (graph.name, graph.num_vertices, graph.num_classes, graph.split.shape) == ("tiny", 3, 2, (3, 0))
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 2], [1, 0])
    assert graph.features.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert graph.labels.tolist() == [1, 0, 1]


def test_the_folder_and_its_graph_are_the_same_source(tmp_path):
    folder = write(tmp_path / "tiny")
    assert resolve(folder).kind == resolve(f"{folder}/graph.bsnap").kind == resolve(f"bsnap:{folder}").kind == "bsnap"
    assert resolve(f"{folder}/graph.bsnap").load().labels.tolist() == [1, 0, 1]


def test_what_is_written_is_what_dorylus_reads(tmp_path):
    graph = bsnap.load(write(tmp_path / "there"))
    convert(graph, "bsnap", tmp_path / "back")
    for file in ("graph.bsnap", "features.bsnap", "labels.bsnap"):
        assert (tmp_path / "back" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()
    assert len(list((tmp_path / "back").iterdir())) == 3


def test_what_the_format_cannot_hold_is_said(tmp_path):
    graph = random_graph(1, weighted=True)
    notes = convert(graph, "bsnap", tmp_path / "out").notes
    loops, unknown = int((graph.src == graph.dst).sum()), int((graph.labels < 0).sum())
    assert notes == (
        f"{loops} self-loops are left out: Dorylus adds its own",
        f"{unknown} vertices without a label have 0 in labels.bsnap: labels.npy has them all",
        "Dorylus knows no edge weights: they are in weight.npy",
        "Dorylus splits by position: the split is in split.npy",
    )


@pytest.mark.parametrize(
    ("split", "chunks"), [("positional", [100]), ("positional:2", [50, 50]), ("positional:3", [34, 33, 33])]
)
def test_dorylus_own_split_is_by_position_in_each_chunk(split, chunks, tmp_path):
    rows = [[0.0]] * 100
    folder = write(tmp_path / "hundred", edges=[(0, 1)], vertices=100, features=rows, labels=[0] * 100)
    roles = bsnap.load(f"{folder}?split={split}").split[:, 0]
    expected = [
        role
        for size in chunks
        for role, count in (
            (TRAIN, int(0.66 * size)),
            (VAL, int(0.76 * size) - int(0.66 * size)),
            (NONE, size - int(0.76 * size)),
        )
        for _ in range(count)
    ]
    assert roles.tolist() == expected


def test_a_split_and_features_may_be_given(tmp_path):
    folder = write(tmp_path / "tiny")
    np.save(tmp_path / "split.npy", np.array([1, 2, 3]))
    (tmp_path / "tiny" / "features.bsnap").unlink()
    graph = bsnap.load(f"{folder}?split={tmp_path}/split.npy&features=random:5")
    assert graph.split.tolist() == [[1], [2], [3]]
    assert graph.features.shape == (3, 5)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_over_the_disk_the_shards_are_those_of_memory(weighted, directed, tmp_path):
    written = convert(random_graph(4, n=60, edges=400, weighted=weighted), "bsnap", tmp_path / "files")
    options = {"parts": 3, "partitioner": "chunk", "order": "given", "directed": directed}
    memory, disk = (
        prepare(written.source, tmp_path / str(stream), stream=stream, **options).manifest for stream in (False, True)
    )
    assert disk.partitions == memory.partitions


def test_parts_are_written_a_line_each_and_read_as_a_partitioner(tmp_path):
    graph = random_graph(3, n=30, edges=200)
    convert(graph, "bsnap", tmp_path / "files", parts=3, partitioner="fennel")
    parts = tmp_path / "files" / "parts_3" / "graph.bsnap.parts"
    owner = np.array(parts.read_text().split(), int)
    assert (owner == partition(tidy(graph), "fennel", 3, 0)).all()
    shards = prepare(f"bsnap:{tmp_path}/files", tmp_path / "out", parts=3, partitioner=f"file:{parts}")
    owned = [np.sort(ShardSet.open(shards.path).partition(p).vertices).tolist() for p in range(3)]
    assert owned == [np.flatnonzero(owner == p).tolist() for p in range(3)]


PARTS_REFUSED = {
    "number of lines": ("0\n1\n", r"parts: 2 lines, must be 3, one per vertex$"),
    "partition beyond": ("0\n1\n2\n", r"parts: partitions 0\.\.2, must be in 0\.\.1$"),
    "no number": ("0\none\n1\n", r"parts: not a partition's number per line"),
}


@pytest.mark.parametrize("case", PARTS_REFUSED)
def test_malformed_parts_are_refused(case, tmp_path):
    content, message = PARTS_REFUSED[case]
    (tmp_path / "parts").write_text(content)
    with pytest.raises(DatasetError, match=message):
        prepare(write(tmp_path / "tiny"), tmp_path / "out", parts=2, partitioner=f"file:{tmp_path}/parts")
