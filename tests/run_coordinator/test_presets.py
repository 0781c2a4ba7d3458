"""Published settings: each is a config and a model that can be, says where it stands, and gives way to flags."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from graph_data.prepare import prepare
from run_coordinator import presets, run_config
from siafu.__main__ import main
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import MODELS, ModelSpec, build
from tests.toy_graphs import random_graph

PUBLISHED = pytest.mark.parametrize(("model", "graph"), presets.PAPER)


@PUBLISHED
def test_a_preset_is_a_model_that_can_be_and_names_its_source(model: str, graph: str):
    config = run_config.resolve(graph, None, None, {"model": model}, "paper")
    assert presets.find("paper", config) is presets.PAPER[model, graph]
    assert presets.PAPER[model, graph].source
    assert presets.PAPER[model, graph].differs
    if model in MODELS:
        size = SimpleNamespace(train=140, val=500, test=1000)
        manifest = SimpleNamespace(
            num_features=50,
            num_classes=7,
            multilabel=False,
            target="classes",
            splits=(size,),
            num_edge_types=1,
            edge_types="none",
            sparse_features=False,
        )
        assert build(ModelSpec.of(config, manifest)).init()  # type: ignore[arg-type]


@PUBLISHED
def test_a_preset_leaves_to_the_user_what_was_not_published(model: str, graph: str):
    kept = {"train.seed", "train.mode", "data.parts", "data.source", "model.name"}
    assert not kept & presets.PAPER[model, graph].settings.keys()
    assert not {key for key in presets.PAPER[model, graph].settings if key.startswith(("servers.", "lambda.", "run."))}


def test_patience_ends_as_its_authors_have_it():
    ends = {
        model: (preset.settings.get("train.stop_on"), preset.settings.get("train.patience"))
        for (model, _), preset in presets.PAPER.items()
    }
    assert ends == {
        "gcn": ("loss", 10),
        "gat": ("both", 100),
        "gcnii": ("loss", 100),
        "appnp": ("both", 100),
        "sgc": (None, None),
        "sage": (None, None),
    }
    config = run_config.resolve("cora", None, None, {"model": "gat", "stop_on": "score"}, "paper")
    assert (config.train.stop_on, config.train.patience) == ("score", 100)


def test_flags_and_settings_win_over_a_preset_and_a_preset_over_a_config():
    config = Config().replace({"train.lr": 9.0, "train.epochs": 7, "train.clip_norm": 0.5})
    found = run_config.resolve("cora", config, {"train.epochs": "30"}, {"model": "gat", "heads": 4}, "paper")
    assert (found.train.lr, found.train.epochs, found.model.heads, found.train.clip_norm) == (0.005, 30, 4, 0.5)


def test_a_graph_goes_by_its_file_or_the_name_in_its_shards(tmp_path: Path):
    prepare(random_graph(1), tmp_path / "mine", directed=True)
    assert presets.graph_of(str(tmp_path / "mine")) == "random-1"
    assert [presets.graph_of(source) for source in ("cora", "data/Cora.npz")] == ["cora", "cora"]


@pytest.mark.parametrize(
    ("model", "graph", "complaint"),
    [
        ("gcn", "digits", "nothing published for gcn on digits, only on cora, citeseer, pubmed"),
        (
            "gin",
            "cora",
            (
                "nothing published for gin on cora (its paper classifies whole graphs), only for gcn, "
                "gat, gcnii, appnp, sgc, sage"
            ),
        ),
    ],
)
def test_what_was_not_published_is_refused_with_what_was(
    model: str, graph: str, complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["train", graph, "--model", model, "--preset", "paper"]) == 2
    assert capsys.readouterr().err == f"siafu train: preset paper: {complaint}\n"


def test_there_is_one_kind_of_preset():
    with pytest.raises(ConfigError, match=r"^preset 'papers': unknown, must be paper$"):
        run_config.resolve("cora", None, None, {}, "papers")
