"""Columns of categories and columns that are left out; and how a second table is read as the first was."""

import csv
from pathlib import Path

import numpy as np
import pytest

import siafu
from graph_data.prepare import cached, prepare
from graph_data.sources.names import resolve
from siafu.__main__ import main
from siafu.errors import DatasetError
from siafu.shards import ShardSet
from tests.graph_data.test_standard import features_of

pa = pytest.importorskip("pyarrow")

OPTIONS = {"partitioner": "chunk", "order": "given"}
EDGES = "source,target\n1,2\n2,3\n3,4\n4,1\n"
BRANDS = ("acme", "zeta", "", "acme")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("e.csv").write_text(EDGES)
    users()
    return tmp_path


def users(name="u.csv", brands=BRANDS, sizes=("1", "2.0", "1.0", "NA"), **more):
    columns = {"id": range(1, 5), "age": (30, 40, 50, 60), "brand": brands, "size": sizes, "job": "abab", **more}
    with Path(name).open("w", newline="") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])


def load(features, labels="&labels=u.csv%23job"):
    return resolve(f"e.csv?features={features.replace('#', '%23')}{labels}").load()


def refused(words, features, labels="&labels=u.csv%23job"):
    with pytest.raises(DatasetError, match=words) as caught:
        load(features, labels)
    assert "\n" not in str(caught.value)


# --- which columns ----------------------------------------------------------------------------------------------------


def test_categories_become_columns_of_0_and_1():
    graph = load("u.csv#brand:onehot,age")
    assert graph.names["features"] == ("brand=acme", "brand=zeta", "age")
    assert graph.features.tolist() == [[1, 0, 30], [0, 1, 40], [0, 0, 50], [1, 0, 60]]
    assert graph.notes[1:3] == (
        "u.csv: vertices by [id], features [brand:onehot] [age], labels [job]; not used: [size]",
        "u.csv: [brand] is 2 columns of 0 and 1, all 0 in 1 row without any",
    )


def test_numbers_are_categories_by_their_digits():
    graph = load("u.csv#size:onehot")
    assert graph.names["features"] == ("size=1", "size=2")
    assert graph.features.tolist() == [[1, 0], [0, 1], [1, 0], [0, 0]]
    assert graph.notes[2] == "u.csv: [size] is 2 columns of 0 and 1, all 0 in 1 row without any ('NA')"


def test_a_negative_zero_is_the_category_zero():
    users(sizes=("-0.0", "0", "-0", "0.0"))
    assert load("u.csv#size:onehot").names["features"] == ("size=0",)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("-brand", ("age", "size")),
        ("-brand,-size", ("age",)),
        ("*,brand:onehot,-size", ("age", "brand=acme", "brand=zeta")),
        ("-size,brand:onehot", ("age", "brand=acme", "brand=zeta")),
        ("age", ("age",)),
    ],
)
def test_columns_are_taken_or_left_out(chosen, names):
    users(sizes=(1, 2, 3, 4))
    assert load(f"u.csv#{chosen}").names["features"] == names


def test_a_column_with_such_a_name_is_that_column():
    users(**{"-brand": (1, 2, 3, 4), "brand:onehot": (5, 6, 7, 8), "*": (9, 9, 9, 9)})
    assert load("u.csv#-brand,brand:onehot,*").features.tolist() == [[1, 5, 9], [2, 6, 9], [3, 7, 9], [4, 8, 9]]


@pytest.mark.parametrize(
    ("features", "words"),
    [
        ("u.csv", r"^u\.csv: column 'brand' is 'acme', must be a number: #\*,brand:onehot .*, #-brand leaves it out$"),
        ("u.csv#-nosuch", r"^u\.csv: has no column '-nosuch', only id, age, brand, size, job$"),
        ("u.csv#nosuch:onehot", r"^u\.csv: has no column 'nosuch', only id, age, brand, size, job$"),
        ("u.csv#brand:onehot,-brand", r"^u\.csv: column 'brand' is there twice in #brand:onehot,-brand$"),
        ("u.csv#age,age", r"^u\.csv: column 'age' is there twice in #age,age$"),
        ("u.csv#-age,-brand,-size", r"^u\.csv: its columns are .*: must be an id and at least one value"),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen_is_refused(features, words):
    refused(words, features)


def test_labels_and_splits_have_no_categories_of_their_own():
    refused(
        r"^u\.csv#job:onehot: :onehot is for features: labels are classes", "u.csv#age", "&labels=u.csv%23job:onehot"
    )


def test_too_many_categories_are_refused_and_none(monkeypatch):
    users(brands=("", "NA", "", ""))
    refused(r"^u\.csv: column 'brand' has no category: #-brand leaves it out$", "u.csv#age,brand:onehot")
    users()
    monkeypatch.setattr("graph_data.sources.onehot.MAX_CATEGORIES", 1)
    refused(r"^u\.csv: column 'brand' has 2 categories, must have <= 1: #-brand leaves it out$", "u.csv#brand:onehot")


@pytest.mark.parametrize("stream", [False, True])
def test_on_disk_they_are_the_same(stream, tmp_path):
    shards = prepare(
        "e.csv?features=u.csv%23*,brand:onehot,-size&labels=u.csv%23job", tmp_path / "out", stream=stream, **OPTIONS
    )
    assert features_of(shards).tolist() == [[30, 1, 0], [40, 0, 1], [50, 0, 0], [60, 1, 0]]
    assert shards.names()["features"] == ("age", "brand=acme", "brand=zeta")
    assert shards.names()["columns"] == ("age", "brand:onehot")


@pytest.mark.parametrize("dictionary", [False, True])
def test_a_frame_has_the_categories_of_its_csv(dictionary):
    brand = pa.array([word or None for word in BRANDS])
    table = pa.table(
        {"id": [1, 2, 3, 4], "brand": brand.dictionary_encode() if dictionary else brand, "size": [1.0, 2.0, 1.0, None]}
    )
    edges = pa.table({"source": [1, 2, 3, 4], "target": [2, 3, 4, 1]})
    graph = siafu.from_pandas(edges, table, features=["brand:onehot", "size:onehot"])
    of_csv = load("u.csv#brand:onehot,size:onehot", "")
    np.testing.assert_array_equal(graph.features, of_csv.features)
    assert graph.names == of_csv.names


# --- a second table ---------------------------------------------------------------------------------------------------


@pytest.fixture
def first(tmp_path):
    return prepare("e.csv?features=u.csv%23brand:onehot,age&labels=u.csv%23job", tmp_path / "first", **OPTIONS).path


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("chosen", ["", "%23age,brand:onehot"])
def test_categories_of_another_table_are_those_of_the_run(chosen, stream, first, tmp_path):
    users("new.csv", ("nova", "acme", "", "nova"), text="abcd")
    found = prepare(f"e.csv?features=new.csv{chosen}", tmp_path / "out", features_as=first, stream=stream, **OPTIONS)
    assert found.names()["features"] == ("brand=acme", "brand=zeta", "age")
    assert features_of(found).tolist() == [[0, 0, 30], [1, 0, 40], [0, 0, 50], [0, 0, 60]]
    assert found.notes()[-2:] == (
        f"e: feature columns are taken by name, in the order of {first}",
        f"e: unknown to {first}, and 0 in all columns: 'brand=nova' in 2 rows",
    )


def test_a_table_in_memory_too(first, tmp_path):
    edges = pa.table({"source": [1, 2], "target": [2, 1]})
    table = pa.table({"id": [1, 2], "age": [30, 40], "brand": ["zeta", "nova"]})
    graph = siafu.from_pandas(edges, table, features=["*", "brand:onehot"])
    found = prepare(graph, tmp_path / "out", features_as=first, **OPTIONS)
    assert features_of(found).tolist() == [[0, 1, 30], [0, 0, 40]]


def test_a_table_without_the_column_is_refused(first, tmp_path):
    Path("new.csv").write_text("id,age,other\n1,1,a\n2,2,b\n3,3,c\n4,4,d\n")
    words = r"new\.csv: has no feature column 'brand:onehot', which .*first was made with, only 'id', 'age', 'other'$"
    with pytest.raises(DatasetError, match=words):
        prepare("e.csv?features=new.csv", tmp_path / "out", features_as=first, **OPTIONS)
    words = r"^e: has no feature column 'brand=acme', 'brand=zeta', which .*first was made with, only 'age'$"
    with pytest.raises(DatasetError, match=words):
        prepare("e.csv?features=new.csv%23age", tmp_path / "out", features_as=first, **OPTIONS)


def test_other_columns_of_a_table_may_hold_anything(tmp_path):
    first = prepare("e.csv?features=u.csv%23age&labels=u.csv%23job", tmp_path / "first", **OPTIONS).path
    found = ShardSet.open(cached("e.csv?features=u.csv", features_as=first, cache_dir=tmp_path / "cache", **OPTIONS))
    assert features_of(found).tolist() == [[30], [40], [50], [60]]
    assert found.notes()[1] == "u.csv: vertices by [id], features [age]; not used: [brand] [size] [job]"


def test_times_in_front_of_the_columns_of_the_run_are_no_question(tmp_path):
    """The run's columns are source and target, so nobody has to say which are."""
    Path("sales.csv").write_text("buyer,seller\n1,2\n2,3\n3,4\n4,1\n")
    Path("new.csv").write_text("time,seller,buyer\n1700000000,2,1\n1700000001,3,2\n1700000002,4,3\n")
    first = prepare("sales.csv?features=u.csv%23age", tmp_path / "first", **OPTIONS).path
    given = ["prepare", "new.csv", "--features", "u.csv", "--features-as", str(first)]
    assert main([*given, "--inspect"]) == 0
    assert main([*given, "--directed", "--out", "out"]) == 0
    assert ShardSet.open("out").notes()[0] == "new.csv: edges from [buyer] to [seller]; not used: [time]"
