"""A plan as JSON, and the command that trains its best option."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from cost_planner import memory
from cost_planner.memory import GIB
from cost_planner.plan import energy, interruptions, quotas
from cost_planner.plan.here import Here, fits
from cost_planner.plan.lambdas import Lambdas, Lengths
from cost_planner.plan.options import CARD, Option
from cost_planner.plan.ranking import Predicted, Ranking
from cost_planner.value.trained import name_of
from siafu.config import Config

ROLES = {
    memory.GRAPH_SERVERS: "graph_server",
    memory.PARAM_SERVERS: "param_server",
    memory.LAMBDAS: "environment",
    CARD: "gpu",
}


def option_json(one: Predicted, ranking: Ranking, best: Predicted) -> dict[str, Any]:
    """Everything about an option. ``environments``: of each server; ``settings``: those that make a run of it."""
    option = one.option
    config, floors = option.config, option.floors.by_resource()
    backend, mode, staleness = option.kind
    lambdas = {
        "environments": (option.in_pipe.environments.count if option.in_pipe.environments else 0),
        "environments_total": option.environments,
        "memory_mb": config.lambdas.memory_mb if backend == "lambda" else None,
    }
    return {
        "name": option.name,
        "backend": backend,
        "mode": mode or None,
        "staleness": staleness,
        "instance": option.machine.name,
        "gpu": option.machine.gpu or None,
        "servers": option.machines,
        "ranks": option.in_pipe.servers if backend == "vanilla" else None,
        "threads": option.in_pipe.threads,
        "intervals": option.in_pipe.intervals,
        "param_instance": config.cloud.param_instance,
        "param_servers": option.param_servers,
        **lambdas,
        "epochs": option.epochs,
        "epoch_s": one.epoch_s,
        "first_epoch_s": one.first_s,
        "setup_s": option.setup_s,
        "interruptions": interruptions_json(one),
        "seconds": one.seconds,
        "seconds_range": one.seconds_range,
        "error": one.error,
        "basis": "assumed, not measured" if option.card else "calibrated",
        "usd": one.cost.usd,
        "usd_range": one.usd_range,
        "cost": one.cost.to_dict(),
        "watt_hours_estimate": energy.watt_hours(one),
        "value": one.value,
        "relative_value": one.value / best.value,
        "memory_gib": {
            **{ROLES[role]: gib for role, gib in option.memory_gib.items() if role in ROLES},
            "machine": option.machine.mem_gib,
            "gpu_card": option.card.memory_gib if option.card else None,
        },
        "quotas": quotas.needed(option),
        "needs_low_cut": option.needs_low_cut,
        "limited_by": option.floors.limit,
        "floors_s": floors,
        "pareto": one in ranking.front,
        "settings": settings_of(option.config),
        "command": command(option),
    }


def interruptions_json(one: Predicted) -> dict[str, Any] | None:
    """Interruptions of spot machines; None on demand. ``unknown``: types without a known frequency."""
    if not one.option.config.cloud.spot:
        return None
    found = one.interruptions
    return {
        "expected": found.expected,
        "seconds_each": found.each_s,
        "seconds": found.seconds,
        "unknown": interruptions.unknown(one.option),
    }


def lambdas_json(found: Lambdas | None) -> dict[str, Any] | None:
    """The comparison of Lambdas with CPUs alone, on one cluster."""
    if found is None:
        return None
    pair, option = found.asked, found.asked.beside.option
    return {
        "instance": option.machine.name,
        "servers": option.machines,
        "environments_total": pair.beside.simulated.environments,
        "memory_mb": option.config.lambdas.memory_mb,
        "faster": pair.faster,
        "relative_value": pair.worth,
        "break_even_price": pair.even_price,
        "usd_per_gb_s": pair.usd_per_gb_s,
        "break_even_usd_per_gb_s": None if pair.even_price is None else pair.even_price * pair.usd_per_gb_s,
        "free_tier_usd": pair.free_usd,
        "by_hidden": {
            width: {"faster": pair.faster, "relative_value": pair.worth} for width, pair in found.by_width.items()
        },
        "max_vcpus": None if found.max_vcpus == math.inf else found.max_vcpus,
        "more_value_in_runs": _lengths_json(found.worth_more),
        "cheaper_in_runs": _lengths_json(found.cheaper),
    }


def _lengths_json(found: Sequence[Lengths]) -> list[dict[str, Any]]:
    """Run lengths; ``to`` is None if no end is known."""
    return [{"from": vars(one.first), "to": None if one.last is None else vars(one.last)} for one in found]


def settings_of(config: Config) -> dict[str, Any]:
    """Settings that differ from the defaults."""
    usual = Config().flat()
    return {key: value for key, value in config.flat().items() if value != usual[key]}


def command(option: Option) -> str:
    """The command that trains the option, on a deployment with the same settings."""
    config = option.config
    settings = {
        key: value for key, value in settings_of(config).items() if key not in ("data.source", "run.on", "lambda.on")
    }
    start, source = "siafu train {} --on aws", config.data.source or "SOURCE"
    if option.backend == "vanilla":
        start = f"siafu baseline vanilla {{}} --ranks {option.in_pipe.servers}"
        settings = {key: value for key, value in settings.items() if key not in ("cloud.gpu_instance", "data.parts")}
    return " ".join([start.format(source), *(f"--set {key}={_text(value)}" for key, value in settings.items())])


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def here_json(found: Sequence[Here]) -> list[dict[str, Any]]:
    """Predicted runs on this machine, fastest first."""
    return [
        {
            "name": name_of(one.config),
            "servers": one.config.data.parts,
            "intervals": one.config.train.intervals,
            "environments_total": one.simulated.environments,
            "epochs": one.config.train.epochs,
            "epoch_s": one.simulated.epoch_s,
            "first_epoch_s": one.simulated.first_s,
            "seconds": one.seconds,
            "memory_gib": one.memory_bytes / GIB,
            "fits": fits(one),
            "limited_by": one.limited_by,
        }
        for one in found
    ]
