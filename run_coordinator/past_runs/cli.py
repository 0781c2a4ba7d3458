"""``siafu runs``: a table of the runs in a folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from run_coordinator import live_status
from run_coordinator.past_runs import PastRun, PastRuns, Trials, columns_of, deployments, read, runs
from run_coordinator.past_runs.deployments import DeployedRun
from siafu.metrics import TITLES

EXAMPLES = """State "broken off": the run was killed, crashed or ran elsewhere; siafu resume continues it.
"diverged": its loss became NaN or infinite; siafu resume with another train.lr continues it.
Scores are those of the best weights; for a folder of seeds, mean and standard deviation.
Runs of deployments made from this machine are listed too: siafu attach RUN fetches one.

examples:
  siafu runs
  siafu runs experiments --graph cora
  siafu runs --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu runs [FOLDER] [--graph NAME] [--json]"
    parser.description = "List the runs in a folder: date, graph, model, state, epochs, scores, time and cost."
    parser.epilog = EXAMPLES
    parser.add_argument("folder", nargs="?", default="runs", metavar="FOLDER", help="where run directories are [runs]")
    parser.add_argument("--graph", default="", metavar="NAME", help="only runs on this graph")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    folder = Path(args.folder)
    deployed, left_out = deployments.listed()
    found = runs(folder) if folder.is_dir() or not deployed else PastRuns()
    away = deployments.not_fetched(deployed, [run for one in found for run in one.runs])
    there = [one for one in away if args.graph in ("", one.graph)]
    shown = [one for one in found if not args.graph or args.graph in graphs_of(one)]
    if args.json:
        told = {"runs": [one.to_dict() for one in shown], "deployed": [one.to_dict() for one in there]}
        print(json.dumps({"folder": args.folder, **told}))
    elif shown or there:
        show(shown, there, folder, Console(markup=False))
    else:
        print(f"{args.folder}: no runs" + (f" on {args.graph}" if args.graph else ""))
    for line in left_out:
        print(line, file=sys.stderr)
    return 0


def graphs_of(one: PastRun | Trials) -> set[str]:
    return {graph for run in one.runs for graph in (run.graph, run.config.data.source)}


#: The columns that a narrow terminal is left, the first ones first.
FIRST = ("run", "state", "test", "where", "graph", "time", "date", "model", "validation", "epochs", "cost")
WORDS = ("run", "date", "where", "graph", "model", "state")


def show(found: Sequence[PastRun | Trials], deployed: Sequence[DeployedRun], folder: Path, console: Console) -> None:
    told_there = {one.local.dir for one in deployed if one.local}
    rows = [one.cells(folder) for one in found if one.dir not in told_there]
    rows += [one.cells(folder) for one in deployed]
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = columns_of(rows)
    fit = fitting(rows, [name for name in FIRST if name in columns], console.width)
    shown = [name for name in columns if name in fit]
    for name in shown:
        widest = most_of(console.width) if name == "run" else None
        table.add_column(name, justify="left" if name in WORDS else "right", overflow="fold", max_width=widest)
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    console.print(table)
    if names := [one.run for one in deployed if one.told["state"] == "done"]:
        console.print(f"siafu attach {names[-1]} fetches a run", soft_wrap=True, highlight=False)
    metrics = {run.metric for one in found for run in one.runs}
    if others := sorted(TITLES[metric] for metric in metrics if metric and metric != "accuracy"):
        console.print(f"scores are accuracies, or {', '.join(others)} where a graph has no classes to tell apart")


def status_of(path: Path, *, as_json: bool) -> None:
    """Prints the row of one run directory, and the phase of a running run, for ``siafu status RUN``. Raises:
    ConfigError if it is no run directory."""
    found = read(path)
    running = {run.dir: live_status.read(run.dir) for run in found.runs if run.state == "running"}
    if as_json:
        print(json.dumps({**found.to_dict(), "running": {str(run_dir): told for run_dir, told in running.items()}}))
        return
    show([found], [], path.parent, Console(markup=False))
    for run_dir, told in running.items():
        print(f"{run_dir}: {told.get('phase', 'running')}, {told.get('tasks_in_flight') or 0} tasks in flight")


def most_of(width: int) -> int:
    """The widest column of run names on a terminal; longer names are folded, or they would push out every other
    column."""
    return max(24, width // 2)


def fitting(rows: Sequence[Mapping[str, str]], first: Sequence[str], width: int, gap: int = 2) -> list[str]:
    """The first columns of ``first`` that fit in ``width``; at least one."""
    chosen: list[str] = []
    widest = most_of(width)
    for name in first:
        wide = max(len(name), *(len(row[name]) for row in rows))
        width -= (min(wide, widest) if name == "run" else wide) + gap * bool(chosen)
        if width < 0 and chosen:
            break
        chosen.append(name)
    return chosen
