"""Archives that are called .npz as ours are, but hold other arrays."""

import os

import numpy as np
import pytest
import scipy.sparse

from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import tidy
from tests.graph_data.archives.same import assert_same, dense, edges_of, refusal

ADJACENCY = np.array([[0, 1, 0], [0, 0, 1], [0, 1, 0]], np.float32)
FEATURES = np.array([[1, 0], [0, 2], [3, 0]], np.float32)
LABELS = np.array([0, 1, 0])
EDGES = [(0, 1), (1, 2), (2, 1)]


# --- heterophilous-graphs ---------------------------------------------------------------------------------------------


def test_minesweeper_is_the_minesweeper_of_npz(archives, real_data):
    graph = resolve(str(archives / "heterophilous" / "minesweeper.npz")).load()
    assert graph.notes == ("minesweeper.npz: an archive of heterophilous-graphs, 10 public splits",)
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (10000, 39402, 7, 2)
    assert tidy(graph).num_edges == 78804
    assert_same(graph, resolve(str(real_data / "minesweeper.npz")).load())


def test_texas_has_what_its_arrays_have(archives):
    file = archives / "heterophilous" / "texas.npz"
    graph = tidy(resolve(str(file)).load())
    with np.load(file) as arrays:
        pairs = {(u, v) for u, v in arrays["edges"].tolist() if u != v}
        assert graph.num_edges == len(pairs | {(v, u) for u, v in pairs})
        assert [(graph.split == kind).sum(axis=0).tolist() for kind in (1, 2, 3)] == [
            arrays[f"{part}_masks"].sum(axis=1).tolist() for part in ("train", "val", "test")
        ]
        np.testing.assert_array_equal(graph.labels, arrays["node_labels"])
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (183, 1703, 5)


def test_edges_that_are_no_pairs_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", node_features=FEATURES, node_labels=LABELS, edges=np.zeros((2, 5), int))
    assert refusal(tmp_path / "a.npz") == (
        "a.npz: an archive of heterophilous-graphs, but edges is [2, 5], must be [E, 2]"
    )


# --- gnn-benchmark ----------------------------------------------------------------------------------------------------


def csr_arrays(prefix, dense_matrix):
    made = scipy.sparse.csr_matrix(dense_matrix)
    return {f"{prefix}_{part}": np.asarray(getattr(made, part)) for part in ("data", "indices", "indptr", "shape")}


def test_cora_of_gnn_benchmark_has_its_edges_classes_and_no_split(archives):
    graph = resolve(str(archives / "gnn_benchmark" / "cora.npz")).load()
    assert graph.notes == ("cora.npz: an archive of gnn-benchmark, no split", "cora.npz: left out: node_names")
    assert (graph.num_vertices, graph.num_edges, graph.num_features, graph.num_classes) == (2708, 5429, 1433, 7)
    assert (graph.weight, graph.split.shape) == (None, (2708, 0))
    assert len(graph.features.data) == 49216
    assert len(graph.names["classes"]) == 7


@pytest.mark.parametrize("attributes", [csr_arrays("attr", FEATURES), {"attr_matrix": FEATURES}])
def test_attributes_are_sparse_or_dense(tmp_path, attributes):
    weights = {**csr_arrays("adj", ADJACENCY * 2), "labels": LABELS.astype(np.int8)}
    names = np.array(["a", "b"], object)
    np.savez(tmp_path / "a.npz", **weights, **attributes, class_names=names, idx_to_node=np.array({0: "x"}, object))
    graph = resolve(str(tmp_path / "a.npz")).load()
    assert edges_of(graph) == EDGES
    assert graph.weight.tolist() == [2, 2, 2]
    assert dense(graph.features).tolist() == FEATURES.tolist()
    assert (graph.labels.tolist(), graph.num_classes) == ([0, 1, 0], 2)
    assert graph.names == {"classes": ("a", "b")}


def test_a_broken_matrix_and_missing_attributes_are_one_line(tmp_path):
    good = csr_arrays("adj", ADJACENCY)
    np.savez(tmp_path / "a.npz", **good, labels=LABELS)
    assert refusal(tmp_path / "a.npz") == (
        "a.npz: an archive of gnn-benchmark, but it has no attributes (attr_matrix, or attr_data, attr_indices, "
        "attr_indptr and attr_shape)"
    )
    np.savez(tmp_path / "b.npz", **{**good, "adj_indices": np.array([1, 2, 3])}, labels=LABELS, attr_matrix=FEATURES)
    assert refusal(tmp_path / "b.npz") == "b.npz: an archive of gnn-benchmark, but an index is not in 0..2"


# --- pickled matrices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attributes", [FEATURES, scipy.sparse.csr_matrix(FEATURES)])
def test_pickled_matrices_are_read(tmp_path, attributes):
    adjacency = scipy.sparse.csr_matrix(ADJACENCY)
    np.savez_compressed(tmp_path / "a.npz", adj_matrix=adjacency, node_attr=attributes, node_label=LABELS)
    graph = resolve(str(tmp_path / "a.npz")).load()
    assert graph.notes == ("a.npz: a numpy archive of pickled matrices, no split",)
    assert edges_of(graph) == EDGES
    assert dense(graph.features).tolist() == FEATURES.tolist()
    assert graph.labels.tolist() == [0, 1, 0]


def test_what_else_is_pickled_there_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", adj_matrix=np.array(os.path.join, object), node_attr=FEATURES, node_label=LABELS)
    assert refusal(tmp_path / "a.npz") == (
        f"{tmp_path}/a.npz: adj_matrix: a pickle that asks for posixpath.join; only arrays, scipy.sparse "
        "matrices, lists and dicts are read"
    )


# --- DGL's Reddit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["coo", "csr", "csc"])
def test_the_pair_of_reddit_is_read_by_either_file_or_the_folder(tmp_path, kind):
    types = np.array([1, 3, 2])
    np.savez(tmp_path / "reddit_data.npz", feature=FEATURES, label=LABELS, node_types=types, node_ids=np.arange(3))
    scipy.sparse.save_npz(tmp_path / "reddit_graph.npz", scipy.sparse.csr_matrix(ADJACENCY).asformat(kind))
    for name in ("reddit_data.npz", "reddit_graph.npz", "."):
        graph = resolve(str(tmp_path / name)).load()
        assert graph.notes == ("reddit_data.npz: DGL's pair of Reddit, public split",)
        assert edges_of(graph) == EDGES
        assert graph.split[:, 0].tolist() == [1, 3, 2]
        assert dense(graph.features).tolist() == FEATURES.tolist()


def test_half_a_pair_is_refused_by_the_other_half(tmp_path):
    scipy.sparse.save_npz(tmp_path / "reddit_graph.npz", scipy.sparse.csr_matrix(ADJACENCY))
    assert refusal(tmp_path / "reddit_graph.npz") == (
        "reddit_data.npz: DGL's pair of Reddit, but reddit_data.npz is not beside it"
    )


# --- ours -------------------------------------------------------------------------------------------------------------


def test_our_own_archives_stay_ours(real_data):
    for file in real_data.glob("*.npz"):
        assert resolve(str(file)).kind == "npz"


# --- labels, in any of them -------------------------------------------------------------------------------------------


def with_labels(folder, labels):
    np.savez(folder / "a.npz", node_features=FEATURES, node_labels=np.array(labels), edges=np.array(EDGES))
    return f"{folder / 'a.npz'}"


def test_classes_with_gaps_are_numbered_in_order_and_keep_their_values_as_names(tmp_path):
    graph = resolve(with_labels(tmp_path, [90210, 10115, 90210])).load()
    assert (graph.labels.tolist(), graph.num_classes) == ([1, 0, 1], 2)
    assert graph.names["classes"] == ("10115", "90210")
    assert graph.notes[1:] == ("a.npz: 2 classes are numbered in the order of their values, 10115 to 90210",)


def test_numbers_with_gaps_stay_numbers_when_the_user_says_so(tmp_path):
    graph = resolve(f"{with_labels(tmp_path, [90210, 10115, 90210])}?target=numbers").load()
    assert (graph.target, graph.labels.tolist()) == ("numbers", [90210.0, 10115.0, 90210.0])
    assert "classes" not in graph.names


def test_a_column_of_labels_is_a_label_a_vertex(tmp_path):
    graph = resolve(with_labels(tmp_path, [[0], [1], [0]])).load()
    assert (graph.target, graph.labels.tolist()) == ("classes", [0, 1, 0])


def test_a_label_below_minus_one_is_refused_not_numbered(tmp_path):
    with pytest.raises(DatasetError, match="-2"):
        tidy(resolve(with_labels(tmp_path, [0, -2, 1])).load())
