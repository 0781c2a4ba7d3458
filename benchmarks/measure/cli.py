"""``python -m benchmarks measure``: one measurement, as a table or as one JSON object."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Column, Table

from benchmarks.measure import Measurement

#: What is measured -> the module that does it, with ``add_arguments(parser)`` and ``measure(args) -> Measurement``.
MEASURES = {
    "gather": "benchmarks.measure.gather",
    "epoch": "benchmarks.measure.epoch",
    "roofline": "benchmarks.measure.roofline",
    "prepare": "benchmarks.measure.prepare",
    "wire": "benchmarks.measure.wire",
    "memory": "benchmarks.measure.memory",
    "scaling": "benchmarks.measure.scaling",
    "autotune": "benchmarks.measure.autotune",
    "checkpoint": "benchmarks.measure.checkpoint",
}

HELP = {
    "gather": "the aggregation of one layer, beside DGL, PyG, torch, SciPy, and the limit of this machine's memory",
    "epoch": "whole training epochs in one process, beside DGL and PyG; --servers: what servers and Lambdas add",
    "roofline": "every step of an epoch, of every model, beside what memory, products and reading of rows allow",
    "prepare": "from an edge list to shards: rate, memory, and how well each partitioner cuts",
    "wire": "messages and bytes per second over each transport",
    "memory": "a run's peak memory, predicted and measured",
    "scaling": "time per edge as graphs grow, per task and epoch as intervals shrink, per epoch as partitions get more",
    "autotune": "whether the autotuner finds the number of Lambdas that a sweep finds best, on a simulated fleet",
    "checkpoint": "what saving a training state costs, beside a plain write to the same disk",
}

EXAMPLES = """examples:
  python -m benchmarks measure gather --graph 'synthetic:reddit-small?scale=0.05' --widths 16,64,128 --threads 2
  python -m benchmarks measure gather --graph 'synthetic:reddit-small?scale=0.05' --skew
  python -m benchmarks measure epoch --graph 'synthetic:reddit-small?scale=0.05' --model gcn --hidden 128 --layers 2
  python -m benchmarks measure epoch --graph 'synthetic:reddit-small?scale=0.05' --model gcn --servers --json
  python -m benchmarks measure roofline --graph 'synthetic:reddit-small?scale=0.25' --models gcn,gat
  python -m benchmarks measure prepare
  python -m benchmarks measure wire
  python -m benchmarks measure memory
  python -m benchmarks measure scaling
  python -m benchmarks measure autotune
  python -m benchmarks measure checkpoint --sizes 1,10,100

DGL and PyG are installed once, in an environment of their own below ~/.cache/siafu (2 GB).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "python -m benchmarks measure WHAT [--FLAG VALUE ...]"
    parser.description = "Measure one part of siafu beside its peers and this machine's limits, in interleaved rounds."
    parser.epilog = EXAMPLES
    subjects = parser.add_subparsers(
        dest="what", metavar="WHAT", title="what", required=True, prog="python -m benchmarks measure"
    )
    for name, text in HELP.items():
        subject = subjects.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        subject.add_argument("--json", action="store_true", help="print one JSON object")
        subject.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        _load_when_chosen(subject, MEASURES[name])


def _load_when_chosen(subject: argparse.ArgumentParser, module: str) -> None:
    """Lets the module add its flags once the words after its name are parsed, and not before; names unknown ones."""
    parse = subject.parse_known_args

    def parse_known_args(*words: Any) -> Any:
        subject.parse_known_args = parse  # type: ignore[method-assign]
        importlib.import_module(module).add_arguments(subject)
        args, unknown = parse(*words)
        if unknown:
            subject.error(f"unknown argument {unknown[0]}")
        return args, unknown

    subject.parse_known_args = parse_known_args  # type: ignore[method-assign,assignment]


def main(args: argparse.Namespace) -> int:
    found: Measurement = importlib.import_module(MEASURES[args.what]).measure(args)
    if args.json:
        print(json.dumps({"title": found.title, "rows": found.rows, **found.summary}))
    else:
        show(found, Console(width=None if sys.stdout.isatty() else 140, soft_wrap=False))
    return 0


def show(found: Measurement, console: Console) -> None:
    """The table, and below it one line per figure of the summary."""
    headings = (Column(name.replace("_", " "), no_wrap=not place) for place, name in enumerate(found.columns))
    table = Table(*headings, title=found.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for row in found.rows:
        table.add_row(*(shown(row.get(column)) for column in found.columns))
    console.print(table)
    for name, value in found.summary.items():
        console.print(f"{name}: {shown(value)}", highlight=False, markup=False)


def shown(value: Any) -> str:
    """A cell: three significant digits for what was measured, everything for what was counted."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown(part)}" for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(shown, value))
    return str(value)
