"""From flags and files to a baseline's config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graph_data.prepare import prepare
from run_coordinator.baseline.settings import HEEDED, OWN, SHARED, UNHEEDED, fitted, resolve
from siafu import config as configs
from siafu.baseline import BASELINE_MODELS, METHODS, BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import ShardSet
from tests.toy_graphs import random_graph


def resolved(method: str = "vanilla", *, config: Any = None, settings: Any = None, **short: Any) -> BaselineConfig:
    return resolve(method, "", config, settings or {}, short)


@pytest.mark.parametrize("model", BASELINE_MODELS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_begins_with_its_own_settings(method: str, model: str) -> None:
    config = resolved(method, model=model)
    assert config.baseline.method == method
    for key, value in METHODS[method].sets.items():
        assert config.flat()[key] == value
    assert config.model.narrow == (model not in ("gcn", "sage"))


def test_flags_win_over_settings_over_the_file_over_what_the_method_begins_with(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[baseline]\ndepth = 2\nsmooth = "F"\ngamma = 0.5\nranks = 3\n[train]\nlr = 0.1\n')
    config = resolved(
        "pipegcn", config=file, settings={"baseline.gamma": "0.25", "train.lr": "0.2"}, ranks="4", lr="0.3"
    )
    b = config.baseline
    assert (b.depth, b.gamma, b.ranks, config.train.lr) == (2, 0.25, 4, 0.3)


def test_a_runs_own_config_repeats_it(tmp_path: Path) -> None:
    config = resolved("adaqp", bits="4", scheme="fixed", link_rate="25MB", link_delay="5ms", model="gat", epochs="7")
    (tmp_path / "config.toml").write_text(configs.dump(config))
    assert resolved("adaqp", config=tmp_path / "config.toml") == config
    assert load(tmp_path / "config.toml") == config
    with pytest.raises(ConfigError, match="vanilla was asked for"):
        resolved("vanilla", config=tmp_path / "config.toml")


def test_load_knows_a_config_of_servers(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(configs.dump(Config()))
    assert load(tmp_path / "config.toml") == Config()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("servers.param_servers", "1"),
        ("servers.backend", "cpu"),
        ("lambda.memory_mb", "512"),
        ("cloud.name", "x"),
        ("train.staleness", "1"),
        ("train.mode", "async"),
        ("run.on", "ray"),
        ("run.budget_usd", "1"),
        ("model.rows", "bfloat16"),
        ("data.task", "link"),
        ("data.parts", "4"),
        ("run.on_nan", "skip"),
        ("run.restarts", "5"),
        ("run.keep", "1"),
    ],
)
def test_what_is_for_servers_and_lambdas_is_refused_by_name(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} = {value}: "):
        resolved(settings={key: value})


def test_a_setting_is_heeded_where_it_is_named_and_refused_else() -> None:
    """A new setting of servers, which no rank reads, is not accepted in silence."""
    assert Config().flat().keys() > HEEDED
    assert Config().flat().keys() == {*HEEDED, *UNHEEDED, "data.parts"}


def test_a_file_may_say_what_is_so_anyway(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[servers]\nparam_servers = 1\n")
    assert resolved(config=file) == resolved()
    file.write_text("[servers]\nparam_servers = 2\n")
    with pytest.raises(ConfigError, match=r"servers.param_servers = 2: baselines do not use it"):
        resolved(config=file)


@pytest.mark.parametrize("key", ["cloud.gpu_instance", "cloud.spot", "lambda.region"])
def test_what_prices_a_run_is_heeded(key: str) -> None:
    section, _, name = key.partition(".")
    value = True if name == "spot" else "somewhere"
    assert resolved(settings={key: value}).to_dict()[section][name] == value


def test_a_method_refuses_the_settings_of_others() -> None:
    with pytest.raises(ConfigError, match=r"baseline.subgraphs = 3: vanilla does not use it"):
        resolved(subgraphs=3)


@pytest.mark.parametrize(
    ("method", "short", "needs"),
    [
        ("adaqp", {"bits": 2}, "baseline.bits = 2: needs baseline.scheme = fixed, it is adaptive"),
        ("vanilla", {"bits": 4}, "baseline.bits = 4: needs baseline.scheme = fixed, it is none"),
        ("vanilla", {"feedback": True}, "baseline.feedback = True: needs baseline.scheme: nothing is quantised"),
        ("vanilla", {"period": 5}, "baseline.period = 5: needs baseline.scheme = uniform or adaptive, it is none"),
        ("pipegcn", {"gamma": 0.5}, "baseline.gamma = 0.5: needs baseline.smooth = F, G or FG"),
    ],
)
def test_a_setting_that_another_makes_mean_nothing_is_refused(method: str, short: dict[str, Any], needs: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolved(method, **short)
    assert str(caught.value) == needs


@pytest.mark.parametrize("key", ["group_size", "balance", "slow_factor"])
def test_so_are_those_that_are_no_flags(key: str) -> None:
    value = {"group_size": 7, "balance": 0.1, "slow_factor": 2.0}[key]
    method = "gossip" if key == "slow_factor" else "pipegcn"
    with pytest.raises(ConfigError, match=rf"^baseline.{key} = {value}: needs "):
        resolved(method, settings={f"baseline.{key}": value})


def test_every_flag_is_of_a_setting() -> None:
    known = configs.settings(BaselineConfig)
    assert set(OWN.values()) <= known.keys()
    assert not set(OWN) & set(SHARED)


@pytest.mark.parametrize(
    ("text", "bytes_per_s"), [("25MB", 25e6), ("1GiB", 2**30), ("1000", 1000), ("1.5MB/s", 1.5e6), (7, 7), ("0", 0)]
)
def test_rates(text: Any, bytes_per_s: float) -> None:
    assert resolved(link_rate=text).baseline.link_rate == bytes_per_s


@pytest.mark.parametrize(("text", "seconds"), [("5ms", 0.005), ("200us", 0.0002), ("0.1s", 0.1), ("2", 2), (0.5, 0.5)])
def test_delays(text: Any, seconds: float) -> None:
    assert resolved(link_delay=text).baseline.link_delay_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("link_rate", "fast"),
        ("link_rate", "-1MB"),
        ("link_rate", "1 bit"),
        ("link_delay", "5 minutes"),
        ("link_delay", ""),
    ],
)
def test_what_is_neither(flag: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^baseline.{flag}\w* = {text!r}: must be "):
        resolved(**{flag: text})


def test_the_config_that_a_run_leaves_may_be_asked_for_again(tmp_path: Path) -> None:
    shards = prepare(random_graph(1), tmp_path / "shards", parts=2)
    source = str(tmp_path / "shards")
    left = fitted(resolve("vanilla", source, None, {}, {"ranks": 2}), shards)
    assert resolve("vanilla", source, left, {}, {}) == left


def test_a_rank_waits_for_days_at_most() -> None:
    with pytest.raises(ConfigError, match=r"baseline.timeout_s = 10000000.0: must be <= 1000000"):
        resolved(timeout_s=1e7)


def test_what_older_runs_could_set_is_still_read():
    assert BaselineConfig.from_dict({"baseline": {"solver": "milp"}}).baseline.scheme == "none"


def test_shards_are_used_as_they_were_cut_by_methods_that_cut_at_random(tmp_path: Path) -> None:
    source = str(prepare(random_graph(1), out=tmp_path / "shards", parts=4).path)
    config = resolve("gossip", source, None, {"baseline.subgraphs": 4}, {})
    assert config.data.partitioner == "random"
    assert fitted(config, ShardSet.open(source)).data.partitioner == "metis"
    with pytest.raises(ConfigError, match="was prepared with metis"):
        fitted(
            resolve("gossip", source, None, {"baseline.subgraphs": 4, "data.partitioner": "chunk"}, {}),
            ShardSet.open(source),
        )
