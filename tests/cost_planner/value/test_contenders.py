"""From words to contenders, and from those to configs of one task."""

from __future__ import annotations

import pytest

from cost_planner.value import contenders, trained
from cost_planner.value.contenders import ALL, config_of, labels, parse
from siafu.baseline import METHODS, BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError

BASE = Config().replace({"data.parts": 2, "model.hidden": 32, "train.target_acc": 0.8, "servers.threads": 1})


def test_words_have_modes_and_settings_of_their_own():
    found = parse("lambda, lambda async s=1, lambda lambda-memory=512, cpu, cpu no-pipe, pipegcn smooth=FG")
    assert [(one.name, one.mode) for one in found] == [
        ("lambda async s=0", "async"),
        ("lambda async s=1", "async"),
        ("lambda async s=0 lambda-memory=512", "async"),
        ("cpu pipe", "pipe"),
        ("cpu no-pipe", "no-pipe"),
        ("pipegcn smooth=FG", ""),
    ]
    assert found[2].own == {"lambda.memory_mb": "512"}
    assert found[5].own == {"baseline.smooth": "FG"}


def test_commas_before_digits_are_values():
    (sampling, cpu) = parse("sampling fanouts=25,10, cpu")
    assert (sampling.own, cpu.kind) == ({"baseline.fanouts": "25,10"}, "cpu")


def test_all_are_everybody():
    assert {one.kind for one in parse("all")} == {"lambda", "cpu", "gpu", *METHODS}
    assert len(parse("all")) == len(ALL)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no contender"),
        ("gpus", r"--contenders gpus: unknown contender gpus; must be one of lambda, cpu, gpu \(each"),
        ("cpu, cpu pipe", "cpu pipe is there twice"),
        ("cpu fast", "fast must be KEY=VALUE, or a mode first: async, pipe, no-pipe"),
        ("vanilla pipe", "pipe must be KEY=VALUE$"),
        ("cpu seed=3", "seed must be equal for all"),
        ("cpu run.budget_usd=3", "must be equal for all"),
    ],
)
def test_mistakes_are_named(text, said):
    with pytest.raises(ConfigError, match=said):
        parse(text)


@pytest.mark.parametrize("one", parse("lambda async s=1, lambda no-pipe, cpu, gpu"), ids=lambda one: one.name)
def test_servers_differ_by_backend_and_mode_alone(one):
    config = config_of(one, BASE, 2)
    assert trained.name_of(config) == one.name
    changed = {"servers.backend": "lambda", "train.mode": "async", "train.staleness": 0, "lambda.cpu_share": "real"}
    assert config.replace(changed) == BASE.replace(changed)


def test_lambdas_compute_with_what_their_memory_buys_unless_they_are_told_otherwise():
    whole, own = parse("lambda pipe, lambda pipe cpu_share=free".replace("cpu_share", "lambda.cpu_share"))
    assert config_of(whole, BASE, 2).lambdas.core == pytest.approx(192 / 1769)
    assert config_of(own, BASE, 2).lambdas.core == 1
    assert config_of(whole, BASE.replace({"lambda.cpu_share": "free"}), 2).lambdas.core == 1
    (cpu,) = parse("cpu")
    assert config_of(cpu, BASE, 2).lambdas == BASE.lambdas
    on_aws = BASE.replace({"lambda.on": "aws"})
    assert config_of(whole, on_aws, 2).lambdas == on_aws.lambdas


@pytest.mark.parametrize("words", ["pipegcn", "adaqp", "vanilla depth=1", "vanilla scheme=fixed"])
def test_what_only_treats_halo_rows_otherwise_is_no_contender_where_none_travel(words):
    (one,) = parse(words)
    with pytest.raises(ConfigError, match=rf"^{words} on one rank is vanilla: .*'{one.kind} ranks=2'"):
        contenders.can_run(one, BASE, 1)
    contenders.can_run(one, BASE, 2)
    (two,) = parse(f"{words} ranks=2")
    contenders.can_run(two, BASE, 1)
    contenders.can_run(parse("vanilla")[0], BASE, 1)


@pytest.mark.parametrize("method", METHODS)
def test_baselines_train_the_same_model_to_the_same_target(method):
    (one,) = parse(method)
    config = config_of(one, BASE, 2)
    assert isinstance(config, BaselineConfig)
    assert (config.model.hidden, config.train.target_acc, config.data.source) == ((32,), 0.8, "digits")
    assert config.baseline.ranks == (1 if method == "cluster" else 2)
    assert config.servers == Config().servers
    assert (one.name, labels([one], BASE, 2)) == (method, {method: trained.name_of(config)})


def test_a_baseline_says_its_ranks_and_is_there_once():
    asked = parse("vanilla, vanilla ranks=4, cluster, cpu")
    assert list(labels(asked, BASE, 2).values()) == [
        "vanilla ranks=2",
        "vanilla ranks=4",
        "cluster ranks=1",
        "cpu pipe",
    ]
    with pytest.raises(ConfigError, match="vanilla ranks=2 is there twice"):
        labels(parse("vanilla, vanilla ranks=2"), BASE, 2)


def test_settings_of_its_own_come_last():
    (one,) = parse("vanilla ranks=4 link_rate=25MB")
    found = config_of(one, BASE, 2)
    assert isinstance(found, BaselineConfig)
    assert (found.baseline.ranks, found.baseline.link_rate) == (4, 25e6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu pipe s=1", "train.staleness = 1"),
        ("vanilla lambdas=3", "baselines do not use it"),
        ("cpu nonsense=1", "nonsense"),
    ],
)
def test_settings_that_a_contender_has_not_are_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        config_of(parse(text)[0], BASE, 2)


def test_baselines_refuse_models_that_they_have_not():
    (one,) = parse("vanilla")
    with pytest.raises(ConfigError, match=r"model\.name = gin: baselines have"):
        contenders.can_run(one, BASE.replace({"model.name": "gin"}), 2)
    contenders.can_run(parse("cpu")[0], BASE.replace({"model.name": "gin"}), 2)
