"""Finished runs, judged: how long each took to the same score, what that cost, and what it is worth beside the others.

1. *Time to the target*: the ``time_s`` of the first epoch whose evaluation reaches the target on the split that is asked for;
   evaluations of earlier epochs are in it, as they delayed it.
2. *Money* is what was spent until then (``bench.cost``): Lambda's requests and GB-seconds, servers by the second, 60 s at
   least. A run on this machine is charged as if its roles had been the machines that it stands in for.
3. Runs of one name are repetitions: their medians stand in the table, and how many of them got there.

Pure but for reading run directories.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import cost
from bench.cost import Cost
from bench.value import value
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError


@dataclass(frozen=True)
class StandIn:
    """Which machine of EC2 a process here stands for; "": as its own config says."""

    graph: str = ""
    param: str = ""
    gpu: str = ""

    def priced(self, config: Config) -> Config:
        """The config of the same run on those machines; of one that ran on AWS, its own."""
        if config.run.on == "aws":
            return config
        types = {"cloud.graph_instance": self.graph, "cloud.param_instance": self.param, "cloud.gpu_instance": self.gpu}
        changes: dict[str, Any] = {key: name for key, name in types.items() if name}
        if not isinstance(config, BaselineConfig):
            changes["run.on"] = "aws"
        return config.replace(changes)


@dataclass(frozen=True)
class Evaluated:
    """What was known after an epoch."""

    epoch: int  # counted from 1
    seconds: float  # since training began
    scores: Mapping[str, float]  # by split
    lambda_usd: float
    requests: float
    gb_s: float


@dataclass(frozen=True)
class Contender:
    """One run."""

    name: str
    where: str  # its directory
    config: Config
    evaluated: Sequence[Evaluated]

    def best(self, split: str) -> float:
        return max((one.scores[split] for one in self.evaluated if split in one.scores), default=float("-inf"))

    def reaches(self, target: float, split: str) -> Evaluated | None:
        return next((one for one in self.evaluated if one.scores.get(split, float("-inf")) >= target), None)


def read(run_dir: Path, metric: str = "") -> Contender:
    """ConfigError if it is no run directory, or nothing in it was evaluated. ``metric``: "" for the first that evaluations have."""
    for needed in ("config.toml", "metrics.jsonl"):
        if not (run_dir / needed).is_file():
            raise ConfigError(f"{run_dir}: not a run directory: it has no {needed}")
    config = load(run_dir / "config.toml")
    try:
        whole = (run_dir / "metrics.jsonl").read_text().rpartition("\n")[0]
        records = [json.loads(line) for line in whole.splitlines()]
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run_dir}: metrics.jsonl: {error}") from None
    evaluated = list(_evaluated(records, config, metric))
    if not evaluated:
        raise ConfigError(f"{run_dir}: nothing was evaluated: there is no score to compare")
    return Contender(name_of(config), str(run_dir), config, evaluated)


def name_of(config: Config) -> str:
    """What is compared: "lambda async s=0", "cpu pipe", or a baseline's method; of another model or so, all have one name."""
    if isinstance(config, BaselineConfig):
        return config.baseline.method
    train = config.train
    staleness = f" s={train.staleness}" if train.mode == "async" else ""
    return f"{config.servers.backend} {train.mode}{staleness}"


def judged(
    contenders: Iterable[Contender], stand_in: StandIn, *, target: float | None = None, split: str = "val", beside: str = "",
) -> dict[str, Any]:  # fmt: skip
    """The table, JSON. target: None for the highest that every run reaches. beside: the contender whose value is 1; "": the first.

    ConfigError if ``beside`` is none of them, or the runs have no such split; PriceUnknown for machines without a price."""
    found = list(contenders)
    groups: dict[str, list[Contender]] = {}
    for one in found:
        groups.setdefault(one.name, []).append(one)
    if beside and beside not in groups:
        raise ConfigError(f"--relative-to {beside}: must be one of {', '.join(groups)}")
    if target is None:
        target = min(one.best(split) for one in found)
    if target == float("-inf"):
        raise ConfigError(f"--split {split}: a run has no score of it")
    rows = [_row(name, group, stand_in, target, split) for name, group in groups.items()]
    first = next(row for row in rows if row["name"] == (beside or rows[0]["name"]))
    for row in rows:
        both = row["value"] is not None and first["value"]
        row["relative_value"] = row["value"] / first["value"] if both else None
    return {"target": target, "split": split, "relative_to": first["name"], "rows": rows}


def _row(name: str, group: Sequence[Contender], stand_in: StandIn, target: float, split: str) -> dict[str, Any]:
    there = [(one, at) for one in group if (at := one.reaches(target, split))]
    row: dict[str, Any] = {
        "name": name, "runs": len(group), "reached": len(there), "seconds": None, "epochs": None, "cost": None, "value": None,
        "stand_in": any(one.config.run.on != "aws" for one in group),
        "best": median(one.best(split) for one in group), "run_dirs": [one.where for one in group],
    }  # fmt: skip
    if not there:
        return row
    bills = [spent(one, at, stand_in) for one, at in there]
    seconds, usd = median(at.seconds for _, at in there), median(bill.usd for bill in bills)
    middle = min(bills, key=lambda bill: abs(bill.usd - usd))
    worth = median(value(at.seconds, bill.usd) for (_, at), bill in zip(there, bills, strict=True))
    return {
        **row,
        "seconds": seconds,
        "epochs": median(at.epoch for _, at in there),
        "cost": middle.to_dict(),
        "value": worth,
    }


def spent(one: Contender, at: Evaluated, stand_in: StandIn) -> Cost:
    """Until then."""
    config = stand_in.priced(one.config)
    if isinstance(config, BaselineConfig):
        found = cost.of_baseline(config, seconds=at.seconds)
        if found is None:
            raise ConfigError(f"{one.where}: on which machine? --as-gpu INSTANCE says what its ranks stand for")
        return found
    bill = cost.of_run(config, requests=at.requests, gb_s=at.gb_s, seconds=at.seconds)
    if config.servers.backend != "lambda":
        return bill
    # Invocations are billed when they end: those under way are in what was counted with the epoch, at most.
    return Cost(
        {**bill.parts, "lambda": max(bill.parts["lambda"], at.lambda_usd)}, bill.counted, bill.region, bill.as_of
    )


def _evaluated(records: Iterable[Mapping[str, Any]], config: Config, metric: str) -> Iterable[Evaluated]:
    epochs = {record["epoch"]: record for record in records if record.get("event") == "epoch"}
    for record in records:
        if record.get("event") != "evaluation" or record["epoch"] not in epochs:
            continue
        epoch = epochs[record["epoch"]]
        splits = {split: record[split] for split in ("train", "val", "test") if record.get(split)}
        scores = {split: float(found[metric or next(iter(found))]) for split, found in splits.items()}
        usage, usd = epoch.get("usage", {}), 0.0
        if "usd" in epoch and config.servers.backend == "lambda":
            servers = cost.of_run(config, requests=0, gb_s=0, seconds=epoch["time_s"]).usd
            usd = max(0.0, epoch["usd"] - servers)
        counts = usage.get("invocations", 0), usage.get("gb_s", 0.0)
        yield Evaluated(record["epoch"] + 1, epoch["time_s"], scores, usd, *counts)
