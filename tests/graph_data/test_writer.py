import numpy as np
import pytest

from graph_data.cut import shards_of
from graph_data.prepare import prepare
from graph_data.writer import ShardWriter
from siafu.errors import DatasetError
from siafu.graph import tidy
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph


@pytest.fixture
def prepared(tmp_path):
    return prepare(random_graph(), tmp_path / "out", parts=2)


def write_and_fail(out):
    """Writes a whole shard, then fails before the manifest."""
    graph = tidy(random_graph())
    with ShardWriter(out) as writer:
        for shard in shards_of(graph, np.array_split(np.arange(graph.num_vertices), 2)):
            writer.add(shard)
            assert not (out / "part-000").exists()
        raise ZeroDivisionError


def test_a_failure_before_the_manifest_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        write_and_fail(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_before_the_manifest_leaves_the_previous_graph(prepared):
    with pytest.raises(ZeroDivisionError), ShardWriter(prepared.path):
        raise ZeroDivisionError
    again = ShardSet.open(prepared.path)
    again.verify()
    assert again.manifest == prepared.manifest


def test_a_prepared_graph_is_replaced(prepared):
    before = prepared.partition(0)
    prepare(random_graph(seed=1, n=50), prepared.path, parts=3)
    assert ShardSet.open(prepared.path).manifest.num_vertices == 50
    assert before.features.sum() >= 0  # what was mapped stays readable
    assert [f.name for f in prepared.path.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_used(tmp_path):
    prepare(random_graph(), tmp_path)
    ShardSet.open(tmp_path).verify()


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_another_disk_stays_one(there, tmp_path):
    """A second preparation replaces the graph behind the link too."""
    (tmp_path / "disk").mkdir()
    if there:
        (tmp_path / "disk" / "shards").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "shards")
    for parts in (2, 1):
        assert prepare(random_graph(), tmp_path / "out", parts=parts).manifest.num_partitions == parts
        assert ShardSet.open(tmp_path / "disk" / "shards").manifest.num_partitions == parts
    assert (tmp_path / "out").is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*") if "shards" in file.name) == ["shards"]
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


@pytest.mark.parametrize("kind", ["file", "folder", "run"])
def test_what_is_no_prepared_graph_is_not_overwritten(kind, tmp_path):
    out = tmp_path / "precious"
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "thesis.tex").write_text("mine")
        if kind == "run":
            (out / "manifest.json").write_text('{"siafu": "0.1.0", "seed": 0}')
    with pytest.raises(DatasetError, match=r"precious: exists and is not a prepared graph, so it is not overwritten$"):
        prepare(random_graph(), out)


def test_a_destination_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"out: cannot be written: Not a directory$"):
        prepare(random_graph(), tmp_path / "file" / "out")


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    def full(self, manifest):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ShardWriter, "finish", full)
    with pytest.raises(DatasetError, match=r"out: cannot be written: No space left on device$"):
        prepare(random_graph(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_source_is_not_taken_for_the_destination(tmp_path):
    with pytest.raises(DatasetError, match=r"there/graph: No such file or directory$"), ShardWriter(tmp_path / "out"):
        (tmp_path / "there" / "graph").read_bytes()
    assert list(tmp_path.iterdir()) == []
