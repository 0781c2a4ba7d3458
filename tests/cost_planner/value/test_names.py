"""What runs are called beside each other."""

from __future__ import annotations

from cost_planner.value.names import names_apart
from tests.cost_planner.report.runs import baseline, servers


def test_runs_that_differ_in_seeds_alone_have_one_name():
    configs = [servers(), servers(**{"train.seed": 3}), servers(**{"run.dir": "elsewhere"})]
    assert names_apart(configs) == ["cpu pipe"] * 3


def test_names_say_in_what_runs_differ():
    configs = [servers(), servers(**{"train.lr": 0.5}), servers("lambda", "async")]
    lr = configs[0].train.lr
    assert names_apart(configs) == [f"cpu pipe lr={lr}", "cpu pipe lr=0.5", "lambda async s=0"]


def test_once_parts_differ_every_name_says_how_many():
    configs = [servers(), servers(**{"data.parts": 4}), servers("lambda"), baseline(**{"baseline.ranks": 3})]
    assert names_apart(configs) == ["cpu pipe parts=2", "cpu pipe parts=4", "lambda pipe parts=2", "vanilla ranks=3"]


def test_of_several_settings_those_with_defaults_are_not_told():
    deep = {"model.name": "sage", "model.layers": 4, "model.hidden": (32,), "model.residual": True}
    configs = [servers(), servers(**deep), servers(**{"model.hidden": (64,)})]
    assert names_apart(configs) == ["cpu pipe", "cpu pipe sage layers=4 hidden=32 residual", "cpu pipe hidden=64"]
