"""``siafu runs``: a table of the runs in a folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from run_coordinator.past_runs import COLUMNS, PastRun, Trials, runs
from siafu.metrics import TITLES

EXAMPLES = """A run that was broken off was killed or has crashed, or ran elsewhere: siafu resume goes on with it.
Scores are those of the kept weights; of many seeds, mean and standard deviation.
Runs of a deployment that nobody has fetched: siafu status.

examples:
  siafu runs
  siafu runs experiments --graph cora
  siafu runs --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu runs [FOLDER] [--graph NAME] [--json]"
    parser.description = "List the runs in a folder: what each trained, how far it came, what it scored and cost."
    parser.epilog = EXAMPLES
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="where run directories are [runs]")
    parser.add_argument("--graph", default="", metavar="NAME", help="only runs on this graph")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    found = [one for one in runs(args.folder) if not args.graph or args.graph in graphs_of(one)]
    if args.json:
        print(json.dumps({"folder": args.folder, "runs": [one.to_dict() for one in found]}))
    elif found:
        show(found, Path(args.folder), Console())
    else:
        print(f"{args.folder}: no runs" + (f" on {args.graph}" if args.graph else ""))
    return 0


def graphs_of(one: PastRun | Trials) -> set[str]:
    return {graph for run in one.runs for graph in (run.graph, run.config.data.source)}


#: The columns that a narrow terminal is left, the first ones first.
FIRST = ("run", "state", "test", "epochs", "time", "validation", "graph", "model", "cost")
WORDS = ("run", "graph", "model", "state")


def show(found: Sequence[PastRun | Trials], folder: Path, console: Console) -> None:
    rows = [one.cells(folder) for one in found]
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [name for name in COLUMNS if name in fitting(rows, FIRST, console.width)]
    for name in shown:
        table.add_column(name, justify="left" if name in WORDS else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    console.print(table)
    metrics = {run.metric for one in found for run in one.runs}
    if others := sorted(TITLES[metric] for metric in metrics if metric and metric != "accuracy"):
        console.print(f"scores are accuracies, or {', '.join(others)} where a graph has no classes to tell apart")


def fitting(rows: Sequence[Mapping[str, str]], first: Sequence[str], width: int, gap: int = 2) -> list[str]:
    """As many columns as are no wider together, the first ones first; at least one."""
    chosen: list[str] = []
    for name in first:
        width -= max(len(name), *(len(row[name]) for row in rows)) + gap * bool(chosen)
        if width < 0 and chosen:
            break
        chosen.append(name)
    return chosen
