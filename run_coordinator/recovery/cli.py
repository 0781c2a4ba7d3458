"""``siafu resume``."""

from __future__ import annotations

import argparse
from pathlib import Path

from run_coordinator import cli, run_config
from run_coordinator.recovery import resume
from siafu.progress import Display
from siafu.run_files import CONFIG

EXAMPLES = """examples:
  siafu resume runs/20261122-cora-gcn-pipe                 from its newest checkpoint, with its settings
  siafu resume runs/big --budget 5 --max-time 2h           limits cover the whole run, with what is already spent
  siafu resume runs/big --parts 4 --param-servers 2        on other servers
  siafu resume runs/big --epochs 400                       more epochs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu resume RUN [--FLAG VALUE ...]"
    parser.description = "Continue a run that a limit, a crash, a kill or Ctrl-C stopped, from its newest checkpoint."
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", help="the run's directory")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object with the result, as siafu train does"
    )
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change any setting; may be repeated"
    )
    anew = parser.add_argument_group("settings of siafu train to change")
    for name in resume.FLAGS:
        cli.add_flag(anew, name, run_config.SHORT[name], told_default="as before")


def main(args: argparse.Namespace) -> int:
    short = {name: getattr(args, name) for name in resume.FLAGS if getattr(args, name) is not None}
    settings = run_config.settings_of(args.set)
    if (file := Path(args.run) / CONFIG).is_file():
        run_config.check_code(file, settings)
    config = resume.resolve(Path(args.run), settings, short)
    with Display(cli.title(config), config.train.epochs, quiet=args.quiet) as display:
        run = resume.resume(args.run, settings=settings, on_status=display, **short)
    return cli.told(run, json_wanted=args.json, verb="resume")
