"""Tables of a user's own, from the command line to a run, its config, its continuation and its predictions."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import siafu
from run_coordinator import prepared, run_config
from siafu.__main__ import main
from siafu.config import load
from siafu.errors import ConfigError
from siafu.shards import ShardSet

pytest.importorskip("pyarrow")

JOBS = ("baker", "cook", "smith")
FLAGS = ["--features", "users.csv#age,posts", "--labels", "users.csv#job", "--split", "users.csv#role"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    users = [f"u{i:02d}" for i in range(60)]
    rows = [
        [user, JOBS[i % 3], ("train", "val", "test")[i // 3 % 3], i % 3 + rng.normal() / 4, -(i % 3), "x"]
        for i, user in enumerate(users)
    ]
    write("users.csv", ["user_id", "job", "role", "age", "posts", "country"], rows)
    ends = [(i, (i + 3 * step) % 60) for i in range(60) for step in (1, 2)]
    write("sales.csv", ["buyer", "seller", "when"], [[users[a], users[b], "2024-03-01"] for a, b in ends])
    return tmp_path


def write(name: str, header: list[str], rows: list[list[object]]) -> None:
    with Path(name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def test_tables_are_trained_on_as_they_are_prepared(folder, capsys):
    assert main(["train", "sales.csv", *FLAGS, "--epochs", "3", "--run-dir", "run", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["notes"] == [
        "sales.csv: edges from [buyer] to [seller]; not used: [when]",
        "users.csv: vertices by [user_id], features [age] [posts], labels [job], split [role]; not used: [country]",
    ]
    source = load("run/config.toml").data.source
    assert source.startswith(f"edges:{folder}/sales.csv?")
    again = ["train", "--config", "run/config.toml", "--features", "users.csv#posts", "--run-dir", "again", "--quiet"]
    assert main(again) == 0
    assert ShardSet.open(prepared.shards_of(load("again/config.toml"))).manifest.num_features == 1


def test_labels_of_one_class_are_told_of(folder, capsys):
    flags = ["--features", "users.csv#age,posts", "--labels", "users.csv#country"]
    assert main(["train", "sales.csv", *flags, "--epochs", "1", "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)["notes"]
    assert told[-1] == "all labels are of one class: every prediction will be that class, and right"


@pytest.mark.long
def test_a_run_on_tables_goes_on_and_predicts_another_graph(folder, monkeypatch, capsys):
    assert main(["train", "sales.csv", *FLAGS, "--epochs", "3", "--run-dir", "run", "--quiet"]) == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert main(["resume", "../run", "--epochs", "5", "--quiet"]) == 0
    assert json.loads((folder / "run/result.json").read_text())["epochs"] == 5
    monkeypatch.chdir(folder)
    write("new.csv", ["buyer", "seller"], [["a", "b"], ["b", "c"]])
    write("new_users.csv", ["user_id", "posts", "age"], [["a", 0, 0], ["b", -1, 1], ["c", -2, 2]])
    assert main(["predict", "run", "--graph", "new.csv", "--features", "new_users.csv", "--out", "p.csv"]) == 0
    with Path("p.csv").open() as file:
        assert [row[0] for row in csv.reader(file)] == ["id", "a", "b", "c"]
    capsys.readouterr()
    assert main(["predict", "run", "--features", "new_users.csv"]) == 2
    assert "--features: is for another graph: give it by --graph" in capsys.readouterr().err


@pytest.mark.long
def test_another_graph_is_read_as_the_runs_tables_were(capsys):
    """Without a word, the first two columns would be the ends: of the run, they were the first and the third."""
    write("calls.csv", ["who", "when", "whom"], [[f"u{i:02d}", i, f"u{(i + 3) % 60:02d}"] for i in range(60)])
    columns = ["--src", "who", "--dst", "whom", "--id", "user_id"]
    assert main(["train", "calls.csv", *columns, *FLAGS, "--epochs", "1", "--run-dir", "run", "--quiet"]) == 0
    write("new.csv", ["who", "when", "whom"], [["a", "x", "b"], ["b", "y", "c"]])
    write("new_users.csv", ["posts", "age", "user_id"], [[0, 0, "a"], [-1, 1, "b"], [-2, 2, "c"]])
    capsys.readouterr()
    asked = ["predict", "run", "--graph", "new.csv", "--features", "new_users.csv", "--out", "p.csv"]
    assert main(asked) == 0
    assert "new.csv: edges from [who] to [whom]; not used: [when]" in capsys.readouterr().err
    with Path("p.csv").open() as file:
        assert [row[0] for row in csv.reader(file)] == ["id", "a", "b", "c"]
    assert main([*asked, "--dst", "when", "--quiet"]) == 2  # told otherwise: x and y are no users
    in_memory = siafu.from_arrays(np.array([[0, 1], [1, 0]]), np.eye(2))
    assert len(siafu.predict("run", graph=in_memory).classes) == 2


def test_categories_and_columns_are_remembered_for_predictions(capsys):
    flags = ["--features", "users.csv#-country", "--labels", "users.csv#job", "--split", "users.csv#role"]
    assert main(["train", "sales.csv", *flags, "--epochs", "1", "--run-dir", "plain", "--quiet"]) == 0
    flags[1] = "users.csv#*,country:onehot"
    assert main(["train", "sales.csv", *flags, "--epochs", "1", "--run-dir", "run", "--quiet"]) == 0
    capsys.readouterr()
    write("new.csv", ["buyer", "seller"], [["a", "b"], ["b", "c"]])
    rows = [["a", "text", 0, 0, "x"], ["b", "", -1, 1, "new"], ["c", "other", -2, 2, ""]]
    write("new_users.csv", ["user_id", "about", "posts", "age", "country"], rows)
    assert main(["predict", "run", "--graph", "new.csv", "--features", "new_users.csv", "--out", "p.csv"]) == 0
    said = capsys.readouterr().err
    assert "features [age] [posts] [country:onehot]; not used: [about]" in said
    assert re.search("unknown to .*run, and 0 in all columns: 'country=new' in 1 row\n", said)
    with pytest.warns(UserWarning, match="0 in all columns: 'country=new' in 1 row"):
        found = siafu.predict("run", graph="edges:new.csv?features=new_users.csv")
    assert found.result["notes"]
    assert main(["predict", "plain", "--graph", "new.csv", "--features", "new_users.csv", "--out", "p.csv"]) == 0


def test_split_is_a_number_of_one_or_a_file_of_them():
    files = {"features": "users.csv#age", "labels": "users.csv#job"}
    found = run_config.resolve("sales.csv", None, None, {**files, "split": "2"})
    assert (found.data.split, "split=" in found.data.source) == (2, False)
    found = run_config.resolve("sales.csv", None, None, {**files, "split": "users.csv#role"})
    assert (found.data.split, found.data.source.partition("&split=")[2]) == (0, "users.csv#role")


def test_options_of_files_are_refused_for_a_graph_in_memory():
    graph = siafu.from_arrays(np.array([[0, 1], [1, 0]]), np.eye(2))
    for call in (siafu.train, lambda *a, **k: siafu.repeat(*a, runs=1, **k)):
        with pytest.raises(ConfigError, match=r"^labels: is for a source that is read from files, and the graph is in"):
            call(graph, labels="users.csv#job")


def test_a_search_over_a_table_with_many_columns_has_a_short_name(folder):
    columns = ",".join(f"a_rather_long_name_of_column_{i}" for i in range(20))
    users = [[f"u{i:02d}", *range(20)] for i in range(60)]
    write("wide.csv", ["user_id", *columns.split(",")], users)
    runs = siafu.repeat(
        "sales.csv", runs=1, epochs=1, features=f"wide.csv#{columns}", labels="users.csv#job", split="users.csv#role"
    )
    assert runs.dir.name.startswith("sales-gcn-seeds-")
