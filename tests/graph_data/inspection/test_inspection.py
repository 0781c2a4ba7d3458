"""What ``siafu prepare --inspect`` says of graphs, against brute force and what is known of public ones."""

import argparse
import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graph_data.inspection import report
from graph_data.inspection.report import inspect
from graph_data.inspection.show import show
from graph_data.options import Options
from graph_data.prepare import prepare, resolve
from run_coordinator.cli import add_arguments
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import ConfigError, DatasetError
from siafu.graph import TEST, TRAIN
from tests.graph_data.graphs import random_graph, sparse_rows

DATA = next((folder for folder in (Path("../shared/data"), Path("data")) if folder.is_dir()), None)

GRAPHS = {
    "plain": {},
    "many classes": {"classes": 12},
    "sparse": {"sparse": True},
    "dense": {"n": 12, "edges": 600},
    "multi-label": {"multilabel": True},
    "weighted": {"weighted": True},
    "no edge": {"edges": 0},
    "no split": {"splits": 0},
}


@pytest.fixture(params=GRAPHS)
def graph(request):
    return random_graph(seed=3, **GRAPHS[request.param])


def neighbours(graph):
    """The set of neighbours of every vertex, by brute force."""
    found = [set() for _ in range(graph.num_vertices)]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        if u != v:
            found[u].add(v)
            found[v].add(u)
    return found


def pairs(graph):
    return {(min(v, u), max(v, u)) for v, others in enumerate(neighbours(graph)) for u in others}


# --- structure --------------------------------------------------------------------------------------------------------


def test_edges_are_counted_as_listed_and_as_pairs(graph):
    s, listed = inspect(graph).structure, Counter(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    assert s.listed_edges == graph.num_edges
    assert s.repeated_edges == graph.num_edges - len(listed)
    assert s.self_loops == sum(count for (u, v), count in listed.items() if u == v)
    assert s.pairs == len(pairs(graph))
    straight = [(u, v) for u, v in listed if u != v]
    assert s.reciprocity == pytest.approx(sum((v, u) in listed for u, v in straight) / max(1, len(straight)))


def test_edges_of_two_types_do_not_repeat_each_other():
    kind = np.arange(150, dtype=np.uint16)
    graph = replace(random_graph(n=3, edges=150), edge_type=kind, num_edge_types=150)
    assert inspect(graph).structure.repeated_edges == 0


def test_degrees_are_of_neighbours(graph):
    degree = np.array([len(others) for others in neighbours(graph)])
    d = inspect(graph).degrees
    assert (d.min, d.max, d.median) == (degree.min(), degree.max(), np.median(degree))
    assert d.mean == pytest.approx(degree.mean())
    for low, high, count in d.histogram:
        assert count == ((degree >= low) & (degree <= high)).sum()
    assert sum(count for *_, count in d.histogram) == len(degree)
    apart = np.abs(degree[:, None] - degree[None]).mean()
    assert d.gini == pytest.approx(apart / (2 * degree.mean()) if degree.any() else 0)
    assert d.top_share == pytest.approx(degree.max() / max(1, degree.sum()))  # 1% of 40 is one vertex


def test_components_are_those_of_a_walk(graph):
    near, left, sizes = neighbours(graph), set(range(graph.num_vertices)), []
    while left:
        front, seen = {min(left)}, set()
        while front:
            seen |= front
            front = set().union(*(near[v] for v in front)) - seen
        left -= seen
        sizes.append(len(seen))
    s = inspect(graph).structure
    assert (s.components, s.component_sizes) == (len(sizes), tuple(sorted(sizes, reverse=True)))
    assert s.isolated == sum(not others for others in near)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_homophily_is_what_the_papers_define():
    graph = random_graph(seed=5, n=60, edges=200, classes=4)
    label = graph.labels
    edges = [(u, v) for u, v in pairs(graph) if label[u] >= 0 and label[v] >= 0]
    both = edges + [(v, u) for u, v in edges]
    edge = np.mean([label[u] == label[v] for u, v in edges])
    ends = Counter(int(label[u]) for u, _ in both)
    chance = sum((count / len(both)) ** 2 for count in ends.values())
    own = {k: np.mean([label[v] == k for u, v in both if label[u] == k]) for k in ends}
    size = {k: (label == k).sum() / (label >= 0).sum() for k in ends}
    found = inspect(graph).labels.homophily
    assert found.edge == pytest.approx(edge)
    assert found.adjusted == pytest.approx((edge - chance) / (1 - chance))
    assert found.insensitive == pytest.approx(sum(max(0, own[k] - size[k]) for k in ends) / 3)


def test_of_several_labels_the_overlap_counts():
    graph = random_graph(multilabel=True)
    sets = [set(np.flatnonzero(row)) for row in graph.labels]
    expected = [len(sets[u] & sets[v]) / len(sets[u] | sets[v]) for u, v in pairs(graph) if sets[u] | sets[v]]
    assert inspect(graph).labels.homophily.edge == pytest.approx(np.mean(expected))


def test_numbers_are_correlated_along_edges():
    graph = random_graph()
    value = np.random.default_rng(1).normal(size=40).astype(np.float32)
    value[3] = np.nan
    labels = inspect(replace(graph, labels=value, num_classes=1)).labels
    ends = np.array([(value[u], value[v]) for u, v in pairs(graph) if 3 not in (u, v)])
    both = np.concatenate([ends, ends[:, ::-1]])
    assert labels.homophily.adjusted == pytest.approx(np.corrcoef(both.T)[0, 1], abs=1e-6)
    assert labels.labelled == 39
    assert labels.numbers[0] == pytest.approx((np.nanmin(value), np.nanmean(value), np.nanmax(value), np.nanstd(value)))


def test_classes_are_counted_by_role(graph):
    label = graph.labels if graph.labels.ndim == 2 else graph.labels[:, None] == np.arange(graph.num_classes)
    role = graph.split[:, 0] if graph.split.shape[1] else np.zeros(graph.num_vertices)
    for one in inspect(graph).labels.counts:
        member = label[:, int(one.name)].astype(bool)
        expected = [member.sum(), *((member & (role == r)).sum() for r in (1, 2, 3))]
        assert [one.vertices, one.train, one.val, one.test] == expected


# --- twins ------------------------------------------------------------------------------------------------------------


def copies(keys, role):
    """Vertices whose key another one has, and those for test among them whose key one for training has."""
    count = Counter(key for key in keys if key is not None)
    trained = {key for key, r in zip(keys, role, strict=True) if r == TRAIN}
    twin = [key is not None and count[key] > 1 for key in keys]
    leaked = [t and r == TEST and key in trained for t, r, key in zip(twin, role, keys, strict=True)]
    return sum(twin), sum(leaked)


@pytest.mark.parametrize("sparse", [False, True])
def test_twins_are_those_of_brute_force(sparse):
    rng = np.random.default_rng(2)
    graph = random_graph(seed=2, n=60, edges=70, classes=2)
    dense = rng.integers(0, 2, (60, 4)).astype(np.uint8)
    graph = replace(graph, features=sparse_rows(dense) if sparse else dense)
    targets = [set() for _ in range(60)]
    for u, v in zip(graph.src.tolist(), graph.dst.tolist(), strict=True):
        targets[u].add(v)
    rows = [tuple(row) if any(row) else None for row in dense.tolist()]
    near = [(frozenset(t), int(y)) if t and y >= 0 else None for t, y in zip(targets, graph.labels, strict=True)]
    both = [(frozenset(t), row) if t and row else None for t, row in zip(targets, rows, strict=True)]
    found, role = inspect(graph).twins, graph.split[:, 0]
    for kind, keys in ((found.features, rows), (found.neighbours, near), (found.both, both)):
        assert (kind.vertices, kind.in_train[0]) == copies(keys, role)
    assert found.features.vertices > 0 < found.neighbours.vertices
    assert found.zero_features == rows.count(None)


# --- features ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_columns_are_measured_the_same_dense_and_sparse(sparse):
    dense = np.array([[0, 1, 5, -2], [0, 1, 0, 0], [0, 1, 2, 3.5]], np.float32)
    graph = random_graph(n=3, edges=4, splits=0)
    f = inspect(replace(graph, features=sparse_rows(dense) if sparse else dense)).features
    assert (f.columns, f.constant_columns, f.min, f.max) == (4, 2, -2, 5)
    assert f.zeros == pytest.approx(5 / 12)
    assert (f.smallest_deviation, f.largest_deviation) == pytest.approx((dense[:, 2].std(), dense[:, 3].std()))


@pytest.mark.parametrize(
    ("matrix", "kind"),
    [
        ([[0, 1], [1, 1]], "binary"),
        ([[0, 7], [1, 1]], "counts"),
        ([[0.25, 0.75], [0, 0]], "rows sum to 1"),
        ([[1, -1], [-1, 1]], "standardised"),
        ([[0.5, -3], [2, 1]], "real"),
    ],
)
def test_what_features_are(matrix, kind):
    graph = random_graph(n=2, edges=1, splits=0)
    for features in (np.array(matrix, np.float32), sparse_rows(np.array(matrix, np.float32))):
        assert inspect(replace(graph, features=features)).features.kind == kind


# --- public graphs ----------------------------------------------------------------------------------------------------

#: name: self-loops, repeated edges, pairs of neighbours, isolated vertices, twins; the counts of that folder's README
PUBLIC = {
    "cora": (0, 302, 5278, 0, None),
    "citeseer": (248, 236, 4552, 48, None),
    "amazon_computers": (0, 0, 245_861, 281, None),
    "squirrel": (140, 0, 198_353, 0, 4134),
    "chameleon": (50, 0, 31_371, 0, 1830),
    "tolokers": (0, 0, 519_000, 0, None),
    "blogcatalog": (0, 0, 171_743, 0, None),
    "pcg": (0, 0, 37_351, 0, None),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_counts_of_public_graphs_are_those_that_are_published(name):
    if DATA is None:
        pytest.skip("no folder ../shared/data with public graphs")
    report = inspect(resolve(str(DATA / f"{name}.npz")).load())
    s, twins = report.structure, report.twins.neighbours.vertices
    loops, repeated, distinct, isolated, expected = PUBLIC[name]
    assert (s.self_loops, s.repeated_edges, s.pairs, s.isolated) == (loops, repeated, distinct, isolated)
    assert expected in (None, twins)


# --- what a user sees -------------------------------------------------------------------------------------------------


def test_every_kind_of_graph_is_shown(graph, capsys):
    show(inspect(graph))
    out = capsys.readouterr().out
    assert out.startswith("random: ")
    assert "Degrees" in out


def warned(graph):
    return " / ".join(inspect(graph).warnings)


def test_what_is_odd_is_said_in_one_line_each():
    graph = random_graph()
    features = graph.features.copy()
    features[:, 1] = 1
    text = warned(replace(graph, features=features))
    assert "5 of 40 vertices have no neighbour: " in text
    assert "self-loops are dropped" in text
    assert "1 of 5 feature columns are constant" in text
    assert "features are counts, not normalised: try --feature-norm row" in text
    assert "\n" not in text
    no_test = np.where(graph.split == TEST, TRAIN, graph.split)
    assert "split 0 has no test vertex: the model gets no test score" in warned(replace(graph, split=no_test))
    assert "nothing to train on but --task link" in warned(replace(graph, labels=np.full(40, -1)))


def test_twins_in_training_are_told_with_their_count():
    graph = random_graph(n=40, edges=0)
    split = np.full((40, 1), TEST, np.uint8)
    split[:20] = TRAIN
    src = np.repeat(np.arange(20, 40), 1)
    both = replace(
        graph,
        src=np.concatenate([src, np.arange(20)]),
        dst=np.full(40, 7),
        split=split,
        labels=np.zeros(40, int),
        features=np.eye(40, dtype=np.float32),
    )
    found = warned(both)
    assert (
        "40 of 40 vertices have the same label and targets of edges as another vertex; 20 of 20 test vertices" in found
    )


def test_every_flag_that_is_advised_is_one_of_train():
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    told = Path(report.__file__).read_text().partition("def _warnings(")[2]
    flags = set(re.findall(r"--[a-z-]+", told))
    assert {"--feature-norm", "--directed", "--task", "--set"} <= flags <= parser._option_string_actions.keys()
    Config().replace(dict.fromkeys(re.findall(r"data\.[a-z_]+(?==N)", told), "7"))


def test_predicting_edges_is_not_advised_where_train_refuses_it():
    graph = replace(random_graph(), labels=np.full(40, -1))
    assert "nothing to train on but --task link" in warned(graph)
    typed = replace(graph, edge_type=np.arange(graph.num_edges) % 3, num_edge_types=3)
    assert "nothing to train on" in warned(typed)
    assert "--task" not in warned(typed)
    with pytest.raises((ConfigError, DatasetError), match="its edges have 3 types, task link predicts one"):
        Options.of({**(prepare.__kwdefaults__ or {}), "task": "link"}).with_types(typed)


@pytest.fixture
def saved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text("s,d\nann,bob\nbob,eve\nbob,bob\n")
    pytest.importorskip("pyarrow")
    return tmp_path


def test_the_report_is_json_and_nothing_is_prepared(saved, capsys):
    assert main(["prepare", "e.csv", "--features", "random:4", "--inspect", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["structure"]["self_loops"] == 1
    assert (report["structure"]["pairs"], report["labels"]["labelled"]) == (2, 0)
    assert [path.name for path in saved.iterdir()] == ["e.csv"]


def test_the_report_is_readable(saved, capsys):
    assert main(["prepare", "e.csv", "--features", "random:4", "--inspect"]) == 0
    out = capsys.readouterr().out
    assert "e: 3 vertices, 2 pairs of neighbours" in out
    assert "1 self-loops are dropped: a model adds its own" in out
    assert "features are random:4, the source has none: only edges carry information" in out


def test_a_graph_larger_than_memory_is_refused(saved, capsys):
    assert main(["prepare", "e.csv", "--features", "random:4", "--inspect", "--memory", "1MiB"]) == 2
    assert "e.csv?features=random:4: --inspect holds the graph in memory, about " in capsys.readouterr().err


def test_thresholds_leave_a_good_graph_alone():
    n = 20  # two cliques, each a class; identity for features
    src, dst = np.array(
        list(itertools.permutations(range(n // 2), 2))
        + [(u + 10, v + 10) for u, v in itertools.permutations(range(n // 2), 2)]
        + [(0, 10), (10, 0)]
    ).T
    graph = replace(
        random_graph(n=n, edges=0),
        src=src,
        dst=dst,
        features=np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32),
        labels=np.repeat([0, 1], n // 2),
        num_classes=2,
        split=np.tile([[1], [2], [3], [1]], (5, 1)).astype(np.uint8),
    )
    assert inspect(graph).warnings == ()


def test_class_names_in_brackets_are_shown_as_they_are(capsys):
    graph = random_graph(1)
    names = tuple(f"[/{number}]" for number in range(graph.num_classes))
    show(inspect(replace(graph, names={"classes": names})))
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
