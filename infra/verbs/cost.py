"""``siafu cost``: what a run has cost, by part; of a run directory, or of a run on a deployment, while it goes on too."""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import cost
from infra.verbs.arguments import add_config, config_of
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.progress import dollars

FILES = ("config.toml", "metrics.jsonl", "result.json")

EXAMPLES = """examples:
  siafu cost                                          of the newest directory in runs/
  siafu cost runs/20261121-060000-digits-gcn-pipe
  siafu cost 20261121-060000-digits-gcn-pipe-0a1b2c   of a deployment's, as siafu status calls it
  siafu cost RUN --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Say what a run has cost: Lambda's requests and GB-seconds, servers by the second."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="a run directory, or as siafu status calls it"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    local = Path(args.run) if args.run else _newest(Path("runs"))
    if local.is_dir():
        report = examine(local, str(local))
    else:
        with tempfile.TemporaryDirectory() as folder:
            _fetch(config_of(args), args.run, Path(folder))
            report = examine(Path(folder), args.run)
    print(json.dumps(report) if args.json else "\n".join(_lines(report)))
    return 0


def examine(run_dir: Path, name: str) -> dict[str, Any]:
    """``usd``, ``parts`` (name -> US dollars) and what they are of; ``finished``: whether that is all. ConfigError if it is
    no run directory, or the run has not said anything yet."""
    for needed in FILES[:2]:
        if not (run_dir / needed).is_file():
            raise ConfigError(f"{name}: not a run directory: it has no {needed}")
    config = load(run_dir / "config.toml")
    try:
        lines = [json.loads(line) for line in _whole_lines(run_dir / "metrics.jsonl")]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: {FILES[1]}: {error}") from None
    result = _read(run_dir / "result.json")
    if isinstance(config, BaselineConfig):
        return {"run": name, "finished": bool(result), **_of_baseline(config, result, lines, name)}
    if result:
        counts, seconds = result["lambda"], result["train_seconds"]
        spent: Mapping[str, Any] = result["cost"]
    else:
        epochs = [line for line in lines if line.get("event") == "epoch"]
        if not epochs:
            raise ConfigError(f"{name}: no epoch has ended yet, so nothing is known")
        counts, seconds = epochs[-1]["usage"], epochs[-1]["time_s"]
        spent = cost.of_run(
            config, requests=counts.get("invocations", 0), gb_s=counts.get("gb_s", 0.0),
            seconds=seconds,
        ).to_dict()  # fmt: skip
        # Invocations are billed when they end; what those that run have cost by now was counted with the epoch, at most.
        running = max(0.0, epochs[-1].get("usd", 0.0) - spent["usd"])
        spent = {**spent, "usd": spent["usd"] + running, "parts": {**spent["parts"], "running": running}}
    return {
        "run": name, "finished": bool(result), **spent, "seconds": seconds,
        "requests": counts.get("invocations", 0), "gb_s": counts.get("gb_s", 0.0), **_servers(config, seconds),
    }  # fmt: skip


def _of_baseline(
    config: BaselineConfig, result: Mapping[str, Any], lines: list[dict[str, Any]], name: str
) -> dict[str, Any]:
    """Without Lambdas. ConfigError if nobody has said which machine it ran on."""
    times = [result["train_seconds"]] if result else [line["time_s"] for line in lines if "time_s" in line]
    if not times:
        raise ConfigError(f"{name}: no epoch has ended yet, so nothing is known")
    spent = cost.of_baseline(config, seconds=times[-1])
    if spent is None:
        raise ConfigError(
            f"{name}: a baseline on a machine of its own costs what that costs: cloud.gpu_instance is empty"
        )
    machine = {"count": 1, "type": config.cloud.gpu_instance, "seconds": times[-1]}
    return {**spent.to_dict(), "seconds": times[-1], "requests": 0, "gb_s": 0.0, "servers": {"gpu": machine}}


def _servers(config: Config, seconds: float) -> dict[str, Any]:
    """Servers of each kind, and the seconds that all of them together have served."""
    counts = {"graph_servers": config.data.parts, "param_servers": config.servers.param_servers}
    cloud = config.cloud
    types = {"graph_servers": cloud.graph_instance, "param_servers": cloud.param_instance}
    paid = config.run.on == "aws"
    return {
        "servers": {
            kind: {"count": count, "type": types[kind] if paid else config.run.on, "seconds": count * seconds}
            for kind, count in counts.items()
        }
    }


def _lines(report: Mapping[str, Any]) -> list[str]:
    details = {"lambda": f"{report['requests']:.0f} requests, {report['gb_s']:.1f} GB-s"}
    for kind, servers in report["servers"].items():
        details[kind] = f"{servers['count']} x {servers['type']}, {servers['seconds']:.0f} s in all"
    with_lambda = {} if "gpu" in report["servers"] else {"lambda": 0.0}
    parts = {**with_lambda, **dict.fromkeys(report["servers"], 0.0), **report["parts"]}
    lines = [f"{report['run']}{'' if report['finished'] else ', so far'}: {report['seconds']:.1f} s"]
    lines += [f"  {part:16}{dollars(usd):>12}  {details.get(part, '')}".rstrip() for part, usd in parts.items()]
    lines += [f"  {'all':16}{dollars(report['usd']):>12}  {report['counted']}"]
    return [*lines, f"prices of {report['region']}, {report['as_of']}"] if report["as_of"] else lines


def _newest(folder: Path) -> Path:
    found = [path.parent for path in folder.glob("*/config.toml")]
    if not found:
        raise ConfigError(f"{folder}/ holds no run: siafu cost RUN")
    return max(found, key=lambda path: path.stat().st_mtime)


def _fetch(config: Config, run: str, folder: Path) -> None:
    """What is needed of a run on a deployment. By name: run directories are priced without boto3, too."""
    found, runs, runfiles = (
        importlib.import_module(f"infra.machines.{name}") for name in ("found", "runs", "runfiles")
    )
    mailbox = found.mailbox_of(config)
    runfiles.Receiver(mailbox, runs.named(mailbox, run).run, folder).update(FILES)


def _whole_lines(file: Path) -> list[str]:
    """Those that have an end: the last one may still be on its way."""
    return file.read_text().rpartition("\n")[0].splitlines()


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found
