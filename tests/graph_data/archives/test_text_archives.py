"""Geom-GCN's and LINQS' files, made by hand as they are published."""

import gzip

import numpy as np
import pytest

from graph_data.sources.names import resolve
from tests.graph_data.archives.same import dense, refusal

NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"


def edges_of(graph):
    return list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def geom(tmp_path, features):
    folder = tmp_path / "texas"
    folder.mkdir()
    lines = [f"{v}\t{row}\t{v % 2}\n" for v, row in zip((2, 0, 1), features, strict=True)]
    (folder / NODES).write_text("node_id\tfeature\tlabel\n" + "".join(lines))
    (folder / EDGES).write_text("node_id\tnode_id\n0\t1\n2\t1\n")
    return folder


def test_geom_gcn_by_either_file_or_the_folder(tmp_path):
    folder = geom(tmp_path, ("0,1,1", "1,0,0", "0,0,1"))
    for name in (".", NODES, EDGES):
        source = resolve(str(folder / name))
        graph = source.load()
        assert (source.kind, graph.name) == ("archive", "texas")
    assert graph.notes == (f"{NODES}: Geom-GCN's files, no split",)
    assert edges_of(graph) == [(0, 1), (2, 1)]
    assert graph.labels.tolist() == [0, 1, 0]
    assert dense(graph.features).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 1]]


def test_rows_of_different_lengths_are_places_of_ones(tmp_path):
    graph = resolve(str(geom(tmp_path, ("1,3", "0", "2,1,0")))).load()
    assert dense(graph.features).tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 1]]


def test_the_splits_beside_them_are_kept_in_the_order_of_their_numbers(tmp_path):
    folder = geom(tmp_path, ("0,1,1", "1,0,0", "0,0,1"))
    for i, roles in ((10, [3, 1, 2]), (2, [1, 2, 3])):
        masks = {
            f"{part}_mask": (np.array(roles) == k + 1).astype(int) for k, part in enumerate(("train", "val", "test"))
        }
        np.savez(folder / f"texas_split_0.6_0.2_{i}.npz", **masks)
    source = resolve(str(folder))
    assert source.load().split.T.tolist() == [[1, 2, 3], [3, 1, 2]]
    assert source.load().notes == (f"{NODES}: Geom-GCN's files, 2 public splits",)
    assert len(source.files()) == 4


def test_geom_gcn_that_does_not_fit_is_one_line(tmp_path):
    folder = geom(tmp_path, ("0,1", "1,x", "0,0"))
    assert refusal(folder) == f"{folder / NODES}: a feature that is no number"
    (folder / EDGES).write_text("a\tb\n0\t7\n")
    assert refusal(folder) == f"{folder / EDGES}: vertex 7, must be in 0..2"
    (folder / NODES).write_text("a\tb\tc\n0 1 1\n")
    assert refusal(folder) == f"{folder / NODES}: row 1: 1 columns parted by tabs, must be 3"
    (folder / EDGES).unlink()
    assert refusal(folder) == f"{NODES}: Geom-GCN's files, but {EDGES} is not beside it"


@pytest.fixture
def linqs(tmp_path):
    (tmp_path / "cora.content").write_text("31336\t0\t1\tTheory\n1061127\t1\t0\tNeural\nten-x\t1\t1\tTheory\n")
    (tmp_path / "cora.cites").write_text("31336\t1061127\nten-x 31336\nten-x gone\n")
    return tmp_path


def test_linqs_by_either_file_or_the_folder(linqs):
    for name in (".", "cora.content", "cora.cites"):
        graph = resolve(str(linqs / name)).load()
    assert graph.notes == (
        "cora.content: LINQS' files, no split",
        "cora.cites: left out 1 of 3 edges, of ids that cora.content does not have",
    )
    assert edges_of(graph) == [(1, 0), (0, 2)]
    assert graph.names == {"classes": ("Neural", "Theory")}
    assert graph.labels.tolist() == [1, 0, 1]
    assert dense(graph.features).tolist() == [[0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize(
    ("part", "text", "message"),
    [
        ("content", "1 0 A\n2 0 0 A\n", "line 2: 4 columns, must be 3"),
        ("content", "1 0 A\n1 1 A\n", "an id twice (2 lines, 1 ids)"),
        ("content", "1 x A\n", "a feature that is no number"),
        ("cites", "31336\n", "a line without two ids"),
    ],
)
def test_linqs_that_does_not_fit_is_one_line(linqs, part, text, message):
    (linqs / f"cora.{part}").write_text(text)
    assert refusal(linqs) == f"{linqs}/cora.{part}: {message}"


def test_linqs_without_its_edges(linqs):
    (linqs / "cora.cites").unlink()
    assert refusal(linqs) == "cora.content: LINQS' files, but cora.cites is not beside it"


def test_a_snap_file_is_an_edge_list(tmp_path):
    text = "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n2\t1\n"
    (tmp_path / "wiki.txt").write_text(text)
    with gzip.open(tmp_path / "wiki.txt.gz", "wt") as stream:
        stream.write(text)
    for name in ("wiki.txt", "wiki.txt.gz"):
        source = resolve(f"{tmp_path / name}?features=random:4")
        assert source.kind == "edges"
        assert edges_of(source.load()) == [(0, 1), (2, 1)]
