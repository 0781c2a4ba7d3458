import collections
import pickle

import numpy as np
import pytest
import scipy.sparse

from graph_data.archives import planetoid
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import tidy
from tests.graph_data.archives.same import assert_same, dense

WITH_A_GAP = ("5", "3", "6")  # and vertex 4 in no file


@pytest.fixture
def small(tmp_path):
    """ind.tiny.*: 3 vertices in allx, of which 1 trains, and 3 that test, out of order."""
    allx = scipy.sparse.csr_matrix(np.array([[1, 0], [0, 2], [3, 0]], np.float32))
    ally = np.array([[1, 0], [0, 1], [0, 1]], np.int32)
    graph = collections.defaultdict(list, {0: [1, 1], 1: [0], 2: [6], 3: [], 4: [], 5: [2], 6: [2]})
    parts = {
        "x": allx[:1],
        "y": ally[:1],
        "tx": scipy.sparse.csr_matrix(np.array([[0, 5], [0, 3], [6, 6]], np.float32)),
        "ty": np.array([[1, 0], [0, 1], [1, 0]], np.int32),
        "allx": allx,
        "ally": ally,
        "graph": graph,
    }
    for name, value in parts.items():
        (tmp_path / f"ind.tiny.{name}").write_bytes(pickle.dumps(value, 2))
    (tmp_path / "ind.tiny.test.index").write_text("\n".join(WITH_A_GAP) + "\n")
    return tmp_path


def test_cora_is_the_cora_of_npz(archives, real_data):
    folder = archives / "planetoid"
    graph = resolve(str(folder / "ind.cora.graph")).load()
    assert graph.notes == ("ind.cora.*: Planetoid's files, public split",)
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (2708, 1433, 7)
    assert tidy(graph).num_edges == 10556
    assert np.bincount(graph.split[:, 0]).tolist() == [1068, 140, 500, 1000]
    assert_same(graph, resolve(str(real_data / "cora.npz")).load())


def test_each_file_and_the_folder_name_the_graph(small):
    for name in (".", *(f"ind.tiny.{part}" for part in planetoid.PARTS)):
        source = resolve(str(small / name))
        assert source.kind == "archive"
        assert source.files() == [small / f"ind.tiny.{part}" for part in planetoid.PARTS]
        assert source.load().num_vertices == 7


def test_rows_of_tx_are_the_vertices_of_test_index_and_a_gap_is_an_isolated_vertex(small):
    graph = resolve(str(small)).load()
    assert dense(graph.features).tolist() == [[1, 0], [0, 2], [3, 0], [0, 3], [0, 0], [0, 5], [6, 6]]
    assert graph.labels.tolist() == [0, 1, 1, 1, -1, 0, 0]
    assert graph.split[:, 0].tolist() == [1, 2, 2, 3, 0, 3, 3]
    tidied = tidy(graph)
    assert list(zip(tidied.src.tolist(), tidied.dst.tolist(), strict=True)) == [
        *((1, 0), (0, 1), (5, 2), (6, 2), (2, 5), (2, 6)),
    ]
    assert graph.notes == (
        "ind.tiny.*: Planetoid's files, public split",
        "ind.tiny.*: 1 vertices are in no file: features of zeros, no label, in no split",
    )


def test_a_missing_companion_is_named(small):
    (small / "ind.tiny.allx").unlink()
    with pytest.raises(DatasetError) as error:
        resolve(str(small / "ind.tiny.graph")).load()
    assert str(error.value) == "ind.tiny.*: Planetoid's files, but ind.tiny.allx is not beside it"


def test_two_graphs_in_a_folder_are_refused_by_name(small):
    (small / "ind.other.graph").write_bytes(b"")
    with pytest.raises(DatasetError) as error:
        resolve(str(small))
    assert str(error.value) == (
        f"{small}: holds 2 graphs (ind.other.graph, ind.tiny.allx), must be one: name one of these files"
    )


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("test.index", "3\n3\n5\n", "ind.tiny.test.index: a vertex twice, or one below 3, which allx has"),
        ("test.index", "3\n5\n", "ind.tiny.*: tx or test.index has 2 rows, its labels 3"),
        ("test.index", "3\nx\n5\n", "ind.tiny.test.index: not readable, must be an integer a line"),
        ("graph", [1, 2], "ind.tiny.graph: must be a dict of lists of neighbours"),
        ("graph", {0: [9]}, "ind.tiny.graph: vertex 9, must be in 0..6"),
        ("graph", {0: ["a"]}, "ind.tiny.graph: a vertex that is no integer"),
        ("ally", np.ones((2, 2)), "ind.tiny.*: allx or test.index has 3 rows, its labels 2"),
        ("ty", np.ones((3, 5)), "ind.tiny.*: allx and tx, or ally and ty, are not equally wide"),
    ],
)
def test_what_does_not_fit_is_one_line(small, part, value, message):
    content = value.encode() if isinstance(value, str) else pickle.dumps(value, 2)
    (small / f"ind.tiny.{part}").write_bytes(content)
    with pytest.raises(DatasetError) as error:
        resolve(str(small)).load()
    assert str(error.value).removeprefix(f"{small}/") == message


def test_options_and_unknown_ones(small):
    graph = resolve(f"{small}?features=random:4&target=labels").load()
    assert (graph.num_features, graph.made_features) == (4, "random:4")
    with pytest.raises(DatasetError, match=r"has no option 'split', only features, target$"):
        resolve(f"{small}?split=x.npy").load()
