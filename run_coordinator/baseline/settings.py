"""Makes a baseline's config from what a user asks. A setting that the baseline would not use is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_data import source_flags
from run_coordinator import prepared, run_config
from siafu import config as configs
from siafu.baseline import METHODS, BaselineConfig, first_settings
from siafu.config import Config, Data
from siafu.errors import ConfigError, one_of
from siafu.shards import ShardSet

#: Flags of its own -> config keys.
OWN = {name: key for name, key in configs.flags(BaselineConfig).items() if key.startswith("baseline.")}

#: Settings of ``siafu train`` that baselines use too. They refuse all others, and so a new one until it stands here.
HEEDED = {
    f"{section}.{key}"
    for section, keys in {
        "data": (
            "source partitioner order directed feature_norm split seed train_per_class val_per_class cache_dir "
            "inductive"
        ),
        "model": (
            "name layers hidden activation bias dropout norm init heads out_heads attn_dropout slope residual alpha "
            "theta hops eps train_eps bases outputs narrow dtype"
        ),
        "train": (
            "epochs lr optimizer momentum weight_decay weight_decay_rest clip_norm label_smoothing schedule "
            "step_epochs step_factor seed eval_every target_acc patience stop_on"
        ),
        "run": "dir checkpoint_every",
        # What the price of a run is made of.
        "lambda": "region",
        "cloud": "gpu_instance spot",
    }.items()
    for key in keys.split()
}
#: Flags of siafu train that a baseline has too.
SHARED = tuple(flag for flag, key in configs.flags().items() if key in HEEDED)
#: What no baseline heeds: key -> the value that it has to keep. Its parts follow from its ranks.
UNHEEDED: dict[str, Any] = {
    key: value for key, value in Config().flat().items() if key not in HEEDED and key != "data.parts"
}


def resolve(
    method: str,
    source: str,
    config: BaselineConfig | str | Path | None,
    settings: Mapping[str, Any],
    short: Mapping[str, Any],
    preset: str = "",
) -> BaselineConfig:
    """Defaults < the method's first settings < config < preset < settings < short names. Raises: ConfigError for an
    unknown name, an impossible value, or a setting of graph servers and Lambdas alone."""
    changes, shared = dict(settings), {}
    for name, value in short.items():
        if name in SHARED or name in source_flags.OPTIONS:
            shared[name] = value
        elif name in OWN:
            changes[OWN[name]] = value
        else:
            raise ConfigError(f"{name}: unknown argument, {one_of(name, (*SHARED, *OWN))}")
    for key in changes:
        if key in UNHEEDED or key == "data.parts":
            raise ConfigError(f"{key} = {changes[key]}: {_whose(key)}")
    model = shared.get("model") or changes.get("model.name")
    base = _base(method, config, model)
    found = run_config.resolve(source, base, changes, shared, preset)
    assert isinstance(found, BaselineConfig)
    if found.baseline.method != method:
        raise ConfigError(f"baseline.method = {found.baseline.method}: {method} was asked for")
    return _checked(found)


def _base(method: str, config: BaselineConfig | str | Path | None, model: str | None) -> BaselineConfig:
    """The config with the method's own first settings where the config sets nothing. A BaselineConfig is returned as it
    is."""
    if isinstance(config, BaselineConfig):
        return config
    said = {} if config is None else configs.sections_of(config)
    model = model or said.get("model", {}).get("name") or BaselineConfig().model.name
    sections: dict[str, Any] = {section: dict(values) for section, values in said.items()}
    for key, value in first_settings(method, model).items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {}).setdefault(name, value)
    return BaselineConfig.from_dict(sections)


def _checked(config: BaselineConfig) -> BaselineConfig:
    said = config.flat()
    for key, kept in UNHEEDED.items():
        if said[key] != kept and key != "servers.backend":  # the config.toml of every run names one
            raise ConfigError(f"{key} = {said[key]}: {_whose(key)}")
    return config


def _whose(key: str) -> str:
    if key == "data.parts":
        return "a baseline's parts follow from its ranks and its method"
    if key == "model.jump":
        return "baselines' nets have no jumping knowledge"
    return "baselines do not use it"


def fitted(config: BaselineConfig, shards: ShardSet) -> BaselineConfig:
    """The config with the values that prepared shards fix. ConfigError if the method needs another number of parts."""
    parts, b = shards.manifest.num_partitions, config.baseline
    if parts != config.partitions:
        raise ConfigError(
            f"{config.data.source}: it was cut into {parts} parts, {b.method} on {b.ranks} ranks "
            f"needs {config.partitions}"
        )
    if config.data.partitioner == METHODS[b.method].sets.get("data.partitioner"):  # it does not cut what is cut already
        config = config.replace({"data.partitioner": Data().partitioner})
    # ranks have none: see UNHEEDED
    found = prepared.fit(config, shards).replace({"train.intervals": config.train.intervals})
    assert isinstance(found, BaselineConfig)
    return found
