import os
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow
import pytest

from graph_data import prepare as prepare_module
from graph_data.options import Options
from graph_data.orders import ORDERS
from graph_data.partitioners import PARTITIONERS
from graph_data.prepare import SOURCES, Source, cached, prepare, resolve
from graph_data.sources.ids import NamedIds
from siafu.errors import ConfigError, DatasetError
from siafu.graph import MESSAGE, tidy
from siafu.shards import MANIFEST, ShardSet
from tests.graph_data.graphs import edge_dict, random_graph


@pytest.fixture
def archive(tmp_path):
    """A small graph as tmp_path/data/tiny.npz."""
    graph = random_graph(n=30)
    (tmp_path / "data").mkdir()
    np.savez(
        tmp_path / "data" / "tiny.npz",
        edge_index=np.stack([graph.src, graph.dst]),
        num_nodes=graph.num_vertices,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        x=graph.features,
        y=graph.labels,
    )
    return tmp_path / "data" / "tiny.npz"


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("digits", Source("digits", "")),
        ("synthetic:amazon?scale=1", Source("synthetic", "amazon?scale=1")),
        ("npz:some/file", Source("npz", "some/file")),
        ("some/file.npz", Source("npz", "some/file.npz")),
    ],
)
def test_a_name_means_a_source(name, source):
    assert resolve(name) == source


def test_a_bare_name_is_looked_up_in_the_variables_folder_first(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny") == Source("npz", "data/tiny.npz")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tiny.npz").write_bytes(b"")
    monkeypatch.setenv("SIAFU_DATA", str(tmp_path / "other"))
    assert resolve("tiny") == Source("npz", str(tmp_path / "other" / "tiny.npz"))


def test_to_ask_what_a_source_can_do_loads_no_library():
    """Its module says it: shards that are there need neither scikit-learn nor torch."""
    asks = (
        "import sys; from graph_data.sources.names import SOURCES, Source; "
        "print([(Source(kind, 'x').flags, hasattr(Source(kind, 'x')._module(), 'sizes')) for kind in SOURCES]); "
        "print(sys.modules.keys() & {'sklearn', 'torch', 'pyarrow', 'scipy', 'pandas'})"
    )
    told = subprocess.run([sys.executable, "-c", asks], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "set()"


def test_an_unknown_name_is_refused_with_what_is_known(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIAFU_DATA", raising=False)
    with pytest.raises(
        DatasetError,
        match=r"^source 'unheard-of': must be a \.npz, \.parquet or \.csv file, or one of "
        rf"{', '.join(SOURCES)}, tiny",
    ):
        resolve("unheard-of")
    with pytest.raises(DatasetError, match=r"^source 'coral': no such file or graph, did you mean cora\?$"):
        resolve("coral")


@pytest.mark.parametrize("table", [SOURCES, PARTITIONERS, ORDERS], ids=["sources", "partitioners", "orders"])
def test_every_line_of_a_table_names_a_function(table):
    for target in table.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


# --- prepare ----------------------------------------------------------------------------------------------------------


def test_manifest_records_every_option(tmp_path):
    options = {"parts": 3, "partitioner": "hash", "order": "random", "directed": True, "feature_norm": "row", "seed": 9}
    m = prepare(random_graph(), tmp_path / "out", **options).manifest
    assert (m.num_partitions, m.partitioner, m.order, m.directed, m.feature_norm, m.seed) == tuple(options.values())


def test_manifest_records_what_auto_chose(tmp_path):
    assert prepare(random_graph(), tmp_path / "out").manifest.order in ORDERS


def test_a_published_split_is_kept(tmp_path):
    graph = random_graph(splits=2)
    shard = prepare(graph, tmp_path / "out", order="given").partition(0)
    assert np.array_equal(shard.split, graph.split)


def test_a_graph_without_split_gets_some_vertices_of_every_class(tmp_path):
    graph = random_graph(n=200, splits=0, classes=4)
    (split,) = prepare(graph, tmp_path / "out", train_per_class=5, val_per_class=7).manifest.splits
    assert (split.train, split.val) == (4 * 5, 4 * 7)
    assert split.train + split.val + split.test == (graph.labels >= 0).sum()


def test_a_multi_label_graph_without_split_gets_60_20_20_percent(tmp_path):
    (split,) = prepare(random_graph(n=50, splits=0, multilabel=True), tmp_path / "out").manifest.splits
    assert (split.train, split.val, split.test) == (30, 10, 10)


def test_a_graph_of_numbers_without_split_gets_60_20_20_percent_of_those_known(tmp_path):
    graph = random_graph(n=60, splits=0, numbers=2)
    known = int(np.isfinite(graph.labels).all(axis=1).sum())
    (split,) = prepare(graph, tmp_path / "out").manifest.splits
    assert (split.train, split.val) == (round(0.6 * known), round(0.8 * known) - round(0.6 * known))
    assert split.train + split.val + split.test == known < 60


def test_links_are_split_and_counted(tmp_path):
    said = []
    options = {"task": "link", "val_edges": 0.1, "test_edges": 0.2, "negatives": 2, "eval_negatives": 5}
    m = prepare(random_graph(n=80), tmp_path / "out", parts=2, say=said.append, **options).manifest
    _, training, false, val, _, test, _ = m.type_counts
    assert (m.edge_types, m.directed, false) == ("links", True, 2 * training)
    (line,) = (line for line in said if line.startswith("links"))
    assert line.startswith(f"links: {training // 2} training edges and {false // 2} false ones; {val} validation edges")
    assert test == round(0.2 * (training // 2 + val + test))


def test_links_need_no_labels(tmp_path):
    graph = random_graph(n=80, splits=0)
    unlabelled = replace(graph, labels=np.full(80, -1), num_classes=1)
    assert (
        prepare(unlabelled, tmp_path / "out", task="link", eval_negatives=5, negatives=1).manifest.edge_types == "links"
    )


def test_partitions_of_links_are_cut_along_messages(tmp_path, monkeypatch):
    seen, original = [], prepare_module.partition

    def watched(graph, *options):
        seen.append(graph)
        return original(graph, *options)

    monkeypatch.setattr(prepare_module, "partition", watched)
    m = prepare(random_graph(n=80), tmp_path / "out", task="link", negatives=2, eval_negatives=5).manifest
    assert [(graph.num_edges, graph.edge_type) for graph in seen] == [(m.type_counts[MESSAGE], None)]


def test_partitions_of_relations_are_cut_along_every_pair_once(tmp_path, monkeypatch):
    seen, original = [], prepare_module.partition

    def watched(graph, *options):
        seen.append(graph)
        return original(graph, *options)

    monkeypatch.setattr(prepare_module, "partition", watched)
    graph = random_graph(n=20, types=4)
    m = prepare(graph, tmp_path / "out", parts=2).manifest
    assert edge_dict(seen[0]) == edge_dict(tidy(replace(graph, edge_type=None, num_edge_types=1)))
    assert seen[0].num_edges < m.num_edges == sum(m.type_counts)


NOT_TOGETHER = {
    "unknown task": ({"task": "edge"}, {}, ConfigError, "task 'edge' is not one of node, link"),
    "directed links": (
        {"task": "link", "directed": True},
        {},
        ConfigError,
        "task link predicts undirected edges: it cannot keep directions",
    ),
    "inductive links": (
        {"task": "link", "inductive": 0},
        {},
        ConfigError,
        "inductive is for task node: task link always trains without the held-out edges",
    ),
    "links with types": (
        {"task": "link"},
        {"types": 2},
        DatasetError,
        "random: its edges have 2 types, task link predicts one",
    ),
    "inductive with types": (
        {"inductive": 0},
        {"types": 2},
        ConfigError,
        "random: its edges have 2 types, inductive takes one",
    ),
    "inductive without the split": (
        {"inductive": 5},
        {},
        ConfigError,
        "inductive split 5: random has 2 split(s), from 0 on",
    ),
    "shares": (
        {"task": "link", "val_edges": 0.9},
        {},
        ConfigError,
        "val_edges 0.9 and test_edges 0.1: must be >= 0, and together < 1",
    ),
    "inductive over the disk": (
        {"inductive": 0, "stream": True},
        {},
        ConfigError,
        "inductive training needs the graph in memory, which takes about",
    ),
    "links over the disk": (
        {"task": "link", "stream": True},
        {},
        ConfigError,
        "task link needs the graph in memory, which takes about",
    ),
    "types over the disk": (
        {"stream": True},
        {"types": 3},
        ConfigError,
        "random: edges with types need the graph in memory: raise the memory limit",
    ),
}


@pytest.mark.parametrize("case", NOT_TOGETHER)
def test_what_does_not_go_together_is_refused_and_leaves_nothing(case, tmp_path):
    options, shape, error, message = NOT_TOGETHER[case]
    with pytest.raises(error) as caught:
        prepare(random_graph(**shape), tmp_path / "out", **options)
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "out").exists()


def test_no_training_vertex_per_class_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="0 training and 30 validation vertices per class, must be >= 1, >= 0"):
        prepare(random_graph(), tmp_path / "out", train_per_class=0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_the_same_seed_gives_the_same_bytes(partitioner, order, tmp_path):
    one, two = (
        prepare(random_graph(n=200, splits=0), tmp_path / name, parts=3, partitioner=partitioner, order=order, seed=4)
        for name in ("one", "two")
    )
    assert one.manifest == two.manifest


def test_another_seed_gives_another_split_and_other_bytes(tmp_path):
    one, two = (prepare(random_graph(splits=0), tmp_path / str(seed), seed=seed) for seed in (0, 1))
    assert one.manifest.digest != two.manifest.digest


@pytest.mark.parametrize("name", ["cora", "citeseer", "pcg"])
def test_real_graphs_are_prepared(name, tmp_path, real_data):
    prepare(name, tmp_path / "out", parts=2)
    ShardSet.open(tmp_path / "out").verify()


def test_digits_are_prepared_in_four_partitions(tmp_path):
    shards = prepare("digits", tmp_path / "out", parts=4)
    assert shards.manifest.num_vertices == sum(entry.vertices for entry in shards.manifest.partitions) == 1797
    assert shards.manifest.cut_edges / shards.manifest.num_edges < 0.1


# --- cache ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def prepares(monkeypatch):
    """The destinations of every call of ``prepare``."""
    calls, original = [], prepare_module.prepare

    def counted(source, out, **options):
        calls.append(out)
        return original(source, out, **options)

    counted.__kwdefaults__ = original.__kwdefaults__
    monkeypatch.setattr(prepare_module, "prepare", counted)
    return calls


def test_a_source_is_prepared_once(archive, tmp_path, prepares):
    first = cached(str(archive), cache_dir=tmp_path / "cache", parts=2)
    assert cached(str(archive), cache_dir=tmp_path / "cache", parts=2) == first
    assert len(prepares) == 1
    assert ShardSet.open(first).manifest.num_partitions == 2
    assert [f.name for f in (tmp_path / "cache").iterdir()] == [first.name]


def test_a_default_that_is_spelled_out_is_the_same_key(archive, tmp_path, prepares):
    cached(str(archive), cache_dir=tmp_path)
    cached(str(archive), cache_dir=tmp_path, parts=1, feature_norm="none")
    assert len(prepares) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"parts": 2},
        {"order": "given"},
        {"directed": True},
        {"feature_norm": "row"},
        {"seed": 1},
        {"train_per_class": 2},
        {"inductive": 0},
        {"task": "link", "negatives": 1, "eval_negatives": 2},
    ],
    ids=str,
)
def test_another_option_is_another_folder(options, archive, tmp_path):
    assert cached(str(archive), cache_dir=tmp_path) != cached(str(archive), cache_dir=tmp_path, **options)


def test_options_of_a_task_that_is_not_asked_for_are_not_in_the_key(archive, tmp_path, prepares):
    cached(str(archive), cache_dir=tmp_path)
    cached(str(archive), cache_dir=tmp_path, val_edges=0.3, negatives=2)
    assert len(prepares) == 1


def test_options_of_links_are_in_their_key(archive, tmp_path):
    options = {"task": "link", "negatives": 1, "eval_negatives": 2}
    folders = [cached(str(archive), cache_dir=tmp_path, **options, val_edges=share) for share in (0.1, 0.2)]
    assert folders[0] != folders[1]


def test_a_changed_file_is_prepared_again(archive, tmp_path):
    before = cached(str(archive), cache_dir=tmp_path)
    os.utime(archive, ns=(0, 0))
    assert cached(str(archive), cache_dir=tmp_path) != before


def test_two_that_prepare_at_once_end_with_the_first(archive, tmp_path, monkeypatch):
    original, cache = prepare_module.prepare, tmp_path / "cache"

    def overtaken(source, out, **options):
        monkeypatch.setattr(prepare_module, "prepare", original)
        winners.append(cached(source, cache_dir=cache, **options))
        return original(source, out, **options)

    winners = []
    overtaken.__kwdefaults__ = original.__kwdefaults__
    monkeypatch.setattr(prepare_module, "prepare", overtaken)
    assert [cached(str(archive), cache_dir=cache)] == winners
    assert [f.name for f in cache.iterdir()] == [winners[0].name]


def test_the_default_cache_is_in_the_home_folder(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    path = cached(str(archive))
    assert path.parent == tmp_path / ".cache" / "siafu"
    assert (path / MANIFEST).is_file()


def test_the_default_cache_is_where_xdg_says_unless_that_is_relative(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert cached(str(archive)).parent == tmp_path / "elsewhere" / "siafu"
    monkeypatch.setenv("XDG_CACHE_HOME", "elsewhere")
    assert cached(str(archive)).parent == tmp_path / ".cache" / "siafu"


@pytest.mark.parametrize("in_place", [False, True])
def test_a_file_that_was_replaced_or_rewritten_is_prepared_again_with_its_size_and_time_unchanged(
    archive, tmp_path, in_place
):
    """rsync -t and SOURCE_DATE_EPOCH make such files."""
    before, status = cached(str(archive), cache_dir=tmp_path / "cache"), archive.stat()
    file = archive if in_place else tmp_path / "other.npz"
    file.write_bytes(archive.read_bytes())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    file.replace(archive)
    assert (archive.stat().st_size, archive.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert cached(str(archive), cache_dir=tmp_path / "cache") != before


@pytest.mark.parametrize("option", ["features", "labels", "split"])
def test_a_file_that_an_option_names_is_in_the_key_whatever_the_source(tmp_path, monkeypatch, option):
    monkeypatch.chdir(tmp_path)
    Path("m.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n")
    arrays = {"features": np.ones((3, 2), np.float32), "labels": np.array([0, 1, 0]), "split": np.array([1, 2, 3])}
    for name, values in arrays.items():
        np.save(f"{name}.npy", values)
    source = "m.mtx?features=features.npy&labels=labels.npy&split=split.npy"
    before = cached(source, cache_dir="cache")
    assert cached(source, cache_dir="cache") == before
    np.save(f"{option}.npy", arrays[option][::-1].copy() + (option == "features"))
    assert cached(source, cache_dir="cache") != before


def test_the_content_of_a_partitioners_file_is_in_the_key(archive, tmp_path):
    def key(text):
        (tmp_path / "p.txt").write_text(text)
        return Options.of({**prepare.__kwdefaults__, "parts": 2, "partitioner": f"file:{tmp_path / 'p.txt'}"}).key()

    assert key("0\n1\n0\n") == key("0\n1\n0\n") != key("1\n0\n1\n")


def test_a_cache_that_cannot_be_made_names_the_settings_that_move_it(archive, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"cannot be made: .*; set data\.cache_dir, or XDG_CACHE_HOME"):
        cached(str(archive), cache_dir=tmp_path / "file" / "cache")


def test_prepared_graphs_in_the_cache_are_their_owners_alone(archive, tmp_path):
    made = cached(str(archive), cache_dir=tmp_path / "cache")
    assert [path.stat().st_mode & 0o777 for path in (made.parent, made)] == [0o700, 0o700]
    (tmp_path / "shared").mkdir(mode=0o755)
    assert cached(str(archive), cache_dir=tmp_path / "shared").stat().st_mode & 0o777 == 0o700


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"gone\.npz: No such file or directory$"):
        cached(str(tmp_path / "gone.npz"), cache_dir=tmp_path)


def test_a_prepared_graph_that_was_removed_is_told_how_to_make_again(tmp_path):
    """The name of a run's graph that was in memory: its folder of the cache."""
    gone = cached(random_graph(n=30), cache_dir=tmp_path)
    shutil.rmtree(gone)
    with pytest.raises(DatasetError, match=rf"^{gone}: not there; .* siafu\.prepare\(graph, '{gone}'\)$"):
        cached(str(gone), cache_dir=tmp_path)
    prepare(random_graph(n=30), gone)
    assert ShardSet.open(gone).manifest.num_vertices == 30


def test_a_graph_in_memory_that_says_something_else_is_prepared_anew(tmp_path):
    graph = random_graph(n=30)
    others = (
        graph,
        replace(graph, num_classes=graph.num_classes + 3),
        replace(graph, features=graph.features.astype(np.float16).astype(np.float32)),
        replace(graph, weight=np.ones(graph.num_edges, np.float32)),
        replace(graph, ids=np.arange(30) + 1000),
        replace(graph, ids=NamedIds(pyarrow.array([f"v{v:02}" for v in range(30)], pyarrow.large_string()))),
        replace(graph, ids=NamedIds(pyarrow.array([f"w{v:02}" for v in range(30)], pyarrow.large_string()))),
        replace(graph, ids=NamedIds(pyarrow.array(range(30), pyarrow.timestamp("s")))),
        replace(graph, ids=NamedIds(pyarrow.array(range(30), pyarrow.timestamp("ms")))),
    )
    folders = [cached(one, cache_dir=tmp_path) for one in others]
    assert len(set(folders)) == len(others)
    assert cached(replace(graph, num_classes=graph.num_classes + 3), cache_dir=tmp_path) == folders[1]
