"""Finished runs, judged: how long each took to the same score, what that cost, and what it is worth beside the others.

1. *Time to the target*: the ``time_s`` of the first epoch whose evaluation reaches the target on the split that is
   asked for; evaluations of earlier epochs are in it, as they delayed it.
2. *Money* is what was spent until then (``siafu.pricing.cost``): Lambda's requests and GB-seconds, servers by the
   second, 60 s at least. A run on this machine is charged as if its roles had been the machines that it stands in for.
3. Runs of one name are repetitions: their medians stand in the table, how far they are
   apart, and how many of them got there.

Pure but for reading run directories.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from cost_planner.value import value
from run_coordinator.repeat import PLAN
from siafu.baseline import BaselineConfig, load
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.pricing import cost
from siafu.pricing.cost import Cost, Item
from siafu.pricing.prices import instance
from siafu.tasks import TENSOR_KINDS, Kind


@dataclass(frozen=True)
class StandIn:
    """Which machine of EC2 a process here stands for; "": as its own config says."""

    graph: str = ""
    param: str = ""
    gpu: str = ""

    @property
    def num_gpus(self) -> int:
        """Of ``gpu``. PriceUnknown for one that is not known."""
        return int((instance(self.gpu).gpu or "0x").partition("x")[0]) if self.gpu else 0

    def priced(self, config: Config) -> Config:
        """The config of the same run on those machines; of one that ran on AWS, its own."""
        if config.run.on == "aws":
            return config
        if isinstance(config, BaselineConfig):
            return config.replace({"cloud.gpu_instance": self.gpu} if self.gpu else {})
        graph = self.gpu if config.servers.backend == "gpu" else self.graph
        types = {"cloud.graph_instance": graph, "cloud.param_instance": self.param}
        changes: dict[str, Any] = {key: name for key, name in types.items() if name}
        # What a machine for baselines needs besides, endpoints above all, is none of the servers' cost.
        return config.replace({**changes, "run.on": "aws", "cloud.gpu_instance": ""})


@dataclass(frozen=True)
class Evaluated:
    """What was known after an epoch."""

    epoch: int  # counted from 1
    seconds: float  # since training began
    scores: Mapping[str, float]  # by split
    lambda_usd: float
    requests: float
    gb_s: float
    # of the seconds that servers computed: AV, AE and their backwards; None: not known
    tensor_share: float | None = None


@dataclass(frozen=True)
class Contender:
    """One run."""

    name: str
    where: str  # its directory
    config: Config
    evaluated: Sequence[Evaluated]
    content: str = ""  # digest of the graph, whatever it was cut into; "": not known
    machine: str = ""  # that it ran on, and how many cores it has
    run_usd: float | None = None  # of the whole run where it ran, as siafu cost says; None: unfinished, or not priced
    # of a baseline's ranks: a GPU's name, or "cpu"; "cpu" of servers whose GPU backend does without one
    device: str = ""

    def best(self, split: str) -> float | None:
        """None if nothing of the split was scored."""
        return max((one.scores[split] for one in self.evaluated if split in one.scores), default=None)

    def reaches(self, target: float, split: str) -> Evaluated | None:
        return next((one for one in self.evaluated if one.scores.get(split, float("-inf")) >= target), None)


def runs_in(folder: Path) -> list[Path]:
    """The run itself; of a folder of trials (``run_coordinator.repeat``), those that are finished."""
    if (folder / "config.toml").is_file() or not (folder / PLAN).is_file():
        return [folder]
    return sorted(result.parent for result in folder.glob("*/result.json"))


def read(run_dir: Path, metric: str = "", name: str = "") -> Contender:
    """ConfigError if it is no run directory, or nothing in it was evaluated. ``metric``: "" for the first that
    evaluations have; ``name``: "" for that of its config."""
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
    made, result = _json(run_dir / "manifest.json"), _json(run_dir / "result.json")
    machine = f"{made['cores']} cores, {made['machine']}" if "cores" in made else ""
    device = "cpu" if config.servers.backend == "gpu" and config.servers.device == "cpu" else result.get("device", "")
    content = json.dumps(made["data"], sort_keys=True) if "data" in made else ""
    run_usd = (result.get("cost") or {}).get("usd")
    return Contender(name or name_of(config), str(run_dir), config, evaluated, content, machine, run_usd, str(device))


def _json(file: Path) -> Mapping[str, Any]:
    """Empty where there is none: an unfinished run has no result."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def graphs(contenders: Iterable[Contender]) -> list[str]:
    """Their sources; one where these are different ways to the same graph."""
    found = list(contenders)
    sources = sorted({one.config.data.source for one in found})
    contents = {one.content for one in found}
    return sources[:1] if len(contents) == 1 and all(contents) else sources


def name_of(config: Config) -> str:
    """What is compared: "lambda async s=0", "cpu pipe", or a baseline's method; of another
    model or so, all have one name."""
    if isinstance(config, BaselineConfig):
        return config.baseline.method
    train = config.train
    staleness = f" s={train.staleness}" if train.mode == "async" else ""
    return f"{config.servers.backend} {train.mode}{staleness}"


def judged(
    contenders: Iterable[Contender],
    stand_in: StandIn,
    *,
    target: float | None = None,
    split: str = "val",
    beside: str = "",
    failed: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The table, JSON. target: None for what all were trained to, else the highest that every run reaches.
    beside: the contender whose value is 1; "": the first that has one. failed: names, in the order of
    rows, and why runs of each failed.

    ConfigError if ``beside`` is none of them, or the runs have no such split;
    PriceUnknown for machines without a price."""
    found = list(contenders)
    groups: dict[str, list[Contender]] = {name: [] for name in failed or {}}
    for one in found:
        groups.setdefault(one.name, []).append(one)
    if beside and beside not in groups:
        raise ConfigError(f"--relative-to {beside}: must be one of {', '.join(groups)}")
    if target is None and found:
        trained_to = {one.config.train.target_acc for one in found}
        least = reached_by_all(found, split)
        target = trained_to.pop() if split == "val" and len(trained_to) == 1 and all(trained_to) else least
    rows = [
        _row(name, group, stand_in, target or 0.0, split, (failed or {}).get(name, ()))
        for name, group in groups.items()
    ]
    first = next((row for row in rows if row["name"] == beside or (not beside and row["value"])), rows[0])
    for row in rows:
        both = row["value"] is not None and first["value"]
        row["relative_value"] = row["value"] / first["value"] if both else None
    return {"target": target, "split": split, "relative_to": first["name"], "rows": rows}


def reached_by_all(contenders: Iterable[Contender], split: str) -> float:
    """The highest score that each has reached. ConfigError if one has none."""
    scores = []
    for one in contenders:
        if (score := one.best(split)) is None:
            raise ConfigError(f"{one.where}: has no {split} score to compare: nothing of that split was scored")
        scores.append(score)
    return min(scores)


def _row(
    name: str, group: Sequence[Contender], stand_in: StandIn, target: float, split: str, errors: Sequence[str]
) -> dict[str, Any]:
    there = [(one, at) for one in group if (at := one.reaches(target, split))]
    scores = [score for one in group if (score := one.best(split)) is not None]
    row: dict[str, Any] = {
        "name": name,
        "runs": len(group) + len(errors),
        "reached": len(there),
        "errors": list(dict.fromkeys(errors)),
        "kind": "method" if any(isinstance(one.config, BaselineConfig) for one in group) else name.partition(" ")[0],
        "seconds": None,
        "epochs": None,
        "scores": None,
        "cost": None,
        "value": None,
        "spread": None,
        "tensor_share": None,
        "run_usd": None,
        "ranks": max(map(_ranks, group), default=0),
        "devices": sorted({one.device for one in group} - {""}),
        "stand_in": any(one.config.run.on != "aws" for one in group),
        "shares_cores": any(_shares_cores(one.config) for one in group),
        "best": median(scores) if scores else None,
        "run_dirs": [one.where for one in group],
    }
    if not there:
        return row
    bills = [spent(one, at, stand_in) for one, at in there]
    usd = [bill.usd for bill in bills]
    seconds, epochs = [at.seconds for _, at in there], [at.epoch for _, at in there]
    worth = [value(at.seconds, bill.usd) for (_, at), bill in zip(there, bills, strict=True)]
    middle = min(bills, key=lambda bill: abs(bill.usd - median(usd)))
    whole = [one.run_usd for one in group if one.run_usd is not None]
    shares = [at.tensor_share for _, at in there if at.tensor_share is not None]
    splits = set.intersection(*(set(at.scores) for _, at in there))
    return {
        **row,
        "seconds": median(seconds),
        "epochs": median(epochs),
        "cost": middle.to_dict(),
        "value": median(worth),
        "scores": {name: median(at.scores[name] for _, at in there) for name in sorted(splits)},
        "spread": {
            key: [min(values), max(values)]
            for key, values in (("seconds", seconds), ("epochs", epochs), ("usd", usd), ("value", worth))
        },
        "tensor_share": median(shares) if shares else None,
        "run_usd": median(whole) if whole else None,
    }


def _ranks(one: Contender) -> int:
    """Processes that share the machine of a baseline; 0 of graph servers."""
    return one.config.baseline.ranks if isinstance(one.config, BaselineConfig) else 0


def _shares_cores(config: Config) -> bool:
    """Whether Lambdas compute on the cores of the servers."""
    return config.servers.backend == "lambda" and config.run.on == "local" and config.lambdas.place.same_machine


def spent(one: Contender, at: Evaluated, stand_in: StandIn) -> Cost:
    """Until then."""
    if one.config.servers.backend == "gpu" and one.config.run.on != "aws" and not stand_in.gpu:
        raise ConfigError(f"{one.where}: on which machine? --as-gpu INSTANCE says what a server with a GPU stands for")
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
    if (more := at.lambda_usd - bill.parts["lambda"]) <= 0:
        return bill
    under_way = Item("lambda", "under way, at most", 1.0, "run", more, bill.as_of, "")
    return replace(bill, parts={**bill.parts, "lambda": at.lambda_usd}, items=(*bill.items, under_way))


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
        yield Evaluated(record["epoch"], epoch["time_s"], scores, usd, *counts, _tensor_share(usage))


def _tensor_share(usage: Mapping[str, float]) -> float | None:
    """Of the seconds of all steps of training (``graph_server.lambdas.step_times``);
    None where they were not counted."""
    seconds = {kind: usage.get(f"{kind.name}_s", 0.0) for kind in Kind}
    whole = sum(seconds.values())
    return sum(seconds[kind] for kind in TENSOR_KINDS) / whole if whole else None
