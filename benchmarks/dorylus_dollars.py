"""What Dorylus published (Thorpe et al., OSDI 2021), counted again: ``dorylus.csv`` has the times and dollars of its
Table 4, ``dorylus_systems.csv`` those of its Table 5, to a lower accuracy.

    python -m benchmarks.dorylus_dollars [--json]

1. A line's CPU and GPU dollars are servers x price x time: its authors counted no parameter servers, disks or traffic.
2. What its Lambdas cost is not published. Implied: the dollars of the line less those of its CPU servers for as long.
   Beside it what the simulator says of them (``benchmarks.dorylus``), whose speeds were chosen by ratios of times.
3. GPUs of today: how many times slower than the paper's V100 a server with one of them may be, for the value of the
   Lambdas, and for the value of the V100 at its own price.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from benchmarks.dorylus import TABLE_4, Machines, lambda_usd
from cost_planner.value import break_even, value
from siafu.pricing import prices
from siafu.pricing.prices import Instance
from siafu.progress import dollars

FILE = Path(__file__).with_name("dorylus.csv")
SYSTEMS = Path(__file__).with_name("dorylus_systems.csv")
HOUR_S = 3600.0
USD = ("cpu_usd", "gpu_usd", "lambda_usd", "implied_lambda_usd", "simulated_lambda_usd")
#: Rented today in place of the paper's p3.2xlarge.
YOUNGER = ("g4dn.xlarge", "g6.xlarge")
#: A price by name: what the paper rented is partly retired.
instance = partial(prices.instance, retired=True)


@dataclass(frozen=True)
class Published:
    """A line of the paper's Table 4: seconds and US dollars to the target accuracy."""

    graph: str
    model: str
    servers: int
    cpu_instance: str
    gpu_instance: str
    mode: str  # of the Lambdas' time
    lambda_s: float
    lambda_usd: float
    cpu_s: float
    cpu_usd: float
    gpu_s: float
    gpu_usd: float

    @property
    def name(self) -> str:
        return f"{self.model} {self.graph}"


def published() -> Iterator[Published]:
    with FILE.open() as file:
        for row in csv.DictReader(file):
            words = [row[key] for key in ("graph", "model", "cpu_instance", "gpu_instance", "mode")]
            graph, model, cpu, gpu, mode = words
            amounts = [float(row[f"{kind}_{unit}"]) for kind in ("lambda", "cpu", "gpu") for unit in ("s", "usd")]
            yield Published(graph, model, int(row["servers"]), cpu, gpu, mode, *amounts)


def recounted(line: Published) -> dict[str, Any]:
    """The line with our prices: JSON."""
    cpu, gpu = instance(line.cpu_instance), instance(line.gpu_instance)
    ours = value(line.lambda_s, line.lambda_usd)
    return {
        "name": line.name,
        "servers": {"count": line.servers, "cpu": cpu.name, "gpu": gpu.name},
        "mode": line.mode,
        "seconds": {"lambda": line.lambda_s, "cpu": line.cpu_s, "gpu": line.gpu_s},
        "cpu_usd": _usd(cpu, line.servers, line.cpu_s),
        "gpu_usd": _usd(gpu, line.servers, line.gpu_s),
        "lambda_usd": line.lambda_usd,
        "implied_lambda_usd": line.lambda_usd - _usd(cpu, line.servers, line.lambda_s),
        "simulated_lambda_usd": simulated_lambda_usd(line),
        "published_usd": {"cpu": line.cpu_usd, "gpu": line.gpu_usd},
        "value_vs_cpu": ours / value(line.cpu_s, line.cpu_usd),
        "value_vs_gpu": ours / value(line.gpu_s, line.gpu_usd),
        "break_even_slowdown": {name: _slowdown(line, name) for name in YOUNGER},
    }


def simulated_lambda_usd(line: Published) -> float:
    """Rule 2."""
    cluster, mode, *_ = TABLE_4[line.model, line.graph]
    return lambda_usd(cluster, Machines(), mode, line.lambda_s)


def systems() -> Iterator[dict[str, Any]]:
    """Table 5: what Dorylus is worth beside other systems on the same graph. What ran out of memory
    or never got there is not in it."""
    with SYSTEMS.open() as file:
        rows = [(row["graph"], row["system"], float(row["seconds"]), float(row["usd"])) for row in csv.DictReader(file)]
    dorylus = {graph: value(seconds, usd) for graph, system, seconds, usd in rows if system == "Dorylus"}
    for graph, system, seconds, usd in rows:
        yield {
            "name": graph,
            "system": system,
            "seconds": seconds,
            "usd": usd,
            "dorylus_value_vs": dorylus[graph] / value(seconds, usd),
        }


def prices_used() -> dict[str, Any]:
    """Instance -> USD per hour and the date of that price; ``slowdown``: by how much it may be slower than the paper's
    GPU for the same value, whatever runs."""
    lines = list(published())
    names = sorted({line.cpu_instance for line in lines} | {line.gpu_instance for line in lines} | set(YOUNGER))
    first = instance(lines[0].gpu_instance)
    found: dict[str, Any] = {}
    for one in map(instance, names):
        found[one.name] = {"usd_per_hour": one.usd_per_hour, "region": one.region, "as_of": one.as_of}
        if one.gpu:
            found[one.name]["slowdown"] = (first.usd_per_hour / one.usd_per_hour) ** 0.5
    return found


def _slowdown(line: Published, name: str) -> float:
    """How many times the V100's time such servers, as many, may take for the value of the Lambdas."""
    usd_per_s = line.servers * instance(name).usd_per_hour / HOUR_S
    return break_even(line.lambda_s, line.lambda_usd, usd_per_s) / line.gpu_s


def _usd(machine: Instance, count: int, seconds: float) -> float:
    return count * machine.usd_per_hour * seconds / HOUR_S


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    found = {
        "paper": "Dorylus (Thorpe et al., OSDI 2021), Tables 4 and 5",
        "rows": [recounted(line) for line in published()],
        "systems": list(systems()),
        "prices": prices_used(),
    }
    if args.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    console = Console(markup=False, width=None if Console().is_terminal else 120)
    younger = list(YOUNGER)
    heads = (
        "CPU",
        "GPU",
        "Lambda",
        "of it\nLambdas",
        "simu-\nlated",
        "value\n/ CPU",
        "value\n/ GPU",
        *(name.replace(".", "\n.") for name in younger),
    )
    lines = Table(Column(no_wrap=True), *heads, title=found["paper"])
    for row in found["rows"]:
        slower = [f"{row['break_even_slowdown'][name]:.2f}x" for name in younger]
        usd = [dollars(row[key]) for key in USD]
        lines.add_row(row["name"], *usd, f"{row['value_vs_cpu']:.2f}", f"{row['value_vs_gpu']:.2f}", *slower)
    console.print(lines)
    console.print(
        "Lambdas: those of the line's dollars that its servers do not explain; and what the simulator says of them. "
        + _slower(found, younger)
    )
    others = Table("to a lower accuracy", "system", "seconds", "dollars", "Dorylus' value / its own")
    for row in found["systems"]:
        amounts = (f"{row['seconds']:.0f}", dollars(row["usd"]), f"{row['dorylus_value_vs']:.2f}")
        others.add_row(row["name"], row["system"], *amounts)
    console.print(others)
    region, as_of = {(price["region"], price["as_of"]) for price in found["prices"].values()}.pop()
    hourly = ", ".join(f"{name} ${price['usd_per_hour']:g}" for name, price in found["prices"].items())
    console.print(f"dollars an hour in {region} on {as_of}: {hourly}")


def _slower(found: dict[str, Any], names: Sequence[str]) -> str:
    alone = " and ".join(f"{found['prices'][name]['slowdown']:.2f}x for {name}" for name in names)
    return (
        f"{', '.join(names)}: how many times the V100's time as many of them may take for the Lambdas' value; for the "
        f"V100's own value it is {alone}."
    )


if __name__ == "__main__":
    sys.exit(main())
