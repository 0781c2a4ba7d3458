"""``python -m benchmarks measure memory``: the peak of a run, predicted before it starts
and then measured, role by role."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement
from benchmarks.measure.footprint import Footprint, Pages, watch
from cost_planner.memory import Prediction, predict
from run_coordinator import prepared, run_config
from siafu import config as configs
from siafu import start
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import ShardSet, folder_of

COLUMNS = ("role", "processes", "predicted_mb", "measured_mb", "ratio", "made_of")
#: Short names of settings that have a flag here; the others are reached with --set.
FLAGS = ("model", "layers", "hidden", "parts", "backend", "mode", "epochs", "intervals", "lambdas", "lambda_memory")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Predict what a run will hold in memory at its peak, then run it and measure."
    parser.add_argument("--graph", default="digits", metavar="SOURCE", help="what to train on [digits]")
    for name in FLAGS:
        parser.add_argument(
            f"--{name.replace('_', '-')}", dest=name, metavar="X", help=f"as of siafu train: {run_config.SHORT[name]}"
        )
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any other setting")
    parser.add_argument("--predict-only", action="store_true", help="do not run it")


def measure(args: argparse.Namespace) -> Measurement:
    config = config_of(args)
    shards_path = prepared.shards_of(config)  # before the launcher is watched: preparing has a benchmark of its own
    shards = ShardSet.open(shards_path)
    config = prepared.fit(config, shards)
    prediction = predict(config, shards.manifest, aggregated=is_aggregated(config, shards))
    found = None if args.predict_only else run(config.replace({"data.source": str(shards_path.resolve())}))
    return Measurement(
        f"peak memory: {shards.manifest.name}, {config.model.name}, {config.data.parts} part(s), "
        f"{config.servers.backend}",
        COLUMNS,
        rows(prediction, found),
        summary(prediction, found),
    )


def config_of(args: argparse.Namespace) -> Config:
    """The run that the flags describe: few epochs and one evaluation suffice, unless they say otherwise."""
    settings: dict[str, Any] = {"train.epochs": "6"}
    for assignment in args.set:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set {assignment}: must be SECTION.KEY=VALUE")
        settings[key] = value
    short = {name: getattr(args, name) for name in FLAGS if getattr(args, name) is not None}
    return run_config.resolve(args.graph, None, settings, short)


def is_aggregated(config: Config, shards: ShardSet) -> bool:
    """Whether an earlier run has left layer 0's aggregate beside every partition."""
    folders = [shards.path / folder_of(p) for p in range(shards.manifest.num_partitions)]
    return config.data.keep_aggregate and all(any(folder.glob("aggregate-*.npy")) for folder in folders)


def run(config: Config) -> Footprint:
    """Trains in a process of its own, in a directory that goes away, and watches it."""
    with tempfile.TemporaryDirectory(prefix="siafu-memory-") as folder:
        file = Path(folder) / "config.toml"
        file.write_text(configs.dump(config.replace({"run.dir": str(Path(folder) / "run")})))
        command = start.command(
            "siafu", "train", "--config", str(file), "--quiet", "--json", *run_config.code_of(config)
        )
        return watch(command, log=Path(folder) / "log")


def rows(prediction: Prediction, found: Footprint | None) -> list[dict[str, Any]]:
    """A line per role, and the total."""
    lines = []
    for role, predicted in prediction.by_role.items():
        pages = found.by_role.get(role, Pages()) if found else None
        made_of = {part.name: part.nbytes // 1_000_000 for part in prediction.parts if part.role == role}
        lines.append(
            {
                "role": role,
                "processes": found.processes[role] if found else None,
                **_figures(predicted, pages),
                "made_of": made_of,
            }
        )
    total = Pages(found.peak_nbytes) if found else None
    lines.append({"role": "all", "processes": None, **_figures(prediction.nbytes, total), "made_of": None})
    return lines


def _figures(predicted: int, pages: Pages | None) -> dict[str, Any]:
    if pages is None:
        return {"predicted_mb": predicted / 1e6, "measured_mb": None, "ratio": None}
    return {
        "predicted_mb": predicted / 1e6,
        "measured_mb": pages.nbytes / 1e6,
        "ratio": predicted / max(1, pages.nbytes),
        "anonymous_mb": pages.anonymous / 1e6,
        "mapped_mb": pages.mapped / 1e6,
    }


def summary(prediction: Prediction, found: Footprint | None) -> dict[str, Any]:
    figures: dict[str, Any] = {"predicted_bytes": prediction.nbytes}
    if found is not None:
        figures |= {
            "measured_bytes": found.peak_nbytes,
            "ratio": prediction.nbytes / max(1, found.peak_nbytes),
            "samples": found.num_samples,
        }
    return figures
