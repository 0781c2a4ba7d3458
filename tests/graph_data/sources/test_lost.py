"""Rows, splits, weights and names that a file has and a reader once lost without a
word: found, or refused in one line."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import scipy.sparse

import siafu
from graph_data.archives import planetoid
from graph_data.convert import convert
from graph_data.prepare import prepare
from graph_data.sources import textfile
from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import NONE, TEST, TRAIN, VAL, Graph

pa = pytest.importorskip("pyarrow")

X = np.array([[1, 0], [0, 2], [3, 0], [4, 4]], np.float32)
EDGES = np.array([[0, 1], [1, 2], [2, 3]])
Y = np.array([0, 1, 0, 1])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(name: str) -> Graph:
    return resolve(name).load()


def refused(name: str, words: str) -> None:
    with pytest.raises(DatasetError, match=words) as caught:
        load(name)
    assert "\n" not in str(caught.value)


# --- quotes -----------------------------------------------------------------------------------------------------------


def rows(count: int, **changed: str) -> str:
    lines = ["src,dst,note", *(f"u{i},u{i + 1},a" for i in range(count))]
    for line, text in changed.items():
        lines[int(line[1:]) - 1] = text
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"L102": 'x,y,"5 pipe'}, 102),
        ({"L102": 'x,y,"5 pipe', "L203": 'x,y,"6 pipe'}, 102),
        ({"L301": 'x,y,"5 pipe'}, 301),
        ({"L2": '"x,y,a'}, 2),
        ({"L50": 'x,y,"a ""b"" c"d'}, 50),
    ],
)
def test_a_quote_that_is_not_closed_swallows_no_rows(changed: dict[str, str], line: int) -> None:
    Path("e.csv").write_text(rows(300, **changed))
    refused(
        "edges:e.csv?features=random:2",
        rf"^e\.csv: line {line}: a quote begins a field and does not end it: close it, ",
    )
    with gzip.open("e.csv.gz", "wt") as file:
        file.write(rows(300, **changed))
    refused("edges:e.csv.gz?features=random:2", rf"^e\.csv\.gz: line {line}: a quote")


@pytest.mark.parametrize(
    "text", ['"one\ntwo"', '"say ""yes"""', '""', '"a,b"', '5" pipe', 'it is "so"', '"a" ', '"a ""b\n"""']
)
def test_quotes_that_are_closed_or_stand_within_a_field_are_text(text: str) -> None:
    Path("e.csv").write_text(rows(30, L7=f"x,y,{text}", L31=f"x,z,{text}"))
    assert load("edges:e.csv?features=random:2").num_edges == 30


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_quotes_are_found_wherever_blocks_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "BLOCK_BYTES", size)
    good = b'a,"b ""c""\nd",e\r\n"",f"g,"h"\n'
    assert textfile._unclosed(io.BytesIO(good), b",") is None
    for bad, place in ((b'a,b"c\nd,"e\nf\n', 8), (b'a,"b"c\n', 2), (b'x\n"a"\n\n"b', 7)):
        assert textfile._unclosed(io.BytesIO(bad), b",") == place


def test_a_field_is_not_read_again_and_again_for_want_of_a_quote(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(textfile, "BLOCK_BYTES", 16)
    monkeypatch.setattr(textfile, "WIDEST_FIELD", 64)
    assert textfile._unclosed(io.BytesIO(b'a,"' + 10_000 * b"b" + b'"\n'), b",") == 2


def test_a_name_of_a_column_over_two_lines_is_refused() -> None:
    Path("e.csv").write_text('"src\nid","dst\nid"\n' + "1,2\n2,3\n3,4\n")
    refused("edges:e.csv?features=random:2", r"^e\.csv: its first row, of 3 lines, has a line break in quotes")


def test_the_separator_is_found_where_the_twentieth_line_is_within_quotes() -> None:
    Path("e.csv").write_text("src;dst;note\n" + "".join(f'{i};{i + 1};"a\nb"\n' for i in range(40)))
    assert load("edges:e.csv?features=random:2").num_edges == 40


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["edge_id", "index", "weight", "timestamp", "X1", "rownames"])
def test_a_first_column_that_is_no_end_by_its_name_is_not_taken_for_one(name: str) -> None:
    Path("e.csv").write_text(f"{name},a,b\n100,1,2\n101,2,3\n102,3,1\n")
    refused("edges:e.csv?features=random:2", rf"^e\.csv: by its name, column '{name}' is no end of an edge: say which")
    assert load("edges:e.csv?features=random:2&src=a&dst=b").num_vertices == 3


def test_row_and_col_are_ends_wherever_they_stand() -> None:
    Path("e.csv").write_text("w,row,col\n5,1,2\n6,2,3\n")
    assert load("edges:e.csv?features=random:2").num_vertices == 3


@pytest.mark.parametrize("word", ["(null)", "#VALUE!", "#DIV/0!", "n.a.", "na"])
def test_words_for_nothing_are_no_classes(word: str) -> None:
    Path("e.csv").write_text("src,dst\n1,2\n2,3\n")
    Path("y.csv").write_text(f"id,job\n1,cook\n2,{word}\n3,baker\n")
    graph = load("edges:e.csv?features=random:2&labels=y.csv")
    assert (graph.names["classes"], graph.labels.tolist()) == (("baker", "cook"), [1, -1, 0])


def test_labels_of_one_column_are_a_class_a_vertex_in_a_npy_file_too() -> None:
    Path("e.csv").write_text("src,dst\n0,1\n1,2\n2,3\n")
    for values in (Y, np.array([0, 1, 2, 3])):
        np.save("y.npy", values[:, None])
        graph = load("edges:e.csv?features=random:2&labels=y.npy")
        assert (graph.target, graph.labels.tolist()) == ("classes", values.tolist())


def test_a_parquet_column_of_empty_lists_is_one_line() -> None:
    from pyarrow import parquet

    Path("e.csv").write_text("src,dst\n1,2\n2,3\n")
    parquet.write_table(pa.table({"id": [1, 2, 3], "f": pa.array([[], [], []], pa.list_(pa.float32()))}), "x.parquet")
    refused("edges:e.csv?features=x.parquet", "x.parquet")


def test_tables_beside_partitions_are_refused_and_what_spark_leaves_is_no_table() -> None:
    from pyarrow import parquet

    table = pa.table({"src": [1, 2], "dst": [2, 3]})
    for kind in "xy":
        Path(f"hm/kind={kind}").mkdir(parents=True)
        parquet.write_table(table, f"hm/kind={kind}/p.parquet")
    parquet.write_table(table.slice(0, 0), "hm/_common_metadata.parquet")
    assert load("hm?features=random:2").num_edges == 4
    parquet.write_table(table, "hm/new.parquet")
    refused(
        "edges:hm?features=random:2", r"^hm: holds tables \(new\.parquet\) and partitions \(kind=x\): name one of them$"
    )


def test_labels_whose_vertices_are_in_no_edge_are_refused_where_ids_are_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Path("e.csv").write_text("src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(59)))
    Path("y.csv").write_text("id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(60, 120)))
    with pytest.raises(DatasetError, match="none of its 60 vertices with a label is in an edge"):
        prepare("edges:e.csv?features=random:2&labels=y.csv&num_vertices=120", tmp_path / "out")
    Path("y.csv").write_text("id,y\n" + "".join(f"{i},{i % 2}\n" for i in range(30, 90)))
    with caplog.at_level(logging.WARNING):
        for stream in (False, True):
            prepare(
                "edges:e.csv?features=random:2&labels=y.csv&num_vertices=120", tmp_path / f"out{stream}", stream=stream
            )
    said = [record.getMessage() for record in caplog.records if "vertices with a label" in record.getMessage()]
    assert said == ["e: 30 of 60 vertices with a label are in no edge"] * 2


# --- one folder, two formats ------------------------------------------------------------------------------------------


def test_a_folder_of_tables_and_another_graph_is_refused() -> None:
    Path("own").mkdir()
    Path("own/edges.csv").write_text("src,dst\n1,2\n2,3\n")
    Path("own/m.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    refused(
        "own?features=random:2",
        r"^own: holds tables \(edges\.csv\) and a MatrixMarket file \(m\.mtx\): name one of these files$",
    )
    assert load("own/m.mtx?features=random:2").num_edges == 1


@pytest.mark.parametrize("stray", ["notes.content", "role.json", "out1_graph_edges.txt"])
def test_a_file_that_is_called_like_a_part_of_an_archive_makes_no_archive_of_tables(stray: str) -> None:
    Path("own").mkdir()
    Path("own/edges.csv").write_text("src,dst\n1,2\n2,3\n")
    Path(f"own/{stray}").write_text("notes")
    assert load("own?features=random:2").num_edges == 2


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_an_archive_with_more_than_the_formats_arrays_is_read_by_the_table_of_names() -> None:
    np.savez(
        "g.npz",
        node_features=X,
        node_labels=Y,
        edges=EDGES,
        train_idx=[0],
        val_idx=[1],
        test_idx=[2, 3],
        edge_weight=[1.0, 2, 3],
    )
    graph = load("g.npz")
    assert graph.split[:, 0].tolist() == [TRAIN, VAL, TEST, TEST]
    assert graph.weight is not None
    masks = {f"{part}_masks": np.arange(4)[None] == i for i, part in enumerate(("train", "valid", "test"))}
    np.savez("h.npz", node_features=X, node_labels=Y, edges=EDGES, **masks)
    assert load("h.npz").split[:, 0].tolist() == [TRAIN, VAL, TEST, NONE]


def benchmark_archive(**more: Any) -> None:
    adjacency = scipy.sparse.csr_matrix((np.ones(3), EDGES.T), shape=(4, 4))
    parts = {f"adj_{part}": np.asarray(getattr(adjacency, part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez("b.npz", **parts, attr_matrix=X, labels=Y, **more)


def test_masks_beside_gnn_benchmarks_arrays_are_the_split_and_weights_are_refused() -> None:
    benchmark_archive(train_mask=np.arange(4) < 2, idx_val=[2], node_year=[1, 2, 3, 4])
    graph = load("b.npz")
    assert graph.split[:, 0].tolist() == [TRAIN, TRAIN, VAL, NONE]
    assert graph.notes == ("b.npz: an archive of gnn-benchmark, public split", "b.npz: left out: node_year")
    benchmark_archive(edge_weight=[1, 2, 3])
    refused("b.npz", r"^b\.npz: has no use for 'edge_weight', which looks like a weight")
    benchmark_archive(splits=np.array([{"train": [1]}], object))
    refused("b.npz", r"^b\.npz: has no use for 'splits', which looks like a split")


def test_masks_beside_pickled_matrices_are_the_split() -> None:
    adjacency = scipy.sparse.csr_matrix((np.ones(3), EDGES.T), shape=(4, 4))
    np.savez("p.npz", adj_matrix=np.array(adjacency, object), node_attr=X, node_label=Y, train_nodes=[0, 1])
    assert load("p.npz").split[:, 0].tolist() == [TRAIN, TRAIN, NONE, NONE]


def test_an_archive_in_our_names_is_not_half_of_dgls_pair() -> None:
    np.savez("my_data.npz", edge_index=EDGES.T, feature=X, label=Y, train_idx=[0])
    assert load("my_data.npz").num_edges == 3


def test_types_of_edges_that_are_codes_are_numbered_and_named() -> None:
    graph = siafu.from_arrays(EDGES.T, X, Y, edge_type=[10115, 80331, 10115])
    assert (graph.num_edge_types, graph.edge_type.tolist()) == (2, [0, 1, 0])
    assert graph.names["edge_types"] == ("10115", "80331")
    assert graph.notes == ("arrays: 2 types of edges are numbered in the order of their values, 10115 to 80331",)
    assert siafu.from_arrays(EDGES.T, X, Y, edge_type=[3, 5, 3], num_edge_types=6).num_edge_types == 6


def test_whole_numbers_as_floats_are_numbers_and_a_note_says_so() -> None:
    graph = siafu.from_arrays(EDGES.T, X, [10115.0, np.nan, 80331.0, 10115.0])
    assert (graph.target, len(graph.notes)) == ("numbers", 1)
    assert "target=classes makes classes of them" in graph.notes[0]
    assert siafu.from_arrays(EDGES.T, X, [1.5, np.nan, 2.0, 3.0]).notes == ()
    assert siafu.from_arrays(EDGES.T, X, [10115.0, np.nan, 80331.0, 10115.0], target="classes").num_classes == 2


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("role", np.array(["train", "val", "none", "test"]), "a split"),
        ("usage", np.array(["train", "valid", "test", "test"]), "a split"),
        ("subset", np.array([1, 2, 3, 1]), "a split"),
        ("ground_truth", Y, "labels"),
        ("node_y", Y, "labels"),
        ("edge_w", np.ones(3), "a weight"),
    ],
)
def test_other_names_of_splits_labels_and_weights_are_refused(name: str, value: Any, kind: str) -> None:
    with pytest.raises(DatasetError, match=f"has no use for '{name}', which looks like {kind}"):
        prepare({"edge_index": EDGES.T, "x": X, name: value}, "out")


def test_what_a_networkx_graph_carries_itself_is_not_dropped() -> None:
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from((v, {"x": X[v], "y": int(Y[v])}) for v in range(4))
    graph.add_edges_from((u, v, "likes") for u, v in EDGES.tolist())
    graph.graph.update(name="mine", venues=[1, 2, 3])
    assert siafu.from_networkx(graph).notes == (
        "networkx.graph: left out: venues",
        "networkx: left out: keys of edges ('likes'): an attribute type would tell them apart",
    )
    graph.graph["train_idx"] = [0, 1]
    with pytest.raises(DatasetError, match="has no use for 'train_idx', which looks like a split"):
        siafu.from_networkx(graph)


# --- archives ---------------------------------------------------------------------------------------------------------


def test_linqs_ids_that_do_not_meet_are_refused_and_na_is_no_class() -> None:
    Path("t.content").write_text("001 0 1 red\n002 1 0 NA\n003 1 1 blue\n")
    Path("t.cites").write_text("1 2\n2 3\n")
    refused(
        "t.content",
        r"^t\.cites: none of its 2 edges is between ids of t\.content: they are like '1', those "
        r"of t\.content like '001'$",
    )
    Path("t.cites").write_text("001 002\n")
    graph = load("t.content")
    assert (graph.names["classes"], graph.labels.tolist()) == (("blue", "red"), [1, -1, 0])
    assert "t.content: 1 of 3 vertices have no label" in graph.notes


def geom(**splits: dict[str, Any]) -> None:
    Path("texas").mkdir(exist_ok=True)
    lines = "".join(f"{v}\t{X[v, 0]:g},{X[v, 1]:g}\t{Y[v]}\n" for v in range(4))
    Path("texas/out1_node_feature_label.txt").write_text("node_id\tfeature\tlabel\n" + lines)
    Path("texas/out1_graph_edges.txt").write_text("node_id\tnode_id\n0\t1\n2\t1\n")
    for name, arrays in splits.items():
        Path(f"texas/{name}.npz").parent.mkdir(exist_ok=True)
        np.savez(f"texas/{name}.npz", **arrays)


def test_geom_gcns_splits_by_any_of_their_names_in_either_place() -> None:
    lists = {"train_idx": [0], "valid_idx": [1], "test_idx": [2, 3]}
    geom(**{"splits/texas_split_0.6_0.2_0": lists, "splits/wisconsin_split_0.6_0.2_0": {"train_idx": [3]}})
    assert load("texas").split.T.tolist() == [[TRAIN, VAL, TEST, TEST]]


def test_geom_gcns_splits_of_others_and_none_are_refused() -> None:
    geom(**{"a_split_0": {"train_idx": [0]}, "b_split_0": {"train_idx": [0]}})
    refused("texas", r"^texas: holds splits of 'a', 'b': leave those of this graph$")
    Path("texas/b_split_0.npz").unlink()
    geom(a_split_0={"other": [1]})
    refused("texas", r"^texas/a_split_0\.npz: has no train_mask, val_mask and test_mask$")


def sage(nodes: list[dict[str, Any]], **link: Any) -> None:
    links = [{"source": u, "target": v, **link} for u, v in EDGES.tolist()]
    Path("s-G.json").write_text(json.dumps({"nodes": nodes, "links": links}))
    Path("s-id_map.json").write_text(json.dumps({str(v): v for v in range(4)}))
    Path("s-class_map.json").write_text(json.dumps({str(v): int(Y[v]) for v in range(4)}))
    np.save("s-feats.npy", X)


def test_graphsages_flags_that_are_left_out_are_false_and_weights_are_read() -> None:
    sage(
        [{"id": 0, "val": False, "test": False}, {"id": 1, "val": True}, {"id": 2, "test": True}, {"id": 3, "year": 9}],
        weight=2.5,
    )
    graph = load("s-G.json")
    assert graph.split[:, 0].tolist() == [TRAIN, VAL, TEST, NONE]
    assert graph.weight is not None
    assert graph.weight.tolist() == [2.5, 2.5, 2.5]
    assert "s-G.json: left out of nodes: 'year'" in graph.notes
    sage([{"id": v, "val": "False", "test": "False"} for v in range(4)])
    refused("s-G.json", r"^s-G\.json: node '0': val and test must be true or false$")
    sage([{"id": v, "val": False, "test": False} for v in range(4)], weight="heavy")
    refused("s-G.json", r"^s-G\.json: a link whose weight is no number")


def saint(**changed: Any) -> None:
    Path("y").mkdir(exist_ok=True)
    scipy.sparse.save_npz("y/adj_full.npz", scipy.sparse.csr_matrix((np.ones(3), EDGES.T), shape=(4, 4)))
    parts = {"role": {"tr": [0], "va": [1], "te": [2]}, "class_map": {str(v): int(Y[v]) for v in range(4)}, **changed}
    for name, value in parts.items():
        Path(f"y/{name}.json").write_text(json.dumps(value))
    np.save("y/feats.npy", X)


def test_graphsaints_vertices_are_whole_numbers_once_and_missing_labels_are_counted() -> None:
    saint(role={"tr": [0.5], "va": [1], "te": [2]})
    refused("y", r"^y/role\.json: a vertex or a class that is no integer$")
    saint(class_map={"1": 0, " 1": 1})
    refused("y", r"^y/class_map\.json: a vertex twice$")
    saint(class_map={"1": 0, "3": 1})
    assert load("y").notes[1:] == ("adj_full.npz: 2 of 4 vertices have no label",)


def test_planetoids_vertices_of_two_classes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: dict[str, Any] = {
        "x": scipy.sparse.csr_matrix(X[:1]),
        "y": np.eye(2)[:1],
        "allx": scipy.sparse.csr_matrix(X[:3]),
        "ally": np.array([[1, 0], [1, 1], [0, 1]]),
        "tx": scipy.sparse.csr_matrix(X[3:]),
        "ty": np.eye(2)[:1],
    }
    for part in (*parts, "graph"):
        Path(f"ind.t.{part}").touch()
    Path("ind.t.test.index").write_text("3\n")
    monkeypatch.setattr(planetoid, "_part", lambda file, part: parts[part])
    monkeypatch.setattr(planetoid, "_edges", lambda file: (EDGES[:, 0], EDGES[:, 1], 4))
    refused("ind.t.graph", r"^ind\.t\.\*: vertex 1 has several classes, must have one$")


# --- objects that torch and DGL saved ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "beside", [({"train": [0, 1], "valid": [2, 3], "test": [0, 1]},), (Y, "split"), (7,), ([0, 1],)]
)
def test_what_torch_saved_beside_a_graph_is_not_dropped(beside: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    fields = {"edge_index": torch.tensor(EDGES.T.copy()), "x": torch.tensor(X)}
    tensors = tuple(torch.tensor(one) if isinstance(one, np.ndarray) else one for one in beside)
    torch.save((fields, *tensors), "g.pt")
    refused("g.pt", r"^g\.pt: holds a tuple, no graph: write it with torch\.save\(data\.to_dict\(\), path\)$")


def test_numpy_arrays_in_a_file_of_torch_are_named_as_such() -> None:
    torch = pytest.importorskip("torch")
    torch.save({"edge_index": EDGES.T, "x": X}, "g.pt")
    refused("g.pt", r"^g\.pt: holds numpy arrays, must be tensors: torch\.from_numpy makes them of one$")


def _priced(tmp_path: Path) -> Path:
    """A table of DECIMAL columns, as a database exports them; the last price is missing."""
    parquet = pytest.importorskip("pyarrow.parquet")
    prices = [Decimal("9.75"), Decimal("0.50"), Decimal("3.25"), None]
    columns = {
        "id": pa.array([0, 1, 2, 3]),
        "size": pa.array([Decimal("1.5"), Decimal("-2.25"), Decimal("0"), Decimal("8")], pa.decimal128(8, 2)),
        "price": pa.array(prices, pa.decimal128(8, 2)),
        "kind": pa.array([Decimal(1), Decimal(2), Decimal(1), None], pa.decimal128(8, 0)),
    }
    parquet.write_table(pa.table(columns), tmp_path / "v.parquet")
    (tmp_path / "e.csv").write_text("src,dst\n0,1\n1,2\n2,3\n3,0\n")
    return tmp_path / "v.parquet"


def test_decimals_of_a_database_are_numbers_and_no_words(tmp_path: Path) -> None:
    table = _priced(tmp_path)
    graph = load(f"{tmp_path}/e.csv?num_vertices=4&features={table}#size&labels={table}#price")
    assert graph.features[:].tolist() == [[1.5], [-2.25], [0], [8]]
    assert graph.target == "numbers"  # and not three classes called 9.75, 0.50 and 3.25
    assert np.array_equal(graph.labels, np.array([9.75, 0.5, 3.25, np.nan], np.float32), equal_nan=True)


def test_decimals_without_fractions_are_integers(tmp_path: Path) -> None:
    table = _priced(tmp_path)
    graph = load(f"{tmp_path}/e.csv?num_vertices=4&features={table}#size&labels={table}#kind")
    assert (graph.target, graph.labels.tolist(), graph.names["classes"]) == ("classes", [0, 1, 0, -1], ("1", "2"))


def test_the_column_of_a_regression_keeps_its_name(tmp_path: Path) -> None:
    table = _priced(tmp_path)
    name = f"{tmp_path}/e.csv?num_vertices=4&features={table}#size&labels={table}#price"
    assert load(name).names["classes"] == ("price",)
    written = convert(name, "csv", tmp_path / "out")
    assert (tmp_path / "out" / "labels.csv").read_text().partition("\n")[0] == '"id","price"'
    assert not any("names of its classes" in note for note in written.notes)


def test_an_interrupt_while_pyarrow_imports_pandas_stops_the_command(tmp_path: Path) -> None:
    """pyarrow's C++ imports pandas at the first array, and drops what ends this import."""
    once = """
        import os, pathlib, signal
        if os.path.exists("interrupted"):
            raise ImportError
        pathlib.Path("interrupted").touch()
        os.kill(os.getpid(), signal.SIGINT)
    """
    (tmp_path / "pandas.py").write_text(textwrap.dedent(once))
    (tmp_path / "e.csv").write_text("src,dst\na,b\nb,c\nc,a\n")
    (tmp_path / "v.csv").write_text("id,x,y\na,1,u\nb,2,v\nc,3,u\n")
    command = ["prepare", "e.csv", "--features", "v.csv#x", "--labels", "v.csv#y", "--out", "shards"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", "siafu", *command],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (128 + signal.SIGINT, "siafu: stopped")
    assert not (tmp_path / "shards").exists()
