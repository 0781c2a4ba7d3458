"""``siafu search``."""

from __future__ import annotations

import argparse
import json

from rich.console import Console
from rich.table import Table

from run_coordinator import cli, run_config, search_space
from run_coordinator.search import Search, search
from siafu.errors import ConfigError
from siafu.parser import show_few
from siafu.progress import from_here

#: Rows of the table; search.json has all.
MOST_ROWS = 20

EXAMPLES = """examples:
  siafu search cora --grid hidden=16,32 --grid lr=0.01,0.005
  siafu search cora --model gat --preset paper --grid lr=0.01,0.005 --runs 3
  siafu search digits --random 20 --grid lr=1e-4..1e-1:log --grid dropout=0..0.8 --max-time 1h

--grid KEY=VALUES: a flag's name or a section.key, such as model.norm; values with commas,
or with --random a range LOW..HIGH (:log draws on a logarithmic scale). Points are ranked by their
validation score, never by the test score.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu search [SOURCE] --grid KEY=VALUES [--grid ...] [--random N] [--FLAG VALUE ...]"
    parser.description = (
        "Train with many settings and rank them by validation score. After an interruption, repeat the\n"
        "command to continue."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "source", nargs="?", default="", metavar="SOURCE", help="graph to train on; see siafu train --help-all"
    )
    group = parser.add_argument_group("search")
    group.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=VALUES",
        help="values of a setting to try; may be repeated; see below",
    )
    group.add_argument(
        "--random", type=int, default=0, metavar="N", help="draw N points instead of trying every combination"
    )
    group.add_argument("--search-seed", type=int, default=0, metavar="N", help="seed of the draws [0]")
    group.add_argument(
        "--runs", type=int, default=1, metavar="K", help="seeds per point; points are ranked by their mean [1]"
    )
    cli.add_jobs(group)
    cli.add_settings(parser)
    show_few(parser, EXAMPLES, ["--grid", "--random", "--runs", "--jobs"])


def main(args: argparse.Namespace) -> int:
    config, over = cli.asked(args), _over(args.grid)
    with cli.going_on(), cli.progress_of_many(args, _num_runs(args, over)) as (watch, on_done):
        found = search(
            over=over,
            random=args.random,
            seed=args.search_seed,
            runs=args.runs,
            jobs=args.jobs,
            config=config,
            watch=watch,
            on_done=on_done,
        )
    if args.json:
        print(json.dumps(found.to_dict()))
    elif found.points:
        _show(found)
    return cli.incomplete(f"siafu search: {len(found.points)} of {found.num_asked} points", found.complete)


def _num_runs(args: argparse.Namespace, over: dict[str, str]) -> int:
    flags = [name for name in run_config.SHORT if getattr(args, name) is not None]
    fixed = run_config.keys_said(run_config.settings_of(args.set), flags)
    points = search_space.points(search_space.parse(over, fixed), args.random, args.search_seed)
    return len(points) * int(args.runs)


def _over(grids: list[str]) -> dict[str, str]:
    over = {}
    for grid in grids:
        key, equals, values = grid.partition("=")
        if not equals:
            raise ConfigError(f"--grid {grid}: must be KEY=VALUES")
        if key in over:
            raise ConfigError(f"--grid {key}: is there twice, give all its values in one")
        over[key] = values
    return over


def _show(found: Search) -> None:
    """Prints the table, and how to train with the best settings."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in found.headings():
        table.add_column(heading, justify="right")
    for number, point in enumerate(found.points[:MOST_ROWS]):
        table.add_row(*point.cells(), style="bold" if number == 0 and not point.diverged else None)
    Console(markup=False).print(table)
    if (more := len(found.points) - MOST_ROWS) > 0:
        print(f"and {more} more in search.json")
    if found.has_best:
        settings = " ".join(
            f"--set '{key}={search_space.written(value)}'" for key, value in found.best_settings.items()
        )
        print(f"best        {settings}")
    place = from_here(found.dir)
    print(f"saved in    {place}")
