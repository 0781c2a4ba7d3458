"""Graphs of DataFrames: the same as those of the CSV files written of them, or refused in one line."""

import csv
from pathlib import Path

import numpy as np
import pytest

import siafu
from graph_data.objects import graph_of
from graph_data.prepare import prepare
from graph_data.source_flags import with_options
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import Graph

pa = pytest.importorskip("pyarrow")
pytest.importorskip("narwhals")

N = 12
USERS = {
    "user": [f"ü{i:02d}" for i in range(N)],
    "age": [20.5 + i for i in range(N)],
    "posts": list(range(N)),
    "active": [i % 3 == 0 for i in range(N)],
    "job": [("cook", "bäcker", None)[i % 3] for i in range(N)],
    "level": [float(i % 2 + 1) if i % 5 else None for i in range(N)],
    "role": [("train", "val", "test")[i // 3 % 3] for i in range(N)],
}
SALES = {
    "when": ["2024-03-01"] * N,
    "buyer": [f"ü{i:02d}" for i in range(N)],
    "seller": [f"ü{(i * 5 + 1) % N:02d}" for i in range(N)],
    "price": [0.5 + i for i in range(N)],
    "kind": [("gift", "sale")[i % 2] for i in range(N)],
}
ENDS = {"source": "buyer", "target": "seller"}


def table(library, columns):
    if library == "pyarrow":
        return pa.table(columns)
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    return module.DataFrame(columns)


LIBRARIES = ["pandas", "polars", "pyarrow"]


def written(folder: Path, name: str, columns) -> Path:
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = zip(*columns.values(), strict=True)
        csv.writer(file).writerows([columns, *(["" if value is None else value for value in row] for row in rows)])
    return folder / f"{name}.csv"


def equal(one: Graph, other: Graph) -> bool:
    arrays = ("src", "dst", "weight", "edge_type", "features", "labels", "split")
    said = ("num_vertices", "num_classes", "num_edge_types", "names", "target")
    pairs = [(getattr(one, key), getattr(other, key)) for key in arrays]
    ids = (None, None) if one.ids is None or other.ids is None else (list(one.ids), list(other.ids))
    return (
        all((a is None and b is None) or np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)
        and all(getattr(one, key) == getattr(other, key) for key in said)
        and ids[0] == ids[1]
    )


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "arguments",
    [
        {"features": ["age", "posts"], "label": "job", "split": "role"},
        {"features": ["active", "age"], "label": "level"},
        {"features": "posts", "label": "active", "weight": "price"},
        {"features": "random:3", "label": ["active", "posts"], "label_kind": "numbers"},
        {"features": "age", "label": "age", "edge_type": "kind"},
    ],
)
def test_a_frame_and_the_csv_written_of_it_give_the_same_graph(library, arguments, tmp_path):
    found = siafu.from_pandas(table(library, SALES), table(library, USERS), id="user", **ENDS, **arguments)
    flags = {"label_kind": "target", "label": "labels", "edge_type": "type"}
    of_users = written(tmp_path, "users", USERS)
    options = {"src": "buyer", "dst": "seller", "id": "user"}
    for key, value in arguments.items():
        names = value if isinstance(value, str) else ",".join(value)
        is_column = key in ("features", "label", "split") and not names.startswith("random")
        options[flags.get(key, key)] = f"{of_users}#{names}" if is_column else names
    assert equal(found, resolve(with_options(str(written(tmp_path, "sales", SALES)), options)).load())


@pytest.mark.parametrize("library", LIBRARIES)
def test_notes_say_what_was_taken_for_what(library, tmp_path):
    users = {key: values for key, values in USERS.items() if key != "level"}
    users = table(library, users)
    graph = siafu.from_pandas(
        table(library, SALES), users, id="user", features=["age", "posts"], label="job", split="role", **ENDS
    )
    assert graph.notes == (
        "edges: edges from [buyer] to [seller]; not used: [when] [price] [kind]",
        "vertices: vertices by [user], features [age] [posts], labels [job], split [role]; not used: [active]",
        "vertices: no label [job] in 4 rows",
    )
    shards = prepare(graph, tmp_path / "shards")
    assert shards.names()["classes"] == ("bäcker", "cook")
    assert shards.notes() == graph.notes


def test_lazy_frames_are_read():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    graph = siafu.from_pandas(polars.DataFrame(SALES).lazy(), polars.DataFrame(USERS).lazy(), features="age", **ENDS)
    assert graph.num_edges == N


def test_a_relation_of_duckdb_is_read():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    sales, users = (duckdb.from_arrow(pa.table(columns)) for columns in (SALES, USERS))
    found = siafu.from_pandas(sales, users, features="age", label="job", **ENDS)
    assert equal(found, siafu.from_pandas(pa.table(SALES), pa.table(USERS), features="age", label="job", **ENDS))


def test_names_of_columns_may_have_commas_and_signs():
    users = {"user": USERS["user"], 'a,"b"': USERS["age"], "x#y": USERS["posts"], "p?q=1&r": USERS["posts"]}
    found = siafu.from_pandas(pa.table(SALES), pa.table(users), features=['a,"b"', "p?q=1&r"], label="x#y", **ENDS)
    assert (found.names["features"], found.num_classes) == (('a,"b"', "p?q=1&r"), N)


# --- the index of pandas ----------------------------------------------------------------------------------------------


@pytest.fixture
def pandas():
    return pytest.importorskip("pandas", reason="pandas is not installed")


def made(pandas, edges=None, users=None, **more):
    edges = pandas.DataFrame(SALES) if edges is None else edges
    users = pandas.DataFrame(USERS) if users is None else users
    return siafu.from_pandas(edges, users, **{"features": "age", "label": "job", **ENDS, **more})


def test_an_index_with_a_name_is_a_column(pandas):
    users = pandas.DataFrame(USERS).set_index("user")
    assert equal(made(pandas, users=users), made(pandas, id="user"))
    numbered = pandas.DataFrame(USERS).drop(columns="user").rename_axis("who")  # a RangeIndex
    edges = pandas.DataFrame({"buyer": range(N), "seller": [(i + 1) % N for i in range(N)]}).rename_axis("sale")
    graph = siafu.from_pandas(edges, numbered, features="age")
    assert graph.notes[0] == "edges: edges from [buyer] to [seller]; not used: [sale]"
    assert graph.features[:, 0].tolist() == USERS["age"]
    pairs = pandas.DataFrame(SALES).groupby(["buyer", "seller"])[["price"]].sum()
    assert made(pandas, edges=pairs, weight="price").num_edges == N


def test_a_warning_names_no_folder_that_is_gone(pandas, caplog):
    made(pandas, edges=pandas.DataFrame(SALES).iloc[:2], id="user")
    assert any(record.getMessage().startswith("vertices.parquet: ") for record in caplog.records)


def test_an_index_without_a_name_is_not_read(pandas):
    shuffled = np.random.default_rng(0).permutation(N)
    users, edges = pandas.DataFrame(USERS).iloc[shuffled], pandas.DataFrame(SALES).iloc[::-1]
    assert made(pandas, edges=edges, users=users, id="user").features[:, 0].tolist() == USERS["age"]
    nodes = users.rename(columns={"user": "node_id"})
    assert made(pandas, users=nodes).features[:, 0].tolist() == USERS["age"]


def test_an_index_that_may_be_ids_is_refused_until_it_has_a_name(pandas):
    users = pandas.DataFrame(USERS).set_index("user").rename_axis(None)
    words = (
        r"^vertices: its index is not 0, 1, 2, \.\.\. and has no name: rename_axis\('id'\) makes a column of it, "
        r"id=COLUMN says which column it is$"
    )
    with pytest.raises(DatasetError, match=words):
        made(pandas, users=users)
    assert made(pandas, users=users.rename_axis("id")).num_vertices == N
    pairs = pandas.DataFrame(SALES).set_index(["buyer", "seller"]).rename_axis([None, None])
    with pytest.raises(DatasetError, match=r"^edges: its index is not 0, 1, 2, .* reset_index\(drop=True\) drops it$"):
        made(pandas, edges=pairs)


def test_mixed_values_of_a_column_that_is_not_used_do_no_harm(pandas):
    users = pandas.DataFrame({**USERS, "mixed": [1, "x"] * (N // 2)})
    assert made(pandas, users=users).num_features == 1
    with pytest.raises(
        DatasetError, match=r"^vertices: column 'mixed' is text, must be a number: features=\['\*', 'mixed:onehot'\] m"
    ):
        made(pandas, users=users, features="mixed")


def test_columns_that_are_called_by_numbers(pandas):
    users = pandas.DataFrame({0: USERS["user"], 1: USERS["age"], 2: USERS["job"]})
    assert made(pandas, users=users, id=0, features=[1], label=2).features[:, 0].tolist() == USERS["age"]
    assert made(pandas, features=pandas.Index(["age"])).num_features == 1


def test_integers_that_are_too_large_are_text(pandas):
    large = [2**70 + i for i in range(N)]
    edges = pandas.DataFrame({"buyer": large, "seller": large[1:] + large[:1]})
    graph = made(pandas, edges=edges, users=pandas.DataFrame({**USERS, "user": large}))
    assert graph.ids[0] == str(2**70)


def test_sparse_columns_of_pandas_are_dense(pandas):
    """``get_dummies(sparse=True)`` makes such, which Arrow has no type for."""
    edges = pandas.DataFrame({"source": [0, 1], "target": [1, 0]})
    dummies = pandas.get_dummies(pandas.Series(["a", "b"]), sparse=True, dtype=float)
    graph = siafu.from_pandas(edges, dummies.assign(id=[0, 1]), id="id")
    assert (graph.features.tolist(), graph.names["features"]) == ([[1, 0], [0, 1]], ("a", "b"))


def test_categories_are_read_as_their_values(pandas):
    users = pandas.DataFrame(USERS).astype({"job": "category", "user": "category", "posts": "category"})
    assert equal(made(pandas, users=users, features="posts"), made(pandas, features="posts"))


# --- refused in one line ----------------------------------------------------------------------------------------------


IN_ORDER = USERS["user"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"user": ["ü00"] * N}, r"row 2: vertex ü00 is there twice$"),
        ({"user": ["ü00", None, *IN_ORDER[2:]]}, r"row 2: column 'user' is missing, must be text$"),
        ({"user": range(N)}, r"column 'user' is int64, must be text, as the other ids are; ids='text' takes any$"),
        (
            {"age": [None, *range(N - 1)]},
            r"row 1: .* is missing, must be a number: fill it in, or features=\['-age'\] leaves the",
        ),
        ({"age": [float("inf"), *range(N - 1)]}, r"row 1: column 'age' is inf, must be finite$"),
        (
            {"age": ["ten"] * N},
            r"column 'age' is text, must be a number: .* each word, features=\['-age'\] leaves it out$",
        ),
        (
            {"age": ["train", "test"] * (N // 2)},
            r"column 'age' is a split by its values: split=\['age'\] makes a split of it, features=\['-age'\] leaves",
        ),
        ({"age": None}, r"has no column 'age', only user, posts, "),
        ({"role": ["some"] * N}, r"row 1: column 'role' is 'some', must be train, val"),
    ],
)
def test_a_table_that_is_no_good_is_refused_in_one_line(change, words):
    users = {key: values for key, values in {**USERS, **change}.items() if values is not None}
    with pytest.raises(DatasetError, match=rf"^vertices: {words}") as caught:
        siafu.from_pandas(
            pa.table(SALES), pa.table(users), id="user", features="age", label="job", split="role", **ENDS
        )
    assert "\n" not in str(caught.value)
    assert "siafu-frames-" not in str(caught.value)


def test_a_column_without_a_name_is_refused(pandas):
    users = pandas.DataFrame(USERS)[["user", "age", "posts"]].rename(columns={"age": ""})
    words = r"^vertices: column '' has no name of its own .*: say which columns to take, features=\['posts'\]$"
    with pytest.raises(DatasetError, match=words):
        siafu.from_pandas(pandas.DataFrame(SALES), users, **ENDS)


def test_what_is_no_table_is_refused():
    with pytest.raises(DatasetError, match=r"^edges: builtins\.dict is no table: must be a DataFrame of pandas or pol"):
        siafu.from_pandas(SALES, pa.table(USERS))
    with pytest.raises(DatasetError, match=r"^edges: has no columns, must have two"):
        siafu.from_pandas(pa.table({}), pa.table(USERS))
    with pytest.raises(DatasetError, match=r"^frames: label 'job' is a column of vertices: give this table$"):
        siafu.from_pandas(pa.table(SALES), label="job")
    empty = {key: pa.array([], pa.string()) for key in USERS}
    with pytest.raises(DatasetError, match=r"^vertices: has no features of vertex ü00 and 11 more, which edges or"):
        siafu.from_pandas(pa.table(SALES), pa.table(empty), id="user", features="age", **ENDS)
    with pytest.raises(
        DatasetError, match=r"^frames: nothing of vertices is used: features are random:4, and no label"
    ):
        siafu.from_pandas(pa.table(SALES), pa.table(USERS), features="random:4", **ENDS)
    with pytest.raises(DatasetError, match=r"^edges: has no features: "):
        siafu.from_pandas(pa.table(SALES), **ENDS)
    with pytest.raises(DatasetError, match=r"is a table, no graph: siafu\.from_pandas\(edges, vertices\) makes one"):
        graph_of(pa.table(SALES))
    with pytest.raises(
        DatasetError, match=r"^edges: by its name, column 'when' is no end .*: source=COLUMN and target="
    ):
        siafu.from_pandas(pa.table(SALES), pa.table(USERS))


def test_columns_of_pandas_that_no_number_stands_for_are_refused(pandas):
    for column in (
        pandas.period_range("2024-01", periods=N, freq="M"),
        pandas.to_timedelta(range(N), unit="h"),
        pandas.date_range("2024-01-01", periods=N),
    ):
        with pytest.raises(DatasetError, match=r"^vertices: .*column 'odd' is .*, must be a number$"):
            made(pandas, users=pandas.DataFrame({**USERS, "odd": column}), features="odd")
    twice = pandas.DataFrame(USERS)
    with pytest.raises(DatasetError, match=r"^vertices: Expected unique column names"):
        made(pandas, users=pandas.concat([twice, twice], axis=1))


@pytest.mark.parametrize("ends", [{}, {"source": "seller", "target": "buyer"}, {"source": "seller", "target": "when"}])
def test_columns_exchanged_since_the_training_are_refused_instead_of_turning_edges_round(ends, tmp_path):
    """Files of these columns are read as the run's were (test_features_as)."""
    sales = {name: SALES[name] for name in ("seller", "buyer", "when")}
    users = {name: USERS[name] for name in ("user", "age")}
    sales["when"] = sales["buyer"]
    first = prepare(siafu.from_pandas(pa.table(SALES), pa.table(users), **ENDS), tmp_path / "first")
    turned = siafu.from_pandas(pa.table(sales), pa.table(users), **ends)
    with pytest.raises(
        DatasetError,
        match=r"^frames: its edges go from column 'seller' to '(buyer|when)', those of .*first from 'buyer' to "
        r"'seller': siafu\.from_pandas\(\.\.\., source='buyer', target='seller'\) makes them alike$",
    ):
        prepare(turned, tmp_path / "out", features_as=first.path)
    again = siafu.from_pandas(pa.table(sales), pa.table(users), **ENDS)
    found = prepare(again, tmp_path / "again", features_as=first.path)
    for name in ("in_indptr", "in_indices"):
        one, other = (np.load(shards.path / "part-000" / f"{name}.npy") for shards in (first, found))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("what", ["label", "features"])
def test_periods_and_durations_are_no_words(what):
    """A month was a class called 600, the months since 1970; a second one of 1000000."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    edges = pa.table({"source": [1, 2], "target": [2, 1]})
    for values in (pd.period_range("2020-01", periods=2, freq="M"), pd.to_timedelta([1, 2], "s")):
        vertices = pd.DataFrame({"id": [1, 2], "x": [1.0, 2.0], "when": values})
        chosen = {"label": "when", "features": "x"} if what == "label" else {"features": "when:onehot"}
        with pytest.raises(
            DatasetError, match=r"^vertices: column 'when' is .*, must be (a word|numbers).*: as text, periods and"
        ):
            siafu.from_pandas(edges, vertices, **chosen)


def test_names_of_columns_may_be_texts_and_numbers():
    """Where warnings are errors, pyarrow's was one."""
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    edges = pa.table({"source": [1, 2], "target": [2, 1]})
    graph = siafu.from_pandas(edges, pd.DataFrame({"id": [1, 2], 7: [5.0, 6.0]}))
    assert graph.features[:, 0].tolist() == [5, 6]
