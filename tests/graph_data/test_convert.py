"""``siafu convert`` as it is typed, and what every converter says."""

import json
from dataclasses import replace

import numpy as np
import pytest

from graph_data.convert import convert, loaded
from graph_data.counts import counts_of
from graph_data.masks import masks_of, split_of
from graph_data.prepare import prepare
from graph_data.sinks import SINKS
from siafu.__main__ import main
from siafu.errors import ConfigError, DatasetError
from siafu.graph import tidy
from tests.graph_data.graphs import random_graph


@pytest.fixture
def source(tmp_path):
    graph = random_graph(6, weighted=True)
    return convert(graph, "npz", tmp_path / "first").source, graph


# --- counts -----------------------------------------------------------------------------------------------------------


def test_the_line_counts_what_the_source_lists():
    graph = random_graph(6)
    pairs = list(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    loops, parallel = sum(u == v for u, v in pairs), len(pairs) - len(set(pairs))
    assert counts_of(graph).line() == (
        f"40 vertices, 150 edges, 5 features, 3 classes, 2 splits, {loops} self-loops, {parallel} parallel edges"
    )
    assert loops > 0
    assert parallel > 0


def test_a_tidy_graph_has_no_loops_and_no_parallel_edges():
    found = counts_of(tidy(random_graph(6)))
    assert (found.self_loops, found.parallel_edges) == (0, 0)


def test_edges_of_different_types_are_not_parallel():
    graph = random_graph(0, edges=4)
    ends = {"src": np.array([0, 0, 0]), "dst": np.array([1, 1, 1])}
    graph = replace(graph, **ends, edge_type=np.array([0, 1, 1], np.uint16), num_edge_types=2)
    assert counts_of(graph).parallel_edges == 1
    assert "3 edges of 2 types" in counts_of(graph).line()


def test_preparing_says_them(tmp_path):
    said = []
    prepare(random_graph(6), tmp_path / "out", say=said.append)
    assert said[1] == f"random: {counts_of(random_graph(6)).line()}"


def test_real_graphs_have_the_counts_of_their_publishers(real_data):
    cora, citeseer = (counts_of(loaded(name)) for name in ("cora", "citeseer"))
    assert (cora.parallel_edges, cora.self_loops) == (302, 0)
    assert (citeseer.edges, citeseer.self_loops) == (9464, 248)


# --- masks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [0, 1, 3])
def test_masks_give_their_split_back(splits):
    split = random_graph(1, splits=splits).split
    masks = masks_of(split)
    assert all(mask.ndim == (1 if splits == 1 else 2) for mask in masks.values())
    assert (split_of(masks, len(split), "here") == split).all()


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_last_line_is_a_source_that_reads_the_result(source, tmp_path, capsys):
    name, graph = source
    assert main(["convert", name, "--to", "bsnap", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines()[0] == f"random: {counts_of(graph).line()}"
    assert main(["convert", out.strip(), "--to", "npz", "--out", str(tmp_path / "back"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["vertices"], found["self_loops"]) == (graph.num_vertices, 0)
    assert found["source"] == str(tmp_path / "back" / "out.npz")


def test_tidy_edges_are_written_if_asked(source, tmp_path, capsys):
    name, graph = source
    command = ["convert", name, "--to", "npz", "--out", str(tmp_path / "out"), "--tidy", "--json"]
    assert main([*command, "--directed"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["edges"] == tidy(graph, directed=True).num_edges


def test_a_folder_that_is_not_empty_is_left_alone(source, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(DatasetError, match=r"mine: is not empty$"):
        convert(source[1], "npz", tmp_path / "mine")
    assert (tmp_path / "mine" / "file").read_text() == "precious"


def test_an_unknown_format_lists_the_known_ones(source, tmp_path):
    with pytest.raises(ConfigError, match=rf"^format 'hdf5': must be one of {', '.join(SINKS)}$"):
        convert(source[1], "hdf5", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", SINKS)
def test_ids_and_names_that_no_format_keeps_are_said(kind, tmp_path):
    graph = replace(random_graph(1), ids=np.arange(40) * 2, names={"classes": ("a", "b", "c")})
    written = convert(graph, kind, tmp_path / "out")
    assert written.notes[-1] == "the names of its classes are not in it: they are numbered"
    if kind == "pyg":  # n_id
        assert loaded(written.source).ids.tolist() == graph.ids.tolist()
    else:
        assert written.notes[-2] == "the ids of its source are not in it: vertices are numbered 0..N-1"


def test_parts_are_for_dorylus(source, tmp_path, capsys):
    assert main(["convert", source[0], "--to", "npz", "--out", str(tmp_path / "out"), "--parts", "2"]) == 2
    assert capsys.readouterr().err == "siafu convert: --parts 2 is for --to bsnap, not npz\n"


def test_tables_are_named_as_for_siafu_train(tmp_path, capsys):
    (tmp_path / "follows.csv").write_text("to_whom,who\n1,2\n2,3\n3,1\n")
    (tmp_path / "users.csv").write_text("id,age,job\n1,5,x\n2,6,y\n3,7,x\n")
    tables = ["--src", "who", "--dst", "to_whom", "--features", f"{tmp_path}/users.csv#age"]
    argv = ["convert", f"{tmp_path}/follows.csv", *tables, "--labels", f"{tmp_path}/users.csv#job"]
    assert main([*argv, "--to", "npz", "--out", str(tmp_path / "out")]) == 0
    found = loaded(capsys.readouterr().out.strip())
    assert found.features.ravel().tolist() == [5, 6, 7]
    assert sorted(zip(found.src.tolist(), found.dst.tolist(), strict=True)) == [(0, 2), (1, 0), (2, 1)]
    assert main(["convert", "digits", "--src", "who", "--to", "npz", "--out", str(tmp_path / "no")]) == 2
    assert "--src is for graphs that are read, and 'digits' is made" in capsys.readouterr().err
