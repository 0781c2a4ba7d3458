"""What a user sees who gives siafu a damaged graph of another system: one line, exit
code 2, and nothing left behind."""

import json
import shutil
import struct

import numpy as np
import pytest

from siafu.__main__ import main
from tests.graph_data.sources import ogb_folder
from tests.graph_data.sources.golden_dgl import FOLDER as GOLDEN
from tests.graph_data.sources.test_bsnap import write as write_bsnap

# --- Dorylus ----------------------------------------------------------------------------------------------------------


def bsnap(tmp_path, **changes):
    return write_bsnap(tmp_path / "d", **changes)


def cut(path, nbytes):
    path.write_bytes(path.read_bytes()[:nbytes])


def bsnap_cut(tmp_path, file, nbytes):
    folder = bsnap(tmp_path)
    cut(tmp_path / "d" / file, nbytes)
    return folder


def bsnap_without(tmp_path, file):
    folder = bsnap(tmp_path)
    (tmp_path / "d" / file).unlink()
    return f"bsnap:{folder}"


def bsnap_beside(tmp_path, file, values):
    folder = bsnap(tmp_path)
    np.save(tmp_path / "d" / file, values)
    return folder


def bsnap_typed(tmp_path, kinds, count):
    bsnap_beside(tmp_path, "type.npy", np.array(kinds))
    return bsnap_beside(tmp_path, "num_edge_types.npy", count)


def bsnap_level(tmp_path):
    folder = bsnap(tmp_path)
    (tmp_path / "d" / "graph.bsnap").write_bytes(struct.pack("<iIQ", 8, 3, 0))
    return folder


BSNAP = {
    "bsnap: no header": (
        lambda t: bsnap_cut(t, "graph.bsnap", 7),
        "{t}/d/graph.bsnap: 7 bytes, is too short for its header",
    ),
    "bsnap: cut short": (
        lambda t: bsnap_cut(t, "graph.bsnap", 24),
        "{t}/d/graph.bsnap: 24 bytes, must be 32 for the 2 edges of its header",
    ),
    "bsnap: ids of 8 bytes": (
        bsnap_level,
        "{t}/d/graph.bsnap: vertex ids of 8 bytes, must be 4: is it a graph of Dorylus'?",
    ),
    "bsnap: vertex beyond": (
        lambda t: bsnap(t, edges=[(0, 1), (0, 3)]),
        "d: edge 1 has target vertex 3, must be in 0..2",
    ),
    "bsnap: features cut short": (
        lambda t: bsnap_cut(t, "features.bsnap", 20),
        "{t}/d/features.bsnap: 20 bytes, must be 28: 3 vertices, as in graph.bsnap, of 2 features",
    ),
    "bsnap: features of more": (
        lambda t: bsnap(t, features=[(1, 2)] * 4),
        "{t}/d/features.bsnap: 36 bytes, must be 28: 3 vertices, as in graph.bsnap, of 2 features",
    ),
    "bsnap: feature not finite": (
        lambda t: bsnap(t, features=[(1, 2), (3, float("nan")), (5, 6)]),
        "d: feature 1 of vertex 1 is nan, must be finite",
    ),
    "bsnap: labels of fewer": (
        lambda t: bsnap(t, labels=[1, 0]),
        "{t}/d/labels.bsnap: 12 bytes, must be 16: a label of each of the 3 vertices of graph.bsnap",
    ),
    "bsnap: label beyond": (lambda t: bsnap(t, labels=[1, 0, 2]), "d: vertex 2 has label 2, must be in -1..1"),
    "bsnap: no labels": (lambda t: bsnap_without(t, "labels.bsnap"), "{t}/d/labels.bsnap: No such file or directory"),
    "bsnap: no graph": (lambda t: bsnap_without(t, "graph.bsnap"), "{t}/d/graph.bsnap: No such file or directory"),
    "bsnap: weights of fewer": (
        lambda t: bsnap_beside(t, "weight.npy", np.ones(1)),
        "{t}/d/weight.npy: [1], but graph.bsnap has 2 edges",
    ),
    "bsnap: type beyond": (lambda t: bsnap_typed(t, [0, 2], np.array([2])), "d: edge 1 has type 2, must be in 0..1"),
    "bsnap: types not counted": (
        lambda t: bsnap_typed(t, [0, 1], np.array([2, 2])),
        "{t}/d/num_edge_types.npy: int64 [2], must be one integer: how many types there are",
    ),
    "bsnap: split of fewer": (
        lambda t: bsnap_beside(t, "split.npy", np.ones(2, int)),
        "{t}/d/split.npy: 2 rows of int64, must be 3 rows of numbers",
    ),
    "bsnap: option": (
        lambda t: bsnap(t) + "?label=y",
        "bsnap:{t}/d has no option 'label', only features, split, target, name",
    ),
    "bsnap: chunks": (lambda t: bsnap(t) + "?split=positional:9", "d: split positional:9, must have 1..3 chunks"),
}

# --- OGB --------------------------------------------------------------------------------------------------------------


def ogb(tmp_path, **changes):
    return f"ogb:{ogb_folder.write(tmp_path / 'o', **changes)}"


def ogb_without(tmp_path, path):
    name = ogb(tmp_path)
    found = tmp_path / "o" / path
    shutil.rmtree(found) if found.is_dir() else found.unlink()
    return name


def ogb_with(tmp_path, path, content):
    name = ogb(tmp_path)
    (tmp_path / "o" / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "o" / path).write_bytes(content)
    return name


OGB = {
    "ogb: no folder": (
        lambda t: f"ogb:{t}/nowhere",
        "ogb:{t}/nowhere: no folder raw/ in {t}/nowhere: unpack OGB's download there, or name its folder",
    ),
    "ogb: no split": (
        lambda t: ogb_without(t, "split"),
        "{t}/o: has no split (split/SCHEME/train.csv.gz or split_dict.pt)",
    ),
    "ogb: unknown split": (
        lambda t: ogb(t) + "?split=year",
        "{t}/o: split 'year' is not one of time: ogb:{t}/o?split=SCHEME",
    ),
    "ogb: no features": (
        lambda t: ogb(t, features=None),
        "{t}/o: has no features: name a file of them, or say random:32 for 32 random ones per vertex (--features",
    ),
    "ogb: features of fewer": (lambda t: ogb(t, features=ogb_folder.FEATURES[:3]), "{t}/o: 3 feature rows, must be 4"),
    "ogb: labels of fewer": (lambda t: ogb(t, counts=(5, 5)), "{t}/o: labels are [4, 1], must be [5, columns]"),
    "ogb: number of edges": (lambda t: ogb(t, counts=(4, 6)), "{t}/o/raw/edge.csv.gz: 5 edges, num-edge-list says 6"),
    "ogb: vertex beyond": (
        lambda t: ogb(t, edges=np.array([[0, 9], [1, 2]])),
        "o: edge 1 has source vertex 9, must be in 0..3",
    ),
    "ogb: split beyond": (
        lambda t: ogb(t, splits={"train": [4], "valid": [0], "test": [1]}),
        "{t}/o/split/time/train.csv.gz: vertex 4, must be in 0..3",
    ),
    "ogb: vertex in two roles": (
        lambda t: ogb(t, splits={"train": [0, 1], "valid": [1], "test": [2]}),
        "{t}/o/split/time/valid.csv.gz: vertex 1 is in another part of the split too",
    ),
    "ogb: no gzip": (lambda t: ogb_with(t, "raw/edge.csv.gz", b"0,1\n"), "{t}/o/raw/edge.csv.gz: not readable ("),
    "ogb: three columns": (
        lambda t: ogb(t, edges=np.zeros((3, 5), int)),
        "{t}/o/raw/edge.csv.gz: 3 columns, must be 2",
    ),
    "ogb: words": (
        lambda t: ogb(t, splits={"train": [0], "valid": ["a"], "test": [1]}),
        "{t}/o/split/time/valid.csv.gz: not readable (",
    ),
    "ogb: several kinds": (
        lambda t: ogb_with(t, "raw/triplet-type-list.csv.gz", b""),
        "{t}/o: has several kinds of vertices (OGB's heterogeneous layout), must have one",
    ),
    "ogb: no edges": (lambda t: ogb_without(t, "raw/edge.csv.gz"), "{t}/o/raw/edge.csv.gz: no such file"),
}

# --- DGL and DistDGL --------------------------------------------------------------------------------------------------


def dgl(tmp_path, change):
    path = tmp_path / "g.dgl"
    path.write_bytes(change((GOLDEN / "coo.dgl").read_bytes()))
    return str(path)


def distdgl(tmp_path, change):
    shutil.copytree(GOLDEN / "toy", tmp_path / "toy")
    change(tmp_path / "toy")
    return f"distdgl:{tmp_path}/toy"


def config(**changes):
    def change(folder):
        found = json.loads((folder / "toy.json").read_text()) | changes
        kept = {key: value for key, value in found.items() if value is not None}
        (folder / "toy.json").write_text(json.dumps(kept))

    return change


def part_twice(folder):
    for file in ("graph.dgl", "node_feat.dgl", "edge_feat.dgl"):
        shutil.copy(folder / "part0" / file, folder / "part1" / file)


DGL = {
    "dgl: another file": (
        lambda t: dgl(t, lambda b: b"x" * 99),
        "{t}/g.dgl: is not a file of dgl.save_graphs, or damaged at byte 0",
    ),
    "dgl: empty": (lambda t: dgl(t, lambda b: b""), "{t}/g.dgl: not readable ("),
    "dgl: cut short": (
        lambda t: dgl(t, lambda b: b[:5000]),
        "{t}/g.dgl: is cut short or damaged: 16 bytes at 4994, of 5000",
    ),
    "dgl: several graphs": (
        lambda t: dgl(t, lambda b: b[:24] + struct.pack("<Q", 2) + b[32:]),
        "{t}/g.dgl: holds 2 graphs, must hold one",
    ),
    "dgl: old version": (
        lambda t: dgl(t, lambda b: b[:8] + struct.pack("<Q", 1) + b[16:]),
        "{t}/g.dgl: is of version 1, kind 2, must be 2, 2: save it with DGL 0.5 or later",
    ),
    "dgl: an edge's vertex beyond": (
        lambda t: dgl(t, lambda b: b.replace(struct.pack("<5q", 0, 7, 3, 10, 6), struct.pack("<5q", 0, 70, 3, 10, 6))),
        "{t}/g.dgl: has an edge beyond its 12 vertices",
    ),
    "distdgl: no config": (
        lambda t: distdgl(t, lambda f: (f / "toy.json").unlink()),
        "{t}/toy: 0 .json files there, must be one: name it, distdgl:PATH/NAME.json",
    ),
    "distdgl: another JSON": (
        lambda t: distdgl(t, config(node_map=None)),
        "{t}/toy/toy.json: not the JSON of a partitioned graph: has no 'node_map'",
    ),
    "distdgl: no JSON": (
        lambda t: distdgl(t, lambda f: (f / "toy.json").write_text("{")),
        "{t}/toy/toy.json: not the JSON of a partitioned graph (",
    ),
    "distdgl: several kinds": (
        lambda t: distdgl(t, config(ntypes={"a": 0, "b": 1})),
        "{t}/toy/toy.json: has vertices of 2 kinds, must have one",
    ),
    "distdgl: partition missing": (
        lambda t: distdgl(t, config(num_parts=3)),
        "{t}/toy/toy.json: names no part_graph of part-2",
    ),
    "distdgl: partition left out": (lambda t: distdgl(t, config(num_parts=1)), "is owned by no partition, of 40 edges"),
    "distdgl: a partition twice": (
        lambda t: distdgl(t, part_twice),
        "{t}/toy/part1/graph.dgl: owns an edge that another partition owns too",
    ),
    "distdgl: file missing": (
        lambda t: distdgl(t, lambda f: (f / "part1/graph.dgl").unlink()),
        "{t}/toy/part1/graph.dgl: not readable (No such file or directory)",
    ),
    "distdgl: features of fewer": (
        lambda t: distdgl(t, config(node_map={"_N": [[0, 5], [5, 12]]})),
        "{t}/toy/part0/node_feat.dgl: _N/",
    ),
}

# --- PyG --------------------------------------------------------------------------------------------------------------


def pyg(tmp_path, content):
    torch = pytest.importorskip("torch")
    torch.save(content(torch), tmp_path / "g.pt")
    return f"{tmp_path}/g.pt"


def text_as_pt(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "g.pt").write_bytes(b"text")
    return f"{tmp_path}/g.pt"


class Evil:
    def __reduce__(self):
        return (print, ("this must never be printed",))


PYG = {
    "pyg: missing": (lambda t: f"pyg:{t}/none.pt", "{t}/none.pt: no such file"),
    "pyg: no file of torch": (
        text_as_pt,
        "{t}/g.pt: not a file of torch.save: write it with torch.save(data.to_dict(), path)",
    ),
    "pyg: a class": (lambda t: pyg(t, lambda torch: Evil()), "{t}/g.pt: holds a print, which is not read: "),
    "pyg: no edges": (
        lambda t: pyg(t, lambda torch: {"x": torch.eye(2)}),
        "{t}/g.pt: has no tensor edge_index: write it with torch.save(data.to_dict(), path)",
    ),
}

CASES = BSNAP | OGB | DGL | PYG


@pytest.mark.sampled(4)
@pytest.mark.parametrize("verb", ["prepare", "convert"])
@pytest.mark.parametrize("case", CASES)
def test_a_malformed_graph_is_refused_in_one_line(case, verb, tmp_path, capsys):
    if case.startswith("ogb"):
        pytest.importorskip("pyarrow")
    make, message = CASES[case]
    source = make(tmp_path)
    there = sorted(tmp_path.rglob("*"))
    more = ["--to", "npz"] if verb == "convert" else []
    code = main([verb, source, "--out", str(tmp_path / "out"), *more])
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("siafu ")]
    assert (code, len(lines), out) == (2, 1, "")
    assert message.format(t=tmp_path) in lines[0]
    assert "Traceback" not in err
    assert sorted(tmp_path.rglob("*")) == there
