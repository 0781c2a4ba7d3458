"""``siafu plan --check RUN``: a finished run beside what a plan predicts for it.

The prediction takes the run's own settings and shards, and the calibration of the machine that plans. A run on this
machine is predicted as ``here`` does; a run on AWS as the option of its cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from cost_planner import memory
from cost_planner.memory import GIB
from cost_planner.plan import graphs, here
from cost_planner.plan.asked import Asked
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.epochs import Epochs
from cost_planner.plan.options import Catalogue
from cost_planner.plan.ranking import Predicted, bill_of_servers, first_epochs
from cost_planner.value.trained import has_whole_cores
from run_coordinator.reports import lambda_cpu_share
from siafu import peak_memory, run_files
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.progress import dollars, duration, size
from siafu.run_files import CONFIG, MANIFEST, RESULT, CpuShare
from siafu.shards import Manifest, ShardSet


@dataclass(frozen=True)
class Quantity:
    """A quantity as predicted and as measured. None: not predicted, or not measured."""

    predicted: float | None
    measured: float | None

    @property
    def ratio(self) -> float | None:
        """Predicted over measured: above 1, the plan predicted too much."""
        return self.predicted / self.measured if self.predicted is not None and self.measured else None


@dataclass(frozen=True)
class Check:
    run: str
    quantities: Mapping[str, Quantity]
    error: float  # of predicted times, relative: the calibration's
    first_run_only: bool = False  # whether later runs on these shards hold less: layer 0's aggregate is kept
    cpu_share: CpuShare | None = None  # lambda.cpu_share of environments on this machine; None: there were none
    whole_cores: bool = False  # whether these computed with more than their memory buys on AWS

    def to_dict(self) -> dict[str, Any]:
        told = {name: {**vars(one), "ratio": one.ratio} for name, one in self.quantities.items()}
        return {"run": self.run, "error": self.error, "lambda_cpu_share": self.cpu_share, **told}


#: Of a quantity's name: what people read.
WORDS = {
    "epoch_s": "an epoch",
    "train_s": "training",
    "memory_bytes": "peak memory of a graph server",
    "ghost_bytes": "ghost bytes, an epoch",
    "usd": "cost",
}


def of_run(run: Path, calibration: Calibration) -> Check:
    """Compares a run with its prediction. ConfigError for anything but a finished run of ``siafu train``, or where
    nothing is predicted; DatasetError if its shards are gone."""
    config, result, made = _config(run), run_files.result(run), run_files.manifest(run)
    if result is None:
        raise ConfigError(f"{run}: not a finished run: it has no {RESULT}")
    told = {**result, **made}
    if lacking := [name for name in ("epochs", "shards", "cores") if name not in told]:
        raise ConfigError(f"{run}: its {RESULT} and {MANIFEST} do not say {lacking[0]}")
    manifest = ShardSet.open(Path(made["shards"])).manifest
    epochs = result["epochs"]
    predicted = _here if config.run.on == "local" else _on_aws
    found = predicted(config.replace({"train.epochs": epochs}), manifest, calibration, made["cores"])
    paid = (result["cost"]["usd"] if result["cost"] else 0.0) or None  # servers of this machine are not priced
    measured = {
        "epoch_s": result["epoch_seconds_median"],
        "train_s": result["train_seconds"],
        "memory_bytes": result.get("usage", {}).get(peak_memory.NAME),
        "ghost_bytes": result["ghost_bytes_per_epoch"] if manifest.num_partitions > 1 else None,
        "usd": paid,
    }
    quantities = {name: Quantity(found[name] if name != "usd" or paid else None, measured[name]) for name in WORDS}
    kept = config.data.keep_aggregate and manifest.edge_types != "inductive" and not manifest.sparse_features
    return Check(str(run), quantities, calibration.error, kept, lambda_cpu_share(config), has_whole_cores(config))


def show(console: Console, checks: Sequence[Check]) -> None:
    for check in checks:
        right = [Column(name, justify="right") for name in ("predicted", "measured", "predicted / measured")]
        table = Table(Column(""), *right, title=check.run)
        for name, one in check.quantities.items():
            if one.predicted is not None:
                ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
                table.add_row(WORDS[name], _text(name, one.predicted), _text(name, one.measured), ratio)
        console.print(table)
    if any(one.first_run_only and one.quantities["memory_bytes"].measured for one in checks):
        console.print(
            "Memory is predicted for a first run on its shards. A later run reads layer 0's aggregate from the shards' "
            "folder, and holds less.",
            highlight=False,
        )
    free = [check.run for check in checks if check.whole_cores]
    if free:
        console.print(
            f"Lambdas computed on whole cores (lambda.cpu_share = free), predicted and measured: {', '.join(free)}. On "
            "AWS they get the share of a core that their memory buys (lambda.cpu_share = real).",
            highlight=False,
        )
    console.print(
        f"Times are predicted to within {checks[0].error:.0%} on a quiet machine that siafu plan --calibrate has "
        "measured.",
        highlight=False,
    )


def _text(name: str, value: float | None) -> str:
    if value is None:
        return "not measured"
    if name.endswith("_s"):
        return duration(value)
    if name == "usd":
        return dollars(value)
    return size(value)


def _config(run: Path) -> Config:
    if not (run / CONFIG).is_file():
        raise ConfigError(f"{run}: not a run directory: it has no {CONFIG}")
    config = load(run / CONFIG)
    if isinstance(config, BaselineConfig):
        raise ConfigError(f"{run}: a baseline's run: --check is for runs of siafu train")
    there = config.servers.backend == "lambda" and config.lambdas.on
    if config.servers.backend == "gpu" or (config.run.on, there) not in EVERYWHERE:
        place = f"{config.run.on}, backend {config.servers.backend}" + (f" on {there}" if there else "")
        raise ConfigError(f"{run}: ran on {place}: --check is for CPUs and Lambdas, all on this machine or all on AWS")
    return config


#: Where servers and Lambdas ran (False: there were none) that can be predicted.
EVERYWHERE = (("local", "local"), ("local", False), ("aws", "aws"), ("aws", False))


def _here(config: Config, manifest: Manifest, calibration: Calibration, cores: int) -> dict[str, float]:
    found = here.predicted(config, manifest, calibration.speeds, calibration.memory, cores)
    return {
        "epoch_s": found.simulated.epoch_s,
        "train_s": found.seconds,
        "memory_bytes": memory.of_graph_server(found.config, manifest, cores=cores),
        "ghost_bytes": found.ghost_bytes,
        "usd": bill_of_servers(found.config, found.seconds, found.simulated.environments).usd,
    }


def _on_aws(config: Config, manifest: Manifest, calibration: Calibration, cores: int) -> dict[str, float]:
    """Predicts a run on AWS. ConfigError if by the plan the run does not fit the cluster."""
    train, servers = config.train, config.data.parts
    asked = Asked(
        config,
        graphs.of_manifest(manifest),
        Epochs(train.epochs, {(train.mode, train.staleness if train.mode == "async" else 0): train.epochs}),
        calibration.speeds,
        instances=[config.cloud.graph_instance],
        servers=[servers],
        backends=["lambda" if config.servers.backend == "lambda" else "cpu"],
        modes=[(train.mode, train.staleness if train.mode == "async" else 0)],
        memories_mb=[config.lambdas.memory_mb],
        lambdas=config.lambdas.count,
        random_share=calibration.memory.random_share,
    )
    catalogue = Catalogue(asked)
    if not catalogue.options:
        raise ConfigError(f"the plan would not have taken this run's cluster: {catalogue.why_nothing_fits}")
    option = catalogue.options[0]
    found = Predicted(option, first_epochs(option, seed=0), calibration.error)
    return {
        "epoch_s": found.epoch_s,
        "train_s": found.first_s + (option.epochs - 1) * found.epoch_s,
        "memory_bytes": option.memory_gib[memory.GRAPH_SERVERS] * GIB,
        "ghost_bytes": option.plan.ghost_bytes,
        "usd": found.cost.usd,
    }
