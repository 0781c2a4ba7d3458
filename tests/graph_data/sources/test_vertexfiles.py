"""What tables say of vertices: features, labels of every kind, roles in splits."""

import numpy as np
import pytest

from graph_data.prepare import prepare as prepare_any
from graph_data.sources import edgelist
from graph_data.sources.vertexfiles import _sparse
from siafu.errors import DatasetError
from siafu.shards import ShardSet
from tests.graph_data.random_features import for_edges

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
load, prepare = for_edges(edgelist.load), for_edges(prepare_any)

USERS = """id,age,job,income,role,when,red,blue
1,20,cook,1.5,train,valid,1,0
2,30,baker,,test,1,0,0
3,40,,3.0,validation,test,1,1
4,50,cook,4.0,none,,0,1
"""


@pytest.fixture
def edges(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "users.csv").write_text(USERS)
    (tmp_path / "e.csv").write_text("src,dst,kind,many\n1,2,likes,7\n2,3,hates,7\n3,4,likes,300\n4,1,knows,7\n")
    return "e.csv"


# --- labels -----------------------------------------------------------------------------------------------------------


def test_words_are_classes_in_ascending_order_and_their_names_are_kept(edges, tmp_path):
    graph = load(f"{edges}?labels=users.csv%23job")
    assert (graph.labels.tolist(), graph.num_classes) == ([1, 0, -1, 1], 2)
    assert graph.names["classes"] == ("baker", "cook")
    prepare(f"{edges}?labels=users.csv%23job", tmp_path / "out")
    assert '"baker"' in (tmp_path / "out" / "names.json").read_text()


def test_fractions_are_numbers_and_one_that_is_missing_is_unknown(edges):
    graph = load(f"{edges}?labels=users.csv%23income")
    assert (graph.target, graph.num_classes, graph.labels.dtype) == ("numbers", 1, np.float32)
    assert np.array_equal(graph.labels, np.array([1.5, np.nan, 3, 4], np.float32), equal_nan=True)


def test_integers_are_classes_unless_numbers_are_wanted(edges):
    ages = load(f"{edges}?labels=users.csv%23age")
    assert (ages.labels.tolist(), ages.num_classes) == ([0, 1, 2, 3], 4)
    assert ages.names["classes"] == ("20", "30", "40", "50")
    found = load(f"{edges}?labels=users.csv%23age,income&target=numbers")
    assert (found.target, found.num_classes, found.labels[2].tolist()) == ("numbers", 2, [40, 3])


def test_several_columns_of_0_and_1_are_labels(edges):
    graph = load(f"{edges}?labels=users.csv%23red,blue")
    assert (graph.target, graph.num_classes, graph.labels.tolist()) == ("labels", 2, [[1, 0], [0, 0], [1, 1], [0, 1]])
    assert load(f"{edges}?labels=users.csv%23red&target=labels").labels.tolist() == [[1], [0], [1], [0]]


def test_several_columns_of_0_and_1_in_floats_are_refused_until_told(edges, tmp_path):
    np.save(tmp_path / "y.npy", np.eye(5, 2))
    np.save(tmp_path / "one-hot.npy", np.eye(2)[[0, 1, 1, 0, 1]])
    with pytest.raises(DatasetError, match=r"^y\.npy: y is all 0 and 1, in float64 \[5, 2\]: are these classes\?"):
        load(f"{edges}?labels=y.npy")
    assert load(f"{edges}?labels=y.npy&target=numbers").target == "numbers"
    assert load(f"{edges}?labels=y.npy&target=labels").labels.sum() == 2
    assert load(f"{edges}?labels=one-hot.npy&target=classes").labels.tolist() == [0, 1, 1, 0, 1]
    with pytest.raises(
        DatasetError, match=r"^y\.npy: target is classes, but the 2 columns of vertex 2 are not one-hot"
    ):
        load(f"{edges}?labels=y.npy&target=classes")


def test_of_several_labels_one_that_is_missing_is_unknown_and_its_vertex_in_no_split(edges, tmp_path):
    (tmp_path / "y.csv").write_text("id,red,blue\n1,1,0\n2,-1,-1\n4,0,\n")  # 3 has no row
    source = f"{edges}?labels=y.csv"
    graph = load(source)
    assert (graph.target, graph.labels.tolist()) == ("labels", [[1, 0], [-1, -1], [-1, -1], [0, -1]])
    for split, stream in (("", False), ("", True), ("&split=users.csv%23role", False)):
        out = tmp_path / f"out{stream}{len(split)}"
        shard = prepare(source + split, out, stream=stream, order="given", partitioner="chunk").partition(0)
        assert (shard.labels.dtype, np.asarray(shard.labels).tolist()) == (
            np.uint8,
            [[1, 0], [255, 255], [255, 255], [0, 255]],
        )
        assert np.flatnonzero(np.asarray(shard.split)[:, 0]).tolist() == [0]


def test_a_label_that_is_none_is_refused_where_there_are_several(edges, tmp_path):
    (tmp_path / "y.csv").write_text("id,red,blue\n1,1,0\n2,-7,0\n")
    with pytest.raises(DatasetError, match=r"^y\.csv: label of vertex 2 is -7, must be 0 or 1, or -1 for unknown"):
        load(f"{edges}?labels=y.csv")


@pytest.mark.parametrize("type_", ["int8", "float64", "bool", "dictionary"])
def test_classes_come_from_any_type_of_column(type_, edges, tmp_path):
    column = pa.array(["0", "1", "1"]).dictionary_encode() if type_ == "dictionary" else pa.array([0, 1, 1]).cast(type_)
    parquet.write_table(pa.table({"id": [1, 2, 3], "y": column}), tmp_path / "y.parquet")
    assert load(f"{edges}?labels=y.parquet").labels.tolist() == [0, 1, 1, -1]


def test_a_float_column_of_whole_numbers_and_gaps_is_classes(edges, tmp_path):
    parquet.write_table(pa.table({"id": [1, 2, 3], "y": [1.0, None, 0.0]}), tmp_path / "y.parquet")
    assert load(f"{edges}?labels=y.parquet").labels.tolist() == [1, -1, 0, -1]


@pytest.mark.parametrize(("values", "target"), [([0, 1, 2, 0], "classes"), ([0.5, 1, np.nan, 2], "numbers")])
def test_a_file_by_number_is_read_alike(values, target, edges, tmp_path):
    np.save("y.npy", values)
    (tmp_path / "e0.csv").write_text("0,1\n1,2\n2,3\n")
    graph = load("e0.csv?labels=y.npy")
    assert graph.target == target
    assert np.array_equal(graph.labels, values, equal_nan=True)


# --- splits -----------------------------------------------------------------------------------------------------------


def test_roles_are_words_or_numbers(edges):
    assert load(f"{edges}?split=users.csv%23role").split.tolist() == [[1], [3], [2], [0]]
    assert load(f"{edges}?split=users.csv%23role,when").split[:, 1].tolist() == [2, 1, 3, 0]


# --- features ---------------------------------------------------------------------------------------------------------


def test_labels_and_splits_are_no_features(edges):
    graph = load(f"{edges}?features=users.csv%23age,red&labels=users.csv%23job")
    assert graph.features.tolist() == [[20, 1], [30, 0], [40, 1], [50, 0]]
    with open("users.csv", "w") as stream:
        stream.write(USERS.replace("baker,,", "baker,2,"))
    graph = load(f"{edges}?features=users.csv&labels=users.csv%23job&split=users.csv%23role,when")
    assert graph.num_features == 4  # age, income, red, blue
    assert graph.features[0].tolist() == [20, 1.5, 1, 0]


def test_columns_of_a_table_are_named(edges):
    with pytest.raises(DatasetError, match=r"^users\.csv: has no column 'jobs', only id, age, job"):
        load(f"{edges}?labels=users.csv%23jobs")
    with pytest.raises(DatasetError, match=r"^users\.csv: column 'job' is 'cook', must be a number: #\*,job:onehot m"):
        load(f"{edges}?features=users.csv%23age,job")


# --- types of edges ---------------------------------------------------------------------------------------------------


def test_types_of_edges_are_words_in_ascending_order(edges, tmp_path):
    graph = load(f"{edges}?type=kind")
    assert (graph.edge_type.tolist(), graph.edge_type.dtype, graph.num_edge_types) == ([2, 0, 2, 1], np.uint16, 3)
    assert graph.names["edge_types"] == ("hates", "knows", "likes")
    manifest = prepare(f"{edges}?type=kind", tmp_path / "out").manifest
    assert (manifest.num_edge_types, manifest.edge_types) == (3, "relations")


def test_types_of_edges_are_integers_without_gaps(edges):
    graph = load(f"{edges}?type=many")
    assert (graph.edge_type.tolist(), graph.names["edge_types"]) == ([0, 0, 1, 0], ("7", "300"))
    with open("e.csv", "a") as stream:
        stream.write("1,3,likes,8\n")
    assert load(f"{edges}?type=many").edge_type.tolist() == [0, 0, 2, 0, 1]


def test_types_without_gaps_need_no_names(edges, tmp_path):
    (tmp_path / "t.csv").write_text("s,d,t\n1,2,1\n2,1,0\n")
    graph = load("t.csv?type=t")
    assert (graph.edge_type.tolist(), graph.num_edge_types) == ([1, 0], 2)
    assert "edge_types" not in graph.names


def test_types_are_kept_as_they_stand_where_their_number_is_given(edges, tmp_path):
    (tmp_path / "t.csv").write_text("s,d,t\n1,2,3\n2,1,1\n")
    graph = load("t.csv?type=t&num_edge_types=5")
    assert (graph.edge_type.tolist(), graph.edge_type.dtype) == ([3, 1], np.uint16)
    assert graph.num_edge_types == 5
    assert "edge_types" not in graph.names


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("type=many&num_edge_types=8", r"e\.csv: row 3: column 'many' is 300, must be in 0\.\.7: there are 8 types"),
        ("type=kind&num_edge_types=8", r"e\.csv: column 'kind' is of words, .* num_edge_types is for integers"),
        ("type=many&num_edge_types=0", r"num_edge_types '0', must be a number in 1\.\.65536"),
        ("num_edge_types=8", r"num_edge_types 8, but no edge has a type"),
    ],
)
def test_a_number_of_types_that_cannot_be_is_refused(query, message, edges):
    with pytest.raises(DatasetError, match=message):
        load(f"{edges}?{query}")


def test_parallel_edges_of_two_types_are_two_edges(edges, tmp_path):
    (tmp_path / "t.csv").write_text("s,d,t\n1,2,a\n1,2,b\n1,2,b\n")
    shards = prepare("t.csv?type=t", tmp_path / "out", directed=True)
    assert ShardSet.open(shards.path).partition(0).in_edges.type.tolist() == [0, 1]


@pytest.mark.parametrize("kind", ["csc", "bsr"])
def test_a_sparse_matrix_in_another_order_is_not_taken_for_rows(kind, tmp_path):
    sparse = pytest.importorskip("scipy.sparse")
    sparse.save_npz(tmp_path / "m.npz", sparse.random(20, 20, 0.2).asformat(kind))
    with pytest.raises(DatasetError, match=f"it is {kind}"):
        _sparse(tmp_path / "m.npz")
