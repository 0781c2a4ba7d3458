"""Which reader an object gets, and what it reads."""

from dataclasses import replace
from pathlib import Path

import networkx
import numpy as np
import pytest
import scipy.sparse

import siafu
from graph_data.counts import counts_of
from graph_data.objects import OBJECTS, graph_of
from graph_data.prepare import cached, prepare
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, tidy
from siafu.sparse import SparseRows
from tests.graph_data.graphs import random_graph

EDGES = np.array([[0, 1, 2], [1, 2, 0]])
RANDOM = "random:32"
MASKS = {
    "train_mask": np.array([1, 0, 0], bool),
    "val_mask": np.array([0, 1, 0], bool),
    "test_mask": np.array([0, 0, 1], bool),
}


def test_a_graph_is_taken_as_it_is():
    graph = random_graph()
    assert graph_of(graph) is graph


def test_a_mapping_has_the_keys_of_an_npz_file():
    graph = graph_of({"edge_index": EDGES, "x": np.eye(3), "y": np.array([0, 1, 1]), **MASKS})
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (3, 3, 2)
    assert graph.split.tolist() == [[TRAIN], [VAL], [TEST]]


def test_edges_of_any_integers_are_the_same_graph():
    graph = graph_of({"edge_index": EDGES, "x": np.eye(3)})
    for dtype in (np.uint64, np.uint8, ">i8"):
        found = graph_of({"edge_index": EDGES.astype(dtype), "x": np.eye(3)})
        assert counts_of(found) == counts_of(graph)
        assert np.array_equal(tidy(found).src, tidy(graph).src)


def test_edges_alone_are_refused_until_random_features_are_asked_for():
    for thing in (EDGES, {"edge_index": EDGES}, networkx.path_graph(3), scipy.sparse.eye_array(3)):
        with pytest.raises(DatasetError, match=r"has no features: .* in Python features='random:32'"):
            graph_of(thing)
    assert graph_of({"edge_index": EDGES, "x": "random:3"}).made_features == "random:3"
    assert siafu.from_networkx(networkx.path_graph(3), features="random").made_features == "random:32"
    assert siafu.from_scipy(scipy.sparse.eye_array(3), "random:7").made_features == "random:7"
    graph = siafu.from_arrays(EDGES, "random:32")
    assert (graph.num_vertices, graph.num_features, graph.num_classes) == (3, 32, 1)
    assert graph.labels.tolist() == [-1, -1, -1]


def test_numbers_are_regression_and_zeros_and_ones_several_classes():
    assert siafu.from_arrays(EDGES, RANDOM, np.array([0.5, 1.0, np.nan])).target == "numbers"
    assert siafu.from_arrays(EDGES, RANDOM, np.array([[0, 1], [1, 1], [0, 0]])).target == "labels"
    assert siafu.from_arrays(EDGES, RANDOM, np.array([[0], [1], [2]])).target == "classes"


ONE_HOT = np.array([[0.0, 1.0], [np.nan, np.nan], [1.0, 0.0]])


@pytest.mark.parametrize("y", [ONE_HOT, ONE_HOT[:, 1], ONE_HOT[:, :1], np.array([[1.0, 1], [0, 0], [0, 1]])], ids=str)
def test_floats_of_0_and_1_are_refused_until_told_what_they_are(y, tmp_path):
    asks = r"y is all 0 and 1, in float64 .*: are these classes\? Say target=classes .* --target classes"
    with pytest.raises(DatasetError, match=asks):
        siafu.from_arrays(EDGES, RANDOM, y)
    with pytest.raises(DatasetError, match=asks):
        graph_of({"edge_index": EDGES, "x": RANDOM, "y": y})
    raw = replace(siafu.from_arrays(EDGES, RANDOM), labels=y, num_classes=y.reshape(3, -1).shape[1])
    with pytest.raises(DatasetError, match=asks):
        prepare(raw, tmp_path / "raw")
    told = siafu.from_arrays(EDGES, RANDOM, y, target="numbers")
    assert (told.target, told.labels.dtype) == ("numbers", np.float32)
    assert prepare(told, tmp_path / "told").manifest.target == "numbers"


def test_what_target_says_of_floats_of_0_and_1():
    def labels(y, target):
        graph = graph_of({"edge_index": EDGES, "x": RANDOM, "y": y, "target": target})
        return graph.target, graph.labels.tolist(), graph.num_classes

    assert labels(ONE_HOT, "classes") == ("classes", [1, -1, 0], 2)
    assert labels(ONE_HOT[:, 1], "classes") == ("classes", [1, -1, 0], 2)
    assert labels(ONE_HOT, "labels") == ("labels", [[0, 1], [-1, -1], [1, 0]], 2)
    assert labels(ONE_HOT[:, 1], "labels") == ("labels", [[1], [-1], [0]], 1)


@pytest.mark.parametrize(
    ("y", "target", "words"),
    [
        ([[1.0, 1], [0, 1], [1, 0]], "classes", "the 2 columns of vertex 0 are not one-hot"),
        ([[0.0, 0], [0, 1], [1, 0]], "classes", "the 2 columns of vertex 0 are not one-hot"),
        ([0.5, 1, 0], "classes", "vertex 0 has 0.5, must be an integer from 0 on"),
        ([[0.0, 1], [0, 2], [1, 0]], "labels", "vertex 1 has 2, must be 0 or 1"),
        ([0.0, 1, 0], "regression", "target 'regression', must be one of auto, classes, labels, numbers"),
    ],
)
def test_a_target_that_the_labels_cannot_be_is_refused(y, target, words):
    with pytest.raises(DatasetError, match=words):
        siafu.from_arrays(EDGES, RANDOM, np.array(y), target=target)


def test_a_split_is_a_column_of_roles_or_several():
    assert siafu.from_arrays(EDGES, RANDOM, split=[1, 2, 3]).split.tolist() == [[1], [2], [3]]
    assert siafu.from_arrays(EDGES, RANDOM, split=np.zeros((3, 2), int)).split.shape == (3, 2)


def test_tensors_are_arrays_too():
    torch = pytest.importorskip("torch")
    x = torch.eye(3, dtype=torch.bfloat16, requires_grad=True)
    graph = siafu.from_arrays(torch.from_numpy(EDGES), x, weight=torch.ones(3, 1))
    assert graph.features.tolist() == np.eye(3).tolist()
    assert graph.weight.shape == (3,)


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_stay_sparse(layout):
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0], [0.0, 0.0]])
    rows = siafu.from_arrays(EDGES, getattr(x, layout)()).features
    assert isinstance(rows, SparseRows)
    assert rows.dense().tolist() == x.tolist()


@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_with_dense_axes_are_refused():
    torch = pytest.importorskip("torch")
    for x in (torch.ones(3, 2, 1).to_sparse(1), torch.ones(3, 2).to_sparse(1), torch.ones(3, 2, 1).to_sparse()):
        with pytest.raises(DatasetError, match=r"arrays: features are torch\.sparse_coo .*, must be \[N, F\] without"):
            siafu.from_arrays(EDGES, x)


def test_a_label_that_int64_cannot_hold_is_not_taken_for_unknown():
    with pytest.raises(DatasetError, match=r"a label is 18446744073709551615, must be below 2\*\*63, and -1 where"):
        siafu.from_arrays(EDGES, np.eye(3), np.array([0, 1, 2**64 - 1], np.uint64))


def test_scipy_features_stay_sparse_and_are_not_changed():
    x = scipy.sparse.coo_matrix(([1.0, 2.0, 4.0], ([0, 0, 2], [1, 1, 0])), shape=(3, 2))
    rows = siafu.from_arrays(EDGES, x).features
    assert rows.dense().tolist() == [[0, 3], [0, 0], [4, 0]]
    assert x.nnz == 3


class Frame:
    """What siafu asks of a DataFrame: its columns, and to be an array."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype)


def test_columns_of_a_data_frame_name_the_features():
    def names(words, **more):
        return siafu.from_arrays(EDGES, Frame(np.eye(3), words), **more).names

    assert names(["age", "height", "income"]) == {"features": ("age", "height", "income")}
    assert names([0, 1, 2]) == names(["0", "1", "2"]) == {}
    assert graph_of({"edge_index": EDGES, "x": Frame(np.eye(3), ["a", "b", "c"])}).names == {
        "features": ("a", "b", "c")
    }


def test_names_of_features_are_as_many_as_these():
    given = {"edge_index": EDGES, "x": np.eye(3)}
    assert graph_of({**given, "feature_names": np.array([b"a", b"b", b"c"])}).names == {"features": ("a", "b", "c")}
    with pytest.raises(DatasetError, match=r"^arrays: feature_names are \[2\], must be \[3\], as features are$"):
        graph_of({**given, "feature_names": ["a", "b"]})


def test_names_of_which_two_are_alike_name_no_features():
    """Another graph's columns would be found by them, and the second column taken for the first."""
    assert graph_of({"edge_index": EDGES, "x": np.eye(3), "feature_names": ["a", "a", "b"]}).names == {}


# --- SciPy ------------------------------------------------------------------------------------------------------------


def test_an_entry_of_an_adjacency_is_an_edge_from_its_row_to_its_column():
    adjacency = scipy.sparse.csr_array(([1, 1], ([0, 2], [1, 0])), shape=(4, 4))
    graph = siafu.from_scipy(adjacency, RANDOM, labels=[0, 1, 0, 1])
    assert (graph.src.tolist(), graph.dst.tolist(), graph.weight) == ([0, 2], [1, 0], None)
    assert (graph.num_vertices, graph.num_classes) == (4, 2)


def test_other_entries_than_one_are_weights():
    graph = siafu.from_scipy(scipy.sparse.csr_matrix(np.array([[0, 2.5], [1, 0]])), RANDOM)
    assert graph.weight.tolist() == [2.5, 1.0]


# --- NetworkX ---------------------------------------------------------------------------------------------------------


def test_an_undirected_edge_runs_both_ways_and_a_loop_once():
    found = networkx.Graph([(0, 1), (1, 1)])
    graph = siafu.from_networkx(found, features=RANDOM)
    assert sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 1)]
    assert not graph.directed


def test_a_directed_edge_runs_once_and_parallel_ones_stay():
    graph = siafu.from_networkx(networkx.MultiDiGraph([(0, 1), (0, 1)]), features=RANDOM)
    assert (graph.src.tolist(), graph.dst.tolist(), graph.directed) == ([0, 0], [1, 1], True)


def test_attributes_of_nodes_and_edges_are_read():
    found = networkx.DiGraph()
    for v, role in enumerate(MASKS):
        found.add_node(v, x=[v, 1.0], y=v % 2, **{mask: mask == role for mask in MASKS})
    found.add_edge(0, 1, weight=0.5, type=1)
    found.add_edge(1, 2, weight=2.0, type=0)
    graph = graph_of(found)
    assert graph.features.tolist() == [[0, 1], [1, 1], [2, 1]]
    assert (graph.labels.tolist(), graph.split[:, 0].tolist()) == ([0, 1, 0], [TRAIN, VAL, TEST])
    assert (graph.weight.tolist(), graph.edge_type.tolist(), graph.num_edge_types) == ([0.5, 2.0], [1, 0], 2)


def test_a_missing_label_is_unknown():
    found = networkx.path_graph(3)
    found.nodes[0]["y"] = 1
    graph = siafu.from_networkx(found, features=RANDOM)
    assert (graph.labels.tolist(), graph.names["classes"]) == ([0, -1, -1], ("1",))


def test_integer_nodes_are_sorted_and_kept():
    graph = siafu.from_networkx(networkx.DiGraph([(30, 10), (10, 20)]), features=RANDOM)
    assert graph.ids.tolist() == [10, 20, 30]
    assert (graph.src.tolist(), graph.dst.tolist()) == ([2, 0], [0, 1])


@pytest.mark.parametrize("rows", [{"labels": [0, 1, 2]}, {"features": np.eye(3)}, {"split": [1, 2, 3]}])
def test_rows_beside_nodes_out_of_order_could_be_in_either_order(rows):
    """``[club.nodes[v]["y"] for v in club]`` lists labels in the order of the nodes, which vertices do not have."""
    graph = networkx.DiGraph([(2, 0), (0, 1)])
    words = rf"^networkx: nodes are not in ascending order \(2, ...\), .* rows of {next(iter(rows))} could be in either"
    with pytest.raises(DatasetError, match=words):
        siafu.from_networkx(graph, **{"features": RANDOM, **rows})
    ascending = networkx.DiGraph([(0, 1), (1, 2)])
    assert siafu.from_networkx(ascending, features=RANDOM, labels=[0, 1, 2]).labels.tolist() == [0, 1, 2]


def test_other_nodes_keep_their_order():
    graph = siafu.from_networkx(networkx.DiGraph([("b", "a"), ("a", (1, 2))]), features=RANDOM)
    assert graph.ids is None
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 1], [1, 2])


# --- DGL --------------------------------------------------------------------------------------------------------------


class Edges:
    """``DGLGraph.edges``, which is called, and indexed by a kind of edges."""

    def __init__(self, ends, data):
        self.ends, self.data = ends, data

    def __call__(self, form, order, etype):
        src, dst = self.ends[etype]
        return src, dst, np.arange(len(src))

    def __getitem__(self, kind):
        return type("View", (), {"data": self.data[kind]})


class DGLGraph:
    """What siafu asks of one."""

    ntypes = ("n",)

    def __init__(self, kinds, **ndata):
        self.canonical_etypes, self.ndata = list(kinds), ndata
        self.edges = Edges(dict.fromkeys(kinds, EDGES), kinds)

    def num_nodes(self):
        return 3


DGLGraph.__module__ = "dgl.heterograph"


def test_what_a_dgl_graph_carries_is_read_by_all_its_names_and_the_rest_is_named():
    ndata = {"features": np.eye(3), "labels": np.array([0, 1, 2]), "valid_mask": np.array([0, 1, 0], np.uint8)}
    graph = graph_of(DGLGraph({"e": {"edge_weight": np.ones(3), "norm": np.ones(3)}}, age=np.ones(3), **ndata))
    assert (graph.labels.tolist(), graph.weight.tolist()) == ([0, 1, 2], [1, 1, 1])
    assert graph.split.tolist() == [[0], [VAL], [0]]
    assert graph.notes == ("dgl: left out: age", "dgl: edges: left out: norm")


def test_weights_of_some_kinds_of_edges_alone_are_refused():
    with pytest.raises(DatasetError, match=r"^dgl: only some kinds of vertices or edges have 'w': give it to all"):
        graph_of(DGLGraph({"a": {"w": np.ones(3)}, "b": {}}, feat=np.eye(3)))
    graph = graph_of(DGLGraph({"a": {"w": np.ones(3), "time": np.ones(3)}, "b": {"w": np.ones(3)}}, feat=np.eye(3)))
    assert (graph.weight.tolist(), graph.edge_type.tolist()) == ([1] * 6, [0] * 3 + [1] * 3)
    assert graph.notes == ("dgl: left out: time",)


def test_labels_and_masks_of_edges_are_refused():
    for key, kind in (("label", "labels"), ("train_mask", "a split")):
        with pytest.raises(DatasetError, match=f"^dgl: edges: has no use for '{key}', which looks like {kind}"):
            graph_of(DGLGraph({"e": {key: np.ones(3, bool)}}, feat=np.eye(3)))


# --- PyG --------------------------------------------------------------------------------------------------------------


def data(**fields):
    pyg = pytest.importorskip("torch_geometric.data")
    torch = pytest.importorskip("torch")
    return pyg.Data(
        edge_index=torch.from_numpy(EDGES), **{key: torch.as_tensor(value) for key, value in fields.items()}
    )


def test_a_data_is_read():
    graph = graph_of(data(x=np.eye(3, dtype=np.float32), y=[0, 2, 1], edge_attr=[[1.0], [2.0], [3.0]], **MASKS))
    assert (graph.num_vertices, graph.num_classes, graph.weight.tolist()) == (3, 3, [1, 2, 3])
    assert graph.split[:, 0].tolist() == [TRAIN, VAL, TEST]


def test_a_file_whose_edges_have_several_attributes_is_read_by_naming_one_or_none(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    fields = {"edge_index": EDGES, "x": np.eye(3), "edge_attr": np.ones((3, 2)), "length": np.array([1.0, 2.0, 3.0])}
    torch.save({key: torch.from_numpy(value) for key, value in fields.items()}, "g.pt")
    with pytest.raises(DatasetError, match=r"^g\.pt: edge_attr is \[3, 2\], .* FILE\.pt\?weight=, leaves it out$"):
        resolve("g.pt").load()
    with pytest.raises(DatasetError, match=r"^g\.pt has no option 'weights', only weight, features, target$"):
        resolve("g.pt?weights=").load()
    assert resolve("g.pt?weight=").load().weight is None
    source = resolve("g.pt?weight=length")
    assert (source.load().weight.tolist(), source.files()) == ([1, 2, 3], [Path("g.pt")])


def test_an_attribute_can_be_named_as_weight_or_left_out():
    found = data(x=np.eye(3), edge_attr=np.ones((3, 2)), strength=[1.0, 2.0, 3.0])
    assert siafu.from_pyg(found, weight="strength").weight.tolist() == [1, 2, 3]
    assert siafu.from_pyg(found, weight="").weight is None


def test_floats_of_0_and_1_of_pyg_are_what_target_says():
    found = data(x=np.eye(3), y=np.eye(3))
    with pytest.raises(
        DatasetError, match=r"^pyg: y is all 0 and 1, in float64 \[3, 3\]: are these classes\? Say target="
    ):
        graph_of(found)
    assert siafu.from_pyg(found, target="labels").target == "labels"
    assert siafu.from_pyg(found, target="classes").labels.tolist() == [0, 1, 2]


def test_kinds_of_edges_become_edge_types():
    pyg, torch = pytest.importorskip("torch_geometric.data"), pytest.importorskip("torch")
    hetero = pyg.HeteroData()
    hetero["a"].x, hetero["b"].x = torch.zeros(2, 4), torch.ones(3, 4)
    hetero["a"].y = torch.tensor([0, 1])
    hetero["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 0]])
    hetero["b", "back", "a"].edge_index = torch.tensor([[1], [1]])
    graph = graph_of(hetero)
    assert (graph.num_vertices, graph.num_features, graph.num_edge_types) == (5, 4, 2)
    assert (graph.src.tolist(), graph.dst.tolist(), graph.edge_type.tolist()) == ([0, 1, 3], [4, 2, 1], [0, 0, 1])
    assert graph.labels.tolist() == [0, 1, -1, -1, -1]
    assert graph.notes == ("pyg: left out: node_type",)
    hetero["a"].train_idx = torch.tensor([0])
    with pytest.raises(
        DatasetError, match=r"^HeteroData: train_idx of 'a' is no bool mask, and may number vertices of that kind"
    ):
        graph_of(hetero)
    del hetero["a"].train_idx
    hetero["a"].train_mask = torch.tensor([True, False])
    assert graph_of(hetero).split[:, 0].tolist() == [TRAIN, 0, 0, 0, 0]
    hetero["b"].y = torch.tensor([1, 0, 2])
    assert graph_of(hetero).notes == ("pyg: labels of a, b are taken for the same classes", "pyg: left out: node_type")


# --- refused ----------------------------------------------------------------------------------------------------------


def hetero_of_two_widths():
    pyg, torch = pytest.importorskip("torch_geometric.data"), pytest.importorskip("torch")
    hetero = pyg.HeteroData()
    hetero["a"].x, hetero["b"].x = torch.zeros(2, 4), torch.ones(3, 5)
    hetero["a", "to", "b"].edge_index = torch.tensor([[0, 1], [2, 0]])
    return hetero


REFUSED = {
    "no graph": (lambda: 7, r"^builtins\.int is no graph: must be a source's name, a siafu\.Graph, a mapping of"),
    "labels by an unknown name": (
        lambda: {"edge_index": EDGES, "x": np.eye(3), "paper_label": [0, 1, 0]},
        r"^arrays: has no use for 'paper_label', which looks like labels: call it y \(\[N\]\), or leave it out$",
    ),
    "no edges": (lambda: {"x": np.eye(3)}, r"^arrays: has no array 'edge_index', only x$"),
    "edges transposed": (lambda: EDGES.T, r"^arrays: edges are int64 \[3, 2\], must be integers \[2, E\]$"),
    "edges of floats": (lambda: EDGES * 1.0, r"^arrays: edges are float64 \[2, 3\], must be integers \[2, E\]$"),
    "not square": (
        lambda: scipy.sparse.csr_matrix(np.ones((2, 3))),
        r"^adjacency: the adjacency is \[2, 3\], must be \[N, N\]$",
    ),
    "other of SciPy": (lambda: scipy.sparse.linalg.aslinearoperator(np.eye(2)), r"^adjacency: .* is no sparse matrix"),
    "node without x": (
        lambda: networkx.compose(networkx.path_graph(2), _with_x(0)),
        r"^networkx: node 1 has no 'x', which others have$",
    ),
    "edge without weight": (
        lambda: networkx.Graph([(0, 1, {"weight": 1.0}), (1, 2)]),
        r"^networkx: edge 1 - 2 has no 'weight', which others have$",
    ),
    "x of two lengths": (
        lambda: networkx.compose(_with_x(0), _with_x(1, width=3)),
        r"^networkx: 'x' of nodes differ in length$",
    ),
    "wide edge_attr": (
        lambda: data(edge_attr=np.ones((3, 2))),
        (
            r"^pyg: edge_attr is \[3, 2\], but an edge has one weight: from_pyg\(data, weight=''\), or "
            r"FILE\.pt\?weight=, leaves it out$"
        ),
    ),
    "no edge_index": (lambda: _without_edges(), r"^pyg: has no edge_index, only x: undo transforms"),
    "widths of kinds": (
        hetero_of_two_widths,
        r"^HeteroData: features of its kinds of vertices \(a 4, b 5\) must be of one width$",
    ),
    "masks overlap": (
        lambda: data(x=np.eye(3), train_mask=[True, False, False], val_mask=[True, False, False]),
        r"^pyg: vertex 0 is in train_mask and val_mask of split 0, must be in one$",
    ),
}


def _with_x(node, width=2):
    graph = networkx.Graph()
    graph.add_node(node, x=[1.0] * width)
    return graph


def _without_edges():
    found = data(x=np.eye(3))
    del found.edge_index
    return found


def test_masked_values_are_not_taken_for_known():
    x, ring = np.array([[1.0, 2], [3, 4], [5, 6]]), scipy.sparse.csr_array(np.roll(np.eye(3), 1, axis=1))
    hidden = np.ma.masked_equal(x, 3)
    with pytest.raises(DatasetError, match=r"^adjacency: features: masked values would count as known: fill them in"):
        siafu.from_scipy(ring, features=hidden)
    with pytest.raises(DatasetError, match=r"^adjacency: labels: masked values"):
        siafu.from_scipy(ring, features=x, labels=np.ma.masked_equal([0, 1, 2], 1))
    assert siafu.from_scipy(ring, features=np.ma.masked_equal(x, 9)).features.tolist() == x.tolist()


def test_rows_of_a_shuffled_data_frame_are_refused():
    pandas = pytest.importorskip("pandas")
    ring = scipy.sparse.csr_array(np.roll(np.eye(3), 1, axis=1))
    frame = pandas.DataFrame({"age": [30.0, 40, 50], "y": [0, 1, 2]}, index=[2, 0, 1])
    for rows in ({"features": frame[["age"]]}, {"features": np.eye(3), "labels": frame["y"]}):
        with pytest.raises(DatasetError, match=r"their index is 0 to 2 in another order: sort_index\(\)"):
            siafu.from_scipy(ring, **rows)
    graph = siafu.from_scipy(ring, features=frame[["age"]].sort_index(), labels=frame["y"].reset_index(drop=True))
    assert (graph.features.tolist(), graph.labels.tolist()) == ([[40], [50], [30]], [0, 1, 2])


def test_what_numpy_cannot_hold_is_refused_or_converted():
    torch = pytest.importorskip("torch")
    ring = scipy.sparse.csr_array(np.roll(np.eye(3), 1, axis=1))
    x = torch.tensor([[1.0, 2], [-3, 4], [5, 6]])
    for kept in (x.to(torch.float8_e4m3fn), torch._neg_view(-x), torch.complex(x, x).conj().real):
        assert siafu.from_scipy(ring, features=kept).features.tolist() == x.tolist()
    with pytest.raises(DatasetError, match=r"^adjacency: features: a tensor of torch.float32 on meta that numpy"):
        siafu.from_scipy(ring, features=x.to("meta"))
    with pytest.raises(DatasetError, match=r"^adjacency: features: no array can be made of it \("):
        siafu.from_scipy(ring, features=[[1, 2], [3], [4, 5]])


def test_a_list_of_data_is_no_data():
    with pytest.raises(DatasetError, match=r"^pyg: list is no Data or HeteroData of torch_geometric$"):
        siafu.from_pyg([1])


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_graph_is_refused_with_its_reason(case):
    make, message = REFUSED[case]
    with pytest.raises(DatasetError, match=message):
        graph_of(make())


def test_a_data_set_is_not_the_graph_in_it():
    graph_data = pytest.importorskip("torch_geometric.data")

    class Two(graph_data.InMemoryDataset):
        pass

    with pytest.raises(DatasetError, match=r"^Two is a data set: pass the graph in it, dataset\[0\]$"):
        graph_of(Two())


# --- use --------------------------------------------------------------------------------------------------------------


def test_every_line_of_the_table_names_a_function():
    names = {function.rpartition(":")[2] for function in OBJECTS.values()}
    assert names <= set(siafu._ELSEWHERE)


def test_an_object_is_prepared_like_the_graph_in_it(tmp_path):
    graph = random_graph(2, weighted=True)
    mapping = {
        "edge_index": np.stack([graph.src, graph.dst]),
        "edge_weight": graph.weight,
        "x": graph.features,
        "y": graph.labels,
        "num_classes": 3,
        "train_mask": graph.split == TRAIN,
        "val_mask": graph.split == VAL,
        "test_mask": graph.split == TEST,
    }
    ours, theirs = (prepare(found, tmp_path / str(i)).manifest for i, found in enumerate((graph, mapping)))
    assert theirs.partitions == ours.partitions


def test_the_cache_knows_an_object_by_its_arrays(tmp_path):
    first, again, other = (
        cached({"edge_index": EDGES, "x": np.eye(3) * scale}, cache_dir=tmp_path) for scale in (1, 1, 2)
    )
    assert first == again != other


def test_the_graph_of_karate_is_trained_on_as_networkx_has_it():
    club = networkx.karate_club_graph()
    labels = [int(club.nodes[v]["club"] == "Officer") for v in club]
    graph = tidy(siafu.from_networkx(club, features=RANDOM, labels=labels))
    assert (graph.num_vertices, graph.num_edges, graph.weight.sum()) == (34, 156, 2 * 231)


def test_one_mask_for_testing_serves_all_splits():
    many = {name: np.repeat(mask[:, None], 4, axis=1) for name, mask in MASKS.items()}
    graph = graph_of(
        {"edge_index": EDGES, "x": np.eye(3), "y": np.array([0, 1, 1]), **many, "test_mask": MASKS["test_mask"]}
    )
    assert graph.split.tolist() == [[TRAIN] * 4, [VAL] * 4, [TEST] * 4]


def test_a_sparse_matrix_without_its_rows_is_refused():
    with pytest.raises(DatasetError, match="has x_data without 'x_indptr'"):
        graph_of({"edge_index": EDGES, "x_data": np.ones(3)})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"labels": np.array([b"a", b"b", b"a"])}, r"labels are \|S1, must be numbers"),
        ({"labels": np.array(["a", None, 1], object)}, "labels are object, must be numbers"),
        ({"edge_type": np.array(["x", "y", "x"])}, "edge types are <U1, must be integers"),
        ({"edge_type": [0, 1, 2], "num_edge_types": 1}, "an edge has type 2, num_edge_types is 1"),
    ],
)
def test_words_and_types_beyond_those_told_are_refused(wrong, words):
    with pytest.raises(DatasetError, match=words):
        siafu.from_arrays(EDGES, RANDOM, **wrong)


@pytest.mark.parametrize(
    ("labels", "classes", "names"),
    [
        (["b", "a", "a"], [1, 0, 0], ("a", "b")),
        (["b", None, "a"], [1, -1, 0], ("a", "b")),
        (["b", np.nan, "a"], [1, -1, 0], ("a", "b")),
        (["b ", " a", "a"], [1, 0, 0], ("a", "b")),  # blanks are no part of a word, as in tables
        (["b", " NA", "a"], [1, -1, 0], ("a", "b")),
        (["10", "9", "10"], [0, 1, 0], ("10", "9")),  # texts, as in a DataFrame
    ],
)
def test_labels_of_text_name_their_classes(labels, classes, names):
    graph = siafu.from_arrays(EDGES, np.eye(3), labels)
    assert graph.labels.tolist() == classes
    assert (graph.names["classes"], graph.num_classes, graph.target) == (names, 2, "classes")


def test_a_label_that_pandas_has_not_is_unknown():
    pandas = pytest.importorskip("pandas")
    for kind in ("object", "string"):
        graph = siafu.from_arrays(EDGES, np.eye(3), pandas.Series(["b", pandas.NA, "a"], dtype=kind))
        assert graph.labels.tolist() == [1, -1, 0]


def test_texts_that_say_that_there_is_no_label_are_named():
    graph = siafu.from_arrays(EDGES, np.eye(3), ["b", "NA", ""])
    assert graph.labels.tolist() == [0, -1, -1]
    assert graph.notes == ("arrays: no label where the text is '', 'NA'",)


def test_the_clubs_of_karate_are_classes_and_one_without_is_unknown():
    club = networkx.karate_club_graph()
    networkx.set_node_attributes(club, {v: word for v, word in club.nodes("club") if v != 3}, "label")
    graph = siafu.from_networkx(club, features=RANDOM)
    assert graph.names["classes"] == ("Mr. Hi", "Officer")
    assert graph.labels[:4].tolist() == [0, 0, 0, -1]


def test_nodes_that_are_texts_keep_them_as_ids():
    graph = siafu.from_networkx(networkx.DiGraph([("zoe", "bob"), ("bob", "\u00fcmit")]), features=RANDOM)
    assert graph.ids.values.to_pylist() == [
        "zoe",
        "bob",
        "\u00fcmit",
    ]  # the order of graph.nodes, as rows beside them have
    assert graph.notes == ()


def test_nodes_that_differ_only_in_what_is_not_seen_are_said():
    graph = siafu.from_networkx(networkx.DiGraph([("bob", "ann"), ("bob ", "ann")]), features=RANDOM)
    assert graph.notes == ("networkx: nodes 'bob' and 'bob ' differ only in what is not seen, and are two vertices",)


@pytest.mark.parametrize("pairs", [[("a", 1)], [((0, 0), (0, 1))], [("\ud800", "a")]])
def test_nodes_that_no_shards_can_keep_are_said(pairs):
    graph = siafu.from_networkx(networkx.DiGraph(pairs), features=RANDOM)
    assert graph.ids is None
    assert "vertex v is list(graph.nodes)[v], the nodes themselves are not kept" in graph.notes[0]
