"""``siafu.train`` and ``Run``: a run from Python, and what the command line's ``train`` calls."""

from __future__ import annotations

import importlib
import json
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import launch
from bench.coordinator import Status
from bench.meter import Meter
from bench.site import lambda_site
from datasets.prepare import cached
from siafu import __version__, checkpoint, models
from siafu import config as configs
from siafu.config import Config, Data
from siafu.errors import ConfigError
from siafu.models import ModelSpec
from siafu.shards import MANIFEST, ShardSet
from siafu.sparse import Array

#: Short names of keyword arguments and command-line flags -> config keys.
SHORT = {
    "parts": "data.parts", "partitioner": "data.partitioner", "order": "data.order", "directed": "data.directed",
    "feature_norm": "data.feature_norm", "split": "data.split",
    "model": "model.name", "layers": "model.layers", "hidden": "model.hidden", "dropout": "model.dropout",
    "epochs": "train.epochs", "lr": "train.lr", "weight_decay": "train.weight_decay", "seed": "train.seed",
    "mode": "train.mode", "staleness": "train.staleness", "intervals": "train.intervals",
    "target_acc": "train.target_acc", "eval_every": "train.eval_every", "patience": "train.patience",
    "stale_gradients": "train.stale_gradients", "stale_rows": "train.stale_rows",
    "param_servers": "servers.param_servers", "backend": "servers.backend",
    "lambdas": "lambda.count", "lambda_memory": "lambda.memory_mb", "lambda_on": "lambda.on",
    "checkpoint_every": "run.checkpoint_every", "run_dir": "run.dir", "trace": "run.trace",
    "on": "run.on", "budget": "run.budget_usd", "max_time": "run.max_seconds",
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A finished run and its directory."""

    dir: Path
    result: Mapping[str, Any]  # what ``siafu train --json`` prints

    @property
    def test_acc(self) -> float:
        """Test accuracy of the epoch with the best validation accuracy; NaN if a limit came before the first evaluation."""
        return float("nan") if self.result["test_acc"] is None else float(self.result["test_acc"])

    @property
    def stopped(self) -> str:
        """Why training ended: "epochs", "target", "patience", or at a limit: "budget", "time"."""
        return str(self.result["stopped"])

    def weights(self) -> dict[str, Array]:
        """The best epoch's weights, by name."""
        return checkpoint.load_model(self.dir / "model.safetensors")[0]

    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return [json.loads(line) for line in (self.dir / "metrics.jsonl").read_text().splitlines()]


def train(
    source: str = "",
    *,
    config: Config | str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    on_status: Callable[[Status], None] = lambda status: None,
    **short: Any,
) -> Run:
    """Trains a model and returns the finished run.

    source: what to train on; see ``siafu prepare --help``. config: a Config or a TOML file to start from. settings:
    ``{"section.key": value}``. Keyword arguments are the command line's flags: ``epochs=50, mode="pipe", parts=2``.

        >>> run = siafu.train("digits", epochs=50)
        >>> run.test_acc

    Raises: ConfigError or DatasetError for what the user asked; PeerLost, WorkerError and others for what failed.
    """
    resolved = resolve(source, config, settings, short)
    on_status(Status(phase="preparing"))
    shards_path = shards_of(resolved)
    on_status(Status(phase="starting"))
    shards = ShardSet.open(shards_path)
    resolved = _fit(resolved, shards)
    models.build(ModelSpec.of(resolved, shards.manifest))  # a model that cannot be must not cost a run directory
    Meter(resolved)  # nor a budget without prices
    run_dir = _run_dir(resolved, shards.manifest.name)
    do = _far_away() if resolved.run.on == "aws" else carry_out
    result = {**do(resolved, shards, run_dir, on_status), "run_dir": str(run_dir)}
    (run_dir / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    return Run(run_dir, result)


def _far_away() -> Callable[..., dict[str, Any]]:
    """``carry_out`` on a deployment, one of whose machines coordinates. By name: boto3 is for those who have one."""
    try:
        module = importlib.import_module("infra.machines.remote")
    except ModuleNotFoundError as error:
        raise ConfigError(f"run.on = aws needs {error.name}: pip install 'siafu[aws]'") from None
    found: Callable[..., dict[str, Any]] = module.carry_out
    return found


def carry_out(config: Config, shards: ShardSet, run_dir: Path, on_status: Callable[[Status], None]) -> dict[str, Any]:
    """Trains, with this process as coordinator; the result. The models, and all that a run leaves, are in ``run_dir``."""
    spec = ModelSpec.of(config, shards.manifest)
    with lambda_site(config, run_dir) as site:
        _write_manifest(run_dir, site.config, shards)
        result, weights_of = launch.run(site.config, shards, shards.path.resolve(), run_dir, on_status, site.check)
    epoch_of = {"best": result["best_epoch"] or result["epochs"], "final": result["epochs"]}
    for name, weights in weights_of.items():
        file = run_dir / ("model.safetensors" if name == "best" else f"{name}.safetensors")
        checkpoint.save_model(file, weights, spec, {"epoch": epoch_of[name]})
    return result


def settings_of(assignments: Sequence[str]) -> dict[str, str]:
    """``SECTION.KEY=VALUE``, as on a command line, by key. ConfigError for one without a value."""
    settings = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    return settings


def resolve(
    source: str, config: Config | str | Path | None, settings: Mapping[str, Any] | None, short: Mapping[str, Any]
) -> Config:
    """Defaults < config < settings < keyword arguments. ConfigError for a name that does not exist."""
    base = config if isinstance(config, Config) else configs.load(config) if config else Config()
    changes = dict(settings or {})
    for name, value in short.items():
        if name not in SHORT:
            raise ConfigError(f"{name}: unknown argument, must be one of {', '.join(SHORT)}")
        changes[SHORT[name]] = seconds(value) if name == "max_time" else value
    if source:
        changes["data.source"] = source
    resolved = base.replace(changes)
    if resolved.run.on == "aws" and "lambda.on" not in changes and not _says_where_lambdas_are(config):
        return resolved.replace({"lambda.on": "aws"})
    return resolved


def _says_where_lambdas_are(config: Config | str | Path | None) -> bool:
    """Whether the user does, and it is not the default: servers on AWS have their Lambdas there."""
    if config is None or isinstance(config, Config):
        return config is not None
    return "on" in configs.sections_of(config).get("lambda", {})


def seconds(text: str | float) -> float:
    """Of "90", "90s", "30m", "2h" or "1.5d"; a number is taken as it is. ConfigError for anything else."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)([smhd]?)", str(text).strip())
    if not found:
        raise ConfigError(f"max_time = {text!r}: must be seconds, or a number and one of s, m, h, d: 90, 30m, 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def shards_of(config: Config) -> Path:
    """The prepared graph: the source itself if it is one, else from the cache."""
    data = config.data
    if (Path(data.source) / MANIFEST).is_file():
        return Path(data.source)
    return cached(
        data.source, cache_dir=os.path.expanduser(data.cache_dir), parts=data.parts, partitioner=data.partitioner,
        order=data.order, directed=data.directed, feature_norm=data.feature_norm, seed=data.seed,
        train_per_class=data.train_per_class, val_per_class=data.val_per_class,
    )  # fmt: skip


def _fit(config: Config, shards: ShardSet) -> Config:
    """The config with what prepared shards have fixed already. ConfigError if it asks for something else."""
    manifest = shards.manifest
    held = {
        "parts": manifest.num_partitions, "partitioner": manifest.partitioner, "order": manifest.order,
        "directed": manifest.directed, "feature_norm": manifest.feature_norm, "seed": manifest.seed,
    }  # fmt: skip
    defaults = Data()
    for key, value in held.items():
        asked = getattr(config.data, key)
        if asked not in (getattr(defaults, key), value):
            raise ConfigError(f"data.{key} = {asked}: {config.data.source} was prepared with {value}")
    smallest = min(entry.vertices for entry in manifest.partitions)
    # More intervals than vertices would only be empty tasks.
    fixed = {"train.intervals": min(config.train.intervals, smallest)}
    return config.replace({**{f"data.{key}": value for key, value in held.items()}, **fixed})


def _run_dir(config: Config, graph: str) -> Path:
    """Makes the run directory. ConfigError if it has a run in it already."""
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{graph}-{config.model.name}-{config.train.mode}")
    path = Path(config.run.dir or f"runs/{time.strftime('%Y%m%d-%H%M%S')}-{name}")
    number = 1
    while True:
        try:
            path.mkdir(parents=True, exist_ok=bool(config.run.dir))
            break
        except FileExistsError:
            if config.run.dir:
                raise ConfigError(f"run.dir = {config.run.dir}: is not a directory") from None
            number += 1
            path = path.with_name(f"{path.name.rstrip('0123456789')}{number}")
        except OSError as error:
            raise ConfigError(f"run.dir = {path}: {error.strerror}") from error
    if (path / "config.toml").exists():
        raise ConfigError(f"run.dir = {path}: holds a run already")
    return path.resolve()


def _write_manifest(run_dir: Path, config: Config, shards: ShardSet) -> None:
    manifest = {
        "siafu": __version__, "python": platform.python_version(), "numpy": np.__version__,
        "machine": platform.platform(), "cores": os.cpu_count(), "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "config_digest": config.digest, "data_digest": shards.manifest.digest, "seed": config.train.seed,
    }  # fmt: skip
    try:
        (run_dir / "config.toml").write_text(configs.dump(config))
        (run_dir / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    except OSError as error:
        raise ConfigError(f"run.dir = {run_dir}: {error.strerror}") from error
