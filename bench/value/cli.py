"""``siafu value``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from bench.value import judge, paper
from siafu.errors import ConfigError
from siafu.progress import dollars

PAPERS = ("dorylus",)
#: What a graph server is priced as if nobody says: Dorylus' own choice.
STAND_IN = "c5.2xlarge"
OLD_DAYS = 180
#: Of the table -> parts of a bill that it adds up; --json has each.
COLUMNS = {
    "Lambdas": ("lambda",), "servers": ("graph_servers", "param_servers"), "GPU": ("gpu",), "rest": ("volumes", "endpoints"),
}  # fmt: skip

EXAMPLES = """examples:
  siafu value runs/*cora*               runs of one graph: time, money and value to the score that all of them reach
  siafu value runs/*cora* --target 0.8 --as c7g.xlarge --as-gpu g4dn.xlarge --relative-to 'cpu pipe'
  siafu value --paper dorylus           what its authors measured, at their prices and with the GPUs of today

Runs of one name (backend, mode and staleness, or a baseline's method) are repetitions, whose medians are
shown. A run on this machine is priced as if every server had been the machine that --as names.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "siafu value RUN [RUN ...] [--target SCORE] [--as INSTANCE]\n       siafu value --paper NAME [--json]"
    )
    parser.description = "Judge by value for money, V = 1 / (time x dollars) to the same score."
    parser.epilog = EXAMPLES
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="directories of runs on one graph")
    parser.add_argument("--paper", choices=PAPERS, help="count again what a paper has published")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    group = parser.add_argument_group("judging")
    group.add_argument("--target", type=float, metavar="SCORE", help="score to reach [the highest that all runs reach]")
    group.add_argument("--split", choices=("train", "val", "test"), default="val", help="whose score [val]")
    group.add_argument("--relative-to", default="", metavar="NAME", help="contender whose value is 1 [the first]")
    group.add_argument(
        "--as",
        dest="stand_in",
        default=STAND_IN,
        metavar="INSTANCE",
        help=f"EC2 type that a graph server on this machine stands for [{STAND_IN}]",
    )
    group.add_argument("--as-param", default="", metavar="INSTANCE", help="and a parameter server [as its config says]")
    group.add_argument(
        "--as-gpu", default="", metavar="INSTANCE", help="and a baseline's ranks, all on one [as its config says]"
    )


def main(args: argparse.Namespace) -> int:
    if args.paper:
        return _paper(args)
    if not args.runs:
        raise ConfigError(f"nothing to judge: RUN or --paper {PAPERS[0]}")
    contenders = [judge.read(run) for run in args.runs]
    graphs = sorted({one.config.data.source for one in contenders})
    if len(graphs) > 1:
        raise ConfigError(
            f"runs of {len(graphs)} graphs ({', '.join(graphs[:3])}): values are of one and the same task"
        )
    stand_in = judge.StandIn(args.stand_in, args.as_param, args.as_gpu)
    found = judge.judged(contenders, stand_in, target=args.target, split=args.split, beside=args.relative_to)
    found = {
        "source": graphs[0],
        "stand_in": {"graph": args.stand_in, "param": args.as_param, "gpu": args.as_gpu},
        **found,
    }
    if args.json:
        print(json.dumps(found))
    else:
        _show_runs(found)
    return 0


def _paper(args: argparse.Namespace) -> int:
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


def _show_runs(found: dict[str, Any]) -> None:
    console = Console(width=None if Console().is_terminal else 110)
    title = f"{found['source']}: to {found['target']:.4g} ({found['split']})"
    heads = ("time", "epochs", *COLUMNS, "dollars", "value")
    columns = [Column(name, justify="right", no_wrap=True) for name in heads]
    table = Table(Column(no_wrap=True), *columns, title=title)
    for row in found["rows"]:
        name = row["name"] + (f" ({row['reached']} of {row['runs']})" if row["runs"] > 1 or not row["reached"] else "")
        if row["cost"] is None:
            table.add_row(name, f"best {row['best']:.4g}", *[""] * (len(heads) - 1))
            continue
        parts = row["cost"]["parts"]
        usd = [sum(parts.get(part, 0.0) for part in column) for column in COLUMNS.values()]
        relative = "" if row["relative_value"] is None else f"{row['relative_value']:.2f}"
        shown = [dollars(amount) if amount else "" for amount in usd]
        table.add_row(
            name, f"{row['seconds']:.1f} s", f"{row['epochs']:g}", *shown, dollars(row["cost"]["usd"]), relative
        )
    console.print(table)
    bills = [row["cost"] for row in found["rows"] if row["cost"]]
    console.print(f"value: 1 / (time x dollars), {found['relative_to']} = 1")
    if any(row["stand_in"] for row in found["rows"]):
        graph = found["stand_in"]["graph"]
        console.print(
            f"a stand-in, no measurement of EC2: this machine's times, at the price of {graph} for each graph server"
        )
    if bills:
        as_of = min(bill["as_of"] for bill in bills)
        console.print(f"prices of {bills[0]['region']}, {as_of}{_age(as_of, date.today())}")


def _age(as_of: str, today: date) -> str:
    """A warning behind the date of prices that are old."""
    days = (today - date.fromisoformat(as_of)).days
    return f": {days} days old" if days > OLD_DAYS else ""


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
