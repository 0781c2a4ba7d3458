"""``siafu attach``: follows a run on a deployment from any laptop, and fetches its files."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path

from infra.verbs.arguments import add_config, config_of
from run_coordinator.cli import EXIT_AT_LIMIT
from run_coordinator.meter import LIMITS
from siafu import extras
from siafu.errors import ConfigError
from siafu.progress import Display, summary
from siafu.run_files import Result, write_result

EXAMPLES = """examples:
  siafu attach                                           follow the newest run
  siafu attach 20261121-060000-digits-gcn-pipe-0a1b2c
  siafu attach RUN --run-dir runs/mine --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Follow a run on a deployment to its end and fetch its run directory. Ctrl-C ends the run."
    parser.epilog = EXAMPLES
    parser.add_argument("run", nargs="?", default="", metavar="RUN", help="a run's name in siafu status [the newest]")
    parser.add_argument("--run-dir", metavar="DIR", help="folder for the run's files [runs/RUN]")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    config = config_of(args)
    with extras.needed("aws"):
        from infra.machines import found, remote, runs
        from infra.machines.mailbox import Mailbox
    there = found.find(config)
    mailbox = Mailbox(there.bucket, region=config.lambdas.region)
    asked = runs.named(mailbox, args.run)
    report = runs.coordinator(mailbox)
    if runs.end_of(mailbox, asked.run) is None and not runs.alive(mailbox, asked, report):
        raise ConfigError(
            f"run {asked.run} is lost: its coordinator does not run any more, and left no word; see siafu logs"
        )
    run_dir = Path(args.run_dir or f"runs/{asked.run}").resolve()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--run-dir {run_dir}: {error.strerror}") from error
    epochs = asked.request.get("epochs")
    with Display(asked.run, epochs if isinstance(epochs, int) else 0, quiet=args.quiet) as display:
        remote.mind_the_end(config, there, datetime.now(timezone.utc), display)
        trained = remote.follow(mailbox, asked.run, asked.order, run_dir, display)
    result: Result = {**trained, "run_dir": str(run_dir)}
    write_result(run_dir, result)
    print(json.dumps(result) if args.json else "\n".join(summary(result)))
    return EXIT_AT_LIMIT if result["stopped"] in LIMITS else 0
