"""Prints a plan at 80 columns: the answer in a sentence, options in five columns, and with ``--why`` everything that
the answer rests on.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from cost_planner import memory
from cost_planner.memory import GIB
from cost_planner.plan import quotas
from cost_planner.plan.calibration import Calibration
from cost_planner.plan.cuts import NEEDS_LOW_CUT
from cost_planner.plan.finding import finding, in_short, line_of_lambdas, of_lambdas, words
from cost_planner.plan.graphs import Graph, short
from cost_planner.plan.here import Here, fits
from cost_planner.plan.lambdas import Lambdas
from cost_planner.plan.options import CARD, Option
from cost_planner.plan.ranking import Predicted, Ranking
from cost_planner.plan.show import command
from cost_planner.value.trained import name_of
from siafu import allotment
from siafu.config import Config
from siafu.progress import dollars, duration

MARK, ASSUMED = "◆", "*"
#: Options to show without --why, besides the Pareto front.
FEW = 5
#: Reasons to leave options out that the user can do something about.
OF_INTEREST = ("memory", "vCPUs")


@dataclass(frozen=True)
class Planned:
    """The result of a plan, which ``brief`` and ``why`` print."""

    graph: Graph
    config: Config
    ranking: Ranking
    rows: list[Predicted]  # options to show, best first
    dropped: Counter[str]  # options left out, by reason
    considered: int
    lambdas: Lambdas | None
    gpus: Sequence[Mapping[str, Any]]
    caveats: Sequence[str]  # assumptions that may change the decision
    assumptions: Sequence[str]

    @property
    def best(self) -> Predicted:
        return self.ranking.predicted[0]

    @property
    def wanted(self) -> Predicted:
        """The answer to --within-time or --within-usd, else the best."""
        limits, ranking = self.ranking.limits, self.ranking
        asked = (limits.seconds, ranking.cheapest_within), (limits.usd, ranking.fastest_within)
        return next((one for limit, one in asked if limit < math.inf and one), self.best)


def brief(console: Console, found: Planned) -> None:
    """The answer, the options, and what may change the user's decision."""
    lines = [*answers(found.ranking), *in_short(found.ranking.predicted), *line_of_lambdas(found.lambdas)]
    for line in [*lines, ""]:
        console.print(line, highlight=False)
    console.print(_options(found))
    console.print()
    left_out = {reason: count for reason, count in found.dropped.items() if any(one in reason for one in OF_INTEREST)}
    below = [
        _legend(found),
        *_no_gpu(found),
        _quotas(found),
        *([f"Left out: {_counted(left_out)}."] if left_out else []),
        *found.caveats,
    ]
    for line in below:
        console.print(line, highlight=False)


def ending(console: Console, found: Planned, *, why: bool) -> None:
    """Prints how to run the option that was asked for, or the best."""
    option = found.wanted.option
    where = "on that machine" if option.backend == "vanilla" else "after siafu deploy with the same settings"
    more = "" if why else "--why also shows memory, vCPUs, Lambdas, and all assumptions with their sources.\n"
    console.print(f"{more}Option {found.rows.index(found.wanted) + 1}, {where}:", highlight=False)
    console.print(f"  {command(option)}", highlight=False, soft_wrap=True)


def why(console: Console, found: Planned) -> None:
    """Prints the reasons and assumptions behind the answer."""
    console.print()
    console.print(_details(found.rows))
    console.print()
    lines = [*finding(found.ranking.predicted), *of_lambdas(found.lambdas), *_gpu_line(found)]
    lines.append(f"{found.considered:,} options compared, {len(found.ranking.predicted)} simulated.")
    if found.dropped:
        lines.append(f"Left out: {_counted(found.dropped)}.")
    for line in [*lines, "assumed:"]:
        console.print(line, highlight=False)
    listed = Table.grid(padding=(0, 1))
    for line in found.assumptions:
        listed.add_row("-", line)
    console.print(listed, highlight=False)


def here(console: Console, found: Sequence[Here], calibration: Calibration) -> None:
    right = [Column(name, justify="right") for name in ("servers", "Lambdas", "epoch", "epochs", "time", "GiB")]
    told = Table(
        Column("", no_wrap=True),
        *right,
        Column("limited by"),
        title=f"on this machine, {allotment.cores()} cores and {allotment.memory_bytes() / GIB:.3g} GiB",
        **_plain(),
    )
    for one in found:
        number = f"{one.simulated.environments}" if one.config.servers.backend == "lambda" else ""
        held = f"{one.memory_bytes / GIB:.2g}" + " (too much)" * (not fits(one))
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
    console.print()
    cores = {one.config.lambdas.core for one in found if one.config.servers.backend == "lambda"}
    of_core = "".join(f" Lambdas compute on {core:.3g} of a core each (lambda.cpu_share)." for core in sorted(cores))
    missing = "" if calibration.memory_gb_per_s else "; the bandwidth of memory is not measured and limits nothing"
    console.print(
        f"Speeds of {calibration.machine}, {calibration.measured}, to within {calibration.error:.0%}{missing}. siafu "
        f"plan --calibrate measures this machine.{of_core}\n",
        highlight=False,
    )


def _plain() -> dict[str, Any]:
    """The style of tables without vertical lines: five columns fit into 80 characters."""
    return {
        "box": box.SIMPLE_HEAD,
        "padding": (0, 1, 0, 0),
        "pad_edge": False,
        "show_edge": False,
        "title_justify": "left",
    }


def _options(found: Planned) -> Table:
    told = Table(
        Column("option", no_wrap=True),
        Column("machines"),
        *(Column(name, justify="right", no_wrap=True) for name in ("time", "dollars", "value")),
        title=title(found.graph, found.config),
        **_plain(),
    )
    for number, one in enumerate(found.rows, 1):
        option = one.option
        told.add_row(
            f"{number:2} {option.name}{ASSUMED * bool(option.card)}{NEEDS_LOW_CUT * option.needs_low_cut}",
            f"{option.machines} x {option.machine.name}{_lambdas(one)}",
            duration(one.seconds),
            dollars(one.cost.usd),
            f"{one.value / found.best.value:.2f} {MARK if one in found.ranking.front else ' '}",
        )
    return told


def _lambdas(one: Predicted) -> str:
    if not one.option.environments:
        return ""
    return f" + {one.simulated.environments} Lambdas" if one.option.config.lambdas.count else " + Lambdas"


def _details(rows: Sequence[Predicted]) -> Table:
    """A table of details, with the options' numbers of ``_options``."""
    right = ("", "epoch", "epochs", "GiB", "vCPUs", "Lambdas")
    told = Table(
        *(Column(name, justify="right", no_wrap=True) for name in right),
        Column("limited by"),
        title="the same options",
        **_plain(),
    )
    for number, one in enumerate(rows, 1):
        option, lambdas = one.option, ""
        if option.environments:
            count = f"{one.simulated.environments} x" if option.config.lambdas.count else "tuned,"
            lambdas = f"{count} {option.config.lambdas.memory_mb} MB"
        told.add_row(
            f"{number}",
            duration(one.epoch_s),
            f"{option.epochs}",
            _held(option),
            f"{quotas.needed(option)['vcpus']}",
            lambdas,
            option.floors.limit,
        )
    return told


def _held(option: Option) -> str:
    """Memory used and available of a graph server, or of its GPU."""
    if option.card:
        return f"{option.memory_gib[CARD]:.2g} of {option.card.memory_gib:.4g}"
    return f"{option.memory_gib[memory.GRAPH_SERVERS]:.2g} of {option.machine.mem_gib:g}"


def _legend(found: Planned) -> str:
    assumed = f"{ASSUMED} GPU speed and memory from data sheets: times may be half or twice as long. "
    return (
        f"value: 1 / (time x dollars), the best = 1. {MARK} No option is both faster and cheaper. "
        f"{_param_servers(found.rows)}"
        f"{assumed * any(one.option.card for one in found.rows)}Times to within about {found.ranking.error:.0%}: "
        "smaller differences mean nothing."
    )


def _param_servers(rows: Sequence[Predicted]) -> str:
    """Says which costs dollars include besides the machines of the table."""
    of_servers = [one.option for one in rows if one.option.param_servers]
    if not of_servers:
        return ""
    counts = sorted({option.param_servers for option in of_servers})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kind = of_servers[0].config.cloud.param_instance
    others = "" if len(of_servers) == len(rows) else " of graph servers"
    return f"Dollars{others} include {number} x {kind} for parameter servers, disks and endpoints. "


def _quotas(found: Planned) -> str:
    """Says which account quotas the option to run needs."""
    number, needed = found.rows.index(found.wanted) + 1, quotas.needed(found.wanted.option)
    told = [f"{one['needed']:,} vCPUs ({one['code']})" for one in needed["vcpus_by_quota"]]
    if "lambda_concurrency" in needed:
        told.append("{needed:,} Lambda environments (default {default:,})".format(**needed["lambda_concurrency"]))
    beyond = f" Ask AWS first for: {'; '.join(needed['raise'])}." if needed["raise"] else ""
    return f"Option {number} needs quotas of {' and '.join(told)}.{beyond}"


def _counted(dropped: Mapping[str, int]) -> str:
    return "; ".join(f"{reason} ({count:,})" for reason, count in Counter(dropped).most_common())


def title(graph: Graph, config: Config) -> str:
    """The graph and the model, in a line."""
    widths = "-".join(map(str, (graph.features, *config.model.widths, graph.classes)))
    if graph.name.startswith(short(graph.vertices)):
        return f"{graph.name}, {config.model.name} {widths}"
    return f"{graph.name}: {short(graph.vertices)} vertices, {short(graph.edges)} edges, {config.model.name} {widths}"


def answers(ranking: Ranking) -> list[str]:
    """The answers to --within-time and --within-usd."""
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


def _no_gpu(found: Planned) -> list[str]:
    if found.best.option.card or not found.gpus or any(one["fits"] for one in found.gpus):
        return []
    return [f"No single GPU has the {found.gpus[0]['memory_gib']:,.0f} GiB of memory that the run needs."]


def _gpu_line(found: Planned) -> list[str]:
    """Says which epoch time a GPU would need, without assuming its speed."""
    fitting = [one for one in found.gpus if one["fits"]][:3]
    if found.best.option.card or not fitting:
        return []
    told = ", ".join(f"{duration(one['break_even_epoch_s'])} ({one['instance']})" for one in fitting)
    return [f"One machine with a GPU has the value of option 1 if its epoch takes {told}."]
