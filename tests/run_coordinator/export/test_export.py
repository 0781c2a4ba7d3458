"""``siafu export``: nothing gets its name before its logits were compared with those of our servers."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import siafu
from run_coordinator import api, export
from run_coordinator.export import weights
from run_coordinator.run import Run
from siafu import extras
from siafu.__main__ import main
from siafu.errors import ConfigError, GnnError
from siafu.graph import TEST, TRAIN, VAL
from tests.toy_graphs import random_graph

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("exported")
    graph = random_graph(5, 60, num_edges=300)
    masks = {
        f"{name}_mask": graph.split[:, 0] == role for role, name in ((TRAIN, "train"), (VAL, "val"), (TEST, "test"))
    }
    np.savez(
        folder / "graph.npz",
        edge_index=np.stack([graph.src, graph.dst]),
        edge_weight=graph.weight,
        num_nodes=60,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        x=graph.features,
        y=graph.labels,
        **masks,
    )
    return api.train(
        str(folder / "graph.npz"),
        run_dir=str(folder / "run"),
        backend="cpu",
        model="sage",
        hidden=8,
        epochs=3,
        intervals=2,
        settings={"data.cache_dir": str(folder / "cache")},
    )


def test_an_export_is_checked_against_the_servers_logits(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(run.dir), "--to", "torch", "--out", str(tmp_path / "out"), "--json", "--quiet"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert 0 < said["max_abs_logit_difference"] <= said["tolerance"]
    assert said["files"] == ["README.md", "model.py", "settings.json", "weights.safetensors"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == said["files"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.fixture
def without_servers(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Logits of the run, made once."""
    logits = siafu.predict(run, scores="logits").values
    monkeypatch.setattr(export, "predict", lambda *_, **__: SimpleNamespace(values=logits))


@pytest.mark.long
@pytest.mark.usefixtures("without_servers")
def test_what_columns_mean_goes_with_the_model(run: Run, tmp_path: Path) -> None:
    named = tmp_path / "run"
    shutil.copytree(run.dir, named)
    (named / "names.json").write_text('{"features": ["age", "größe"], "classes": ["a", "b"], "notes": ["x.csv: so"]}')
    np.save(named / "standard.npy", np.ones((2, 2)))
    said = siafu.export(named, to="torch", out=tmp_path / "out")
    assert {"names.json", "standard.npy"} <= set(said["files"])
    assert json.loads((tmp_path / "out" / "names.json").read_text()) == {
        "features": ["age", "größe"],
        "classes": ["a", "b"],
    }
    assert (tmp_path / "out" / "standard.npy").read_bytes() == (named / "standard.npy").read_bytes()
    assert (
        "\n\n- `names.json` names the columns of `x`, in their order; the columns of `logits`, in their order\n"
        '- `load(".").features(table)` is `x` of a DataFrame or a dict of columns, by these names\n'
        '- `load(".").classes_of(logits)` lists each vertex\'s class\n\nNo edge'
    ) in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.long
def test_a_loaded_model_takes_a_users_table_as_it_is(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    users: dict[str, list[Any]] = {"id": list(range(40)), "year": (1990 + rng.normal(size=40)).tolist()}
    users |= {"brand": ["a", "b", "c", "b"] * 10, "constant": [3.0] * 40, "job": ["cook", "smith"] * 20}
    edges = {"source": list(range(40)), "target": [*range(1, 40), 0]}
    graph = siafu.from_pandas(pa.table(edges), pa.table(users), features=["*", "brand:onehot"], label="job")
    cache = {"data.cache_dir": str(tmp_path / "cache"), "data.train_per_class": 5, "data.val_per_class": 5}
    made = siafu.train(graph, epochs=5, feature_norm="standard", run_dir=str(tmp_path / "run"), settings=cache)
    said = siafu.export(made, to="torch", out=tmp_path / "out")
    assert {"names.json", "standard.npy"} <= set(said["files"])
    ours = siafu.predict(made, scores="logits", settings={"servers.backend": "cpu"})

    names: dict[str, Any] = {}
    exec(compile((tmp_path / "out" / "model.py").read_text(), "model.py", "exec"), names)
    model, ends = names["load"](tmp_path / "out"), np.array([[*edges["source"], *edges["target"]]] * 2)
    ends[1] = [*edges["target"], *edges["source"]]
    with torch.no_grad():
        logits = model(model.features(users), torch.from_numpy(ends))
    np.testing.assert_allclose(logits, ours.values, rtol=1e-4, atol=1e-5)
    assert model.classes_of(logits) == ours.to_arrow().column("class").to_pylist()


@pytest.mark.long
@pytest.mark.usefixtures("without_servers")
def test_logits_that_differ_leave_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "TOLERANCE", 0.0)
    with pytest.raises(GnnError, match=r"^--to torch: its logits differ from ours by up to .*e-0., the limit is 0$"):
        siafu.export(run, to="torch", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.usefixtures("without_servers")
def test_a_model_that_fails_says_why(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "source", lambda *_: "def load(folder):\n    raise ValueError('no such thing')\n")
    with pytest.raises(GnnError, match=r"^--to torch: the exported model fails: ValueError: no such thing$"):
        siafu.export(run, to="torch", out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_servers")
def test_weighted_edges_are_not_left_out_where_a_layer_takes_none(run: Run, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="its sage layers take no edge weights, and this graph has some; --to torch does"
    ):
        siafu.export(run, to="pyg", out=tmp_path / "out")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"to": "keras"}, "to = 'keras': must be one of torch, pyg, dgl, onnx"),
        ({"out": "full"}, "out = full: exists already"),
        ({"run": "empty"}, "empty: not a finished run: it has no model.safetensors"),
    ],
)
def test_a_mistake_costs_one_line_and_no_server(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    given = {"run": str(run.dir), "to": "torch", "out": "out", **changes}
    assert main(["export", given["run"], "--to", given["to"], "--out", given["out"], "--quiet"]) == 2
    assert capsys.readouterr().err == f"siafu export: {words}\n"


def test_a_model_that_a_user_added_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(weights, "FORMS", {"gcn": weights.FORMS["gcn"]})
    assert main(["export", str(run.dir), "--to", "torch", "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert capsys.readouterr().err == ("siafu export: model sage: cannot be exported, only gcn\n")


def test_link_prediction_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = export.model_file.load_model

    def of_links(path: Path) -> Any:
        found, spec = load(path)
        return found, replace(spec, target="links")

    monkeypatch.setattr(export.model_file, "load_model", of_links)
    monkeypatch.setattr(export, "predict", lambda *_, **__: pytest.fail("it has predicted"))
    assert main(["export", str(run.dir), "--to", "torch", "--out", str(tmp_path / "out"), "--quiet"]) == 2
    assert capsys.readouterr().err == (
        "siafu export: --to torch: link prediction cannot be exported; siafu predict writes its embeddings\n"
    )


def test_a_missing_library_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export.exported, "find_spec", lambda name: None if name.startswith("onnx") else object())
    with pytest.raises(
        ConfigError, match=f"^--to onnx needs onnx, onnxscript, onnxruntime: {re.escape(extras.install('export'))}$"
    ):
        siafu.export(run, to="onnx", out=tmp_path / "out")
