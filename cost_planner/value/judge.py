"""Judges finished runs: the time of each to the same score, its cost, and its value beside the others.

1. *Time to the target* runs from the start of the roles, as in ``siafu plan``, to the first epoch whose evaluation
   reaches the target on the chosen split. It includes training and start-up, which is also shown apart. If one run does
   not record its start-up, no run's start-up is counted.
2. *Money* is the amount spent until then (``siafu.pricing.cost``): Lambda's requests and GB-seconds, servers by the
   second, at least 60 s. A run on this machine is charged as if its roles were the machines that it stands in for.
3. Runs of one name are repetitions. Their time and money are those of all attempts divided by the successes: a run that
   ended without the target, or failed, has spent what the next one must make up for.
4. A run that a limit stopped, or that is not finished, is neither a success nor a failure: it is left out, and counted.
   A run that stopped at a lower target of its own is refused: it says nothing about this target, and nor would those
   that happened to overshoot.

Pure.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import mean, median
from typing import Any

from cost_planner.value import pairs, value
from cost_planner.value.pairs import Attempt
from cost_planner.value.rows import CUT_SHORT, MISSED, REACHED, Judged, OfSuccesses, Row, StoodInFor, Unreached
from cost_planner.value.trained import Contender, Evaluated, has_whole_cores, reached_by_all
from siafu.baseline import BaselineConfig
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.metrics import mean_of_known
from siafu.pricing import cost, prices
from siafu.pricing.cost import Cost, Item
from siafu.pricing.prices import instance
from siafu.progress import written

#: What a graph server is priced as if nobody says: Dorylus' own choice.
STAND_IN = "c5.2xlarge"
#: Why a run stops that has had its chance.
AT_ITS_END = ("epochs", "patience")


def add_arguments(parser: ArgumentParser, *, target: str, as_gpu: str) -> None:
    """Adds the flags of every verb that judges runs. ``target``: the default as its help says it; ``as_gpu``: what that
    machine stands for."""
    group = parser.add_argument_group("comparing")
    group.add_argument("--target", type=float, metavar="SCORE", help=f"score to reach [{target}]")
    group.add_argument(
        "--split", choices=("train", "val", "test"), default="val", help="split whose score counts [val]"
    )
    group.add_argument("--relative-to", default="", metavar="NAME", help="contender whose value is 1 [the first]")
    group.add_argument(
        "--as",
        dest="stand_in",
        default=STAND_IN,
        metavar="INSTANCE",
        help=f"EC2 type whose price is charged for a graph server on this machine [{STAND_IN}]",
    )
    group.add_argument(
        "--as-param", default="", metavar="INSTANCE", help="the same for a parameter server [cloud.param_instance]"
    )
    group.add_argument("--as-gpu", default="", metavar="INSTANCE", help=f"the same for {as_gpu}")
    prices.add_argument(group)


@dataclass(frozen=True)
class StandIn:
    """The EC2 machines that processes here stand for; "": the config's own."""

    graph: str = ""
    param: str = ""
    gpu: str = ""

    @property
    def num_gpus(self) -> int:
        """Number of GPUs of ``gpu``. PriceUnknown for an unknown machine."""
        return int((instance(self.gpu).gpu or "0x").partition("x")[0]) if self.gpu else 0

    @property
    def vcpus(self) -> int:
        """vCPUs of ``graph``; 0 if the config names the machine. PriceUnknown for an unknown machine."""
        return instance(self.graph).vcpu if self.graph else 0

    def to_dict(self) -> StoodInFor:
        """The machines as a table's JSON shows them."""
        return {
            "graph": self.graph,
            "param": self.param,
            "gpu": self.gpu,
            "num_gpus": self.num_gpus,
            "vcpus": self.vcpus,
        }

    @lru_cache(maxsize=256)  # noqa: B019  # asked for every evaluation of a run that is drawn
    def priced(self, config: Config) -> Config:
        """The config of the same run on those machines; for a run on AWS, its own."""
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
class _Judged:
    """A run, and its cost when it reached the target, or at its end."""

    run: Contender
    outcome: str
    at: Evaluated
    bill: Cost

    @property
    def seconds(self) -> float:
        return (self.run.setup_s or 0.0) + self.at.seconds

    @property
    def value(self) -> float:
        return value(self.seconds, self.bill.usd)


def judged(
    contenders: Iterable[Contender],
    stand_in: StandIn,
    *,
    target: float | None = None,
    split: str = "val",
    beside: str = "",
    failed: Mapping[str, Sequence[str]] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Judged:
    """The table. target: None for the target that all were trained to, else the highest score that every run reaches.
    beside: the contender whose value is 1; "": the first that has a value. failed: names, in the order of rows, with
    the reasons of each one's failed runs: those among ``contenders`` with an error, and those that left nothing.
    left_out: those of ``failed`` without any run, with the reason.

    ConfigError if ``beside`` is none of them, the runs have no such split, or one of them stopped at a lower target;
    PriceUnknown for machines without a price.
    """
    found = list(contenders)
    if any(one.setup_s is None for one in found):  # rule 1
        found = [replace(one, setup_s=None) for one in found]
    groups: dict[str, list[Contender]] = {name: [] for name in failed or {}}
    for one in found:
        groups.setdefault(one.name, []).append(one)
    if beside and beside not in groups:
        raise ConfigError(f"--relative-to {beside}: must be one of {', '.join(groups)}")
    if target is None:
        target = _target([one for one in found if not one.error], split)
    rows = [_row(name, group, stand_in, target, split, (failed or {}).get(name, ())) for name, group in groups.items()]
    for row in rows:
        row["left_out"] = (left_out or {}).get(row["name"], "")
    first = next((row for row in rows if row["name"] == beside or (not beside and row["value"])), rows[0])
    for row in rows:
        if row["value"] is not None and first["value"]:
            row["relative_value"] = row["value"] / first["value"]
        relative = pairs.ratio(attempts(row), attempts(first)) if row is not first else None
        row["interval"] = relative.interval if relative is not None else None
    return {"target": target, "split": split, "relative_to": first["name"], "rows": rows}


def attempts(row: Row) -> list[Attempt]:
    """The attempts in a row of ``judged``, without those cut short."""
    return [
        Attempt(one["seed"], one["outcome"] == REACHED, one["seconds"], one["usd"])
        for one in row["attempts"]
        if one["outcome"] != CUT_SHORT
    ]


def _target(found: Sequence[Contender], split: str) -> float | None:
    """The common target of training, else the highest score that all runs reach; None without runs."""
    if not found:
        return None
    trained_to, least = {one.config.train.target_acc for one in found}, reached_by_all(found, split)
    return trained_to.pop() if split == "val" and len(trained_to) == 1 and all(trained_to) else least


def _judged(one: Contender, target: float | None, split: str, stand_in: StandIn) -> _Judged:
    """Judges the runs of a contender: rules 1 to 4."""
    at, outcome = (one.reaches(target, split) if target is not None else None), REACHED
    if at is None:
        if one.stopped == "target":
            raise ConfigError(
                f"{one.where}: stopped at its own target, {one.config.train.target_acc:g} (val), with "
                f"{written(one.best(split))} ({split}): nothing says when it would reach {target:g}; leave --target "
                "out to judge by what all reach, or train to a higher one"
            )
        at, outcome = one.last, MISSED if one.error or one.stopped in AT_ITS_END else CUT_SHORT
    return _Judged(one, outcome, at, spent(one, at, stand_in))


def _row(
    name: str,
    group: Sequence[Contender],
    stand_in: StandIn,
    target: float | None,
    split: str,
    errors: Sequence[str],
) -> Row:
    tried = [_judged(one, target, split, stand_in) for one in group]
    counted, there = (
        [one for one in tried if one.outcome != CUT_SHORT],
        [one for one in tried if one.outcome == REACHED],
    )
    scores = [score for one in group if (score := one.best(split)) is not None]
    row: Unreached = {
        "name": name,
        "runs": len([one for one in group if not one.error]) + len(errors),
        "reached": len(there),
        "missed": len(counted) - len(there),
        "cut_short": len(tried) - len(counted),
        "errors": list(dict.fromkeys(errors)),
        "left_out": "",
        "kind": "method" if any(isinstance(one.config, BaselineConfig) for one in group) else name.partition(" ")[0],
        "seconds": None,
        "setup_s": None,
        "evaluation_s": None,
        "epochs": None,
        "scores": None,
        "cost": None,
        "value": None,
        "spread": None,
        "tensor_share": None,
        "evaluation_share": None,
        "run_usd": None,
        "ranks": max(map(_ranks, group), default=0),
        "threads": min((one.threads for one in group if one.threads is not None), default=None),
        "devices": sorted({one.device for one in group} - {""}),
        "stand_in": any(one.config.run.on != "aws" for one in group),
        "shares_cores": any(_shares_cores(one.config) for one in group),
        "whole_cores": any(has_whole_cores(one.config) for one in group),
        "best": median(scores) if scores else None,
        "run_dirs": [one.where for one in group],
        "attempts": [
            {"seed": one.run.seed, "outcome": one.outcome, "seconds": one.seconds, "usd": one.bill.usd} for one in tried
        ],
        "relative_value": None,
        "interval": None,
    }
    return {**row, **_of_successes(counted, there)} if there else row


def _of_successes(counted: Sequence[_Judged], there: Sequence[_Judged]) -> OfSuccesses:
    """The part of a row that only a contender at the target has (rule 3)."""
    bill = _per_success([one.bill for one in counted], len(there))
    seconds = sum(one.seconds for one in counted) / len(there)
    spreads: dict[str, list[float]] = {
        "seconds": [one.seconds for one in there],
        "epochs": [one.at.epoch for one in there],
        "usd": [one.bill.usd for one in there],
        "value": [one.value for one in there],
    }
    setups = [one.run.setup_s for one in counted if one.run.setup_s is not None]
    whole = [one.run.run_usd for one in counted if one.run.run_usd is not None]
    splits = set.intersection(*(set(one.at.scores) for one in there))
    return {
        "seconds": seconds,
        "setup_s": sum(setups) / len(there) if setups else None,
        "evaluation_s": mean(one.at.evaluation_s for one in there),
        "epochs": mean(one.at.epoch for one in there),
        "cost": bill.to_dict(),
        "value": value(seconds, bill.usd),
        "scores": {name: mean(one.at.scores[name] for one in there) for name in sorted(splits)},
        "spread": {key: [min(values), max(values)] for key, values in spreads.items()},
        "tensor_share": mean_of_known(one.at.tensor_share for one in there),
        "evaluation_share": mean_of_known(one.at.evaluation_share for one in there),
        "run_usd": mean(whole) if whole else None,
    }


def _per_success(bills: Sequence[Cost], successes: int) -> Cost:
    """The sum of all bills, divided by the successes; equal items are merged."""
    items: dict[tuple[str, ...], Item] = {}
    for item in (item for bill in bills for item in bill.items):
        same = (item.part, item.what, item.unit, f"{item.usd_per_unit:.17g}")
        before = items[same].quantity if same in items else 0.0
        items[same] = replace(item, quantity=before + item.quantity / successes)
    parts = dict.fromkeys(part for bill in bills for part in bill.parts)
    names = dict.fromkeys(name for bill in bills for name in bill.amounts)
    return replace(
        bills[0],
        parts={part: sum(bill.parts.get(part, 0.0) for bill in bills) / successes for part in parts},
        items=tuple(items.values()),
        amounts={name: sum(bill.amounts.get(name, 0.0) for bill in bills) / successes for name in names},
        as_of=min(bill.as_of for bill in bills),
    )


def _ranks(one: Contender) -> int:
    """The number of processes that share a baseline's machine; 0 for graph servers."""
    return one.config.baseline.ranks if isinstance(one.config, BaselineConfig) else 0


def _shares_cores(config: Config) -> bool:
    """Whether Lambdas compute on the cores of the servers."""
    return config.servers.backend == "lambda" and config.run.on == "local" and config.lambdas.place.same_machine


def spent(one: Contender, at: Evaluated, stand_in: StandIn) -> Cost:
    """The cost from the start of the roles until ``at``."""
    if one.config.servers.backend == "gpu" and one.config.run.on != "aws" and not stand_in.gpu:
        raise ConfigError(f"{one.where}: on which machine? --as-gpu INSTANCE says what a server with a GPU stands for")
    config, seconds = stand_in.priced(one.config), (one.setup_s or 0.0) + at.seconds
    if isinstance(config, BaselineConfig):
        found = cost.of_baseline(config, seconds=seconds)
        if found is None:
            raise ConfigError(f"{one.where}: on which machine? --as-gpu INSTANCE says what its ranks stand for")
        return found
    bill = cost.of_run(config, requests=at.requests, gb_s=at.gb_s, seconds=seconds)
    if config.servers.backend != "lambda":
        return bill
    # Invocations are billed when they end: those under way are in what was counted with the epoch, at most.
    if (more := at.lambda_usd - bill.parts["lambda"]) <= 0:
        return bill
    under_way = Item("lambda", "under way, at most", 1.0, "run", more, bill.as_of, "")
    return replace(bill, parts={**bill.parts, "lambda": at.lambda_usd}, items=(*bill.items, under_way))
