"""``siafu runs``: a table of the runs in a folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from run_coordinator.past_runs import PastRun, Trials, runs
from run_coordinator.repeat import plus_minus
from siafu.metrics import TITLES
from siafu.progress import dollars, duration, written
from siafu.run_files import Split

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
    if isinstance(one, PastRun):
        return {one.graph, one.config.data.source}
    return {graph for run in one.runs for graph in graphs_of(run)}


#: Columns of the table, and which of them a narrow terminal is left, the first ones first.
COLUMNS = ("run", "graph", "model", "state", "epochs", "validation", "test", "time", "cost")
FIRST = ("run", "state", "test", "epochs", "time", "validation", "graph", "model", "cost")
WORDS = ("run", "graph", "model", "state")


def show(found: Sequence[PastRun | Trials], folder: Path, console: Console) -> None:
    rows = [_of_run(one, folder) if isinstance(one, PastRun) else _of_trials(one, folder) for one in found]
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [name for name in COLUMNS if name in fitting(rows, FIRST, console.width)]
    for name in shown:
        table.add_column(name, justify="left" if name in WORDS else "right", overflow="fold")
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    console.print(table)
    metrics = {run.metric for one in found for run in ([one] if isinstance(one, PastRun) else one.runs)}
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


def _of_run(run: PastRun, folder: Path) -> dict[str, str]:
    return {
        "run": str(run.dir.relative_to(folder)),
        "graph": run.graph,
        "model": run.model,
        "state": run.state,
        "epochs": str(run.epochs),
        "validation": written(run.score("val")),
        "test": written(run.score("test")),
        "time": time_of(run.seconds),
        "cost": money_of(run.usd),
    }


def _of_trials(trials: Trials, folder: Path) -> dict[str, str]:
    """Times and costs are of all runs together; scores are means where the runs differ by their seeds alone."""
    finished = sum(run.state == "finished" for run in trials.runs)
    seconds = [run.seconds for run in trials.runs if run.seconds is not None]
    usd = [run.usd for run in trials.runs if run.usd is not None]
    return {
        "run": str(trials.dir.relative_to(folder)),
        "graph": ", ".join({run.graph: 0 for run in trials.runs}),
        "model": ", ".join({run.model: 0 for run in trials.runs}),
        "state": f"{finished} finished" if finished == len(trials.runs) else f"{finished} of {len(trials.runs)}",
        "epochs": str(sum(run.epochs for run in trials.runs)),
        "validation": _mean(trials, "val"),
        "test": _mean(trials, "test"),
        "time": time_of(sum(seconds) if seconds else None),
        "cost": money_of(sum(usd) if usd else None),
    }


def _mean(trials: Trials, split: Split) -> str:
    found = trials.spread(split) if trials.of_seeds else None
    return plus_minus(found, 3) if found else "–"


def time_of(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def money_of(usd: float | None) -> str:
    return dollars(usd) if usd else "–"
