"""``siafu predict`` through real servers: the scores are those of the run's own evaluation."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import siafu
from graph_data.prepare import prepare
from run_coordinator import api, run_directory
from run_coordinator.predict import evaluated
from run_coordinator.predict.plan import _slot, check_run, plan_of
from run_coordinator.run import Run
from siafu.__main__ import main
from siafu.errors import ConfigError, DatasetError
from siafu.graph import TEST, Graph
from siafu.metrics import counts, scores
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from tests.toy_graphs import random_graph

GRAPH = dataclasses.replace(random_graph(5, 60, num_edges=300, num_features=9), ids=np.arange(60) * 10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("predicted")
    prepare(GRAPH, folder / "shards", parts=2, directed=True)
    return api.train(
        str(folder / "shards"),
        run_dir=str(folder / "run"),
        backend="cpu",
        layers=3,
        hidden=8,
        epochs=5,
        parts=2,
        intervals=3,
        lr=0.05,
        settings={"model.narrow": True},
    )


@pytest.mark.long
def test_the_file_says_what_the_run_was_judged_by(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path.name for path in run.dir.iterdir())
    assert (
        main(["predict", str(run.dir), "--out", str(tmp_path / "p.csv"), "--scores", "logits", "--json", "--quiet"])
        == 0
    )
    said = json.loads(capsys.readouterr().out)
    with open(tmp_path / "p.csv", newline="") as file:
        _, *rows = csv.reader(file)
    classes, logits = np.array([int(row[1]) for row in rows]), np.array([row[4:] for row in rows], np.float32)
    test = GRAPH.split[:, 0] == TEST
    assert [int(row[0]) for row in rows] == (np.arange(60) * 10).tolist()
    assert [int(row[2]) if row[2] else -1 for row in rows] == GRAPH.labels.tolist()
    assert [row[3] for row in rows] == [("", "train", "val", "test")[role] for role in GRAPH.split[:, 0]]
    assert float((classes == GRAPH.labels)[test].mean()) == run.test_acc  # to the last bit
    tally = counts(logits, GRAPH.labels, GRAPH.split[:, 0])
    assert run.result["scores"] == said["scores"]
    expected = scores(tally, multilabel=False)
    assert {s: v | {"loss": pytest.approx(v["loss"], rel=1e-6)} for s, v in expected.items()} == said["scores"]
    assert (said["vertices"], said["columns"], said["what"], said["layer"]) == (60, 4, "logits", None)
    assert sorted(path.name for path in run.dir.iterdir()) == before


@pytest.mark.long
def test_a_prediction_and_a_run_of_no_epoch_warn_of_nothing(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They were told that the last training state did not come, of a folder that was then removed."""
    siafu.predict(run.dir)
    siafu.predict(run.dir, layer=1)
    api.train(str(run.dir.parent / "shards"), run_dir=str(tmp_path / "run"), parts=2, backend="cpu", hidden=4, epochs=0)
    assert caplog.messages == []


def test_another_graph_needs_neither_labels_nor_as_many_classes(run: Run, tmp_path: Path) -> None:
    bare = Graph(
        name="bare",
        num_vertices=60,
        src=GRAPH.src,
        dst=GRAPH.dst,
        weight=GRAPH.weight,
        features=GRAPH.features,
        labels=np.full(60, -1),
        num_classes=1,
        split=np.zeros((60, 1), np.uint8),
        directed=True,
    )
    prepare(bare, tmp_path / "bare", directed=True)
    ours = siafu.predict(run, scores="logits")
    found = siafu.predict(run, graph=str(tmp_path / "bare"), scores="logits", settings={"servers.backend": "lambda"})
    np.testing.assert_allclose(found.values, ours.values, rtol=1e-4, atol=1e-5)
    assert (found.result["scores"], ours.result["scores"]) == (None, run.result["scores"])
    assert (found.true, found.split) == (None, None)
    assert found.classes is not None
    assert (found.classes == found.values.argmax(1)).all()


@pytest.mark.long
def test_embeddings_lead_to_the_same_logits(run: Run) -> None:
    hidden, logits = siafu.predict(run, layer=2), siafu.predict(run, layer=3)
    assert (hidden.values.shape, hidden.classes, hidden.result["what"]) == ((60, 8), None, "embedding")
    from tests import reference

    W = run.weights()
    expected = reference.propagation(GRAPH, "gcn") @ hidden.values @ W["2.weight"] + W["2.bias"]
    np.testing.assert_allclose(logits.values, expected, rtol=1e-4, atol=1e-5)


# --- the user's mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--layer", "0"], "layer = 0: model gcn shows what enters layers 1, 2, 3"),
        (["--layer", "x"], "layer = 'x': must be an integer"),
        (["--scores", "odds"], "scores = 'odds': must be probabilities or logits"),
        (["--out", "p.xlsx"], "out = p.xlsx: must end with one of .parquet, .csv, .npy"),
        (["--on", "aws"], "run.on = aws: siafu predict runs on this machine or on Ray: --on local"),
        (["--graph", "other"], "other: it has 7 features, the model takes 9"),
        (["--set", "data.part=2"], "data.part: unknown key; did you mean data.parts?"),
    ],
)
def test_a_mistake_costs_one_line_and_no_server(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if "other" in arguments:
        prepare(random_graph(1), "other", directed=True)
    assert main(["predict", str(run.dir), "--quiet", *arguments]) == 2
    assert capsys.readouterr().err == f"siafu predict: {words}\n"


def test_a_folder_without_a_run_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"not a finished run: it has no config\.toml"):
        siafu.predict(tmp_path)
    assert main(["predict", "nowhere"]) == 2  # not: that predictions.csv has no folder
    assert capsys.readouterr().err == "siafu predict: nowhere: not a finished run: it has no config.toml\n"


def test_a_mistake_that_a_server_finds_leaves_nothing_in_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("param_server 0: its weights have other shapes")

    monkeypatch.setattr(api, "carry_out", refuse)
    before = sorted(run.dir.iterdir())
    with pytest.raises(ConfigError, match="other shapes"):
        siafu.predict(run)
    assert sorted(run.dir.iterdir()) == before


def test_a_run_into_whose_folder_one_may_not_write_is_predicted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A colleague's, or on a disk that is mounted to be read."""
    real, worked_in = tempfile.mkdtemp, []

    def mkdtemp(*, prefix: str, dir: Path) -> str:
        if dir == run.dir:
            raise PermissionError(13, "Permission denied")
        return real(prefix=prefix, dir=dir)

    def stop(config: object, shards: object, work: Path, on_status: object) -> NoReturn:
        worked_in.append(work.parent)
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "mkdtemp", mkdtemp)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(api, "carry_out", stop)
    with pytest.raises(KeyboardInterrupt):
        siafu.predict(run)
    assert worked_in == [tmp_path.resolve()]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="nowhere: cannot be written: No such file or directory; TMPDIR=DIR"):
        siafu.predict(run)


def test_who_stops_a_prediction_leaves_nothing_in_the_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(path.name for path in run.dir.iterdir())

    def stop(*_: object) -> NoReturn:
        assert sorted(path.name for path in run.dir.iterdir()) != before
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "carry_out", stop)
    with pytest.raises(KeyboardInterrupt):
        siafu.predict(run)
    monkeypatch.undo()
    assert sorted(path.name for path in run.dir.iterdir()) == before
    with pytest.raises(OSError, match="No space left"), evaluated(run, "", None, "logits", {}, lambda status: None):
        raise OSError("No space left on device")
    assert sorted(path.name for path in run.dir.iterdir()) == before


@pytest.mark.parametrize("layer", [True, 1.0, 3], ids=str)
def test_a_layer_is_a_number_of_those_that_are_shown(layer: Any) -> None:
    spec = ModelSpec("gcn", 9, 3, 20, widths=(8, 8), target="links" if layer == 3 else "classes")
    shown = "1, 2" if layer == 3 else "1, 2, 3"
    with pytest.raises(ConfigError, match=rf"^layer = {layer}: model gcn shows what enters layers {shown}$"):
        _slot(spec, layer)


def test_a_graph_that_has_changed_since_is_not_taken_for_the_runs(run: Run, tmp_path: Path) -> None:
    moved = tmp_path / "run"
    moved.mkdir()
    for name in ("config.toml", "model.safetensors"):
        (moved / name).write_bytes((run.dir / name).read_bytes())
    (moved / "manifest.json").write_text('{"data": {"edges": "another"}}')
    with pytest.raises(
        ConfigError,
        match=r"no longer the graph that .* was trained on: its edges differ; "
        r"siafu predict \S+ --graph .* takes it as it is",
    ):
        siafu.predict(moved)


def test_edges_that_have_weights_or_types_unlike_the_runs_are_warned_of(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bare = dataclasses.replace(GRAPH, weight=None)
    typed = dataclasses.replace(GRAPH, edge_type=np.arange(GRAPH.num_edges) % 2, num_edge_types=2)
    for name, graph in (("alike", GRAPH), ("bare", bare), ("typed", typed)):
        prepare(graph, tmp_path / name, directed=True)
        plan_of(run.dir, graph=str(tmp_path / name), settings={}).fitted(ShardSet.open(tmp_path / name))
    moved = tmp_path / "run"
    shutil.copytree(run.dir, moved)
    manifest = json.loads((moved / "manifest.json").read_text())
    manifest["graph"]["weights"] = False
    (moved / "manifest.json").write_text(json.dumps(manifest))
    plan_of(moved, graph=str(tmp_path / "alike"), settings={}).fitted(ShardSet.open(tmp_path / "alike"))
    trained, other = f"those that {run.dir} was trained on", "predictions are for other sums over neighbours"
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}/bare: its edges have no weights, {trained} do (--weight COLUMN of edge lists): {other}",
        f"{tmp_path}/typed: its edges have types, {trained} have none: {other}",
        f"{tmp_path}/alike: its edges have weights, those that {moved} was trained on have none: {other}",
    ]


def test_a_prediction_has_nothing_of_what_a_run_asked_for_besides(run: Run) -> None:
    config = plan_of(run.dir, settings={}).config
    assert (config.train.epochs, config.run.budget_usd, config.run.loggers, config.run.dir) == (0, 0, (), "")
    assert config.train.warm_start == str(run.dir / "model.safetensors")


def test_shards_that_were_normalised_otherwise_are_refused(run: Run, tmp_path: Path) -> None:
    prepare(GRAPH, tmp_path / "rows", directed=True, feature_norm="row")
    with pytest.raises(ConfigError, match=r"prepared with feature_norm = row, the run's graph with none"):
        siafu.predict(run, graph=str(tmp_path / "rows"))


# --- columns of features ----------------------------------------------------------------------------------------------


def table_of(folder: Path, names: list[str], more: str = "") -> str:
    """A graph in two CSV files, whose features have these names in this order: column xI of GRAPH is called xI."""
    folder.mkdir()
    edges = "".join(f"{u},{v}\n" for u, v in zip(GRAPH.src, GRAPH.dst, strict=True))
    (folder / "edges.csv").write_text(f"buyer,seller\n{edges}")
    X = np.asarray(GRAPH.features)
    columns = [X[:, int(name[1:])] if name[1:].isdecimal() else np.arange(len(X)) for name in names]
    rows = "".join(
        f"{v},{','.join(str(value) for value in row)},{y}\n"
        for v, (row, y) in enumerate(zip(np.stack(columns, axis=1), GRAPH.labels, strict=True))
    )
    (folder / "users.csv").write_text(f"id,{','.join(names)},job\n{rows}")
    return f"edges:{folder}/edges.csv?features={folder}/users.csv{more}"


@pytest.fixture(scope="module")
def of_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[str], Path]:
    folder = tmp_path_factory.mktemp("tables")
    names = [f"x{i}" for i in range(GRAPH.num_features)]
    source = table_of(folder / "first", names, f"&labels={folder}/first/users.csv%23job")
    settings = {"data.cache_dir": str(folder / "cache"), "train.epochs": 3}
    return api.train(source, run_dir=str(folder / "run"), backend="cpu", settings=settings), names, folder


@pytest.mark.long
def test_columns_of_another_table_are_found_by_their_names(
    of_tables: tuple[Run, list[str], Path], tmp_path: Path
) -> None:
    run, names, folder = of_tables
    settings = {"data.cache_dir": str(folder / "cache")}
    own = siafu.predict(run, scores="logits", settings=settings)
    said: list[str] = []
    # job, the label of the run, is a feature of this table
    turned = table_of(tmp_path / "turned", [*names[::-1], "height"])
    found = siafu.predict(
        run, graph=turned, scores="logits", settings=settings, on_status=lambda status: said.extend(status.notes)
    )
    np.testing.assert_array_equal(found.values, own.values)
    assert [line.partition("; ")[2] for line in said if "vertices by" in line] == ["not used: [height] [job]"]


def test_times_in_front_of_the_columns_of_the_run_are_no_question(
    of_tables: tuple[Run, list[str], Path], tmp_path: Path
) -> None:
    run, names, folder = of_tables
    timed = table_of(tmp_path / "timed", names)
    edges = "".join(f"1700000000,{v},{u}\n" for u, v in zip(GRAPH.src, GRAPH.dst, strict=True))
    (tmp_path / "timed" / "edges.csv").write_text(f"time,seller,buyer\n{edges}")
    settings = {"data.cache_dir": str(folder / "cache")}
    found = siafu.predict(run, graph=timed, scores="logits", settings=settings)
    np.testing.assert_array_equal(found.values, siafu.predict(run, scores="logits", settings=settings).values)


def test_a_table_without_a_column_of_the_run_is_refused(of_tables: tuple[Run, list[str], Path], tmp_path: Path) -> None:
    run, names, folder = of_tables
    with pytest.raises(
        DatasetError, match=r"users\.csv: has no feature column 'x1', which .* was made with, only 'id', 'x0', 'y1', "
    ):
        siafu.predict(
            run,
            graph=table_of(tmp_path / "other", ["x0", "y1", *names[2:]]),
            settings={"data.cache_dir": str(folder / "cache")},
        )


def test_shards_with_columns_in_another_order_are_refused_and_so_is_a_warm_start(
    of_tables: tuple[Run, list[str], Path], tmp_path: Path
) -> None:
    run, names, _ = of_tables
    source = table_of(tmp_path / "turned", names[::-1], f"&labels={tmp_path}/turned/users.csv%23job")
    prepare(source, tmp_path / "shards")
    words = (
        rf"shards: feature columns are not those that .* was trained on \(column 0 is '{names[-1]}', not 'x0'\): siafu "
        r"prepare SOURCE --features-as "
    )
    with pytest.raises(ConfigError, match=words):
        siafu.predict(run, graph=str(tmp_path / "shards"))
    with pytest.raises(ConfigError, match=words):
        api.train(
            str(tmp_path / "shards"), warm_start=str(run.dir), backend="cpu", epochs=1, run_dir=str(tmp_path / "run")
        )
    prepare(source, tmp_path / "named", features_as=run.dir)
    siafu.predict(run, graph=str(tmp_path / "named"))


# --- standardised features --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def standardised(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("standardised")
    prepare(GRAPH, folder / "shards", directed=True, feature_norm="standard")
    return api.train(str(folder / "shards"), run_dir=str(folder / "run"), backend="cpu", epochs=2)


def as_npz(graph: Graph, file: Path) -> str:
    np.savez(
        file,
        edge_index=np.stack([graph.src, graph.dst]),
        edge_weight=graph.weight,
        x=graph.features,
        y=graph.labels,
        num_nodes=graph.num_vertices,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
    )
    return str(file)


@pytest.mark.long
def test_another_graph_is_standardised_as_the_runs_was(standardised: Run, tmp_path: Path) -> None:
    """Were it standardised by its own means, a graph whose features are all moved would look as the run's does."""
    moved = dataclasses.replace(GRAPH, features=np.asarray(GRAPH.features) * 2 + 1)
    source = as_npz(moved, tmp_path / "moved.npz")
    found = siafu.predict(standardised, graph=source, scores="logits", settings={"data.cache_dir": str(tmp_path)})
    prepare(moved, tmp_path / "ours", directed=True, feature_norm="standard", features_as=standardised.dir)
    ours = siafu.predict(standardised, graph=str(tmp_path / "ours"), scores="logits")
    np.testing.assert_allclose(found.values, ours.values, rtol=1e-5, atol=1e-6)
    assert np.abs(found.values - siafu.predict(standardised, scores="logits").values).max() > 0.1


def test_a_run_that_does_not_know_its_means_takes_no_other_graph(standardised: Run, tmp_path: Path) -> None:
    """Runs of older versions have no standard.npy. By its own means, any graph would be
    scored as if it were like the run's."""
    old = tmp_path / "old"
    shutil.copytree(standardised.dir, old)
    (old / "standard.npy").unlink()
    with pytest.raises(ConfigError, match=r"old: has no standard\.npy, by which to standardise"):
        siafu.predict(old, graph=as_npz(GRAPH, tmp_path / "new.npz"))
    assert siafu.predict(old).values.shape == (GRAPH.num_vertices, GRAPH.num_classes)


def test_shards_that_were_standardised_by_themselves_are_refused(standardised: Run, tmp_path: Path) -> None:
    moved = dataclasses.replace(GRAPH, features=np.asarray(GRAPH.features) * 2 + 1)
    prepare(moved, tmp_path / "alone", directed=True, feature_norm="standard")
    with pytest.raises(
        ConfigError,
        match=r"alone: its features are not standardised as the run's graph was: siafu prepare .*--features-as .*run$",
    ):
        siafu.predict(standardised, graph=str(tmp_path / "alone"))


def test_a_run_that_is_under_way_is_not_to_be_resumed(tmp_path: Path):
    (tmp_path / "config.toml").write_text("[train]\nepochs = 9\n")
    with run_directory.alone(tmp_path), pytest.raises(ConfigError, match=r"has no checkpoint: it is under way$"):
        check_run(tmp_path)
    with pytest.raises(ConfigError, match=r"has no checkpoint: siafu resume .* finishes it$"):
        check_run(tmp_path)
