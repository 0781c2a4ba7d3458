import numpy as np
import pytest

from graph_data.prepare import resolve
from graph_data.sources.npz import load
from siafu.errors import DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL, tidy
from siafu.sparse import SparseRows


def arrays(**changes):
    """A whole archive of three vertices; a change to None leaves the array out."""
    whole = {
        "edge_index": np.array([[0, 1], [1, 2]], np.int32),
        "num_nodes": np.int64(3),
        "num_features": np.int64(2),
        "num_classes": np.int64(2),
        "x": np.arange(6, dtype=np.uint8).reshape(3, 2),
        "y": np.array([0, 1, -1]),
        "train_mask": np.array([True, False, False]),
        "val_mask": np.array([False, True, False]),
        "test_mask": np.array([False, False, False]),
    }
    return {name: array for name, array in (whole | changes).items() if array is not None}


CSR = {
    "x": None,
    "x_indptr": np.array([0, 1, 1, 2], np.int32),
    "x_indices": np.array([1, 0], np.int32),
    "x_data": np.array([7, 9], np.uint8),
}


@pytest.fixture
def archive(tmp_path):
    def save(**changes):
        np.savez_compressed(tmp_path / "three.npz", **arrays(**changes))
        return str(tmp_path / "three.npz")

    return save


def test_dense_archive_becomes_the_graph(archive):
    graph = load(archive())
    assert (graph.name, graph.num_vertices, graph.num_classes, graph.num_features) == ("three", 3, 2, 2)
    assert (graph.src.tolist(), graph.dst.tolist(), graph.weight) == ([0, 1], [1, 2], None)
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert graph.features.dtype == np.uint8
    assert graph.labels.tolist() == [0, 1, -1]
    assert graph.split.tolist() == [[TRAIN], [VAL], [NONE]]


def test_edges_may_have_types(archive):
    graph = load(archive(edge_type=np.array([2, 0], np.int8)))
    assert (graph.edge_type.tolist(), graph.num_edge_types) == ([1, 0], 2)
    assert graph.names["edge_types"] == ("0", "2")
    assert load(archive(edge_type=np.array([2, 0]), num_edge_types=np.int64(5))).num_edge_types == 5
    assert (load(archive()).edge_type, load(archive()).num_edge_types) == (None, 1)


def test_types_of_edges_are_integers(archive):
    with pytest.raises(DatasetError, match=r"three\.npz: edge types are float64, must be integers from 0 on$"):
        load(archive(edge_type=np.array([0.0, 1.0])))


def test_labels_may_be_numbers(archive):
    graph = load(
        archive(y=np.array([0.5, np.nan, 2]), num_classes=np.int64(1), train_mask=None, val_mask=None, test_mask=None)
    )
    assert graph.target == "numbers"
    assert tidy(graph).labels.dtype == np.float32


def test_a_number_beyond_float32_is_refused_by_its_own_value(archive):
    huge = archive(y=np.array([1e300, 0.5, np.nan]), num_classes=np.int64(1))
    with pytest.raises(DatasetError, match=r"three: vertex 0 has label 1e\+300, must be a finite float32"):
        tidy(load(huge))
    with pytest.raises(DatasetError, match=r"three: vertex 0 has label inf, must be a finite float32"):
        tidy(load(f"{huge}?target=numbers"))


def test_csr_features_stay_sparse(archive):
    features = load(archive(**CSR)).features
    assert isinstance(features, SparseRows)
    assert features.dense().tolist() == [[0, 7], [0, 0], [9, 0]]
    assert features.dtype == np.uint8


def test_edge_weights_are_read(archive):
    assert tidy(load(archive(edge_weight=np.array([0.5, 2.0])))).weight.tolist() == [0.5, 0.5, 2.0, 2.0]


def test_several_splits_are_columns(archive):
    train = np.array([[1, 0], [0, 0], [0, 0]], bool)
    test = np.array([[0, 1], [1, 0], [0, 0]], bool)
    graph = load(archive(train_mask=train, val_mask=None, test_mask=test))
    assert graph.split.tolist() == [[TRAIN, TEST], [TEST, NONE], [NONE, NONE]]


def test_archive_without_masks_has_no_split(archive):
    assert load(archive(train_mask=None, val_mask=None, test_mask=None)).split.shape == (3, 0)


def test_multi_label_matrix_is_read(archive):
    assert load(archive(y=np.eye(3, 2, dtype=np.uint8))).multilabel


REFUSED = {
    "one-hot floats": (
        {"y": np.eye(3), "num_classes": np.int64(3)},
        r"y is all 0 and 1, in float64 \[3, 3\]: are these classes\? .* SOURCE\?target=classes",
    ),
    "zero or one in floats": (
        {"y": np.array([0.0, 1.0, np.nan]), "num_classes": np.int64(1)},
        r"y is all 0 and 1, in float64 \[3\]: are",
    ),
    "no features": (
        {"x": None},
        r"has no features: name a file of them, or say random:32 .*SOURCE\?features=random:32",
    ),
    "edges transposed": ({"edge_index": np.zeros((5, 2), int)}, r"edges are int64 \[5, 2\], must be integers \[2, E\]"),
    "count is no scalar": ({"num_nodes": np.array([3])}, r"num_nodes is int64 \[1\], must be an integer scalar"),
    "width": ({"num_features": np.int64(3)}, r"feature rows are \[2\] wide, num_features is 3"),
    "masks overlap": (
        {"test_mask": np.array([True, False, False])},
        "vertex 0 is in train_mask and test_mask of split 0, must be in one",
    ),
    "mask dtype": ({"val_mask": np.zeros(3)}, r"val_mask is float64 \[3, 1\], must be bool \[3, 1\]"),
    "mask length": ({"val_mask": np.zeros(4, bool)}, r"val_mask is bool \[4, 1\], must be bool \[3, 1\]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_malformed_archive_is_refused_with_its_reason(case, archive):
    changes, message = REFUSED[case]
    with pytest.raises(DatasetError, match=rf"three\.npz: {message}"):
        load(archive(**changes))


def test_labels_and_counts_may_be_missing_as_in_a_mapping(archive):
    graph = load(archive(y=None, num_nodes=None, num_features=None, num_classes=None))
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (3, 2, 1)
    assert graph.labels.tolist() == [-1, -1, -1]


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "evil.npz", **arrays(y=np.array([{}, {}, {}], object)))
    with pytest.raises(DatasetError, match="not a readable npz archive of plain arrays"):
        load(str(tmp_path / "evil.npz"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"text"])
def test_a_file_that_is_no_archive_is_refused(content, tmp_path):
    (tmp_path / "no.npz").write_bytes(content)
    with pytest.raises(DatasetError, match="not a readable npz archive of plain arrays"):
        load(str(tmp_path / "no.npz"))


def test_a_truncated_archive_is_refused(archive):
    path = archive()
    with open(path, "rb") as stream:
        whole = stream.read()
    with open(path, "wb") as stream:
        stream.write(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match="not a readable npz archive"):
        load(path)


def test_a_missing_file_is_named():
    with pytest.raises(DatasetError, match=r"^nowhere/at_all\.npz: no such file$"):
        load("nowhere/at_all.npz")


# From ../shared/data/README.md: vertices, distinct undirected edges without loops, sizes of the first split.
KNOWN = {
    "cora": (2708, 5278, [140, 500, 1000]),
    "citeseer": (3327, 4552, [120, 500, 1000]),
    "amazon_computers": (13752, 245_861, None),
    "squirrel": (5201, 198_353, [2496, 1664, 1041]),
    "pcg": (3233, 37_351, [1939, 647, 647]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_real_graphs_have_their_published_counts(name, real_data):
    vertices, edges, sizes = KNOWN[name]
    graph = tidy(resolve(name).load())
    assert (graph.num_vertices, graph.num_edges) == (vertices, 2 * edges)
    if sizes is None:
        assert graph.split.shape[1] == 0
    else:
        assert [int((graph.split[:, 0] == role).sum()) for role in (TRAIN, VAL, TEST)] == sizes
