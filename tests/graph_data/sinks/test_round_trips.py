"""A graph that leaves in any format, and comes back, is the graph that left."""

import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from graph_data.convert import convert, loaded
from graph_data.prepare import prepare
from graph_data.sinks import SINKS, tables
from siafu.graph import tidy
from tests.graph_data.dgl_import import imported_dgl
from tests.graph_data.graphs import random_graph
from tests.graph_data.same import assert_same

SEEDS = range(3)
NUM_TYPES = 4


def plain(seed):
    """Loops, parallel edges, isolated and unlabelled vertices, two splits."""
    return random_graph(seed)


def weighted_and_sparse(seed):
    return random_graph(seed, weighted=True, sparse=True, splits=1)


def multilabel_without_split(seed):
    return random_graph(seed, multilabel=True, splits=0)


def multilabel_with_gaps(seed):
    """Vertices whose labels are unknown, all or one of them."""
    graph = random_graph(seed, multilabel=True)
    labels, split = graph.labels.astype(np.int8), graph.split.copy()
    labels[:5], labels[5, 1] = -1, -1
    split[:6] = 0
    return replace(graph, labels=labels, split=split)


def typed_and_weighted(seed):
    graph = random_graph(seed, weighted=True)
    kind = np.random.default_rng(seed).integers(0, NUM_TYPES, graph.num_edges).astype(np.uint16)
    kind[np.argmax(graph.src != graph.dst)] = NUM_TYPES - 1  # the last type occurs, and not on a loop alone
    return replace(graph, edge_type=kind, num_edge_types=NUM_TYPES)


def numbers(seed):
    graph = random_graph(seed)
    labels = np.random.default_rng(seed).standard_normal(graph.num_vertices).astype(np.float32)
    labels[seed] = np.nan
    return replace(graph, labels=labels, num_classes=1)


def columns_of_numbers(seed):
    graph = random_graph(seed, splits=1)
    labels = np.random.default_rng(seed).standard_normal((graph.num_vertices, 2)).astype(np.float32)
    labels[seed] = np.nan
    return replace(graph, labels=labels, num_classes=2)


def half_floats(seed):
    graph = random_graph(seed)
    rows = np.random.default_rng(seed).standard_normal((graph.num_vertices, 7)).astype(np.float16)
    return replace(graph, features=rows)


def numbers_of_0_and_1(seed):
    graph = numbers(seed)
    return replace(graph, labels=(graph.labels > 0).astype(np.float32), numbers_said=True)


def without_edges(seed):
    graph = random_graph(seed)
    return replace(graph, src=graph.src[:0], dst=graph.dst[:0])


def without_labels(seed):
    graph = random_graph(seed, splits=0)
    return replace(graph, labels=np.full(graph.num_vertices, -1), num_classes=1)


GRAPHS = (
    plain,
    weighted_and_sparse,
    multilabel_without_split,
    multilabel_with_gaps,
    typed_and_weighted,
    numbers,
    columns_of_numbers,
    half_floats,
    without_edges,
    without_labels,
)
every_graph = pytest.mark.parametrize("make", GRAPHS, ids=lambda make: make.__name__)


def without_loops(graph):
    kept = graph.src != graph.dst
    fields = ("src", "dst", "weight", "edge_type")
    return replace(graph, **{name: None if (a := getattr(graph, name)) is None else a[kept] for name in fields})


NEEDS = {"csv": "pyarrow", "parquet": "pyarrow", "pyg": "torch"}
every_format = pytest.mark.parametrize("kind", SINKS)


@pytest.fixture(autouse=True)
def needed(request):
    """The package that a format needs; the test is skipped where it is not."""
    if "kind" in request.fixturenames and (package := NEEDS.get(request.getfixturevalue("kind"))):
        pytest.importorskip(package)


@pytest.mark.sampled(3)
@every_graph
@every_format
def test_a_file_gives_the_graph_back(kind, make, tmp_path):
    for seed in SEEDS:
        graph = make(seed)
        written = convert(graph, kind, tmp_path / f"{kind}{seed}")
        expected = without_loops(graph) if kind == "bsnap" else graph  # Dorylus adds its own, so they do not go there
        assert_same(loaded(written.source), expected)


@every_format
def test_numbers_that_are_all_0_and_1_come_back_as_numbers(kind, tmp_path):
    graph = numbers_of_0_and_1(0)
    found = loaded(convert(graph, kind, tmp_path / "out").source)
    assert_same(found, without_loops(graph) if kind == "bsnap" else graph)


@every_format
def test_one_column_of_several_classes_comes_back_as_such(kind, tmp_path):
    graph = random_graph(0, splits=0)
    graph = replace(graph, labels=(graph.labels > 0).astype(np.uint8)[:, None], num_classes=1)
    found = loaded(convert(graph, kind, tmp_path / "out").source)
    assert_same(found, without_loops(graph) if kind == "bsnap" else graph)


def test_names_of_features_come_back_from_an_archive(tmp_path):
    for number, graph in enumerate((random_graph(0), random_graph(0, sparse=True))):
        words = tuple(f"größe {i}" for i in range(graph.num_features))
        graph = replace(graph, names={"features": words, "edge_types": ("a", "b")})
        written = convert(graph, "npz", tmp_path / str(number))
        assert loaded(written.source).names == {"features": words}
        assert "the names of its edge types are not in it: they are numbered" in written.notes


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_features_are_the_columns_of_a_table(kind, tmp_path):
    csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
    graph = random_graph(0)
    words = tuple(f"age {i}" for i in range(graph.num_features))
    convert(replace(graph, names={"features": words}), kind, tmp_path / "out")
    path = tmp_path / f"out/features.{kind}"
    columns = (csv.read_csv(path) if kind == "csv" else parquet.read_table(path)).column_names
    assert columns == ["id", *words]
    for number, twice in enumerate((("id", *words[1:]), (words[1], *words[1:]))):
        written = convert(replace(graph, names={"features": twice}), kind, tmp_path / str(number))
        assert "the names of its features are not in it: they are numbered" in written.notes
        assert_same(loaded(written.source), graph)


@every_format
def test_random_features_are_written_and_the_user_is_told(kind, tmp_path):
    graph = replace(random_graph(0), random_features=True)
    written = convert(graph, kind, tmp_path / "out")
    assert f"its features are random (random:{graph.num_features}): a reader is not told" in written.notes


@every_format
def test_types_that_no_edge_has_come_back(kind, tmp_path):
    """Of five types, one and three occur, and three on a self-loop alone: rgcn's weights are by their numbers."""
    graph = random_graph(3)
    kinds = np.where(graph.src == graph.dst, 3, 1).astype(np.uint16)
    graph = replace(graph, edge_type=kinds, num_edge_types=5)
    found = loaded(convert(graph, kind, tmp_path / "out").source)
    assert_same(found, without_loops(graph) if kind == "bsnap" else graph)
    assert "edge_types" not in found.names


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_of_features_are_written_without_a_copy_of_them_all(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "FEATURE_VALUES", 1 << 14)
    rows = np.random.default_rng(0).standard_normal((20_000, 60)).astype(np.float32)
    graph = replace(random_graph(n=len(rows), splits=0), features=rows)
    tracemalloc.start()
    written = convert(graph, kind, tmp_path / "out")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rows.nbytes / 2
    assert np.array_equal(loaded(written.source).features, rows)


@every_graph
def test_pyg_gives_the_graph_back(make):
    pyg = pytest.importorskip("graph_data.objects.pyg")
    pytest.importorskip("torch_geometric")
    for seed in SEEDS:
        graph = make(seed)
        target = graph.target if graph.multilabel else "auto"  # PyG keeps those as floats
        assert_same(pyg.from_pyg(pyg.to_pyg(graph), target=target), graph)


@every_graph
def test_dgl_gives_the_graph_back(make):
    imported_dgl()
    from graph_data.objects.dgl import from_dgl, to_dgl

    for seed in SEEDS:
        graph = with_every_class(make(seed))
        assert_same(from_dgl(to_dgl(graph)), graph)


@every_graph
def test_dgl_reads_the_file_that_is_written_without_it(make, tmp_path):
    dgl = imported_dgl()
    from graph_data.objects.dgl import from_dgl

    for seed in SEEDS:
        graph = with_every_class(make(seed))
        written = convert(graph, "dgl", tmp_path / str(seed))
        (found,), labels = dgl.load_graphs(written.source)
        assert_same(from_dgl(found), graph)
        assert labels["num_classes"].tolist() == [graph.num_classes]
        assert found.in_degrees().sum() == graph.num_edges


def with_every_class(graph):
    """A DGLGraph does not say how many classes there are, so the last one must occur."""
    if graph.target == "classes":
        graph.labels[0] = graph.num_classes - 1
    return graph


@every_format
def test_what_comes_back_is_prepared_to_the_same_shards(kind, tmp_path):
    graph = replace(typed_and_weighted(5), features=plain(5).features.astype(np.float32))
    written = convert(graph, kind, tmp_path / "there")
    ours, theirs = (
        prepare(source, tmp_path / out, parts=2, partitioner="chunk", order="given")
        for source, out in ((graph, "ours"), (written.source, "theirs"))
    )
    files = [[(name, entry.sha256) for name, entry in part.files.items()] for part in ours.manifest.partitions]
    assert files == [
        [(name, entry.sha256) for name, entry in part.files.items()] for part in theirs.manifest.partitions
    ]


@every_format
def test_tidy_graphs_go_round_too(kind, tmp_path):
    graph = tidy(random_graph(7, weighted=True))
    assert_same(loaded(convert(graph, kind, tmp_path / "out").source), graph)


def test_writing_dgl_and_bsnap_needs_numpy_alone(tmp_path):
    """In a process where the packages that others need cannot be imported."""
    source = convert(random_graph(), "npz", tmp_path / "npz").source
    code = (
        "import sys\n"
        "for name in ('torch', 'dgl', 'pyarrow', 'networkx', 'torch_geometric'): sys.modules[name] = None\n"
        "from graph_data.convert import convert, loaded\n"
        "for kind in ('bsnap', 'dgl'):\n"
        "    print(loaded(convert(sys.argv[1], kind, f'{sys.argv[2]}/{kind}').source).num_edges)\n"
    )
    command = [sys.executable, "-c", code, source, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert out == [str(without_loops(random_graph()).num_edges), str(random_graph().num_edges)]
