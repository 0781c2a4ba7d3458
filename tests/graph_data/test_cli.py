"""``siafu prepare`` as it is typed."""

import argparse
import json
from dataclasses import asdict

import numpy as np
import pytest

from graph_data.cli import add_arguments
from graph_data.options import Options
from graph_data.prepare import prepare
from graph_data.source_flags import with_options
from siafu.__main__ import main
from siafu.errors import ConfigError


@pytest.fixture
def edges(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "edges.csv"
    path.write_text("a,b,w\n1,2,0.5\n2,3,1\n3,1,2\n")
    (tmp_path / "y.csv").write_text("id,y\n1,0\n2,1\n3,1\n")
    return path


def test_flags_of_an_edge_list_are_options_of_its_name():
    flags = {"src": "a", "num-vertices": "9", "labels": "my labels.csv", "dst": None}
    assert with_options("e.csv", flags) == "edges:e.csv?src=a&num_vertices=9&labels=my+labels.csv"
    assert with_options("e.csv?dst=b", {"src": "a"}) == "edges:e.csv?dst=b&src=a"
    assert with_options("digits", {"src": None}) == "digits"


def test_flags_of_an_edge_list_are_refused_elsewhere():
    with pytest.raises(ConfigError, match=r"^--num-vertices is for edge lists, and 'g\.npz' is none$"):
        with_options("g.npz", {"features": "x.npy", "num-vertices": "9"})
    with pytest.raises(ConfigError, match=r"^--target is for graphs that are read, and 'digits' is made$"):
        with_options("digits", {"target": "classes"})
    assert with_options("g.npz", {"target": "classes"}) == "g.npz?target=classes"


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_an_edge_list_is_prepared_and_the_estimate_said_first(stream, edges, tmp_path, capsys):
    labels = ["--labels", str(tmp_path / "y.csv"), "--weight", "w", "--features", "random:4"]
    assert main(["prepare", str(edges), "--out", str(tmp_path / "out"), "--json", *labels, *stream]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["num_vertices"], result["num_edges"], result["num_classes"], result["weighted"]) == (3, 6, 2, True)
    assert result["estimate"]["on_disk"] == bool(stream)
    assert err.splitlines()[1].startswith("estimate: 3 edges, about ")


@pytest.mark.parametrize("name", ["FOLDER/x.npz", "x"])
def test_features_and_target_of_a_file_can_be_said_on_the_command_line(name, tmp_path, monkeypatch, capsys):
    arrays = {"edge_index": np.array([[0, 1, 2], [1, 2, 0]]), "y": np.eye(3), "num_nodes": 3, "num_classes": 3}
    np.savez(tmp_path / "x.npz", **arrays)
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path))
    source, out = name.replace("FOLDER", str(tmp_path)), ["--out", str(tmp_path / "out"), "--json"]
    for flags, words in (
        ([], "x.npz: has no features: name a file of them, or say random:32"),
        (["--features", "random:5"], "x.npz: y is all 0 and 1, in float64 [3, 3]: are these classes?"),
    ):
        assert main(["prepare", source, *flags, *out]) == 2
        assert words in capsys.readouterr().err.splitlines()[-1]
    assert main(["prepare", source, "--features", "random:5", "--target", "classes", *out]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["num_features"], said["random_features"], said["target"], said["num_classes"]) == (
        5,
        True,
        "classes",
        3,
    )


def test_a_bad_limit_is_the_users_mistake(edges, tmp_path, capsys):
    assert (
        main(["prepare", str(edges), "--out", str(tmp_path / "out"), "--features", "random:32", "--memory", "lots"])
        == 2
    )
    assert capsys.readouterr().err.endswith(
        "siafu prepare: memory limit 'lots' is no size: write 6GiB, 500MB or a number of bytes\n"
    )


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], ("none", -1)),
        (["--inductive"], ("inductive", 0)),
        (["--inductive", "0"], ("inductive", 0)),
        (["--task", "link", "--val-edges", "0.2", "--negatives", "2", "--eval-negatives", "3"], ("links", -1)),
    ],
    ids=str,
)
def test_flags_say_what_is_predicted(flags, expected, tmp_path, capsys):
    source = "synthetic:typed?vertices=100&relations=1&degree=6"
    assert main(["prepare", source, "--out", str(tmp_path / "out"), "--json", *flags]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert (result["edge_types"], result["inductive_split"]) == expected
    assert ("links: " in err) == (expected[0] == "links")


def test_defaults_of_flags_are_those_of_python():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = vars(parser.parse_args(["digits", "--out", "x"]))
    python = prepare.__kwdefaults__
    assert {key: args[key] for key in python if key in args and key != "stream"} == {
        key: value for key, value in python.items() if key in args and key != "stream"
    }
    assert asdict(Options()).items() <= python.items()


def test_an_option_that_is_said_again_replaces_the_one_of_the_name():
    assert with_options("edges:e.csv?src=a&labels=y.csv#b", {"labels": "z.csv"}) == "edges:e.csv?src=a&labels=z.csv"
    assert with_options("g.npz?target=numbers", {"target": "classes"}) == "g.npz?target=classes"


def test_flags_of_files_are_refused_for_prepared_shards(edges, tmp_path):
    prepare(f"{edges}?features=random:2&labels={tmp_path / 'y.csv'}", tmp_path / "shards")
    with pytest.raises(ConfigError, match=r"^--labels is for graphs that are prepared now, and .* is prepared"):
        with_options(str(tmp_path / "shards"), {"labels": "y.csv"})
