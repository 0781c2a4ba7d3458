"""``siafu value``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.value import paper
from siafu.errors import ConfigError
from siafu.progress import dollars

PAPERS = ("dorylus",)

EXAMPLES = """examples:
  siafu value --paper dorylus           what its authors measured, at their prices and with the GPUs of today
  siafu value --paper dorylus --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu value --paper NAME [--json]"
    parser.description = "Judge by value for money, V = 1 / (time x dollars) to the same accuracy."
    parser.epilog = EXAMPLES
    parser.add_argument("--paper", choices=PAPERS, help="count again what a paper has published")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    if not args.paper:
        raise ConfigError(f"nothing to judge: --paper {PAPERS[0]}")
    found = {
        "paper": "Dorylus (Thorpe et al., OSDI 2021), Tables 4 and 5",
        "rows": [paper.recounted(line) for line in paper.published()],
        "systems": list(paper.systems()),
        "prices": paper.prices_used(),
    }
    if args.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _show(found: dict[str, Any]) -> None:
    console = Console(width=None if Console().is_terminal else 110)
    younger = list(paper.YOUNGER)
    heads = (
        "CPU",
        "GPU",
        "Lambda",
        "of it\nLambdas",
        "value\n/ CPU",
        "value\n/ GPU",
        *(name.replace(".", "\n.") for name in younger),
    )
    table = Table(Column(no_wrap=True), *heads, title=found["paper"])
    for row in found["rows"]:
        slower = [f"{row['break_even_slowdown'][name]:.2f}x" for name in younger]
        usd = [dollars(row[key]) for key in ("cpu_usd", "gpu_usd", "lambda_usd", "implied_lambda_usd")]
        table.add_row(row["name"], *usd, f"{row['value_vs_cpu']:.2f}", f"{row['value_vs_gpu']:.2f}", *slower)
    console.print(table)
    console.print("Lambdas: those of the line's dollars that its servers do not explain. " + _slower(found, younger))
    others = Table("to a lower accuracy", "system", "seconds", "dollars", "Dorylus' value / its own")
    for row in found["systems"]:
        amounts = (f"{row['seconds']:.0f}", dollars(row["usd"]), f"{row['dorylus_value_vs']:.2f}")
        others.add_row(row["name"], row["system"], *amounts)
    console.print(others)
    region, as_of = {(price["region"], price["as_of"]) for price in found["prices"].values()}.pop()
    prices = ", ".join(f"{name} ${price['usd_per_hour']:g}" for name, price in found["prices"].items())
    console.print(f"dollars an hour in {region} on {as_of}: {prices}")


def _slower(found: dict[str, Any], names: Sequence[str]) -> str:
    alone = " and ".join(f"{found['prices'][name]['slowdown']:.2f}x for {name}" for name in names)
    return (
        f"{', '.join(names)}: how many times the V100's time as many of them may take for the Lambdas' value; for the V100's "
        f"own value it is {alone}."
    )
