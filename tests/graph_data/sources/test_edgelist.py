"""Edge lists in tables, read whole: what the streaming path is compared with."""

import gzip
import re

import numpy as np
import pytest

from graph_data.prepare import Source, resolve
from graph_data.prepare import prepare as prepare_any
from graph_data.sources import edgelist
from graph_data.sources.randomrows import RandomRows
from siafu import extras
from siafu.errors import ConfigError, DatasetError
from siafu.graph import TEST, TRAIN, VAL
from siafu.shards import ShardSet
from tests.graph_data.random_features import for_edges

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
load, parse, prepare = (for_edges(function) for function in (edgelist.load, edgelist.parse, prepare_any))


def write_table(path, **columns):
    parquet.write_table(pa.table(columns), path)
    return str(path)


@pytest.fixture
def edges(tmp_path):
    """Three edges between the vertices 10, 20 and 40."""
    return write_table(
        tmp_path / "edges.parquet", a=[40, 10, 10], b=[10, 20, 20], w=[0.5, 1.0, 2.0], note=["x", "", "y"]
    )


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz", "x.tsv", "dir/*.parquet", "x.parquet?src=a&dst=b"])
def test_tables_are_edge_lists(name):
    assert resolve(name) == Source("edges", name)


def test_a_folder_of_tables_is_an_edge_list(tmp_path, edges):
    assert resolve(str(tmp_path)) == Source("edges", str(tmp_path))


# --- ids --------------------------------------------------------------------------------------------------------------


def test_the_first_two_columns_are_source_and_target_and_ids_are_renumbered(edges):
    graph = load(edges)
    assert graph.ids.tolist() == [10, 20, 40]
    assert (graph.src.tolist(), graph.dst.tolist(), graph.weight) == ([2, 0, 0], [0, 1, 1], None)
    assert (graph.name, graph.num_classes, set(graph.labels)) == ("edges", 1, {-1})


def test_columns_can_be_named(edges):
    graph = load(f"{edges}?src=b&dst=a&weight=w&name=mine")
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 1, 1], [2, 0, 0])
    assert (graph.weight.tolist(), graph.name) == ([0.5, 1.0, 2.0], "mine")


def test_with_num_vertices_ids_are_vertex_numbers(edges):
    graph = load(f"{edges}?num_vertices=50")
    assert (graph.num_vertices, graph.ids, graph.src.tolist()) == (50, None, [40, 10, 10])


def test_several_files_are_one_list_in_the_order_of_their_names(tmp_path):
    write_table(tmp_path / "e2.parquet", src=[2], dst=[3])
    write_table(tmp_path / "e1.parquet", src=[0], dst=[1])
    for name in (tmp_path, tmp_path / "e*.parquet"):
        assert load(str(name)).src.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64, np.float64])
def test_integers_of_any_width_are_ids(dtype, tmp_path):
    path = write_table(tmp_path / "e.parquet", s=np.array([1, 2], dtype), d=np.array([2, 3], dtype))
    assert load(path).ids.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("e.csv", "s,d\n5,6\n6,7\n"),
        ("e.csv", "5,6\n6,7\n"),
        ("e.tsv", "s\td\n5\t6\n6\t7\n"),
        ("e.csv.gz", "s,d\n5,6\n6,7\n"),
    ],
)
def test_text_with_and_without_header_is_read(name, text, tmp_path):
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    graph = load(str(tmp_path / name))
    assert (graph.ids.tolist(), graph.src.tolist(), graph.dst.tolist()) == ([5, 6, 7], [0, 1], [1, 2])


@pytest.mark.parametrize("row", ["{}, {}", "{} , {}", "{},{}", " {},\t{} "])
def test_blanks_around_names_and_values_are_no_part_of_them(row, tmp_path):
    for ids, kinds in ((("5", "6"), ("likes", "hates")), (("ann", "bob"), ("1", "0"))):
        lines = [row.format(*ids) + f", {kinds[0]}", row.format(*ids[::-1]) + f", {kinds[1]}"]
        (tmp_path / "e.csv").write_text("\n".join(["src, dst ,kind", *lines, ""]))
        graph = load(f"{tmp_path / 'e.csv'}?type=kind")
        assert (graph.num_vertices, graph.src.tolist(), graph.dst.tolist()) == (2, [0, 1], [1, 0])
        assert (graph.edge_type.tolist(), graph.num_edge_types) == ([1, 0], 2)


def test_a_quote_behind_a_blank_is_no_part_of_a_name(tmp_path):
    """``alice`` and ``"alice"`` would be two vertices."""
    (tmp_path / "e.csv").write_text('src, dst\n"alice", "bob"\n"bob", "alice"\n')
    with pytest.raises(
        DatasetError, match=r"e\.csv: column 'dst' has a quoted field behind a blank: leave out the blanks"
    ):
        load(str(tmp_path / "e.csv"))


def test_a_row_is_counted_alike_behind_a_header_with_blanks(tmp_path):
    (tmp_path / "e.csv").write_text("src, dst\n1, 2\n3, x\n")
    with pytest.raises(DatasetError, match=r"e\.csv: row 2: column 'dst' is 'x', must be an integer"):
        load(str(tmp_path / "e.csv"))


# --- bad rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, 2, None], r"row 3: column 's' is missing, must be an integer"),
        ([1.0, 2.0, np.nan], r"row 3: column 's' is nan, must be an integer"),
        ([1.0, 2.5, 3.0], r"row 2: column 's' is 2\.5, must be an integer"),
        (["1", "2", "3"], r"columns 's' and 'd' are text and integers, must be of one type; --ids text takes any"),
        ([True, False, True], r"column 's' is bool, must be integers, text, bytes, dates or times: they are ids"),
    ],
)
def test_a_bad_id_is_named_by_file_row_and_column(column, message, tmp_path):
    path = write_table(tmp_path / "e.parquet", s=pa.array(column, from_pandas=False), d=[1, 2, 3])
    with pytest.raises(DatasetError, match=rf"^{path}: {message}"):
        load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7,abc", r"row 1002: column 'd' is 'abc', must be an integer"),
        ("7,", r"row 1002: column 'd' is missing, must be an integer"),
        (
            "7,9223372036854775808",
            r"row 1002: column 'd' is '9223372036854775808', must be an integer; --ids text takes any",
        ),
        ("7,1,2", r"row 1002 has 3 fields, must have 2"),
        ("7,1.5", r"row 1002: column 'd' is '1\.5', must be an integer"),
    ],
)
def test_a_bad_line_is_named_by_file_row_and_column(line, message, tmp_path):
    (tmp_path / "e.csv").write_text("s,d\n1,2\n" + 1000 * "3,4\n" + line + "\n")
    with pytest.raises(DatasetError, match=rf"e\.csv: {message}"):
        load(str(tmp_path / "e.csv"))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?source=a", r"has no option 'source', only src, dst"),
        ("?src=z", r"has no column 'z', only a, b, w, note"),
        ("?num_vertices=many", r"num_vertices 'many', must be a number in"),
        ("?num_vertices=40", r"row 1: vertex 40, must be in 0\.\.39"),
        ("?ids=words", r"ids 'words', must be one of auto, integer, text"),
        ("?target=both", r"target 'both', must be one of auto, classes, labels, numbers"),
        ("?type=w", r"row 1: column 'w' is 0\.5, must be an integer"),
        ("?weight=note", r"column 'note' is 'x', string, must be a number"),
    ],
)
def test_a_bad_option_is_one_line(query, message, edges):
    with pytest.raises(DatasetError, match=message):
        load(edges + query)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"gone\.parquet: no such file$"):
        load(str(tmp_path / "gone.parquet"))
    with pytest.raises(DatasetError, match=r"\*\.csv: no file there that ends in \.parquet"):
        load(str(tmp_path / "*.csv"))


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "e.parquet").write_text("not parquet")
    with pytest.raises(DatasetError, match=r"e\.parquet: not a readable Parquet file"):
        load(str(tmp_path / "e.parquet"))


def test_parquet_whose_columns_have_no_readable_names_is_refused(tmp_path):
    file = tmp_path / "e.parquet"
    parquet.write_table(pa.table({"src": [0, 1], "dst": [1, 0]}), file)
    file.write_bytes(file.read_bytes().replace(b"src", b"s\x8bc"))
    with pytest.raises(DatasetError, match=r"e\.parquet: not a readable Parquet file \('utf-8' codec"):
        load(str(file))


def test_without_pyarrow_the_extra_is_named(edges, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    how = re.escape(extras.install("data"))
    with pytest.raises(ConfigError, match=rf"^tables \(Parquet, CSV, DataFrames\) and ids that are .*: {how}$"):
        load(edges)


# --- vertices ---------------------------------------------------------------------------------------------------------


def test_rows_of_a_npy_file_are_vertex_numbers(tmp_path, edges):
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32).reshape(50, 2))
    np.save(tmp_path / "y.npy", np.arange(50) % 3)
    graph = load(f"{edges}?features={tmp_path / 'x.npy'}&labels={tmp_path / 'y.npy'}")
    assert (graph.num_vertices, graph.ids, graph.num_classes) == (50, None, 3)
    assert graph.features[10].tolist() == [20, 21]


def test_files_that_disagree_on_the_number_of_vertices_are_refused(tmp_path, edges):
    np.save(tmp_path / "x.npy", np.zeros((50, 2)))
    with pytest.raises(DatasetError, match=r"x\.npy: 50 rows, but num_vertices says 41: both are the vertices"):
        load(f"{edges}?num_vertices=41&features={tmp_path / 'x.npy'}")


def test_words_of_splits_are_those_of_masks(tmp_path):
    edges = write_table(tmp_path / "e.parquet", a=[0, 1, 2], b=[1, 2, 0])
    split = write_table(tmp_path / "s.parquet", id=[0, 1, 2], part=["trn", "vali", "te"])
    assert load(f"{edges}?features=random:2&split={split}").split[:, 0].tolist() == [TRAIN, VAL, TEST]


def test_rows_of_a_table_are_found_by_id(tmp_path, edges):
    features = write_table(tmp_path / "x.parquet", id=[40, 20, 10, 30], x=[4.0, 2.0, 1.0, 3.0], y=[0, 0, 1, 1])
    (tmp_path / "y.csv").write_text("id,label\n10,2\n30,0\n")
    split = write_table(tmp_path / "s.parquet", id=[10, 30], split=[1, 3])
    graph = load(f"{edges}?features={features}&labels={tmp_path / 'y.csv'}&split={split}")
    assert graph.ids.tolist() == [10, 20, 30, 40]
    assert graph.features.tolist() == [[1, 1], [2, 0], [3, 1], [4, 0]]
    assert graph.labels.tolist() == [1, -1, 0, -1]
    assert graph.names["classes"] == ("0", "2")
    assert graph.split.tolist() == [[1], [0], [3], [0]]


@pytest.mark.parametrize(
    ("ids", "message"),
    [([10, 20], "has no features of vertex 40"), ([10, 20, 40, 20], "vertex 20 is there twice")],
)
def test_a_table_of_features_has_every_vertex_once(ids, message, tmp_path, edges):
    features = write_table(tmp_path / "x.parquet", id=ids, x=np.zeros(len(ids)))
    with pytest.raises(DatasetError, match=message):
        load(f"{edges}?features={features}")


def test_without_features_it_is_refused_until_random_ones_are_asked_for(edges, tmp_path):
    for read in (edgelist.load, edgelist.parse, lambda source: prepare_any(source, tmp_path / "out")):
        with pytest.raises(
            DatasetError, match=r"edges\.parquet: has no features: .* say random:32 .*--features random:32"
        ):
            read(edges)


def test_random_features_never_change_and_the_graph_says_that_they_are(edges, tmp_path):
    graph = load(f"{edges}?features=random:32")
    assert (graph.features.shape, graph.features.dtype) == ((3, 32), np.float16)
    assert np.array_equal(graph.features, load(f"{edges}?features=random").features)
    assert load(f"{edges}?features=random:5").made_features == "random:5"
    for stream in (False, True):
        shards = prepare_any(f"{edges}?features=random:5", tmp_path / f"out{stream}", stream=stream)
        assert ShardSet.open(shards.path).manifest.made_features == "random:5"


def test_the_manifest_of_a_graph_with_features_says_nothing_of_random_ones(edges, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((50, 2)))
    shards = prepare_any(f"{edges}?features={tmp_path}/x.npy", tmp_path / "out")
    assert "random_features" not in shards.manifest.body()
    assert shards.manifest.made_features == ""


def test_random_rows_are_the_same_in_any_slice():
    rows = RandomRows(40_000, 3)
    assert np.array_equal(rows[16_000:33_000], rows[0:40_000][16_000:33_000])
    assert rows[5:5].shape == (0, 3)
    assert abs(float(rows[0:40_000].astype(np.float32).std()) - 1) < 0.02


def test_shards_keep_the_ids_of_the_source(tmp_path, edges):
    out = prepare(edges, tmp_path / "out").path
    assert np.load(out / "ids.npy").tolist() == [10, 20, 40]
    ShardSet.open(out).verify()


def test_a_compressed_text_that_is_cut_off_is_named(tmp_path):
    file = tmp_path / "edges.csv.gz"
    file.write_bytes(gzip.compress(b"src,dst\n" + b"0,1\n" * 9999, mtime=0)[:40])
    with pytest.raises(DatasetError, match=r"edges.csv.gz: not readable"):
        parse(str(file))


@pytest.mark.parametrize("query", ["src=a&dst=a", "src=b", "weight=a"])
def test_a_column_has_one_meaning(tmp_path, query):
    file = tmp_path / "edges.csv"
    file.write_text("a,b\n0,1\n")
    if query == "src=b":
        assert parse(f"{file}?{query}").dst == "a"
        return
    with pytest.raises(DatasetError, match="must be different columns"):
        parse(f"{file}?{query}")
