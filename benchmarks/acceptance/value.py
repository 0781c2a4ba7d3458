"""Issue 7, acceptance 4: ``siafu value`` on published and synthetic graphs, end to end, at the prices of today.

    python -m benchmarks.acceptance.value                             all graphs and contenders, 5 seeds: hours on two
                                                                      cores
    python -m benchmarks.acceptance.value --only cora --runs 1 --contenders 'cpu, lambda, vanilla'
    python -m benchmarks.acceptance.value --report                    the tables of what has been run already
    python -m benchmarks.acceptance.value --prices FILE               at other prices, such as siafu cost
                                                                      --refresh-prices writes

Each graph is one ``siafu value`` in a directory of its own below ``--dir``, so that a second call goes on where the
first was interrupted. Two graph servers each, and two ranks for a baseline; with ``--tune`` as many as are best for
each. A target is a validation score that ``cpu pipe`` reached here with room to spare, in about a third of the epochs
that are allowed. Exit code 1 if on any graph less than two contenders have reached the target.

What it does not show: machines are stand-ins, Lambdas share this machine's cores with the servers, and without a GPU
the baselines train on cores at a GPU's price. Every table says so below it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.acceptance import table
from siafu.__main__ import main as siafu
from siafu.pricing import prices

#: Of the synthetic graphs, which take minutes each: who computes on the whole graph.
FULL_GRAPH = (
    "lambda async, lambda async s=1, lambda pipe, lambda no-pipe, cpu pipe, cpu async, gpu pipe, vanilla, pipegcn "
    "smooth=FG, adaqp, sancus, cagnet"
)


class Case(NamedTuple):
    source: str
    target: float  # of validation
    epochs: int  # at most
    contenders: str
    settings: Mapping[str, Any]


#: The scales are small enough for two cores: 4,659 vertices of reddit-small's degrees, 46,000 of amazon's.
CASES = {
    "cora": Case("cora", 0.75, 200, "all", {"dropout": 0.5, "weight-decay": 5e-4, "feature-norm": "row"}),
    "amazon_computers": Case("amazon_computers", 0.84, 200, "all", {"hidden": 64, "dropout": 0.5}),
    "reddit-small": Case("synthetic:reddit-small?scale=0.02", 0.75, 240, FULL_GRAPH, {"hidden": 64, "lr": 0.03}),
    "amazon": Case("synthetic:amazon?scale=0.005", 0.9, 80, FULL_GRAPH, {"hidden": 64}),
}


def command(name: str, args: argparse.Namespace) -> list[str]:
    """Words of ``siafu value`` for a graph."""
    case, folder = CASES[name], args.dir / name
    judging = ["--as", args.stand_in, "--as-gpu", args.as_gpu, "--relative-to", "cpu pipe"]
    judging += ["--prices", args.prices] if args.prices else []
    if args.report:
        return ["value", str(folder), *judging]
    asked = {
        "target": case.target,
        "epochs": case.epochs,
        "runs": args.runs,
        "run-dir": folder,
        **case.settings,
    }
    asked |= {"tune": args.tune} if args.tune else {"parts": 2}
    flags = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
    return ["value", case.source, "--contenders", args.contenders or case.contenders, *flags, *judging]


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    missed = []
    for name in args.only:
        print(f"\n=== {name}", flush=True)
        code = siafu(command(name, args))
        if code:
            return code
        if not args.report:
            found = json.loads((args.dir / name / "value.json").read_text())
            missed += [name] * (sum(row["value"] is not None for row in found["rows"]) < 2)
    if missed:
        table.say(f"less than two contenders reached the target of {', '.join(missed)}")
    return 1 if missed else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = table.parser(
        __doc__,
        only=(list(CASES), "graphs; cora of $SIAFU_DATA"),
        runs=(5, "seeds of each contender"),
        tune=(0, "learning rates that are tried for each contender first, on its cluster"),
        contenders=("", "as of siafu value, instead of a graph's own; cpu pipe among them"),
        as_gpu=("g4dn.xlarge", "that of a GPU, and of all ranks of a baseline"),
        dir=Path("runs/value"),
        report=(False, "run nothing"),
    )
    parser.add_argument("--as", dest="stand_in", default="c7g.xlarge", help="a graph server's machine")
    prices.add_argument(parser)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
