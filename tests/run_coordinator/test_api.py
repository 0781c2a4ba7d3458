"""What a config asks of the preparation, and what prepared shards ask of a config."""

import pytest

import siafu
from graph_data.prepare import prepare
from run_coordinator import api, run_config
from run_coordinator.api import train
from run_coordinator.cli import title
from run_coordinator.prepared import built, fit, shards_of
from run_coordinator.run_config import resolve
from siafu import __main__ as program
from siafu import evaluation
from siafu.config import Config, load
from siafu.errors import ConfigError
from siafu.graph import NONE, TEST_PAIR, TRAIN_PAIR, VAL, VAL_PAIR
from siafu.shards import ShardSet
from tests.graph_data.graphs import random_graph

PREPARED = {
    "node": {},
    "inductive": {"inductive": 1},
    "link": {"task": "link", "negatives": 2, "eval_negatives": 5},
}
FITTED = {  # (task, inductive, split, negatives, directed) of the config that trains on them
    "node": ("node", False, 0, 8, False),
    "inductive": ("node", True, 1, 8, False),
    "link": ("link", False, 0, 2, False),
}


@pytest.fixture
def prepared(tmp_path):
    def made(case):
        return prepare(random_graph(n=80), tmp_path / case, parts=2, **PREPARED[case])

    return made


def config(**data):
    return Config().replace({f"data.{key}": value for key, value in data.items()})


def test_the_command_line_resolves_the_config_once(monkeypatch, prepared):
    resolved = []
    monkeypatch.setattr(
        run_config, "resolve", lambda *words, **more: resolved.append(resolve(*words, **more)) or resolved[-1]
    )

    def conduct(config, *_, **__):
        assert [config] == resolved
        raise ConfigError("far enough")

    monkeypatch.setattr(api, "conduct", conduct)
    assert program.main(["train", str(prepared("node").path), "--epochs", "3", "--quiet"]) == 2
    assert resolved[0].train.epochs == 3


@pytest.mark.parametrize("case", PREPARED)
def test_shards_tell_what_they_are_for(case, prepared):
    shards = prepared(case)
    data = fit(config(source=str(shards.path)), shards).data
    assert (data.task, data.inductive, data.split, data.negatives, data.directed) == FITTED[case]
    assert fit(config(source=str(shards.path), task=data.task, inductive=data.inductive, split=data.split), shards)


@pytest.mark.parametrize(
    ("case", "data", "message"),
    [
        ("node", {"task": "link"}, "data.task = link: {} was prepared with node"),
        ("node", {"inductive": True}, "data.inductive = True: {} was prepared with False"),
        ("link", {"task": "link", "negatives": 3}, "data.negatives = 3: {} was prepared with 2"),
        ("link", {"task": "link", "eval_negatives": 6}, "data.eval_negatives = 6: {} was prepared with 5"),
        ("link", {"task": "link", "val_edges": 0.3}, "data.val_edges = 0.3: {} was prepared with VAL"),
        ("link", {"task": "link", "test_edges": 0.2}, "data.test_edges = 0.2: {} was prepared with TEST"),
        ("link", {"inductive": True}, "data.inductive = True: {} was prepared with False"),
        ("inductive", {"inductive": True, "split": 2}, "data.split = 2: {} was prepared with 1"),
    ],
    ids=str,
)
def test_shards_for_something_else_are_refused(case, data, message, prepared):
    shards = prepared(case)
    with pytest.raises(ConfigError) as caught:
        fit(config(source=str(shards.path), **data), shards)
    m = shards.manifest
    if m.edge_types == "links":  # shares are of whole edges
        edges = m.type_counts[TRAIN_PAIR] // 2 + m.type_counts[VAL_PAIR] + m.type_counts[TEST_PAIR]
        message = message.replace("VAL", f"{m.type_counts[VAL_PAIR] / edges:g}")
        message = message.replace("TEST", f"{m.type_counts[TEST_PAIR] / edges:g}")
    assert str(caught.value) == message.format(shards.path)


def test_how_often_a_run_is_evaluated_follows_from_its_graph_and_a_number_is_obeyed(prepared, monkeypatch):
    shards = prepared("node")
    asked = config(source=str(shards.path))
    assert fit(asked, shards).train.eval_every == 1
    monkeypatch.setattr(evaluation, "SMALL", shards.manifest.num_vertices)  # and no edge
    assert fit(asked, shards).train.eval_every == 10
    for said in (0, 1, 7):
        assert fit(asked.replace({"train.eval_every": said}), shards).train.eval_every == said


def test_link_shards_are_what_they_were_prepared_with(tmp_path):
    asked = {"val_edges": 0.2, "test_edges": 0.3, "negatives": 3, "eval_negatives": 4}
    shards = prepare(random_graph(n=80), tmp_path / "links", parts=3, task="link", **asked)
    fitted = fit(config(source=str(shards.path), task="link", **asked), shards).data
    assert {key: getattr(fitted, key) for key in asked} == asked
    found = fit(config(source=str(shards.path)), shards).data  # the defaults ask for nothing
    assert (found.negatives, found.eval_negatives) == (3, 4)
    assert (found.val_edges, found.test_edges) == (pytest.approx(0.2, abs=0.01), pytest.approx(0.3, abs=0.01))


def test_sgc_for_links_heeds_the_embeddings_width(prepared):
    shards = prepared("link")
    settings = {"data.source": str(shards.path), "model.name": "sgc", "model.hidden": 8}
    assert built(fit(Config().replace(settings), shards), shards).spec.num_classes == 8


def test_a_config_prepares_what_it_trains_on(tmp_path):
    source = {"source": "synthetic:typed?vertices=200&relations=1&degree=6", "cache_dir": str(tmp_path)}
    link = {"task": "link", "val_edges": 0.2, "test_edges": 0.3, "negatives": 3, "eval_negatives": 4}
    m = ShardSet.open(shards_of(config(**source, **link))).manifest
    _, training, false, val, val_false, test, _ = m.type_counts
    edges = training // 2 + val + test
    assert (false, val, test) == (3 * training, round(0.2 * edges), round(0.3 * edges))
    assert val_false % 4 == 0
    m = ShardSet.open(shards_of(config(**source, inductive=True, split=0))).manifest
    assert (m.edge_types, m.inductive_split) == ("inductive", 0)
    assert ShardSet.open(shards_of(config(**source))).manifest.edge_types == "none"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data.negatives": 3}, "data.negatives = 3: is for data.task = link"),
        ({"data.val_edges": 0.2}, "data.val_edges = 0.2: is for data.task = link"),
        (
            {"model.name": "sage", "train.weight_decay_rest": 0.1},
            "train.weight_decay_rest = 0.1: sage has no weights that are decayed otherwise",
        ),
        (
            {"lambda.apply_edge": "lambda"},
            "lambda.apply_edge = lambda: gcn has no coefficients of edges to be computed there",
        ),
        ({"model.name": "sgc", "model.layers": 3}, "model.layers = 3: sgc has one layer, and no hidden one"),
        ({"model.name": "sgc", "model.hidden": 64}, "model.hidden = [64]: sgc has one layer, and no hidden one"),
        ({"run.write": "H9"}, "run.write = H9: gcn writes no such rows in an evaluation"),
        ({"model.name": "gat", "model.narrow": False}, "model.narrow = False: gat does not use it"),
        ({"model.outputs": 1}, "model.outputs = 1: the graph has 3 classes, must be >= that"),
    ],
    ids=str,
)
def test_settings_that_would_not_be_heeded_are_refused(settings, message, prepared):
    shards = prepared("node")
    with pytest.raises(ConfigError) as caught:
        built(fit(Config().replace({"data.source": str(shards.path), **settings}), shards), shards)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "settings",
    [
        {"train.weight_decay_rest": 0.1},
        {"model.name": "gat", "lambda.apply_edge": "lambda"},
        {"run.write": "H2"},
        {"model.outputs": 9},
    ],
    ids=str,
)
def test_settings_that_a_model_heeds_are_taken(settings, prepared):
    shards = prepared("node")
    built(fit(Config().replace({"data.source": str(shards.path), **settings}), shards), shards)


# --- where tensor tasks run, and how far steps overlap ----------------------------------------------------------------


def toml(folder, text):
    (folder / "asked.toml").write_text(text)
    return folder / "asked.toml"


def test_a_run_is_exact_and_repeatable_unless_something_else_is_asked_for():
    assert resolve("digits", None, {}, {}).train.mode == "pipe"


@pytest.mark.parametrize(
    ("said", "settings", "short", "backend"),
    [
        ("", {}, {}, "cpu"),
        ("", {}, {"backend": "lambda"}, "lambda"),
        ("", {}, {"backend": "auto", "parts": 2}, "cpu"),
        ("", {}, {"lambda_on": "local"}, "lambda"),  # the default, but it was said
        ("", {}, {"lambdas": 4}, "lambda"),
        ("", {}, {"lambda_memory": 512}, "lambda"),
        ("", {}, {"lambda_on": "aws"}, "lambda"),
        ("", {"lambda.idle_s": 1}, {}, "lambda"),
        ("", {"lambda.region": "eu-west-1"}, {}, "cpu"),  # servers are priced by it too
        ("", {}, {"on": "ray"}, "lambda"),
        ("", {}, {"on": "aws"}, "lambda"),
        ("", {}, {"on": "aws", "backend": "cpu"}, "cpu"),
        ("", {}, {"lambda_on": "local", "backend": "gpu"}, "gpu"),
        ('[lambda]\non = "local"', {}, {}, "lambda"),
        ("[train]\nepochs = 3", {}, {}, "cpu"),
        ('[servers]\nbackend = "cpu"\n[lambda]\ncount = 0', {}, {}, "cpu"),
    ],
)
def test_auto_is_lambda_where_somebody_asks_for_lambdas_else_cpu(tmp_path, said, settings, short, backend):
    resolved = resolve("digits", toml(tmp_path, said) if said else None, settings, short)
    assert resolved.servers.backend == backend
    assert resolved.lambdas.on == short.get("lambda_on", "aws" if short == {"on": "aws"} else "local")


@pytest.mark.parametrize(("settings", "backend"), [({"lambda.count": 2}, "lambda"), ({"train.epochs": 2}, "cpu")])
def test_a_config_object_asks_by_what_is_not_its_default(settings, backend):
    assert resolve("", Config().replace(settings), {}, {}).servers.backend == backend


def test_a_run_says_which_backend_it_had(tmp_path):
    run = train("digits", epochs=1, intervals=1, run_dir=str(tmp_path / "run"))
    found = load(run.dir / "config.toml")
    assert (found.servers.backend, found.train.mode) == ("cpu", "pipe")
    assert resolve("", found, {}, {}) == found


def test_a_run_is_called_by_the_parts_of_its_shards_whatever_the_flag_says(prepared):
    shards = prepared("node")
    assert "2 parts" in title(config(source=str(shards.path)))
    assert "3 parts" in title(config(parts=3))


@pytest.mark.parametrize(("key", "value"), [("patience", 3), ("target_acc", 0.5)])
def test_settings_that_stop_by_validation_are_refused_where_nothing_is_validated(key, value, tmp_path):
    graph = random_graph()
    graph.split[graph.split == VAL] = NONE
    shards = prepare(graph, tmp_path / "shards", directed=True)
    asked = fit(config(source=str(shards.path)), shards)
    assert built(asked, shards)
    with pytest.raises(ConfigError, match=f"^train.{key} = {value:g}: .*shards has no validation vertices to stop by"):
        built(asked.replace({f"train.{key}": value}), shards)


def test_an_empty_name_is_refused_not_taken_for_the_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (
        lambda: siafu.train(""),
        lambda: siafu.train(source=""),
        lambda: siafu.repeat("", runs=2),
        lambda: siafu.search("", {"lr": [0.1, 0.2]}),
    ):
        with pytest.raises(ConfigError, match="source is empty: name a graph, or leave it out"):
            call()
    for judge in (siafu.predict, siafu.evaluate):
        with pytest.raises(ConfigError, match="graph is empty: name a graph, or leave it out"):
            judge("run", graph="")
    with pytest.raises(ConfigError, match="No such file"):
        siafu.train(config="")
    monkeypatch.setattr("run_coordinator.baseline.needs_torch", lambda: None)
    with pytest.raises(ConfigError, match="source is empty"):
        siafu.train_baseline("pipegcn", "")
    assert not list(tmp_path.iterdir())
