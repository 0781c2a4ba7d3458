"""Settings that would do nothing."""

from __future__ import annotations

from dataclasses import fields

import pytest

from run_coordinator import run_config
from run_coordinator.conditions import NEEDS, idle
from siafu import config as configs
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.models import OPTIONS, ModelSpec

#: Key -> who refuses it where it does nothing.
CHECKED = {
    **dict.fromkeys(
        ("data.val_edges", "data.test_edges", "data.negatives", "data.eval_negatives"), "run_coordinator.prepared.fit"
    ),
    **dict.fromkeys(
        (
            "model.activation",
            "model.dropout",
            "model.norm",
            "model.residual",
            "model.jump",
            "model.heads",
            "model.out_heads",
            "model.attn_dropout",
            "model.slope",
            "model.alpha",
            "model.theta",
            "model.hops",
            "model.eps",
            "model.train_eps",
            "model.bases",
            "model.narrow",
            "model.decoder",
        ),
        "siafu.models.build",
    ),
    **dict.fromkeys(
        ("model.layers", "model.hidden", "train.weight_decay_rest", "run.write"), "run_coordinator.prepared.built"
    ),
    **dict.fromkeys(("data.inductive", "train.staleness"), "siafu.config"),
}
#: They mean something in every run.
ALWAYS = {
    f"{section}.{key}"
    for section, keys in {
        "data": (
            "source parts partitioner order directed feature_norm split seed train_per_class val_per_class "
            "cache_dir keep_aggregate task"
        ),
        "model": "name bias init outputs rows dtype",
        "train": (
            "epochs lr optimizer weight_decay clip_norm label_smoothing warm_start schedule seed mode intervals "
            "eval_every target_acc patience stop_on"
        ),
        "servers": "param_servers backend threads listen ports start_timeout_s heartbeat_s silence_s security stall_s",
        "lambda": "region",
        "run": (
            "dir trace checkpoint_every checkpoint_seconds keep checkpoint_to restarts on_nan on "
            "budget_usd max_seconds loggers"
        ),
        # Of a deployment: siafu deploy reads them from the same file.
        "cloud": (
            "name graph_instance param_instance gpu_instance spot volume_gib zone shell arch reserved ttl_hours "
            "monthly_usd email bucket ray_address"
        ),
    }.items()
    for key in keys.split()
}


def test_every_setting_is_classified_once():
    keys = [f"{section}.{key}" for section, values in Config().to_dict().items() for key in values]
    told = [*ALWAYS, *CHECKED, *NEEDS]
    assert set(keys) - set(told) == set(), "new: to ALWAYS, or NEEDS of run_coordinator/conditions.py"
    assert sorted(told) == sorted(keys)


def test_a_setting_of_models_is_an_option_that_they_can_refuse():
    """Else it would reach no model, and none would say so."""
    refused = {key.removeprefix("model.") for key, by in CHECKED.items() if by == "siafu.models.build"}
    assert refused == {*OPTIONS, "decoder"}
    elsewhere = {"layers", "hidden", "outputs"}  # layers and hidden: ``widths``; outputs: ``num_classes``
    assert {field.name for field in fields(configs.Model)} - {field.name for field in fields(ModelSpec)} == elsewhere


def test_nothing_is_idle_in_the_defaults():
    assert idle(run_config.resolve("", None, {}, {})) == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.freshness": 0.5}, "train.freshness = 0.5: has no effect, it needs train.mode = async"),
        (
            {"train.mode": "async", "train.ahead": 0.5},
            "train.ahead = 0.5: has no effect, it needs .* train.staleness > 0",
        ),
        ({"train.momentum": 0.5}, "train.momentum = 0.5: has no effect, it needs train.optimizer = sgd"),
        ({"train.step_epochs": 5}, "train.step_epochs = 5: has no effect, it needs train.schedule = step"),
        (
            {"servers.backend": "cpu", "lambda.count": 3},
            "lambda.count = 3: has no effect, it needs servers.backend = lambda",
        ),
        ({"servers.device": "cpu"}, "servers.device = cpu: has no effect, it needs servers.backend = gpu"),
        (
            {"servers.backend": "lambda", "lambda.on": "aws", "lambda.cpu_share": "real"},
            "lambda.cpu_share = real: has no effect, it needs servers.backend = lambda, and lambda.on = local",
        ),
    ],
)
def test_what_is_said_and_does_nothing_is_refused(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        run_config.resolve("digits", None, settings, {})
    file = tmp_path / "mine.toml"
    file.write_text(configs.dump(Config().replace(settings)))
    with pytest.raises(ConfigError, match=message):
        run_config.resolve("", file, {}, {})
    with pytest.raises(ConfigError, match=message):
        run_config.resolve("", file, {"train.epochs": 3}, {})


@pytest.mark.parametrize(
    "settings",
    [
        {"train.mode": "async", "train.freshness": 0.5},
        {"train.mode": "async", "train.staleness": 1, "train.ahead": 0.0},
        {"train.optimizer": "sgd", "train.momentum": 0.5},
        {"servers.backend": "lambda", "lambda.count": 3},
        {"servers.backend": "lambda", "lambda.on": "ray", "lambda.cpu_share": "real"},
        {"servers.backend": "cpu", "lambda.count": 0, "train.freshness": 0.9},  # defaults ask for nothing
    ],
)
def test_what_means_something_stays(settings):
    resolved = run_config.resolve("digits", None, settings, {})
    assert resolved == resolved.replace(settings)


def test_what_loses_its_meaning_goes_back_to_its_default(tmp_path):
    known = run_config.resolve("digits", None, {"servers.backend": "lambda", "lambda.count": 3}, {})
    assert run_config.resolve("", known, {}, {"backend": "cpu"}).lambdas.count == 0
    (tmp_path / "config.toml").write_text(configs.dump(known))
    assert run_config.resolve("", tmp_path / "config.toml", {}, {"backend": "cpu"}).lambdas.count == 0
    with pytest.raises(ConfigError, match=r"lambda\.count = 4: has no effect"):
        run_config.resolve("", known, {"lambda.count": 4}, {"backend": "cpu"})


def test_runs_in_several_modes_may_share_what_is_for_some_of_them():
    assert run_config.resolve("digits", None, {"train.freshness": 0.5}, {}, many=True).train.freshness == 0.5
