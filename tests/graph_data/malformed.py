"""Sources that cannot be prepared, and what a user is told: a table for tests."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from siafu.__main__ import main

EDGES = b"src,dst\n1,2\n2,3\n3,1\n"
WEIGHTED = b"src,dst,w\n1,2,1\n2,3,1\n3,1,1\n"
SAYS = "siafu prepare: "  # what a message begins with; other lines on stderr are progress

Content = bytes | Callable[[Path], None]


@dataclass(frozen=True, eq=False)
class Case:
    """Files in an empty folder, what is typed there behind ``siafu prepare``, and the one line that is the answer."""

    name: str
    files: Mapping[str, Content]
    typed: str
    message: str  # (…) is what a library says


@dataclass(frozen=True)
class Answer:
    exit_code: int
    messages: tuple[str, ...]
    last: str  # line on stderr
    left: tuple[str, ...]  # files and folders that were not there before


def ask(case: Case, folder: Path) -> Answer:
    """Runs the command; the caller has made ``folder`` the working folder."""
    for name, content in case.files.items():
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            content(folder / name)
    before, stderr = set(folder.rglob("*")), io.StringIO()
    out = [] if "--out" in case.typed or "--inspect" in case.typed else ["--out", "shards"]
    with contextlib.redirect_stderr(stderr), contextlib.redirect_stdout(io.StringIO()):
        code = main(["prepare", *case.typed.split(), *_features(case.typed), *out])
    lines = stderr.getvalue().splitlines()
    messages = tuple(line.removeprefix(SAYS) for line in lines if line.startswith(SAYS))
    return Answer(code, messages, lines[-1], tuple(sorted(str(path) for path in set(folder.rglob("*")) - before)))


def _features(typed: str) -> list[str]:
    """What an edge list needs that is refused for something else."""
    return ["--features", "random:32"] if typed.startswith("e.") and "--features" not in typed else []


def text(rows: str, then: bytes = b"src,dst\n") -> bytes:
    return then + rows.encode()


def table(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table(columns), path)

    return write


def twice_named(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    column = pa.array([1, 2])
    parquet.write_table(pa.Table.from_arrays([column, column, column], names=["src", "dst", "dst"]), path)


def npz(**changed: Any) -> Callable[[Path], None]:
    """A sound graph of 4 vertices, but for what is changed; None leaves an array out."""
    arrays = {
        "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
        "num_nodes": 4,
        "num_features": 2,
        "num_classes": 2,
        "x": np.ones((4, 2), np.float32),
        "y": np.array([0, 1, 0, 1]),
        "train_mask": np.array([True, True, False, False]),
        "test_mask": np.array([False, False, True, True]),
    }
    kept = {key: value for key, value in {**arrays, **changed}.items() if value is not None}
    return lambda path: np.savez(path, **kept)


def npy(values: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, values)


CASES = (
    # --- rows of an edge list
    Case(
        "a word among ids",
        {"e.csv": text("1,2\n" * 16 + "3,abc\n")},
        "e.csv",
        "e.csv: row 17: column 'dst' is 'abc', must be an integer; --ids text takes any",
    ),
    Case(
        "a fraction for an id",
        {"e.csv": text("1,2\n2,1.5\n")},
        "e.csv",
        "e.csv: row 2: column 'dst' is '1.5', must be an integer; --ids text takes any",
    ),
    Case(
        "an id that is missing",
        {"e.csv": text("1,2\n,3\n")},
        "e.csv",
        "e.csv: row 2: column 'src' is missing, must be an integer",
    ),
    Case(
        "a name that is missing",
        {"e.csv": text("ann,bob\nbob,\n")},
        "e.csv",
        "e.csv: row 2: column 'dst' is missing, must be text",
    ),
    Case(
        "an id of more than 64 bits",
        {"e.csv": text("1,2\n2,9223372036854775808\n")},
        "e.csv",
        "e.csv: row 2: column 'dst' is '9223372036854775808', must be an integer; --ids text takes any",
    ),
    Case(
        "a row that is too long",
        {"e.csv": text("1,2\n2,3\n3,1,7\n")},
        "e.csv",
        "e.csv: row 3 has 3 fields, must have 2",
    ),
    Case("a row that is too short", {"e.csv": text("1,2\n2\n")}, "e.csv", "e.csv: row 2 has 1 field, must have 2"),
    Case(
        "bytes that are no UTF-8",
        {"e.csv": b"src,dst\nann,bob\nb\xff,ann\n"},
        "e.csv",
        "e.csv: row 2: column 'src' is no UTF-8: iconv -f LATIN1 -t UTF-8 FILE makes it of Latin-1",
    ),
    Case(
        "an id beyond the number of vertices",
        {"e.csv": EDGES},
        "e.csv --num-vertices 3",
        "e.csv: row 3: vertex 3, must be in 0..2",
    ),
    Case(
        "a negative vertex number",
        {"e.csv": text("1,2\n-1,2\n")},
        "e.csv --num-vertices 3",
        "e.csv: row 2: column 'src' is -1, must be in 0..2",
    ),
    Case(
        "names for vertex numbers",
        {"e.csv": text("ann,bob\n")},
        "e.csv --num-vertices 3",
        "e.csv: ids are text, but --num-vertices is of vertices by number",
    ),
    Case(
        "a null in Parquet",
        {"e.parquet": table(src=[1, None], dst=[2, 3])},
        "e.parquet",
        "e.parquet: row 2: column 'src' is missing, must be an integer",
    ),
    Case(
        "ids of two types",
        {"e.parquet": table(src=[1, 2], dst=["a", "b"])},
        "e.parquet",
        "e.parquet: columns 'src' and 'dst' are integers and text, must be of one type; --ids text takes any",
    ),
    Case(
        "ids that are lists",
        {"e.parquet": table(src=[[1]], dst=[[2]])},
        "e.parquet",
        "e.parquet: column 'src' is list<element: int64>, must be integers, text, bytes, dates or times: they are ids",
    ),
    Case(
        "names without a header",
        {"e.csv": b"ann,bob\nbob,eve\n"},
        "e.csv",
        "e.csv: 'bob' of its first line is also an id: give it a first line that names its columns",
    ),
    Case(
        "a name of a column that is no UTF-8",
        {"e.csv": b"src,dst,gr\xf6\xdfe\n1,2,3\n"},
        "e.csv",
        "e.csv: its first line is no UTF-8: iconv -f LATIN1 -t UTF-8 FILE makes it of Latin-1",
    ),
    Case(
        "some lines that end in CR alone",
        {"e.csv": b"src,dst\n1,2\r2,3\r3,1\n"},
        "e.csv",
        "e.csv: its lines end in CR alone: tr '\\r' '\\n' makes lines of them",
    ),
    Case(
        "a pointer of git LFS",
        {"e.csv": b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"},
        "e.csv",
        "e.csv: is a pointer of git LFS, not the file: git lfs pull fetches it",
    ),
    Case(
        "a damaged gzip file",
        {"e.csv.gz": gzip.compress(EDGES)[:-8] + bytes(8)},
        "e.csv.gz --features random:2",
        "e.csv.gz: not readable (…)",
    ),
    Case(
        "a hexadecimal id",
        {"e.csv": text("1,2\n2,0x1F\n")},
        "e.csv",
        "e.csv: row 2: column 'dst' is '0x1F', must be an integer; --ids text takes any",
    ),
    Case(
        "a leading zero behind a sign",
        {"e.csv": text("1,2\n" * 20000 + "-01,2\n")},
        "e.csv",
        "e.csv: row 20001: column 'src' is '-01', must be an integer without leading zeros; --ids text takes any",
    ),
    Case(
        "a long text for a number",
        {"e.csv": WEIGHTED + b"1,2," + b"words" * 2000 + b"\n"},
        "e.csv --weight w",
        ("e.csv: row 4: column 'w' is '" + "words" * 2000)[:1000]
        + " … "
        + ("words" * 2000 + "', must be a number")[-500:],
    ),
    Case(
        "two columns of one name in Parquet",
        {"e.parquet": twice_named},
        "e.parquet --features random:2",
        "e.parquet: has two columns 'dst'",
    ),
    Case(
        "a feature beyond float32",
        {"e.csv": EDGES, "x.csv": b"id,x\n1,1\n2,1e39\n3,1\n"},
        "e.csv --features x.csv",
        "x.csv: row 2: column 'x' is 1e+39, must be within float32, 3.4e38 at most",
    ),
    Case(
        "a class that floats round",
        {"e.csv": EDGES, "y.csv": b"id,y\n1,1152921504606846977\n2,3\n3,1\n"},
        "e.csv --labels y.csv",
        "y.csv: row 1: column 'y' is 1152921504606846977, must be within 2**53, which floats hold exactly: as words, "
        "with a letter in front, larger ones are classes too",
    ),
    Case(
        "several classes in a list",
        {"e.csv": EDGES, "y.parquet": table(id=[1, 2, 3], y=[["a"], ["a", "b"], []])},
        "e.csv --labels y.parquet",
        "y.parquet: column 'y' is list<element: string>, must be a word; several classes of a vertex are a column of 0 "
        "and 1 for each class",
    ),
    Case(
        "features without columns",
        {"g.npz": npz(x=np.ones((4, 0), np.float32), num_features=None)},
        "g.npz",
        "g: features are [4, 0], must have 1 column at least",
    ),
    Case(
        "sparse features of another layout",
        {"e.csv": EDGES, "x.npz": lambda path: scipy.sparse.save_npz(path, scipy.sparse.eye(4, format="coo"))},
        "e.csv --features x.npz",
        "x.npz: not a CSR matrix of scipy.sparse.save_npz (it is coo: save_npz(file, matrix.tocsr()))",
    ),
    Case(
        "an archive for one array",
        {"e.csv": EDGES, "x.npz": npz()},
        "e.csv --features x.npz",
        "x.npz: not a CSR matrix of scipy.sparse.save_npz (it holds edge_index, num_nodes, num_features, num_classes, "
        "x, y, train_mask, test_mask: numpy.save writes one array as .npy)",
    ),
    Case("an ending in capitals", {"E.CSV": EDGES}, "E.CSV", "E.CSV: endings are read in lower case: call it E.csv"),
    Case(
        "a packed table",
        {"e.csv.bz2": b"BZh"},
        "e.csv.bz2",
        "e.csv.bz2: is packed: unpack it (of packed files, siafu reads tables ending in .gz)",
    ),
    Case(
        "ids that differ in a blank",
        {"e.csv": text("ann, bob\nbob,ann\n")},
        "e.csv",
        "e.csv: ids 'bob' and ' bob' differ only in what is not seen: make them equal; --ids text takes both",
    ),
    Case(
        "a blank behind an id of a table",
        {"e.csv": text("ann,bob\nbob,eve\n"), "y.csv": b"id,job\nann ,a\nbob,b\neve,a\n"},
        "e.csv --labels y.csv",
        "e.csv, y.csv: ids 'ann' and 'ann ' differ only in what is not seen: make them equal; --ids text takes both",
    ),
    Case(
        "an accent in one sign and in two",
        {"e.csv": text("\u00e9,b\ne\u0301,b\n")},
        "e.csv",
        "e.csv: ids '\\xe9' and 'e\\u0301' differ only in what is not seen: make them equal; --ids text takes both",
    ),
    Case(
        "a sign without width",
        {"e.parquet": table(src=["a\u200b", "a\ufeff"], dst=["b", "b"])},
        "e.parquet --features random:2",
        "e.parquet: ids 'a\\u200b' and 'a\\ufeff' differ only in what is not seen: make them equal; --ids text takes "
        "both",
    ),
    Case(
        "a comment between names",
        {"e.csv": text("ann,bob\n# ann, eve\nbob,ann\n")},
        "e.csv",
        "e.csv: row 2: column 'src' is '# ann', must be an id: comments stand above the table alone; --ids text takes "
        "it",
    ),
    Case(
        "an adjacency matrix",
        {"e.csv": b"0,1,0\n1,0,1\n0,1,0\n"},
        "e.csv",
        "e.csv: its 3 columns look like an adjacency matrix, must be a row for each edge, source and target: "
        "numpy.argwhere(matrix) makes these; --src and --dst name columns of edges",
    ),
    Case(
        "an adjacency matrix as savetxt writes it, too long for a first look",
        {"e.txt": b"0.000000000000000000e+00 1.000000000000000000e+00 0.000000000000000000e+00\n" * 1000},
        "e.txt --features random:2",
        "e.txt: its 3 columns look like an adjacency matrix, must be a row for each edge, source and target: "
        "numpy.argwhere(matrix) makes these; --src and --dst name columns of edges",
    ),
    Case(
        "a weighted adjacency matrix",
        {"e.csv": b"0,5,0,0,0,2\n" * 6},
        "e.csv",
        "e.csv: its 6 columns look like an adjacency matrix, must be a row for each edge, source and target: "
        "numpy.argwhere(matrix) makes these; --src and --dst name columns of edges",
    ),
    # --- weights and types
    Case(
        "a weight that is not a number",
        {"e.csv": WEIGHTED + b"1,3,heavy\n"},
        "e.csv --weight w",
        "e.csv: row 4: column 'w' is 'heavy', must be a number",
    ),
    Case(
        "a weight of nan",
        {"e.parquet": table(src=[1, 2], dst=[2, 1], w=[1.0, float("nan")])},
        "e.parquet --weight w",
        "e.parquet: row 2: column 'w' is nan, must be finite and > 0",
    ),
    Case(
        "a negative weight",
        {"e.csv": WEIGHTED + b"1,3,-2\n"},
        "e.csv --weight w",
        "e.csv: row 4: column 'w' is -2.0, must be finite and > 0",
    ),
    Case(
        "a type that is missing",
        {"e.csv": b"src,dst,kind\n1,2,likes\n2,3,\n"},
        "e.csv --type kind",
        "e.csv: row 2: column 'kind' is missing, must be a word: every edge has a type",
    ),
    Case(
        "a type that is no integer",
        {"e.csv": b"src,dst,kind\n1,2,0\n2,3,likes\n"},
        "e.csv --type kind",
        "e.csv: row 2: column 'kind' is 'likes', must be an integer, as the first one is",
    ),
    Case(
        "types over the disk",
        {"e.csv": b"src,dst,kind\n1,2,0\n2,3,1\n"},
        "e.csv --type kind --stream",
        "e: edges with types need the graph in memory: raise --memory, or drop --stream",
    ),
    # --- columns and files
    Case(
        "a column that is not there", {"e.csv": EDGES}, "e.csv --src from", "e.csv: has no column 'from', only src, dst"
    ),
    Case(
        "one column for two things",
        {"e.csv": EDGES},
        "e.csv --src dst --dst dst",
        "edges:e.csv: source 'dst', target 'dst', weight None and type None must be different columns",
    ),
    Case("two columns of one name", {"e.csv": b"src,src\n1,2\n"}, "e.csv", "e.csv: has two columns 'src'"),
    Case("one column", {"e.csv": b"src\nann\n"}, "e.csv", "e.csv: has one column, must have two: source and target"),
    Case(
        "a second file of other columns",
        {"e1.csv": EDGES, "e2.csv": b"a,b\n1,2\n"},
        "e*.csv",
        "e2.csv: has no column 'src', only a, b",
    ),
    Case("an empty file", {"e.csv": b""}, "e.csv", "e.csv: is empty"),
    Case("a header alone", {"e.csv": b"src,dst\n"}, "e.csv", "e.csv: has no edge, so no vertex"),
    Case("no file", {}, "e.csv", "e.csv: no such file"),
    Case("a pipe for a table", {"e.csv": os.mkfifo}, "e.csv", "e.csv: is a pipe or device, must be a file"),
    Case("a pipe for a graph", {"g.npz": os.mkfifo}, "g.npz", "g.npz: is a pipe or device, must be a file"),
    Case("a folder for a graph", {"g.pt": Path.mkdir}, "g.pt", "g.pt: is a folder, must be a file"),
    Case(
        "a pipe for features",
        {"e.csv": EDGES, "x.npy": os.mkfifo},
        "e.csv --features x.npy",
        "x.npy: is a pipe or device, must be a file",
    ),
    Case(
        "a pipe for sparse features",
        {"e.csv": EDGES, "x.npz": os.mkfifo},
        "e.csv --features x.npz",
        "x.npz: is a pipe or device, must be a file",
    ),
    Case(
        "a name that is too long",
        {"e.csv": EDGES},
        "e.csv --out " + "s" * 300,
        "s" * 300 + ": cannot be written: File name too long",
    ),
    Case(
        "a file of another kind",
        {"e.doc": EDGES},
        "e.doc",
        "e.doc: ends as no format that siafu reads: .npz, .bsnap, .dgl, .pt, .parquet, .pq, .csv, .csv.gz, .tsv, "
        ".tsv.gz, .txt, .txt.gz, .edges, .edges.gz, .edgelist, .edgelist.gz, or those of docs/data.md",
    ),
    Case(
        "text that is called compressed",
        {"e.csv.gz": EDGES},
        "e.csv.gz",
        "e.csv.gz: is not compressed by gzip: call it e.csv",
    ),
    Case(
        "compressed text that is not called so",
        {"e.csv": gzip.compress(EDGES)},
        "e.csv",
        "e.csv: is compressed by gzip: call it e.csv.gz",
    ),
    Case(
        "compressed text that is cut off",
        {"e.csv.gz": gzip.compress(EDGES * 5000)[:-9]},
        "e.csv.gz",
        "e.csv.gz: not readable (…)",
    ),
    Case("UTF-16", {"e.csv": EDGES.decode().encode("utf-16")}, "e.csv", "e.csv: is UTF-16, must be UTF-8"),
    Case("Parquet that is none", {"e.parquet": EDGES}, "e.parquet", "e.parquet: not a readable Parquet file (…)"),
    Case(
        "Parquet that is called CSV",
        {"e.csv": table(src=[1], dst=[2])},
        "e.csv",
        "e.csv: is a Parquet file: call it .parquet",
    ),
    # --- vertices
    Case(
        "a vertex of labels that is not in the graph",
        {"e.csv": EDGES, "y.csv": b"id,y\n1,0\n9,1\n"},
        "e.csv --labels y.csv --num-vertices 4",
        "y.csv: row 2: vertex 9 is not in the graph",
    ),
    Case(
        "a vertex that is there twice",
        {"e.csv": EDGES, "y.csv": b"id,y\n1,0\n2,1\n1,1\n"},
        "e.csv --labels y.csv",
        "y.csv: row 3: vertex 1 is there twice",
    ),
    Case(
        "a word among classes",
        {"e.csv": EDGES, "y.csv": b"id,y\n1,0\n2,cat\n"},
        "e.csv --labels y.csv",
        "y.csv: row 2: column 'y' is 'cat', must be an integer, as the first value is",
    ),
    Case(
        "a fraction among classes",
        {"e.csv": EDGES, "y.parquet": table(id=[1, 2], y=[0.0, 0.5])},
        "e.csv --labels y.parquet --target classes",
        "y.parquet: label of vertex 2 is 0.5, must be an integer from 0 on, or -1 for unknown; --target "
        "numbers makes numbers of labels",
    ),
    Case(
        "a class of -2",
        {"e.csv": EDGES, "y.csv": b"id,y\n1,0\n2,-2\n"},
        "e.csv --labels y.csv",
        "y.csv: label of vertex 2 is -2, must be an integer from 0 on, or -1 for unknown; --target "
        "numbers makes numbers of labels",
    ),
    Case(
        "two label columns that are not 0 or 1",
        {"e.csv": EDGES, "y.csv": b"id,a,b\n1,0,1\n2,1,7\n"},
        "e.csv --labels y.csv",
        "y.csv: label of vertex 2 is 7, must be 0 or 1, or -1 for unknown; --target numbers makes numbers of labels",
    ),
    Case(
        "a split that is no role",
        {"e.csv": EDGES, "s.csv": b"id,role\n1,train\n2,exam\n"},
        "e.csv --split s.csv",
        "s.csv: row 2: column 'role' is 'exam', must be train, val (valid, validation), test, none, or 0 (none), 1 "
        "(train), 2 (validation), 3 (test)",
    ),
    Case(
        "features that miss a vertex",
        {"e.csv": EDGES, "x.csv": b"id,a\n1,0.5\n2,1\n"},
        "e.csv --features x.csv",
        "x.csv: has no features of vertex 3, which edges or another table have",
    ),
    Case(
        "a feature that is missing",
        {"e.csv": EDGES, "x.csv": b"id,a,b\n1,0.5,1\n2,,1\n3,1,1\n"},
        "e.csv --features x.csv",
        "x.csv: row 2: column 'a' is missing, must be a number: fill it in, or #-a leaves the column out",
    ),
    Case(
        "a feature that is a word",
        {"e.csv": EDGES, "x.csv": b"id,a\n1,0.5\n2,red\n"},
        "e.csv --features x.csv",
        "x.csv: row 2: column 'a' is 'red', must be a number",
    ),
    Case(
        "a feature that is infinite",
        {"e.csv": EDGES, "x.csv": b"id,a\n1,0.5\n2,inf\n3,1\n"},
        "e.csv --features x.csv",
        "x.csv: row 2: column 'a' is inf, must be finite",
    ),
    Case(
        "nothing but labels for features",
        {"e.csv": EDGES, "v.csv": b"id,y\n1,0\n2,1\n3,1\n"},
        "e.csv --features v.csv --labels v.csv",
        "v.csv: its columns are id, y: must be an id and at least one value that is not a label or split",
    ),
    Case(
        "rows of another number",
        {"e.csv": EDGES, "x.npy": npy(np.ones((4, 2))), "y.npy": npy(np.zeros(5, int))},
        "e.csv --features x.npy --labels y.npy",
        "y.npy: 5 rows, but x.npy says 4: both are the vertices",
    ),
    Case(
        "rows by number for names",
        {"e.csv": text("ann,bob\n"), "x.npy": npy(np.ones((2, 2)))},
        "e.csv --features x.npy",
        "e.csv: ids are text, but x.npy is of vertices by number",
    ),
    Case(
        "an .npy file that is none",
        {"e.csv": EDGES, "x.npy": b"not numpy"},
        "e.csv --features x.npy",
        "x.npy: not a readable .npy file (…)",
    ),
    # --- npz
    Case(
        "an npz file that is none",
        {"g.npz": b"PK\3\4 but no zip"},
        "g.npz",
        "g.npz: not a readable npz archive of plain arrays (no zip file)",
    ),
    Case(
        "an array that is not there",
        {"g.npz": npz(edge_index=None)},
        "g.npz",
        "g.npz: has no array 'edge_index', only num_classes, num_features, num_nodes, test_mask, train_mask, x, y",
    ),
    Case(
        "an edge to nowhere",
        {"g.npz": npz(edge_index=np.array([[0, 1], [1, 4]]))},
        "g.npz",
        "g: edge 1 has target vertex 4, must be in 0..3",
    ),
    Case(
        "a label of no class",
        {"g.npz": npz(y=np.array([0, 1, 2, 0]))},
        "g.npz",
        "g: vertex 2 has label 2, must be in -1..1",
    ),
    Case(
        "masks that overlap",
        {"g.npz": npz(test_mask=np.ones(4, bool))},
        "g.npz",
        "g.npz: vertex 0 is in train_mask and test_mask of split 0, must be in one",
    ),
    Case(
        "pickled objects",
        {"g.npz": npz(y=np.array([{}, {}, {}, {}]))},
        "g.npz",
        "g.npz: not a readable npz archive of plain arrays (…)",
    ),
    Case(
        "a feature of nan",
        {"g.npz": npz(x=np.array([[0, 1], [1, np.nan], [0, 0], [1, 1]], np.float32))},
        "g.npz",
        "g: feature 1 of vertex 1 is nan, must be finite",
    ),
    # --- flags
    Case(
        "an unknown source",
        {},
        "coar",
        "source 'coar': no such file or graph, did you mean cora?",
    ),
    Case(
        "a flag of another source",
        {},
        "digits --weight w",
        "--weight is for graphs that are read, and 'digits' is made",
    ),
    Case("ids of no kind", {"e.csv": EDGES}, "e.csv --ids words", "ids 'words', must be one of auto, integer, text"),
    Case(
        "more partitions than vertices",
        {"e.csv": EDGES},
        "e.csv --parts 9",
        "e: 9 partitions, must be in 1..3, its vertex count",
    ),
    Case(
        "a memory limit that is none",
        {"e.csv": EDGES},
        "e.csv --memory lots",
        "memory limit 'lots' is no size: write 6GiB, 500MB or a number of bytes",
    ),
    Case(
        "inspecting and preparing",
        {"e.csv": EDGES},
        "e.csv --inspect --out shards",
        "--inspect prepares nothing: leave --out away, or --inspect",
    ),
    Case(
        "a destination that is something else",
        {"e.csv": EDGES},
        "e.csv --out e.csv",
        "e.csv: exists and is not a prepared graph, so it is not overwritten",
    ),
)
