"""Every model, in every library that is installed, gives the oracle's logits, from source
that holds what it needs alone."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import siafu
from graph_data.prepare import prepare
from graph_data.sources.names import resolve
from run_coordinator.export import UNDIRECTED, exported
from run_coordinator.export import UNWEIGHTED as UNWEIGHTED_LAYERS
from run_coordinator.export.modules import at_work
from run_coordinator.export.readme import readme
from run_coordinator.export.source import source
from run_coordinator.export.weights import FORMS, settings, state
from run_coordinator.export.whole import Inputs, inputs_of
from siafu import models
from siafu.errors import ConfigError
from siafu.features import Standard, normalised
from siafu.graph import Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference
from tests.toy_graphs import random_graph, with_sparse_features

torch = pytest.importorskip("torch")

WEIGHTED = random_graph(5, 40, num_edges=160)
UNWEIGHTED = dataclasses.replace(random_graph(6, 40, num_edges=160), weight=None)
RELATIONS = 3
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("gcn", {}),
    ("gcn", {"norm": "layer", "residual": True, "activation": "tanh", "bias": False}),
    ("sage", {"jump": "cat"}),
    ("sage", {"jump": "max", "norm": "layer"}),
    ("gin", {"eps": 0.25}),
    ("gin", {"train_eps": True, "norm": "layer", "jump": "sum"}),
    ("gin", {"residual": True, "norm": "layer", "activation": "tanh"}),
    ("gat", {"heads": 2, "activation": "elu"}),
    ("gat", {"heads": 4, "out_heads": 3, "residual": True, "norm": "layer", "slope": 0.1}),
    ("gcnii", {"alpha": 0.3, "theta": 1.5, "widths": (8,) * 6}),
    ("appnp", {"hops": 3, "norm": "layer"}),
    ("sgc", {"hops": 2, "widths": ()}),
    ("sgc", {"hops": 4, "widths": (), "bias": False}),
    ("rgcn", {"num_edge_types": RELATIONS, "norm": "layer"}),
    ("rgcn", {"num_edge_types": RELATIONS, "bases": 2}),
    ("rgcn", {}),
]
cases = pytest.mark.parametrize(
    ("model", "options"), OPTIONS, ids=lambda given: given if isinstance(given, str) else ",".join(given) or "plain"
)


def graph_for(to: str, model: str, options: Mapping[str, Any]) -> Graph:
    """With weights where the library's layers take some, with types where the model has."""
    graph = UNWEIGHTED if model in UNWEIGHTED_LAYERS.get(to, ()) else WEIGHTED
    if model in UNDIRECTED.get(to, ()):
        return random_graph(7, 40, num_edges=80, directed=False)
    if (types := options.get("num_edge_types", 1)) == 1:
        return graph
    kind = np.random.default_rng(2).integers(0, types, graph.num_edges).astype(np.uint16)
    return dataclasses.replace(graph, edge_type=kind, num_edge_types=types)


def spec_of(model: str, graph: Graph, options: Mapping[str, Any]) -> ModelSpec:
    fixed = {"in_features": graph.num_features, "num_classes": graph.num_classes, "num_train": 1, "dtype": "float64"}
    return ModelSpec(name=model, seed=3, **{"widths": (8, 8), **fixed, **options})


def weights_of(spec: ModelSpec) -> dict[str, Array]:
    """Not those of a beginning, where all that is added is 0."""
    rng = np.random.default_rng(1)
    first = models.build(spec).init()
    return {name: value + rng.normal(size=value.shape, scale=0.1) for name, value in first.items()}


def written(folder: Path, to: str, spec: ModelSpec, weights: Mapping[str, Array]) -> None:
    (folder / "model.py").write_text(source(spec.name, to))
    (folder / "settings.json").write_text(json.dumps(settings(spec)))
    save_file(state(spec, weights, to), str(folder / "weights.safetensors"))


def loaded(folder: Path) -> Any:
    names: dict[str, Any] = {}
    exec(compile((folder / "model.py").read_text(), "model.py", "exec"), names)
    return names["load"](folder)


def inputs(folder: Path, graph: Graph, *, typed: bool = False) -> Inputs:
    return inputs_of(prepare(graph, folder / "shards", parts=2, directed=True), typed=typed)


def given(found: Inputs) -> list[Any]:
    arrays = {**found.arrays, "x": found.x.astype(np.float64)}
    return at_work.tensors(arrays)


# --- logits -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@cases
@pytest.mark.parametrize("to", ["torch", "pyg"])
def test_logits_are_the_oracles(tmp_path: Path, to: str, model: str, options: dict[str, Any]) -> None:
    if to == "pyg":
        pytest.importorskip("torch_geometric")
    graph = graph_for(to, model, options)
    spec = spec_of(model, graph, options)
    weights = weights_of(spec)
    written(tmp_path, to, spec, weights)
    with torch.no_grad():
        found = loaded(tmp_path)(*given(inputs(tmp_path, graph, typed=model == "rgcn"))).numpy()
    np.testing.assert_allclose(found, reference.predict(graph, spec, weights), rtol=1e-5, atol=1e-6)


def test_sparse_features_are_given_dense(tmp_path: Path) -> None:
    graph = with_sparse_features(random_graph(2))
    x = inputs(tmp_path, graph).x
    np.testing.assert_allclose(x, reference.features(graph), rtol=1e-6)


def test_edges_are_those_of_the_graph(tmp_path: Path) -> None:
    found = inputs(tmp_path, WEIGHTED)
    assert found.edge_weight is not None
    ours = dict(zip(zip(*map(np.ndarray.tolist, found.edge_index), strict=True), found.edge_weight, strict=True))
    theirs = dict(zip(zip(WEIGHTED.src.tolist(), WEIGHTED.dst.tolist(), strict=True), WEIGHTED.weight, strict=True))
    assert ours == theirs


# --- what is written --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["torch", "pyg", "dgl"])
@pytest.mark.parametrize("model", FORMS)
def test_the_source_is_whole_and_of_one_model(to: str, model: str) -> None:
    text = source(model, to)
    compile(text, "model.py", "exec")
    assert "run_coordinator" not in text
    assert text.count(" \n") == 0
    assert f'NETS = {{"{model}": ' in text
    other = "GATConv" if model != "gat" else "GCN2Conv"
    assert other not in text


def test_a_model_without_a_form_is_refused() -> None:
    spec = dataclasses.replace(spec_of("gcn", WEIGHTED, {}), name="other")
    with pytest.raises(ConfigError, match="model other: cannot be exported, only gcn, sage, "):
        settings(spec)


@pytest.mark.parametrize("to", ["torch", "pyg"])
def test_the_code_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    if to == "pyg":
        pytest.importorskip("torch_geometric")
    spec = spec_of("gcn", WEIGHTED, {})
    weights, found = weights_of(spec), inputs(tmp_path, WEIGHTED)
    written(tmp_path, to, spec, weights)
    code = readme(spec, to, found).partition("```python\n")[2].partition("```")[0]
    x, edge_index, edge_weight = given(found)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = {"x": x, "edge_index": edge_index, "edge_weight": edge_weight}
    exec(code, names)
    np.testing.assert_allclose(
        names["logits"].detach().numpy(), reference.predict(WEIGHTED, spec, weights), rtol=1e-5, atol=1e-6
    )


# --- before and behind the network ------------------------------------------------------------------------------------


def with_settings(folder: Path, names: Mapping[str, Any], **told: str) -> Any:
    """A gcn on 3 features that knows these names and settings."""
    spec = dataclasses.replace(spec_of("gcn", WEIGHTED, {}), in_features=3, dtype="float32")
    written(folder, "torch", spec, {name: value.astype(np.float32) for name, value in weights_of(spec).items()})
    (folder / "settings.json").write_text(json.dumps({**settings(spec), **told}))
    (folder / "names.json").write_text(json.dumps(names))
    return loaded(folder)


def test_features_are_normalised_as_shards_are(tmp_path: Path) -> None:
    x = np.array([[1, 2000.5, 7], [3, 2001.25, 7], [-8, 2003, 7], [0, 0, 0]], np.float32)
    standard = Standard.of(x[:3])
    standard.save(tmp_path)
    found = with_settings(tmp_path, {}, feature_norm="standard")
    assert np.isinf(standard.deviation[2])
    np.testing.assert_array_equal(found.normalised(torch.from_numpy(x)), standard.scaled(x))
    found = with_settings(tmp_path, {}, feature_norm="row")
    np.testing.assert_array_equal(found.normalised(torch.from_numpy(x)), normalised(x, "row", "x"))
    found = with_settings(tmp_path, {}, feature_norm="none")
    np.testing.assert_array_equal(found.normalised(torch.from_numpy(x.astype(np.float64))), x)


def test_columns_of_a_table_are_taken_by_name_and_categories_are_one_hot(tmp_path: Path) -> None:
    names = {"features": ["brand=1", "age", "emb[1]"], "classes": ["cook", "smith", "baker"]}
    model = with_settings(tmp_path, names)
    table = {"other": ["x"] * 3, "emb": [[0, 5], [0, 6], [0, 7]], "age": [1, 2, 3], "brand": [1.0, "2", None]}
    with pytest.warns(UserWarning, match=r"^column 'brand': 1 rows are of a category .* \('2'\): 0 in all$"):
        assert model.features(table).tolist() == [[1, 1, 5], [0, 2, 6], [0, 3, 7]]
    with pytest.raises(KeyError, match="the table has no column 'age', which the model was trained with"):
        model.features({"brand": [1], "emb": [[0, 1]]})
    logits = torch.tensor([[0.1, 2, 0], [3, 0, 1]])
    assert model.classes_of(logits) == ["smith", "cook"]
    assert with_settings(tmp_path, names, target="labels").classes_of(logits - 0.5) == [["smith"], ["cook", "baker"]]
    bare = with_settings(tmp_path, {})
    assert bare.classes_of(logits) == [1, 0]
    with pytest.raises(TypeError, match="the model's columns have no names: give it x"):
        bare.features(table)
    with pytest.raises(TypeError, match="the model gives numbers, not classes"):
        with_settings(tmp_path, {}, target="numbers").classes_of(logits)


def test_a_table_may_have_numbers_for_names_but_no_missing_values(tmp_path: Path) -> None:
    model = with_settings(tmp_path, {"features": ["7", "8=a"]})
    assert model.features({7: [1, 2], 8: ["a", None]}).tolist() == [[1, 1], [2, 0]]
    with pytest.raises(ValueError, match=r"^row 1: column '7' is nan, must be a finite number$"):
        model.features({"7": [1, math.nan], "8": ["a", "b"]})


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_are_the_categories_that_training_made_of_them(tmp_path: Path, unit: str) -> None:
    pa = pytest.importorskip("pyarrow")
    when = [datetime(2026, 1, 2), datetime(2026, 1, 2, 9, 30), datetime(2026, 1, 2, 9, 30), datetime(2026, 1, 3)]
    if unit != "s":
        when[1] = when[2] = when[1].replace(microsecond=250_000)
    pyarrow_table = {"id": range(4), "when": pa.array(when, pa.timestamp(unit))}
    pyarrow_table |= {"zone": pa.array(when, pa.timestamp(unit, "UTC")), "job": ["cook", "smith"] * 2}
    users, edges = pa.table(pyarrow_table), pa.table({"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]})
    graph = siafu.from_pandas(edges, users, features=["when:onehot", "zone:onehot"], label="job")
    assert graph.names["features"][0] == "when=2026-01-02"
    model = with_settings(tmp_path, {"features": list(graph.names["features"])})
    for table in (users.to_pydict(), users.to_pandas()):
        np.testing.assert_array_equal(model.features(table), graph.features)


@pytest.mark.parametrize("made", ["frame", "parquet", "csv", "csv by hand"])
def test_categories_are_those_of_training_whatever_the_table_was_read_from(tmp_path: Path, made: str) -> None:
    """Arrow writes 1e-05 as 0.00001, +01:00 as +0100 and 12:30:00 as 12:30:00.000000; others write true, not True."""
    pa, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    start = datetime(2026, 1, 2, 9, 30, tzinfo=timezone(timedelta(hours=1)))
    users = pandas.DataFrame(
        {
            "id": range(4),
            "rate": [1e-5, 0.5, 1e-5, 1e15],
            "half": np.array([0.1, 0.2, 0.1, 0.1], np.float32),
            "flag": [True, False, True, True],
            "when": pandas.to_datetime([start + timedelta(days=d) for d in (0, 0, 1, 2)]),
            "clock": [time(12, 30), time(12, 30), time(0, 0), time(9, 0, 1, 500_000)],
            "job": ["cook", "smith"] * 2,
        }
    )
    edges = {"source": [0, 1, 2, 3], "target": [1, 2, 3, 0]}
    hot = [f"{name}:onehot" for name in ("rate", "half", "flag", "when", "clock")]
    if made == "frame":
        graph = siafu.from_pandas(pa.table(edges), users, features=hot, label="job")
    else:
        pandas.DataFrame(edges).to_csv(tmp_path / "edges.csv", index=False)
        written_by_hand = users.assign(flag=["true", "false", "TRUE", "true"])
        if made == "parquet":
            users.to_parquet(file := tmp_path / "users.parquet")
        else:
            (users if made == "csv" else written_by_hand).to_csv(file := tmp_path / "users.csv", index=False)
        graph = resolve(f"{tmp_path}/edges.csv?features={file}%23{','.join(hot)}&labels={file}%23job").load()
    assert graph.num_features == 3 + 2 + 2 + 3 + 3
    model = with_settings(tmp_path, {"features": list(graph.names["features"])})
    np.testing.assert_array_equal(model.features(users), graph.features)
    with pytest.warns(UserWarning, match=r"^column 'rate': 4 rows are of a category .* \(3\.25\): 0 in all$"):
        assert not model.features(users.assign(rate=3.25))[:, :3].any()
    model.features(users.assign(rate=None))


# --- processes of their own -------------------------------------------------------------------------------------------


@pytest.mark.slow  # minutes: each is exported in a process
@cases
@pytest.mark.parametrize("to", ["onnx", "dgl"])
def test_logits_of_a_process_are_the_oracles(tmp_path: Path, to: str, model: str, options: dict[str, Any]) -> None:
    graph = graph_for(to, model, options)
    spec = spec_of(model, graph, {**options, "dtype": "float32"})
    weights = {name: value.astype(np.float32) for name, value in weights_of(spec).items()}
    try:
        python = exported.interpreter(to)
    except ConfigError as error:
        pytest.skip(str(error))
    written(tmp_path, to, spec, weights)
    found = exported.logits(python, to, tmp_path, inputs(tmp_path, graph, typed=model == "rgcn"))
    np.testing.assert_allclose(found, reference.predict(graph, spec, weights), rtol=1e-4, atol=1e-5)
    assert not (to == "onnx" and {path.name for path in tmp_path.iterdir()} - {"model.onnx", "shards"})


@pytest.mark.slow
def test_an_onnx_model_takes_graphs_of_any_size(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    spec = spec_of("gat", WEIGHTED, {"heads": 2, "dtype": "float32"})
    weights = {name: value.astype(np.float32) for name, value in weights_of(spec).items()}
    written(tmp_path, "onnx", spec, weights)
    exported.logits(exported.interpreter("onnx"), "onnx", tmp_path, inputs(tmp_path, WEIGHTED))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    other = random_graph(9, 55, num_edges=300)
    (found,) = session.run(None, inputs(tmp_path, other).arrays)
    np.testing.assert_allclose(found, reference.predict(other, spec, weights), rtol=1e-4, atol=1e-5)
