"""What of a user's tables is taken for what: nothing guessed in silence, nothing dropped without a word."""

import logging
import re
from pathlib import Path

import numpy as np
import pytest

from graph_data.objects.arrays import from_arrays
from graph_data.prepare import prepare
from graph_data.sources import columns
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import TEST, TRAIN, VAL, Graph

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.csv")
pytest.importorskip("pyarrow.parquet")

EDGES = "source,target\n1,2\n2,3\n3,4\n4,1\n"
USERS = "id,age,income,job\n1,30,1.5,cook\n2,40,2.5,baker\n3,50,3.5,cook\n4,60,4.5,baker\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text(EDGES)
    Path("u.csv").write_text(USERS)
    return tmp_path


def load(more: str = "features=u.csv&labels=u.csv%23job", edges: str = "e.csv") -> Graph:
    return resolve(f"edges:{edges}?{more}").load()


def refused(words: str, more: str = "features=u.csv&labels=u.csv%23job", edges: str = "e.csv") -> None:
    with pytest.raises(DatasetError, match=words) as caught:
        load(more, edges)
    assert "\n" not in str(caught.value)


# --- which column is what ---------------------------------------------------------------------------------------------


def test_a_line_for_each_table_says_what_was_taken_for_what(tmp_path, capsys):
    assert load().notes == (
        "e.csv: edges from [source] to [target]",
        "u.csv: vertices by [id], features [age] [income], labels [job]",
    )
    Path("e.csv").write_text("# two\n# comments\nwhen;source;target;w\n2020;1;2;1\n2021;2;3;1\n2021;3;4;1\n")
    more = "features=u.csv%23age&labels=u.csv%23job&weight=w"
    assert load(more).notes == (
        (
            "e.csv: edges from [source] to [target], weights [w]; not used: [when]; 2 lines of "
            "comments above; separated by ';'"
        ),
        "u.csv: vertices by [id], features [age], labels [job]; not used: [income]",
    )
    for stream in (False, True):
        shards = prepare(f"e.csv?{more}", tmp_path / "out", stream=stream)
        assert shards.notes() == load(more).notes


@pytest.mark.parametrize(
    ("header", "rows"),
    [
        ("target,source", [(1, 0), (2, 1)]),
        ("w,Source ID,Target ID", [(9, 0, 1), (9, 1, 2)]),
        ("head,relation,tail", [(0, 7, 1), (1, 7, 2)]),
        ("cited,citing", [(1, 0), (2, 1)]),
    ],
)
def test_source_and_target_are_found_by_their_names(header, rows):
    Path("e.csv").write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    graph = load("features=random:2")
    assert (graph.src.tolist(), graph.dst.tolist()) == ([0, 1], [1, 2])


@pytest.mark.parametrize(
    "rows",
    [
        "1,1,0,0\n2,0,1,0\n3,0,0,1\n4,0,0,0\n",
        "1,True,False,False\n2,False,True,False\n3,False,False,True\n4,False,False,False\n",
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_of_0_and_1_that_are_called_as_masks_are_one_split(rows, kind):
    """Each column for itself would be a split of training vertices, those of the test among them."""
    Path("s.csv").write_text("id,train_mask,val,test_mask\n" + rows)
    if kind == "parquet":
        pa.parquet.write_table(pa.csv.read_csv("s.csv"), "s.parquet")
    graph = load(f"features=random:2&split=s.{kind}")
    assert graph.split.tolist() == [[TRAIN], [VAL], [TEST], [0]]


def test_a_mask_of_one_part_is_that_part():
    Path("s.csv").write_text("id,test\n1,0\n2,1\n3,\n4,1\n")
    graph = load("features=random:2&split=s.csv")
    assert graph.split.tolist() == [[0], [TEST], [0], [TEST]]
    assert graph.notes[-1] == "s.csv: no part [test] in 1 row"


def test_masks_that_make_no_split_are_refused():
    Path("s.csv").write_text("id,train,val\n1,1,1\n2,0,1\n3,0,0\n4,0,0\n")
    refused(r"^s\.csv: vertex 1 is in train and val, must be in one part$", "features=random:2&split=s.csv")
    Path("s.csv").write_text("id,train,fold\n1,1,1\n2,0,1\n3,0,0\n4,0,0\n")
    refused(
        r"^s\.csv: column 'train' is a mask .* 'fold' is none: name .* s\.csv#train$", "features=random:2&split=s.csv"
    )
    Path("s.csv").write_text("id,train,val\n1,1,0\n2,0,1\n3,2,0\n4,0,0\n")
    refused(r"^s\.csv: column 'val' is a mask .* 'train' is none", "features=random:2&split=s.csv")
    np.save("s.npy", np.array([True, False, False, True, True]))
    refused(r"^s\.npy: is true and false, which may be any part: must be train, ", "features=random:2&split=s.npy")


def test_features_that_nobody_named_hold_no_label_split_or_mask_of_another_table():
    Path("u.csv").write_text("id,age,y\n1,30,0\n2,40,1\n3,50,0\n4,60,1\n")
    Path("y.csv").write_text("id,y\n1,0\n2,1\n3,0\n4,1\n")
    words = r"^u\.csv: column 'y' is also that of labels in y\.csv: #-y leaves it out of the features, #\* takes all"
    refused(words, "features=u.csv&labels=y.csv")
    assert load("features=u.csv%23-y&labels=y.csv").num_features == 1
    assert load("features=u.csv%23*&labels=y.csv").num_features == 2
    Path("u.csv").write_text("id,age,train_mask,test_mask\n1,30,1,0\n2,40,0,1\n3,50,1,0\n4,60,0,0\n")
    words = (
        r"^u\.csv: column 'train_mask' is a mask by its name and values: --split u\.csv#train_mask,test_mask makes a "
        r"split of it, #-train_mask leaves it out of the features$"
    )
    refused(words, "features=u.csv")
    graph = load("features=u.csv&split=u.csv%23train_mask,test_mask")
    assert (graph.num_features, graph.split[:, 0].tolist()) == (1, [TRAIN, TEST, TRAIN, 0])


def test_a_column_of_train_and_test_among_the_features_is_told_to_be_a_split():
    """Who leaves it out instead, trains on a split that siafu draws."""
    Path("u.csv").write_text("id,age,role\n1,30,train\n2,40,test\n3,50,train\n4,60,\n")
    words = (
        r"^u\.csv: column 'role' is a split by its values: --split u\.csv#role makes a split of it, #-role leaves it "
        "out of the features$"
    )
    refused(words, "features=u.csv")
    graph = load("features=u.csv&split=u.csv%23role")
    assert (graph.num_features, graph.split[:, 0].tolist()) == (1, [TRAIN, TEST, TRAIN, 0])


def test_labels_of_all_columns_leave_no_features_and_one_of_them_can_be_named():
    Path("u.csv").write_text("id,age,y\n1,30,0\n2,40,1\n3,50,0\n4,60,1\n")
    words = r"^u\.csv: its columns are id, age, y: .* label or split: --labels u\.csv#COLUMN takes one of them$"
    refused(words, "features=u.csv&labels=u.csv")


def test_a_table_of_no_edges_takes_ids_as_those_of_vertices_are():
    Path("e.csv").write_text("source,target\n")
    Path("u.csv").write_text("id,age\nann,30\nbob,40\n")
    graph = load("features=u.csv")
    assert (graph.num_vertices, len(graph.src)) == (2, 0)


def test_names_of_columns_may_be_longer_than_a_first_look():
    """Tables of genes have ten thousand columns."""
    names = [f"ENSG{i:011d}" for i in range(5000)]
    rows = [f"{v}," + ",".join(str(v + i) for i in range(5000)) for v in range(1, 5)]
    Path("u.csv").write_text("\n".join([f"id,{','.join(names)}", *rows]) + "\n")
    graph = load("features=u.csv")
    assert graph.features[:, [0, 4999]].tolist() == [[v, v + 4999] for v in range(1, 5)]
    assert graph.names["features"] == tuple(names)


@pytest.mark.parametrize("first", ["cook", "0.5", "7"])
def test_labels_may_begin_behind_a_long_row_of_missing_ones(first):
    """A table that is sorted by its labels has those without one above."""
    count = 30000
    Path("e.csv").write_text("source,target\n" + "".join(f"{i},{i + 1}\n" for i in range(count - 1)))
    Path("u.csv").write_text(
        "id,y\n" + "".join(f"{i},\n" for i in range(count - 2)) + f"{count - 2},{first}\n{count - 1},{first}\n"
    )
    graph = load("features=random:2&labels=u.csv")
    assert graph.notes[-1] == f"u.csv: no label [y] in {count - 2:,} rows"
    if first == "0.5":
        assert graph.labels[-3:].tolist()[1:] == [0.5, 0.5]
    else:
        assert (graph.labels[-3:].tolist(), graph.names["classes"]) == ([-1, 0, 0], (first,))


def test_an_array_by_column_and_a_vector_are_features():
    Path("e.csv").write_text("source,target\n0,1\n1,2\n")
    x = np.arange(6.0).reshape(3, 2)
    np.save("x.npy", np.asfortranarray(x))
    assert load("features=x.npy").features.tolist() == x.tolist()
    np.save("x.npy", x[:, 1])
    assert load("features=x.npy").features.tolist() == x[:, 1:].tolist()


def test_sparse_features_out_of_order_are_sorted_and_added_up():
    """SciPy saves a product of matrices so."""
    scipy_sparse = pytest.importorskip("scipy.sparse")
    Path("e.csv").write_text("source,target\n0,1\n1,2\n")
    parts = np.array([1.0, 2, 3, 4]), np.array([1, 0, 0, 0]), np.array([0, 2, 4, 4])
    scipy_sparse.save_npz("x.npz", scipy_sparse.csr_matrix(parts, shape=(3, 2)))
    graph = load("features=x.npz")
    assert graph.features.dense().tolist() == [[2, 1], [7, 0], [0, 0]]


def test_the_id_is_found_by_its_name_or_told():
    Path("u.csv").write_text("age,Node_ID,job\n30,1,a\n40,2,b\n50,3,a\n60,4,b\n")
    assert load().features.tolist() == [[30], [40], [50], [60]]
    Path("u.csv").write_text("age,user,job\n30,1,a\n40,2,b\n50,3,a\n60,4,b\n")
    refused(r"^u\.csv: none of its 4 ids \(column 'age'\) is in an edge: they are like '30', those of edges like '1'$")
    graph = load("features=u.csv&labels=u.csv%23job&id=user")
    assert graph.features.tolist() == [[30], [40], [50], [60]]


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_row_numbers_of_a_dataframe_are_no_vertices_and_no_feature(name):
    Path("e.csv").write_text(f"{name},u,v\n0,1,2\n1,2,3\n2,3,4\n")
    assert load().num_vertices == 4  # by the names of the others
    Path("e.csv").write_text(f"{name},one,other\n0,1,2\n1,2,3\n2,3,4\n")
    refused(
        rf"^e\.csv: its column '{name}' has no name of its own \(row numbers of a DataFrame\?\): say which columns are "
        r"source and target, of one, other: src=COLUMN and dst=COLUMN \(--src, --dst\)$"
    )
    assert load("features=random:2&src=one&dst=other").num_edges == 3
    Path("u.csv").write_text(f"{name},who,age\n0,1,30\n1,2,40\n2,3,50\n3,4,60\n")
    refused(
        r"^u\.csv: its first column has no name of its own .*: say which column is the id, of who, age: "
        r"id=COLUMN \(--id\)$",
        "features=u.csv&src=one&dst=other",
    )
    graph = load("features=u.csv&id=who&src=one&dst=other")
    assert graph.features.tolist() == [[30], [40], [50], [60]]
    assert (
        graph.notes[1]
        == f"u.csv: vertices by [who], features [age]; not used: {f'[{name}]' if name else 'a column without a name'}"
    )
    Path("u.csv").write_text(f"{name},who,age\n9,1,30\n8,2,40\n7,3,50\n6,4,60\n")
    refused(
        rf"^u\.csv: column '{name}' has no name of its own .*: say which columns to take, u\.csv#age$",
        "features=u.csv&id=who&src=one&dst=other",
    )
    assert load("features=u.csv%23age&id=who&src=one&dst=other").features.tolist() == [[30], [40], [50], [60]]


def test_the_index_of_a_parquet_table_is_no_feature():
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1, 2, 3, 4], "age": [3, 4, 5, 6], "__index_level_0__": [0, 1, 2, 3]}), "u.parquet")
    refused(r"^u\.parquet: column '__index_level_0__' has no name of its own .*u\.parquet#age$", "features=u.parquet")


# --- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("users", "words"),
    [
        (
            "1,cook\n2,baker\n3,cook\n4,baker\n",
            (
                r"^u\.csv: its first line, '1,cook', looks like data, not like names of columns: put "
                r"a line of names above it$"
            ),
        ),
        ("0.5,x,1\n1.5,y,2\n", r"^u\.csv: its first line, '0\.5,x,1', looks like data"),
        ("0,1,2\n1,7,8\n2,7,8\n", r"^u\.csv: its first line, '0,1,2', looks like numbers of columns, not like data"),
        ("id,,job\n1,3,a\n", r"^u\.csv: column '' has no name of its own"),
    ],
)
def test_a_header_that_looks_like_data_and_data_that_look_like_a_header_are_refused(users, words):
    Path("u.csv").write_text(users)
    refused(words, "features=u.csv")


def test_tables_of_text_ids_without_a_header_lose_no_vertex():
    Path("e.csv").write_text("source,target\nann,bob\nbob,eve\neve,ann\n")
    Path("y.csv").write_text("ann,red\nbob,blue\neve,red\n")
    refused(r"^y\.csv: 'ann' of its first line is also an id", "features=random:2&labels=y.csv")
    Path("y.csv").write_text("zoe,red\nann,blue\nbob,red\neve,blue\n")
    refused(r"^y\.csv: 'red' of its first line is also a class: give it a first line", "features=random:2&labels=y.csv")


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("e.csv", "-,-", r"^e\.csv: its second line, '-,-', says what columns are of, and is no data: leave it out$"),
        (
            "e.csv",
            "from,to",
            (
                r"^e\.csv: column 'source' is 'from' in its first row and numbers below: a second line "
                r"of names\? Leave it out$"
            ),
        ),
        ("u.csv", "-,years,eur,-", r"^u\.csv: row 1: column 'id' is '-'"),
    ],
)
def test_a_second_line_of_names_is_refused(file, line, words):
    header, rows = Path(file).read_text().split("\n", 1)
    Path(file).write_text(f"{header}\n{line}\n{rows}")
    refused(words)


@pytest.mark.parametrize("line", ["text,text", "STRING,varchar(20)", "str,object"])
def test_a_second_line_that_says_what_columns_are_of_is_no_edge_of_text_ids(line):
    Path("e.csv").write_text(f"source,target\n{line}\nann,bob\nbob,eve\neve,ann\n")
    refused(rf"^e\.csv: its second line, '{re.escape(line)}', says what columns are of", "features=random:2")
    # words that occur again are data
    Path("e.csv").write_text("source,target\ntext,date\nann,bob\nbob,eve\ntext,number\n")
    assert load("features=random:2").num_vertices == 6


def test_a_comment_between_rows_is_refused_as_one():
    Path("e.csv").write_text("source,target\n1,2\n# the rest\n2,3\n")
    refused(r"^e\.csv: row 2 begins with '#': comments stand above the table alone, leave it out$", "features=random:2")


def test_a_header_of_columns_without_names_is_one():
    Path("u.csv").write_text("id,0,1\n1,5,6\n2,5,6\n3,5,6\n4,5,6\n")
    assert load("features=u.csv").features.tolist() == [[5, 6]] * 4


# --- missing values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word", ["", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "\\N", "NaT"]
)
def test_words_for_nothing_are_no_class(word):
    Path("u.csv").write_text(USERS.replace("baker", word, 1).replace("cook", word, 1))
    graph = load()
    assert graph.labels.tolist() == [-1, -1, 1, 0]
    assert graph.names["classes"] == ("baker", "cook")
    assert graph.notes[-1] == f"u.csv: no label [job] in 2 rows{f' ({word!r})' if word else ''}"


def test_words_for_nothing_among_numbers_roles_and_types():
    Path("u.csv").write_text("id,y,role,age\n1,0,train,1\n2,None,None,1\n3,1,NA,1\n4,\\N,test,1\n")
    graph = load("features=u.csv&labels=u.csv%23y&split=u.csv%23role")
    assert graph.labels.tolist() == [0, -1, 1, -1]
    assert graph.split[:, 0].tolist() == [TRAIN, 0, 0, TEST]
    assert graph.notes[-2:] == ("u.csv: no label [y] in 2 rows", "u.csv: no part [role] in 1 row ('NA')")
    Path("e.csv").write_text("source,target,kind\n1,2,a\n2,3,NA\n")
    refused(
        r"^e\.csv: row 2: column 'kind' is missing \('NA'\), must be a word: every edge has a type$",
        "features=random:2&type=kind",
    )


def test_an_id_that_is_missing_is_refused_and_namibia_is_told():
    Path("e.csv").write_text("source,target\nDE,NA\nNA,FR\n")
    refused(
        r"^e\.csv: row 2: column 'source' is missing \('NA'\), must be text; --ids text takes it$", "features=random:2"
    )
    assert np.asarray(load("features=random:2&ids=text").ids).tolist() == ["DE", "FR", "NA"]
    Path("e.csv").write_text("source,target\n1,2\n,3\n")
    refused(r"^e\.csv: row 2: column 'source' is missing, must be an integer$", "features=random:2")


def test_a_dot_and_a_question_mark_are_words():
    Path("u.csv").write_text(USERS.replace("baker", ".", 1).replace("cook", "?", 1))
    assert load().names["classes"] == (".", "?", "baker", "cook")


# --- ids that do not meet ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "users", "words"),
    [
        ("U1,U2\nU2,U1\n", "u1,3\nu2,4\n", "'u1', those of edges like 'U1'"),
        ("a,b\nb,a\n", "c a,3\nc b,4\n", "'c a', those of edges like 'a'"),
        ("1.0,2.0\n2.0,1.0\n", "11,3\n12,4\n", "'11', those of edges like '1.0'"),
    ],
)
def test_a_table_none_of_whose_ids_is_in_an_edge_is_refused(edges, users, words):
    Path("e.csv").write_text(f"source,target\n{edges}")
    Path("u.csv").write_text(f"id,x\n{users}")
    refused(rf"^u\.csv: none of its 2 ids \(column 'id'\) is in an edge: they are like {words}$", "features=u.csv")


def test_ids_that_are_in_no_edge_are_counted_and_many_are_warned_of(caplog):
    Path("e.csv").write_text("source,target\n" + "".join(f"{v},{v + 1}\n" for v in range(99)))
    for apart, warned in ((0, False), (3, False), (30, True)):
        ids = [*range(100), *range(1000, 1000 + apart)]
        Path("u.csv").write_text("id,x\n" + "".join(f"{v},1\n" for v in ids))
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            graph = load("features=u.csv")
        assert graph.num_vertices == 100 + apart
        assert graph.notes[2:] == ((f"u.csv: {apart} of {100 + apart} ids in no edge",) if apart else ())
        assert bool(caplog.messages) == warned


def test_integers_that_pandas_wrote_as_floats_are_the_same_ids(tmp_path):
    Path("e.csv").write_text(EDGES.replace("1,2", "1.0,2.0").replace("2,3", "2.0,3"))
    for stream in (False, True):
        shards = prepare("e.csv?features=u.csv&labels=u.csv%23job", tmp_path / "out", stream=stream)
        assert shards.manifest.num_vertices == 4
    assert load().ids.tolist() == [1, 2, 3, 4]


def test_leading_zeros_make_another_id():
    Path("e.csv").write_text("source,target\n007,7\n7,08\n")
    assert np.asarray(load("features=random:2").ids).tolist() == ["007", "08", "7"]
    Path("e.csv").write_text("source,target\n7,8\n8,7\n")
    Path("u.csv").write_text("id,x\n007,1\n008,1\n")
    refused(r"^u\.csv: none of its 2 ids .* they are like '007', those of edges like '7'$", "features=u.csv")


def test_leading_zeros_far_down_a_file_are_refused_until_told(tmp_path):
    rows = "".join(f"{v},{v + 1}\n" for v in range(1, 30_000))
    Path("e.csv").write_text(f"source,target\n{rows}007,8\n")
    words = (
        r"^e\.csv: row 30000: column 'source' is '007', must be an integer without leading zeros; --ids text takes any$"
    )
    refused(words, "features=random:2")
    with pytest.raises(DatasetError, match=words):
        prepare("e.csv?features=random:2", tmp_path / "out", stream=True)
    assert load("features=random:2&num_vertices=30001").num_edges == 30_000
    Path("e.csv").write_text(EDGES)
    Path("u.csv").write_text("id,y\n1,01067\n2,1067\n3,1067\n4,80331\n")
    graph = load("features=random:2&labels=u.csv")
    assert (graph.labels.tolist(), graph.names["classes"]) == ([0, 1, 1, 2], ("01067", "1067", "80331"))
    Path("u.csv").write_text("id,y\n" + "".join(f"{v},{v % 3}\n" for v in range(1, 30_000)) + "30000,007\n")
    Path("e.csv").write_text(f"source,target\n{rows}")
    refused(
        r"^u\.csv: row 30000: column 'y' is '007', must be an integer without leading zeros; ",
        "features=random:2&labels=u.csv",
    )


# --- codes as classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "npy"])
@pytest.mark.parametrize(
    ("codes", "classes", "names"),
    [
        ([10115, 80331, 20095, 10115], [0, 2, 1, 0], ("10115", "20095", "80331")),
        ([1, 2, 3, 1], [0, 1, 2, 0], ("1", "2", "3")),
        ([0, 5, 0, 5], [0, 1, 0, 1], ("0", "5")),
        ([2, 1, 0, 1], [2, 1, 0, 1], ()),
        ([-1, 1, 2, -1], [-1, 0, 1, -1], ("1", "2")),
    ],
)
def test_integers_with_gaps_are_classes_by_their_rank(ending, codes, classes, names):
    Path("e.csv").write_text("source,target\n0,1\n1,2\n2,3\n3,0\n")
    if ending == "npy":
        np.save("y.npy", np.array(codes))
    else:
        Path("y.csv").write_text("id,y\n" + "".join(f"{v},{y}\n" for v, y in enumerate(codes)))
    graph = load(f"features=random:2&labels=y.{ending}")
    assert (graph.labels.tolist(), graph.names.get("classes", ())) == (classes, names)
    assert graph.num_classes == max(classes) + 1
    told = (
        f"y.{ending}: {len(names)} classes are numbered in the order of their values, {names[0]} to {names[-1]}"
        if names
        else ""
    )
    assert [note for note in graph.notes if "numbered" in note] == ([told] if told else [])


# --- how text is written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("snap.txt", "# Directed graph\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n3\t4\n4\t1\n"),
        ("blanks.txt", "1 2\n2  3\n 3   4\n4\t1 \n"),
        ("konect.txt", "% sym unweighted\n1 2\n2 3\n3 4\n4 1\n"),
        ("bars.csv", "a|b\n1|2\n2|3\n3|4\n4|1\n"),
        ("semicolons.csv", "source;target\r\n1;2\r\n2;3\r\n3;4\r\n4;1\r\n"),
        ("x.edges", "1,2\n2,3\n3,4\n4,1\n"),
        ("x.edgelist", "1 2\n2 3\n3 4\n4 1\n"),
    ],
)
def test_separators_and_comments_are_recognised(name, text):
    Path(name).write_text(text, newline="")
    graph = load("features=u.csv&labels=u.csv%23job", name)
    assert graph.ids.tolist() == [1, 2, 3, 4]
    assert list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_decimal_commas_are_refused():
    Path("u.csv").write_text("id;age\n1;0,5\n2;1,5\n3;2,5\n4;3,5\n")
    refused(r"^u\.csv: column 'age' is '0,5', a number with a decimal comma: must have a point$", "features=u.csv")


def test_decimal_commas_are_no_classes():
    Path("u.csv").write_text("id;y\n1;0,5\n2;1\n3;2,5\n4;3,5\n")
    refused(
        r"^u\.csv: column 'y' is '0,5', a number with a decimal comma: must have a point$",
        "features=random:2&labels=u.csv",
    )


def test_blanks_around_words_are_no_part_of_them():
    Path("u.csv").write_text("id,job,part\n1, cook,train \n2,cook, NA\n3, NA,test\n4,baker,val\n")
    graph = load("features=random:2&labels=u.csv%23job&split=u.csv%23part")
    assert (graph.labels.tolist(), graph.names["classes"]) == ([1, 1, -1, 0], ("baker", "cook"))
    assert graph.split[:, 0].tolist() == [TRAIN, 0, TEST, VAL]
    assert graph.notes[-2:] == ("u.csv: no label [job] in 1 row ('NA')", "u.csv: no part [part] in 1 row ('NA')")


def test_old_macs_line_ends_are_told():
    Path("e.csv").write_bytes(b"source,target\r1,2\r2,1\r")
    refused(r"^e\.csv: its lines end in CR alone: tr '\\r' '\\n' makes lines of them$")


def test_quoted_newlines_may_stand_anywhere_in_a_long_file():
    n = 30_000
    Path("e.csv").write_text("source,target\n" + "".join(f"{v},{(v + 1) % n}\n" for v in range(n)))
    Path("u.csv").write_text("id,about,x\n" + "".join(f'{v},"a\nlong ""story"", {v}",{v % 7}\n' for v in range(n)))
    assert load("features=u.csv%23x").features[:8, 0].tolist() == [0, 1, 2, 3, 4, 5, 6, 0]


def test_a_validation_split_of_words_and_notes_reach_the_shards(tmp_path):
    Path("s.csv").write_text("id,for\n1,train\n2,valid\n3,test\n4,NA\n")
    shards = prepare("e.csv?features=u.csv&labels=u.csv%23job&split=s.csv", tmp_path / "out")
    part = shards.partition(0)
    assert part.split[np.argsort(part.vertices), 0].tolist() == [TRAIN, VAL, TEST, 0]
    assert shards.names()["features"] == ("age", "income")


# --- lists of numbers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 3)])
def test_embeddings_in_a_list_column_are_features(kind, tmp_path):
    import pyarrow.parquet as pq

    rows = [[v, v + 0.5, -v] for v in (1, 2, 3, 4)]
    pq.write_table(pa.table({"id": [4, 3, 2, 1], "emb": pa.array(rows, kind), "age": [9, 8, 7, 6]}), "u.parquet")
    graph = load("features=u.parquet")
    assert graph.features.tolist() == [[*row, age] for row, age in zip(rows[::-1], (6, 7, 8, 9), strict=True)]
    assert graph.names["features"] == ("emb[0]", "emb[1]", "emb[2]", "age")
    shards = prepare("e.csv?features=u.parquet", tmp_path / "out", stream=True)
    assert shards.manifest.num_features == 4


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([[1, 2], [1, 2], [1], [1, 2]], r"row 3: column 'emb' is a list of 1, must be of 2 numbers, as those above"),
        ([[1, 2], None, [1, 2], [1, 2]], r"row 2: column 'emb' is missing, must be a list of numbers"),
        (
            [[1, 2], [1, 2], [1, None], [1, 2]],
            r"row 3: column 'emb' is a list with a missing number, must be a list of numbers",
        ),
        ([[1, 2], [1, 2], [1, 2], [1, np.nan]], r"row 4: column 'emb' is a list with nan or infinity, must be finite"),
        ([["a"], ["b"], ["c"], ["d"]], r"row 1: column 'emb' is 'a', string, must be a number"),
    ],
)
def test_lists_that_are_no_features_are_refused(values, words):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1, 2, 3, 4], "emb": values}), "u.parquet")
    refused(rf"^u\.parquet: {words}$", "features=u.parquet")


# --- partitions -------------------------------------------------------------------------------------------------------


def test_a_text_beside_tables_in_a_folder_is_no_table():
    Path("d").mkdir()
    Path("d/README.txt").write_text("what this is, and why\n")
    Path("d/part-0.csv").write_text(EDGES)
    assert resolve("d?features=u.csv%23age").load().num_edges == 4


def test_the_schema_of_a_wide_table_is_read_a_few_times(monkeypatch):
    import pyarrow.parquet as pq

    wide = {f"x{i}": [1.0, 2.0, 3.0, 4.0] for i in range(300)}
    pq.write_table(pa.table({"id": [1, 2, 3, 4], **wide}), "u.parquet")
    opened, real = [], columns._opened
    monkeypatch.setattr(columns, "_opened", lambda file: opened.append(file) or real(file))
    assert load("features=u.parquet").num_features == 300
    assert len(opened) < 30


def test_a_folder_of_hive_partitions_is_one_table(tmp_path):
    import pyarrow.parquet as pq

    edges = pa.table({"source": [1, 2, 3, 4], "target": [2, 3, 4, 1], "kind": ["likes", "likes", "knows", "a/b"]})
    pq.write_to_dataset(edges, "e", partition_cols=["kind"])
    users = pa.table(
        {"id": [1, 2, 3, 4], "age": [3, 4, 5, 6], "year": [2020, 2020, 2021, 2021], "job": ["x", "y", "x", "y"]}
    )
    pq.write_to_dataset(users, "u", partition_cols=["year", "job"])
    graph = load("features=u%23age,year&labels=u%23job&type=kind", "e")
    assert resolve("e?features=random:2").load().num_edges == 4  # the folder alone says it
    order = np.argsort(graph.src)
    assert (graph.src[order].tolist(), graph.dst[order].tolist()) == ([0, 1, 2, 3], [1, 2, 3, 0])
    assert [graph.names["edge_types"][kind] for kind in graph.edge_type[order]] == ["likes", "likes", "knows", "a/b"]
    assert graph.features.tolist() == [[3, 2020], [4, 2020], [5, 2021], [6, 2021]]
    assert [graph.names["classes"][y] for y in graph.labels] == ["x", "y", "x", "y"]


@pytest.mark.parametrize(
    ("header", "first", "why"),
    [
        ("created_at,buyer,seller", "9", "by its name, column 'created_at'"),
        ("buyer,Order Date,seller", "9", "by its name, column 'Order Date'"),
        ("when,buyer,seller", "9", "by its name, column 'when'"),
        ("moment,buyer,seller", "2024-03-01", "by its values, column 'moment'"),
        ("moment,buyer,seller", "2024-03-01T10:00:00.123Z", "by its values, column 'moment'"),
        ("moment,buyer,seller", "1/3/24 10:00 PM", "by its values, column 'moment'"),
        ("buyer,moment,seller", "31.12.2024", "by its values, column 'moment'"),
        ("t,buyer,seller", "1709287200", "by its values, column 't'"),
        ("t,buyer,seller", "1709287200000", "by its values, column 't'"),
    ],
)
def test_a_time_is_not_taken_for_a_vertex(header, first, why):
    at = 0 if header.split(",")[1] == "buyer" else 1
    rows = [[1, 2], [2, 3], [3, 4], [4, 1]]
    Path("e.csv").write_text("\n".join([header, *(",".join(map(str, [*r[:at], first, *r[at:]])) for r in rows)]) + "\n")
    refused(rf"^e\.csv: {why} is no end of an edge: say which columns are source and target, of ", "features=random:2")
    assert load("features=random:2&src=buyer&dst=seller").num_vertices == 4


def test_a_time_in_parquet_is_not_taken_for_a_vertex():
    import datetime

    import pyarrow.parquet as pq

    table = pa.table({"moment": [datetime.date(2024, 3, day) for day in (1, 2)], "buyer": [1, 2], "seller": [2, 1]})
    pq.write_table(table, "e.parquet")
    refused(r"^e\.parquet: by its values, column 'moment' is no end", "features=random:2", "e.parquet")
    assert load("features=random:2&src=moment&dst=buyer&ids=text", "e.parquet").num_edges == 2  # if it is said, it is


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_large_ids_at_both_ends_are_no_times(ending):
    import pyarrow.parquet as pq

    write = pq.write_table if ending == "parquet" else pa.csv.write_csv
    ids = [1_709_287_200, 1_709_287_201, 1_800_000_000]
    write(pa.table({"a": ids, "b": ids[::-1]}), f"big.{ending}")
    assert load("features=random:2", f"big.{ending}").num_vertices == 3
    write(pa.table({"t": ids, "b": [1, 2, 3], "c": [2, 3, 1]}), f"t.{ending}")
    refused(rf"^t\.{ending}: by its values, column 't' is no end of an edge", "features=random:2", f"t.{ending}")


def test_a_column_without_its_file_and_a_file_without_its_column_are_called_that():
    refused(r"^job: no such file; a column of a table is FILE#COLUMN$", "features=u.csv%23age&labels=job")
    words = r"^u\.csv: column 'job' is of words, must be of numbers: u\.csv#COLUMN takes one column of words$"
    refused(words, "features=u.csv%23age&labels=u.csv")


# --- what other programs write ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 11), ("float32", 24), ("float64", 53)])
def test_ids_that_their_floats_have_rounded_are_refused(dtype, digits):
    """In float32, 16777217 becomes 16777216: another vertex."""
    for top, good in ((2**digits - 1, True), (2**digits, False)):
        table = pa.table({"source": pa.array(np.array([1, top], dtype)), "target": [5, 1]})
        pa.parquet.write_table(table, "e.parquet")
        if good:
            assert load("features=random:2", "e.parquet").ids.tolist() == [1, 5, top]
        else:
            words = rf"must be an integer, not a rounded one: below 2\*\*{digits}$"
            refused(rf"^e\.parquet: row 2: column 'source' is .*, {words}", "features=random:2", "e.parquet")


@pytest.mark.parametrize("top", [2**64 - 1, 7])
def test_statistics_are_those_of_the_column_behind_columns_of_structs(top):
    """A struct has a column of statistics for each of its fields."""
    table = {"about": [{"a": 1, "b": 2**63 - 1}] * 2, "source": pa.array([top, 1], pa.uint64())}
    pa.parquet.write_table(pa.table(table | {"target": pa.array([1, 5], pa.uint64())}), "e.parquet")
    assert columns.bounds(Path("e.parquet"), "source") == (1, top)
    assert columns.bounds(Path("e.parquet"), "about") is None
    graph = load("features=random:2", "e.parquet")
    assert [int(graph.ids[v]) for v in range(3)] == [1, *sorted((5, top))]


@pytest.mark.parametrize("empty", ["parquet", "csv"])
def test_a_file_without_rows_says_nothing_of_the_type_of_ids(empty):
    """Pandas writes the columns of an empty table without a type."""
    Path("many").mkdir()
    if empty == "parquet":
        pa.parquet.write_table(pa.table({"source": pa.nulls(0), "target": pa.nulls(0)}), "many/0.parquet")
    else:
        Path("many/0.csv").write_text("source,target")  # without a line break
    Path("many/1.csv").write_text("source,target\nann,bob\n")
    graph = load("features=random:2", "many")
    assert list(np.asarray(graph.ids)) == ["ann", "bob"]


@pytest.mark.parametrize("first", ["sep=;", "\ufeffsep=;"])
def test_excels_line_of_the_separator_is_above_the_table(first):
    Path("e.csv").write_text(f"{first}\nsource;target;w\n1;2;0.5\n2;3;1\n")
    graph = load("features=random:2&weight=w")
    assert (graph.ids.tolist(), graph.weight.tolist()) == ([1, 2, 3], [0.5, 1])
    assert graph.notes[0].endswith("weights [w]; 1 line of comments above; separated by ';'")


def test_lines_that_python_has_printed_have_no_header():
    """The first edge would be lost as names of columns."""
    for begin, end in ("()", "[]"):
        Path("e.txt").write_text(f"{begin}1, 2{end}\n{begin}3, 4{end}\n")
        refused(
            r"^e\.txt: its first line, .*, looks like data, not like names of columns", "features=random:2", "e.txt"
        )


def test_a_second_byte_order_mark_is_no_part_of_a_name():
    Path("e.csv").write_bytes(b"\xef\xbb\xbf\xef\xbb\xbfsource,target,w\n1,2,1\n2,1,1\n")
    assert load("features=random:2&src=source&dst=target&weight=w").ids.tolist() == [1, 2]


def test_texts_may_be_longer_than_pythons_fields_of_csv():
    Path("u.csv").write_text(f"id,about,age\n1,{'x' * 200_000},7\n2,y,8\n3,z,9\n4,,6\n")
    assert load("features=u.csv%23age").features[:, 0].tolist() == [7, 8, 9, 6]


def test_parts_may_be_numbers_with_a_point_as_pandas_writes_them_beside_missing_ones():
    Path("s.csv").write_text("id,part\n1,1.0\n2,2.0\n3,\n4,3.\n")
    assert load("features=u.csv%23age&split=s.csv").split[:, 0].tolist() == [TRAIN, VAL, 0, TEST]


def test_an_option_that_is_there_twice_is_refused():
    refused(
        r"^edges:e\.csv has the option 'features' twice: keep one of them$", "features=random:2&features=u.csv%23age"
    )


UNSEEN = ["x\u202c", "x\u034f", "x\u2063", "x\ufe0f", "x\u3164", "x\x01", "\u2066x\u2069", "x\U000e0041"]


@pytest.mark.parametrize(("one", "other"), [*(("x", word) for word in UNSEEN), ("a b", "a\xa0b"), ("é", "e\u0301")])
def test_ids_classes_types_and_categories_that_look_alike_are_refused(one, other):
    same = rf" '{re.escape(ascii(one)[1:-1])}' and '{re.escape(ascii(other)[1:-1])}' differ only in what is not seen"
    Path("t.csv").write_text(f"source,target,kind\n{one},y,{one}\ny,{other},{other}\n", newline="")
    refused(f"^t.csv: ids{same}: make them equal; --ids text takes both$", "features=random:2", "t.csv")
    assert load("features=random:2&ids=text", "t.csv").num_vertices == 3
    Path("t.csv").write_text(f"source,target,kind\n1,2,{one}\n2,1,{other}\n", newline="")
    refused(f"^t.csv: column 'kind': types of edges:{same}: make them equal$", "features=random:2&type=kind", "t.csv")
    Path("u.csv").write_text(f"id,word\n1,{one}\n2,{other}\n3,y\n4,y\n", newline="")
    refused(f"^u.csv: column 'word': classes:{same}", "features=random:2&labels=u.csv")
    refused(f"^u.csv: column 'word': categories:{same}", "features=u.csv%23word:onehot")


def test_times_with_and_without_a_zone_are_not_compared():
    times = {"source": pa.array([0, 1], pa.timestamp("us", "UTC")), "target": pa.array([1, 0], pa.timestamp("us"))}
    pa.parquet.write_table(pa.table(times), "e.parquet")
    refused(
        r"^e\.parquet: columns 'source' and 'target' are .*, must be of one type",
        "features=random:2&src=source&dst=target",
        "e.parquet",
    )


def test_an_ending_in_capitals_is_told():
    Path("U.CSV").write_text(USERS)
    refused(r"^U\.CSV: endings are read in lower case: call it U\.csv$", "features=U.CSV")


@pytest.mark.parametrize("end", ["csv", "parquet", "npz"])
def test_differences_that_float32_rounds_away_are_told(end, caplog, tmp_path):
    """All four times would be one number, without a word."""
    begin = 1_700_000_000
    rows = [(begin + v, begin + 1000 * v, v) for v in range(4)]
    if end == "npz":
        edges = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
        np.savez("g.npz", edge_index=edges, x=np.array(rows, np.int64), y=np.array([0, 1, 0, 1]))
        source, name = "g.npz", "g: feature 0"
    else:
        table = pa.table(
            {"id": [1, 2, 3, 4], **dict(zip(("when", "later", "x"), zip(*rows, strict=True), strict=True))}
        )
        if end == "csv":
            pa.csv.write_csv(table, "t.csv")
        else:
            pa.parquet.write_table(table, "t.parquet")
        source, name = f"e.csv?features=t.{end}", f"t.{end}: feature 'when'"
    with caplog.at_level(logging.WARNING):
        prepare(source, tmp_path / "out")
    assert caplog.messages == [
        f"{name} is between 1700000000 and 1700000003, where float32 has steps of 128: subtract 1700000000 from it"
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("file", "rows", "line"), [("e.csv", "ann,bob\nbob,cleo\n", "zoe,ann\n"), ("e.csv", "1,2\n", "7,1\n")]
)
def test_a_file_that_grows_between_two_readings_is_refused(file, rows, line, stream, monkeypatch, tmp_path):
    """An id of text that came after the first reading was read as another vertex."""
    from graph_data.sources.edgelist import EdgeList

    Path(file).write_text("source,target\n" + rows)
    census = EdgeList.census

    def and_grows(self, *given):
        found = census(self, *given)
        with Path(file).open("a") as opened:
            opened.write(line)
        return found

    monkeypatch.setattr(EdgeList, "census", and_grows)
    with pytest.raises(
        DatasetError, match=r"^e\.csv: changed while it was read: start again once nothing writes to it$"
    ):
        prepare("e.csv?features=random:2", tmp_path / "out", stream=stream)


def test_a_table_of_vertices_that_grows_between_two_readings_is_refused(monkeypatch, tmp_path):
    from graph_data.sources.edgelist import EdgeList

    census = EdgeList.census

    def and_grows(self, *given):
        found = census(self, *given)
        with Path("u.csv").open("a") as opened:
            opened.write("5,1,1,cook\n")
        return found

    monkeypatch.setattr(EdgeList, "census", and_grows)
    with pytest.raises(DatasetError, match=r"^u\.csv: changed while it was read"):
        prepare("e.csv?features=u.csv&labels=u.csv%23job", tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("/dev/null", r"^/dev/null: is a pipe or device, must be a file$"),
        ("e.csv/", r"^e\.csv/: is a file, not a folder: leave out the slash$"),
        ("s3://a/e.csv", r"^s3:/+a/e\.csv: no such file; siafu opens no addresses: download it, and give its path$"),
        ("~/no-such.csv", r"^~/no-such\.csv: no such file; ~ is not replaced here: give /.*no-such\.csv$"),
    ],
)
def test_a_source_that_is_no_file_of_this_machine_is_told(name, words):
    with pytest.raises(DatasetError, match=words):
        resolve(f"{name}?features=random:2").load()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("src;dst;name,first\n1;2;Smith,Ann\n2;3;Jones,Bob\n", "src dst name,first"),
        ("a;b;name,first\n1;2;Smith,Ann\n2;3;Jones,Bob\n", "a b name,first"),
        ("a,b,tags;c;d;e\n1,2,x;y;z;w\n2,3,x;y;z;w\n", "a b tags;c;d;e"),
        ('a,b,"tags;c"\n1,2,"x;y"\n2,3,"x;y"\n', "a b tags;c"),
        ('a;b;"name,first"\n1;2;"x,y"\n2;3;"x,y"\n', "a b name,first"),
        ("a|b|name,first\n1|2|Smith,Ann\n", "a b name,first"),
        ("sep=,\na,b;c\n1,2\n2,3\n", "a b;c"),
        ("sep=;\na,b;c\n1;2\n2;3\n", "a,b c"),
    ],
)
def test_of_two_separators_in_every_line_that_is_taken_which_ends_are_without(text, names):
    """At the commas, the first column was src;dst;name."""
    Path("e.csv").write_text(text)
    assert " ".join(columns.column_names(Path("e.csv"))) == names


def test_a_text_file_of_two_separators_is_not_cut_at_commas_because_these_come_first():
    Path("e.txt").write_text("src;dst;name,first\n1;2;Smith,Ann\n2;3;Jones,Bob\n")
    assert columns.column_names(Path("e.txt")) == ["src", "dst", "name,first"]


@pytest.mark.parametrize("text", ["a,b;c\n1,2;3\nx,y;z\n", "name,first;src;dst\nSmith,Ann;1;2\nJones,Bob;2;3\n"])
def test_a_table_whose_separator_nobody_can_tell_is_refused(text):
    Path("e.csv").write_text(text)
    refused(
        r"^e\.csv: ',' and ';' may both separate its columns: a first line of sep=, or sep=; says which one does$",
        "features=random:2",
    )


@pytest.mark.parametrize(
    ("comment", "rows"),
    [
        ("# src,dst", "ann,bob\nbob,cleo\n"),  # ann and bob were names of columns, not an edge
        ("# dst,src", "1,2\n2,3\n"),  # every edge was turned round
        ("#src,dst,w", "ann,bob,x\nbob,cleo,y\n"),
    ],
)
def test_names_in_a_comment_are_refused_where_columns_would_be_taken_for_others(comment, rows):
    Path("e.csv").write_text(f"{comment}\n{rows}")
    line = rf"^e\.csv: its comment '{comment}' seems to name the columns: leave out the '#' if it does, the line if it "
    refused(line + "does not$", "features=random:2")


def test_names_in_a_comment_above_a_table_of_vertices_are_refused_too():
    Path("e.csv").write_text("source,target\nann,bob\nbob,cleo\n")
    Path("l.csv").write_text("# id,job\nzoe,cook\nann,cook\nbob,cook\ncleo,baker\n")
    refused(r"^l\.csv: its comment '# id,job' seems to name the columns", "features=random:2&labels=l.csv")
    Path("l.csv").write_text("# age,id\n1,2\n2,1\n3,3\n4,4\n")
    Path("e.csv").write_text(EDGES)
    refused(r"^l\.csv: its comment '# age,id' seems to name the columns", "features=l.csv")


@pytest.mark.parametrize(
    "text",
    [
        "# a graph\nsource,target\n1,2\n",
        "# src,dst\nsrc,dst\n1,2\n",
        "# Hello,World\nsrc,dst\n1,2\n",
        "# FromNodeId,ToNodeId\n1,2\n",
        "# made by me, 2020\na,b\n1,2\n",
    ],
)
def test_other_comments_are_no_names(text):
    Path("e.csv").write_text(text)
    assert load("features=random:2").num_edges == 1


@pytest.mark.parametrize("stream", [False, True])
def test_differences_that_float32_rounds_away_are_told_of_arrays_on_disk_and_of_labels(stream, caplog, tmp_path):
    begin = 1_700_000_000
    rows = [(v, begin + v) for v in range(4)]
    Path("n.csv").write_text("source,target\n0,1\n1,2\n2,3\n3,0\n")
    np.save("x.npy", np.array(rows, np.float64))
    Path("y.csv").write_text("id,price\n" + "".join(f"{v},{begin + v}\n" for v in range(4)))
    np.save("y.npy", np.array(rows)[:, 1].astype(np.float64))
    lost = "is between 1700000000 and 1700000003, where float32 has steps of 128: subtract 1700000000 from it"
    for source, names in (
        ("n.csv?features=x.npy", ["n: feature 1"]),
        ("n.csv?features=random:2&labels=y.csv%23price&target=numbers", ["y.csv: label 'price'"]),
        ("n.csv?features=random:2&labels=y.npy&target=numbers", ["y.npy: label 0"]),
    ):
        with caplog.at_level(logging.WARNING):
            prepare(source, tmp_path / "out", stream=stream)
        assert caplog.messages == [f"{name} {lost}" for name in names]
        caplog.clear()


def test_labels_of_arrays_that_float32_rounds_are_told(caplog, tmp_path):
    times = np.array([1_700_000_000.0, np.nan, 1_700_000_003, 1_700_000_001])
    edges = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])
    prepare(from_arrays(edges, np.eye(4), times, target="numbers"), tmp_path / "out")
    assert [message.partition(" is between")[0] for message in caplog.messages] == ["arrays: label 0"]


@pytest.mark.parametrize("types", ["likes\nlikes\nhates\nlikes", "1\n0\n1\n0"])
def test_a_table_that_grows_before_its_types_are_read_is_refused(types, monkeypatch):
    from graph_data.sources.edgelist import EdgeList

    rows = [f"{i},{(i + 1) % 4},{kind}\n" for i, kind in enumerate(types.split("\n"))]
    Path("e.csv").write_text("source,target,kind\n" + "".join(rows))
    vertices = EdgeList.vertices

    def and_changes(self, *given, **more):
        found = vertices(self, *given, **more)
        Path("e.csv").write_text("source,target,kind\n" + "".join(reversed(rows)))
        return found

    monkeypatch.setattr(EdgeList, "vertices", and_changes)
    refused(r"^e\.csv: changed while it was read", "features=random:2&type=kind")


def test_statistics_of_a_column_with_a_dot_are_not_those_of_a_leaf_of_that_path():
    """Of the struct's times, column a.b would be times too, and so no end of an edge."""
    ends = {"a.b": [1, 2, 3], "c": [2, 3, 1]}
    leaves = [{"b": 1_600_000_000 + i} for i in range(3)]
    pa.parquet.write_table(pa.table({"a": leaves, **ends}), "e.parquet")
    assert columns.bounds(Path("e.parquet"), "c") == (1, 3)
    assert columns.bounds(Path("e.parquet"), "a.b") is None
    assert load("features=random:2&src=a.b&dst=c", "e.parquet").ids.tolist() == [1, 2, 3]
    pa.parquet.write_table(pa.table(ends), "e.parquet")
    assert columns.bounds(Path("e.parquet"), "a.b") == (1, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"source":1,"target":2}\n{"source":2,"target":3}\n', "is JSON, no table"),
        ('[{"source":1,"target":2},\n{"source":2,"target":3}]\n', "is JSON, no table"),
        ("<?xml version='1.0'?>\n<edge a='1,2'/>\n", "is XML, no table"),
        ("\n <!DOCTYPE html>\n<html>\n", "is a web page, perhaps instead of the file that was asked for, no table"),
        (
            "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1\n2 3 1\n",
            "is a MatrixMarket file, .*call it .mtx",
        ),
        ("*Vertices 2\n1 2\n*Arcs\n1 2\n", "is a Pajek file, no table"),
        ("graph [\n directed 1\n", "is GML, no table"),
        ("source|target\n---|:---:\n1|2\n", r"its second line, '---\|:---:', is no data: leave it out"),
        ("| source | target |\n|---|---|\n| a | b |\n", r"its second line, '\|---\|---\|', is no data: leave it out"),
        ("3 4\n1 2\n2 3\n3 1\n1 3\n", "its first line, '3 4', seems to count vertices and edges: leave it out"),
        ("3 4\n0 1\n1 2\n2 0\n0 2\n", "its first line, '3 4', seems to count vertices and edges: leave it out"),
    ],
)
def test_lines_of_other_formats_do_not_become_edges(text, words):
    """The numbers of rows, columns and edges were an edge, and so was the rule below the names of Markdown."""
    Path("e.csv").write_text(text)
    refused(rf"^e\.csv: {words}", "features=random:2")


def test_a_first_edge_that_only_looks_like_counts_is_read():
    for rows in ("4 3\n3 2\n2 1\n1 0\n", "3 4\n1 2\n2 3\n", "0 3\n0 1\n0 2\n1 2\n"):
        Path("e.txt").write_text(rows)
        assert load("features=random:2", "e.txt").num_edges == rows.count("\n")


@pytest.mark.parametrize(("name", "other"), [("source", "Source"), ("target", "Tar-get")])
def test_two_columns_that_may_both_be_an_end_are_refused_unless_told(name, other):
    rest = "target" if name == "source" else "source"
    Path("e.csv").write_text(f"{name},{other},{rest}\n1,9,2\n2,9,3\n")
    refused(rf"^e\.csv: columns '{name}' and '{other}' may both be an end of its edges", "features=random:2")
    told = {"source": "source", "target": "target"} | {name: other}
    assert 9 in load(f"features=random:2&src={told['source']}&dst={told['target']}").ids


def test_two_columns_that_may_both_be_the_id_are_refused_where_neither_is_the_first():
    Path("u.csv").write_text("x,id,node\n7,1,1\n8,2,2\n9,3,3\n6,4,4\n")
    refused(r"^u\.csv: columns 'id' and 'node' may both be the id: id=COLUMN \(--id\) says which is$", "features=u.csv")
    assert load("features=u.csv%23x&id=id").features[:, 0].tolist() == [7, 8, 9, 6]
