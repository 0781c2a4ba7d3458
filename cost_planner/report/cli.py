"""``siafu report``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from cost_planner.plan.calibration import Calibration
from cost_planner.report import reading
from cost_planner.report.reading import Run
from cost_planner.value import finding, judge
from cost_planner.value.judge import StandIn
from cost_planner.value.rows import OnMachines
from siafu import extras, outputs
from siafu.errors import ConfigError
from siafu.pricing import prices

NAME = "report.html"
#: What processes of this machine are priced as if nobody says: Dorylus' graph servers, and AWS' smallest GPU machine.
GPU_STAND_IN = "g4dn.xlarge"

EXAMPLES = """examples:
  siafu report runs/20261122-044303-digits-gcn-pipe      write a page and Markdown into the run directory
  siafu report runs/*cora* --out cora.html               compare contenders on one graph: cora.html, cora.md
  siafu report runs/*cora* --target 0.8 --as c7g.xlarge --as-gpu g4dn.xlarge --relative-to vanilla

The page needs no network and can be printed. Runs that differ only in seeds are repetitions of one contender.
The report says which data a missing figure needs; timelines need siafu train --trace.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu report RUN [RUN ...] [--out FILE|FOLDER] [--target SCORE] [--as INSTANCE]"
    parser.description = "Write one HTML page, and a Markdown file, that compare the score, time and cost of runs."
    parser.epilog = EXAMPLES
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="directories of runs on one graph")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE|FOLDER",
        help=f"FILE.html, or a folder for {NAME} [the run's directory; of several runs ./{NAME}]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: files, figures and the comparison")
    judge.add_arguments(
        parser,
        target="the highest that all runs reach",
        as_gpu=f"a server with a GPU, or a baseline's ranks [cloud.gpu_instance, else {GPU_STAND_IN}]",
    )


def main(args: argparse.Namespace) -> int:
    try:
        from cost_planner.report import figures, page
        from cost_planner.report.compared import Compared
    except ModuleNotFoundError as error:
        if error.name not in ("matplotlib", "jinja2", "markupsafe"):
            raise
        raise ConfigError(f"it needs {error.name}, which is not installed: {extras.install('plot')}") from None
    out = _out(args.out, args.runs)
    outputs.check_file_in_folder("--out", out)
    prices.use(args.prices)
    runs = reading.read(args.runs)
    stand_in = StandIn(args.stand_in, args.as_param, args.as_gpu or _gpu(runs))
    judged = judge.judged(
        [run.contender for run in runs], stand_in, target=args.target, split=args.split, beside=args.relative_to
    )
    there: OnMachines = {
        **judged,
        "stand_in": stand_in.to_dict(),
        "machines": sorted({run.contender.machine for run in runs} - {""}),
    }
    found = Compared(runs, {**there, "finding": finding.of(there)}, stand_in)
    made, left_out = figures.draw(found)
    written = page.write(found, made, left_out, Calibration.load(), out)
    if args.json:
        files, names = [str(file) for file in written], [one.name for one in made]
        print(json.dumps({"files": files, "figures": names, "left_out": left_out, "judged": found.judged}))
        return 0
    for title, why in left_out.items():
        print(f"left out    {title}: {why}")
    print(f"written     {written[0]}, {written[1]}, and {len(made)} figures in {written[-1].parent}")
    return 0


def _gpu(runs: Sequence[Run]) -> str:
    """The machine that prices GPUs without --as-gpu: the configs' own, if they agree."""
    named = {run.config.cloud.gpu_instance for run in runs if run.has_gpu}
    if len(named) < 2:
        return next(iter(named), "") or (GPU_STAND_IN if named else "")
    return GPU_STAND_IN if "" in named else ""


def _out(asked: Path | None, runs: list[Path]) -> Path:
    """The path of the page's file."""
    if asked is None:
        return runs[0] / NAME if len(runs) == 1 else Path(NAME)
    if asked.suffix == ".html" and not asked.is_dir():
        return asked
    if asked.is_dir() or not asked.suffix:
        return asked / NAME
    raise ConfigError(f"--out {asked}: must end with .html, or be a folder")
