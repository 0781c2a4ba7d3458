"""A plan as people and programs read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench import memory
from bench.plan import quotas
from bench.plan.graphs import Graph, short
from bench.plan.ranking import Predicted, Ranking
from siafu.config import Config
from siafu.progress import dollars

ROLES = {
    memory.GRAPH_SERVERS: "graph_server", memory.PARAM_SERVERS: "param_server", memory.LAMBDAS: "environment",
}  # fmt: skip
MARK = "◆"


def option_json(one: Predicted, ranking: Ranking, best: Predicted) -> dict[str, Any]:
    """Everything about an option. ``environments`` are each server's; ``settings`` are those that make a run of it."""
    option = one.option
    config, floors = option.config, option.floors.by_resource()
    backend, mode, staleness = option.kind
    lambdas = {
        "environments": (option.in_pipe.environments.count if option.in_pipe.environments else 0),
        "environments_total": option.environments, "memory_mb": config.lambdas.memory_mb if backend == "lambda" else None,
    }  # fmt: skip
    return {
        "name": option.name, "backend": backend, "mode": mode, "staleness": staleness,
        "instance": option.machine.name, "servers": option.in_pipe.servers, "threads": option.in_pipe.threads,
        "intervals": option.in_pipe.intervals, "param_instance": config.cloud.param_instance,
        "param_servers": config.servers.param_servers, **lambdas,
        "epochs": option.epochs, "epoch_s": one.epoch_s, "first_epoch_s": one.first_s, "setup_s": option.setup_s,
        "seconds": one.seconds, "seconds_range": one.seconds_range, "error": one.error,
        "usd": one.cost.usd, "usd_range": one.usd_range, "cost": one.cost.to_dict(),
        "value": one.value, "relative_value": one.value / best.value,
        "memory_gib": {
            **{ROLES[role]: gib for role, gib in option.memory_gib.items() if role in ROLES}, "machine": option.machine.mem_gib,
        },
        "quotas": quotas.needed(option), "limited_by": option.floors.limit, "floors_s": floors,
        "pareto": one in ranking.front, "settings": settings_of(option.config), "command": command(option.config),
    }  # fmt: skip


def settings_of(config: Config) -> dict[str, Any]:
    """What differs from the defaults, but for what a command of its own says."""
    mine, ours = config.to_dict(), Config().to_dict()
    return {
        f"{section}.{key}": value for section, values in mine.items() for key, value in values.items()
        if value != ours[section][key]
    }  # fmt: skip


def command(config: Config) -> str:
    """Trains it, on a deployment of the same settings."""
    settings = {
        key: value for key, value in settings_of(config).items() if key not in ("data.source", "run.on", "lambda.on")
    }
    told = " ".join(f"--set {key}={_text(value)}" for key, value in settings.items())
    return f"siafu train {config.data.source or 'SOURCE'} --on aws {told}".rstrip()


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)


def plan(
    console: Console, graph: Graph, config: Config, ranking: Ranking, dropped: Counter[str], considered: int,
    gpus: Sequence[Mapping[str, Any]], assumptions: Sequence[str],
) -> None:  # fmt: skip
    shown, best = ranking.shown, ranking.predicted[0]
    widths = "-".join(map(str, (graph.features, *config.model.widths, graph.classes)))
    title = f"{graph.name}: {short(graph.vertices)} vertices, {short(graph.edges)} edges, {config.model.name} {widths}"
    if graph.name.startswith(short(graph.vertices)):
        title = f"{graph.name}, {config.model.name} {widths}"
    console.print(table(title, shown, ranking, best))
    console.print(_legend(ranking, considered), highlight=False)
    for line in [*answers(ranking), *_by_backend(ranking), *_gpu_line(gpus)]:
        console.print(line, highlight=False)
    if dropped:
        told = "; ".join(f"{reason} ({count:,})" for reason, count in dropped.most_common())
        console.print(f"left out: {told}", highlight=False)
    listed = Table.grid(padding=(0, 1))
    for line in assumptions:
        listed.add_row("-", line)
    console.print("assumed:", highlight=False)
    console.print(listed, highlight=False)
    console.print("the first row, once siafu deploy was given the same settings:", highlight=False)
    console.print(f"  {command(best.option.config)}", highlight=False, soft_wrap=True)


def table(title: str, shown: Sequence[Predicted], ranking: Ranking, best: Predicted) -> Table:
    right = [Column(name, justify="right", no_wrap=True) for name in (
        "Lambdas", "epoch", "epochs", "in all", "dollars", "value", "GiB", "vCPUs",
    )]  # fmt: skip
    found = Table(Column("", justify="right"), Column("", no_wrap=True), Column("servers", no_wrap=True), *right,
                  Column("limited by"), title=title)  # fmt: skip
    for one in shown:
        option = one.option
        lambdas = f"{one.simulated.environments} x {option.config.lambdas.memory_mb} MB" if option.environments else ""
        if option.environments and not option.config.lambdas.count:
            lambdas = f"tuned, {option.config.lambdas.memory_mb} MB"
        held = f"{option.memory_gib[memory.GRAPH_SERVERS]:.2g} of {option.machine.mem_gib:g}"
        found.add_row(
            MARK if one in ranking.front else "", option.name, f"{option.in_pipe.servers} x {option.machine.name}", lambdas,
            duration(one.epoch_s), f"{option.epochs}", duration(one.seconds), dollars(one.cost.usd),
            f"{one.value / best.value:.2f}", held, f"{quotas.needed(option)['vcpus']}", option.floors.limit,
        )  # fmt: skip
    return found


def _legend(ranking: Ranking, considered: int) -> str:
    error = ranking.predicted[0].error
    return (
        f"value: 1 / (time x dollars), the best = 1. {MARK}: none is both faster and cheaper. Times to within {error:.0%} or so: "
        f"rows closer than that are even. {considered:,} options compared, {len(ranking.predicted)} simulated."
    )


def answers(ranking: Ranking) -> list[str]:
    """To --within-time and --within-usd."""
    found, limits = [], ranking.limits
    fastest = min(ranking.predicted, key=lambda one: one.seconds)
    cheapest = min(ranking.predicted, key=lambda one: one.cost.usd)
    if limits.seconds < float("inf"):
        answer, asked = ranking.cheapest_within, f"cheapest within {duration(limits.seconds)}: "
        found.append(asked + (_words(answer) if answer else f"none; the fastest is {_words(fastest)}"))
    if limits.usd < float("inf"):
        answer, asked = ranking.fastest_within, f"fastest within {dollars(limits.usd)}: "
        found.append(asked + (_words(answer) if answer else f"none; the cheapest is {_words(cheapest)}"))
    return found


def _by_backend(ranking: Ranking) -> list[str]:
    """Whether Lambdas pay."""
    best = {
        backend: next((one for one in ranking.predicted if one.option.kind[0] == backend), None)
        for backend in ("cpu", "lambda")
    }
    cpu, lambdas = best["cpu"], best["lambda"]
    if cpu is None or lambdas is None:
        return []
    ratio = cpu.value / lambdas.value
    error = (1 + ranking.predicted[0].error) ** 2
    if 1 / error < ratio < error:
        return [f"CPU servers alone and with Lambdas are about even: {ratio:.2f} to 1, within the error."]
    if ratio > 1:
        return [f"CPU servers alone are worth {ratio:.1f} times the best with Lambdas ({_words(lambdas)})."]
    return [f"Lambdas are worth {1 / ratio:.1f} times CPU servers alone ({_words(cpu)})."]


def _gpu_line(gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    """GPUs are not predicted: what one would have to do."""
    fitting = [one for one in gpus if one["fits"]][:2]
    if not fitting:
        held = gpus[0]["memory_gib"] if gpus else 0.0
        return [f"GPUs are not predicted; no single card holds the {held:,.0f} GiB that one server would."]
    told = " or ".join(f"{duration(one['break_even_epoch_s'])} ({one['instance']})" for one in fitting)
    return [f"GPUs are not predicted: one is worth as much as the best row if an epoch takes it {told}."]


def _words(one: Predicted) -> str:
    option = one.option
    lambdas = (
        f", {one.simulated.environments} Lambdas of {option.config.lambdas.memory_mb} MB" if option.environments else ""
    )
    return f"{option.name} on {option.in_pipe.servers} x {option.machine.name}{lambdas}: {duration(one.seconds)}, {dollars(one.cost.usd)}"


def duration(seconds: float) -> str:
    """0.0123 -> "12 ms", 75 -> "75 s", 500 -> "8.3 min", 20000 -> "5.6 h"."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.2g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"
