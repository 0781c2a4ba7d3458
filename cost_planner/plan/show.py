"""A plan as people and programs read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from cost_planner import memory
from cost_planner.plan import quotas
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.finding import finding, of_lambdas, words
from cost_planner.plan.graphs import Graph, short
from cost_planner.plan.here import Here, fits
from cost_planner.plan.lambdas import Lambdas
from cost_planner.plan.options import CARD, Option
from cost_planner.plan.ranking import Predicted, Ranking
from cost_planner.scale import GIB
from cost_planner.value.trained import name_of
from siafu import allotment
from siafu.config import Config
from siafu.progress import dollars, duration

ROLES = {
    memory.GRAPH_SERVERS: "graph_server",
    memory.PARAM_SERVERS: "param_server",
    memory.LAMBDAS: "environment",
    CARD: "gpu",
}
MARK, ASSUMED = "◆", "*"


def option_json(one: Predicted, ranking: Ranking, best: Predicted) -> dict[str, Any]:
    """Everything about an option. ``environments`` are each server's; ``settings`` are those that make a run of it."""
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
        "param_servers": 0 if backend == "vanilla" else config.servers.param_servers,
        **lambdas,
        "epochs": option.epochs,
        "epoch_s": one.epoch_s,
        "first_epoch_s": one.first_s,
        "setup_s": option.setup_s,
        "seconds": one.seconds,
        "seconds_range": one.seconds_range,
        "error": one.error,
        "basis": "assumed, not measured" if option.card else "calibrated",
        "usd": one.cost.usd,
        "usd_range": one.usd_range,
        "cost": one.cost.to_dict(),
        "value": one.value,
        "relative_value": one.value / best.value,
        "memory_gib": {
            **{ROLES[role]: gib for role, gib in option.memory_gib.items() if role in ROLES},
            "machine": option.machine.mem_gib,
            "gpu_card": option.card.memory_gib if option.card else None,
        },
        "quotas": quotas.needed(option),
        "limited_by": option.floors.limit,
        "floors_s": floors,
        "pareto": one in ranking.front,
        "settings": settings_of(option.config),
        "command": command(option),
    }


def lambdas_json(found: Lambdas | None) -> dict[str, Any] | None:
    """Beside CPUs alone on one cluster."""
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
        "free_tier_usd": pair.free_usd,
        "by_hidden": {
            width: {"faster": pair.faster, "relative_value": pair.worth} for width, pair in found.by_width.items()
        },
    }


def settings_of(config: Config) -> dict[str, Any]:
    """What differs from the defaults, but for what a command of its own says."""
    mine, ours = config.to_dict(), Config().to_dict()
    return {
        f"{section}.{key}": value
        for section, values in mine.items()
        for key, value in values.items()
        if value != ours[section][key]
    }


def command(option: Option) -> str:
    """Trains it, on a deployment of the same settings."""
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


def plan(
    console: Console,
    graph: Graph,
    config: Config,
    ranking: Ranking,
    dropped: Counter[str],
    considered: int,
    lambdas: Lambdas | None,
    gpus: Sequence[Mapping[str, Any]],
    assumptions: Sequence[str],
) -> None:
    shown, best = ranking.shown, ranking.predicted[0]
    console.print(table(title(graph, config), shown, ranking, best))
    console.print(_legend(ranking, considered), highlight=False)
    for line in [*answers(ranking), *finding(ranking.predicted), *of_lambdas(lambdas), *_gpu_line(best, gpus)]:
        console.print(line, highlight=False)
    if dropped:
        told = "; ".join(f"{reason} ({count:,})" for reason, count in dropped.most_common())
        console.print(f"left out: {told}", highlight=False)
    listed = Table.grid(padding=(0, 1))
    for line in assumptions:
        listed.add_row("-", line)
    console.print("assumed:", highlight=False)
    console.print(listed, highlight=False)
    where = "on that machine" if best.option.backend == "vanilla" else "after siafu deploy with the same settings"
    console.print(f"the first row, {where}:", highlight=False)
    console.print(f"  {command(best.option)}", highlight=False, soft_wrap=True)


def title(graph: Graph, config: Config) -> str:
    """The graph and the model, in a line."""
    widths = "-".join(map(str, (graph.features, *config.model.widths, graph.classes)))
    if graph.name.startswith(short(graph.vertices)):
        return f"{graph.name}, {config.model.name} {widths}"
    return f"{graph.name}: {short(graph.vertices)} vertices, {short(graph.edges)} edges, {config.model.name} {widths}"


def here_json(found: Sequence[Here]) -> list[dict[str, Any]]:
    """Runs on this machine, fastest first."""
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


def here(console: Console, found: Sequence[Here], calibration: Calibration) -> None:
    right = [Column(name, justify="right") for name in ("servers", "Lambdas", "epoch", "epochs", "in all", "GiB")]
    told = Table(
        Column("", no_wrap=True), *right, Column("limited by"), title=f"on this machine, {allotment.cores()} cores"
    )
    for one in found:
        number = f"{one.simulated.environments}" if one.config.servers.backend == "lambda" else ""
        held = f"{one.memory_bytes / GIB:.2g} of {allotment.memory_bytes() / GIB:.3g}" + " (too much)" * (not fits(one))
        told.add_row(
            name_of(one.config),
            f"{one.config.data.parts}",
            number,
            duration(one.simulated.epoch_s),
            f"{one.config.train.epochs}",
            duration(one.seconds),
            held,
            one.limited_by,
        )
    console.print(told)
    missing = "" if calibration.memory_gb_per_s else "; the bandwidth of memory is not measured and limits nothing"
    console.print(
        f"Speeds of {calibration.machine}, {calibration.measured}, to within {calibration.error:.0%}{missing}. siafu "
        "plan --calibrate measures this machine.",
        highlight=False,
    )


def table(title: str, shown: Sequence[Predicted], ranking: Ranking, best: Predicted) -> Table:
    right = [
        Column(name, justify="right", no_wrap=True)
        for name in ("Lambdas", "epoch", "epochs", "in all", "dollars", "value", "GiB", "vCPUs")
    ]
    found = Table(
        Column("", justify="right"),
        Column("", no_wrap=True),
        Column("servers", no_wrap=True),
        *right,
        Column("limited by"),
        title=title,
    )
    for one in shown:
        option = one.option
        lambdas = f"{one.simulated.environments} x {option.config.lambdas.memory_mb} MB" if option.environments else ""
        if option.environments and not option.config.lambdas.count:
            lambdas = f"tuned, {option.config.lambdas.memory_mb} MB"
        found.add_row(
            MARK if one in ranking.front else "",
            option.name + ASSUMED * bool(option.card),
            f"{option.machines} x {option.machine.name}",
            lambdas,
            duration(one.epoch_s),
            f"{option.epochs}",
            duration(one.seconds),
            dollars(one.cost.usd),
            f"{one.value / best.value:.2f}",
            _held(option),
            f"{quotas.needed(option)['vcpus']}",
            option.floors.limit,
        )
    return found


def _held(option: Option) -> str:
    """Of a graph server's memory, or of its GPU's."""
    if option.card:
        return f"{option.memory_gib[CARD]:.2g} of {option.card.memory_gib:.4g}"
    return f"{option.memory_gib[memory.GRAPH_SERVERS]:.2g} of {option.machine.mem_gib:g}"


def _legend(ranking: Ranking, considered: int) -> str:
    assumed = f"; {ASSUMED}: GPU speed and memory from data sheets, times may be half or twice as long"
    return (
        f"value: 1 / (time x dollars), the best = 1. {MARK}: no option is both faster and cheaper. Times to within "
        f"about {ranking.error:.0%}{assumed * any(one.option.card for one in ranking.shown)}. Smaller differences "
        f"mean nothing. {considered:,} options compared, {len(ranking.predicted)} simulated."
    )


def answers(ranking: Ranking) -> list[str]:
    """To --within-time and --within-usd."""
    found, limits = [], ranking.limits
    fastest = min(ranking.predicted, key=lambda one: one.seconds)
    cheapest = min(ranking.predicted, key=lambda one: one.cost.usd)
    if limits.seconds < float("inf"):
        answer, asked = ranking.cheapest_within, f"cheapest within {duration(limits.seconds)}: "
        found.append(asked + (words(answer) if answer else f"none; the fastest is {words(fastest)}"))
    if limits.usd < float("inf"):
        answer, asked = ranking.fastest_within, f"fastest within {dollars(limits.usd)}: "
        found.append(asked + (words(answer) if answer else f"none; the cheapest is {words(cheapest)}"))
    return found


def _gpu_line(best: Predicted, gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a GPU would have to do, whatever its speed is taken to be."""
    fitting = [one for one in gpus if one["fits"]][:3]
    if best.option.card or not gpus:
        return []
    if not fitting:
        return [f"No single GPU has the {gpus[0]['memory_gib']:,.0f} GiB of memory that the run needs."]
    told = ", ".join(f"{duration(one['break_even_epoch_s'])} ({one['instance']})" for one in fitting)
    return [f"One machine with a GPU has the value of the first row if its epoch takes {told}."]
