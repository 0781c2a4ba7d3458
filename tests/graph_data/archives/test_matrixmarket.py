import gzip

import numpy as np
import pytest

from graph_data.sources.names import resolve
from siafu.errors import DatasetError
from siafu.graph import tidy

HEAD = "%%MatrixMarket matrix coordinate"


@pytest.fixture(autouse=True)
def beside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    np.save("y.npy", np.array([1, 0, -1]))
    np.save("s.npy", np.array([1, 2, 0], np.uint8))


def edges_of(graph):
    return sorted(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))


def refusal(name):
    with pytest.raises(DatasetError) as error:
        resolve(name).load()
    return str(error.value)


def write(text, name="a.mtx"):
    with open(name, "w") as stream:
        stream.write(text)
    return name


@pytest.mark.parametrize(
    ("kind", "lines", "edges", "weight"),
    [
        ("pattern general", ["1 2", "3 1"], [(0, 1), (2, 0)], None),
        ("pattern symmetric", ["2 1", "3 1"], [(0, 1), (0, 2), (1, 0), (2, 0)], None),
        ("pattern symmetric", ["2 1", "1 2"], [(0, 1), (1, 0)], None),
        ("real general", ["1 2 0.5", "3 1 2"], [(0, 1), (2, 0)], [0.5, 2]),
        ("integer symmetric", ["2 1 1", "3 1 1"], [(0, 1), (0, 2), (1, 0), (2, 0)], None),
    ],
)
def test_coordinates_are_edges(kind, lines, edges, weight):
    write(f"{HEAD} {kind}\n% words\n%\n3 3 {len(lines)}\n" + "\n".join(lines) + "\n")
    graph = resolve("a.mtx?features=x.npy&labels=y.npy&split=s.npy").load()
    assert (graph.name, graph.num_vertices, edges_of(graph)) == ("a", 3, edges)
    assert (graph.weight if weight is None else graph.weight.tolist()) == weight
    assert graph.notes == (
        "a.mtx: a MatrixMarket file, public split",
        "a.mtx: row 1 of the matrix is vertex 0, as files of vertices number them",
    )
    assert (graph.labels.tolist(), graph.num_classes) == ([1, 0, -1], 2)
    assert graph.split.tolist() == [[1], [2], [0]]
    assert graph.features.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_random_features_and_a_compressed_file():
    with gzip.open("a.mtx.gz", "wt") as stream:
        stream.write(f"{HEAD} pattern symmetric\n3 3 1\n2 1\n")
    graph = tidy(resolve("a.mtx.gz?features=random:4").load())
    assert (graph.name, graph.made_features, edges_of(graph)) == ("a", "random:4", [(0, 1), (1, 0)])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f"{HEAD} pattern general\n3 2 1\n1 1\n",
            "a MatrixMarket file, but the adjacency matrix is [3, 2], must be square",
        ),
        (
            f"{HEAD} pattern general\n3 3 99999999999\n1 1\n",
            "not readable as MatrixMarket (it says that it is of 3 3 99999999999, with 69 bytes at most)",
        ),
        (
            f"{HEAD} pattern general\n99999999999 99999999999 1\n1 1\n",
            "not readable as MatrixMarket (it says that it is of 99999999999 99999999999 1, with 79 bytes at most)",
        ),
        (
            "%%MatrixMarket matrix array real general\n1 1\n1\n",
            "not readable as MatrixMarket (not a matrix of coordinates and of pattern, integer or real values)",
        ),
        (
            f"{HEAD} pattern general\n3 3 1\n2 1\0",
            "not readable as MatrixMarket (could not convert string '1\\x00' to int64 at row 0, column 2.)",
        ),
        (f"{HEAD} real general\n3 3 2\n1 2 0.5\n", "has 1 entries, and says that it has 2"),
        (f"{HEAD} pattern general\n3 3 1\n4 1\n", "a MatrixMarket file, but a row or column is outside its shape"),
        (
            f"{HEAD} pattern general\n3 3 1\n1 2 0.5\n",
            (
                "not readable as MatrixMarket (the dtype passed requires 2 columns but 3 were found at row 1; use "
                "`usecols` to select a subset and avoid this error)"
            ),
        ),
        ("1 2\n", "not readable as MatrixMarket (not a matrix of coordinates and of pattern, integer or real values)"),
    ],
)
def test_what_does_not_fit_is_one_line(text, message):
    assert refusal(write(text) + "?features=random:4") == f"a.mtx: {message}"


def test_features_must_be_named():
    assert refusal(write(f"{HEAD} pattern general\n3 3 1\n1 1\n")).startswith(
        "a.mtx: has no features: name a file of them"
    )
