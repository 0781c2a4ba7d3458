"""``siafu logs``: prints the logs of a run on a deployment, by role, from all its machines."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.verbs.arguments import add_config, config_of, on_deployment
from siafu import extras
from siafu.config import Config
from siafu.errors import ConfigError

FOLLOW_S = 1.0
ROLES = ("coordinator", "graph_server", "param_server", "lambda")

EXAMPLES = """examples:
  siafu logs                                          of the newest run of the deployment
  siafu logs -f 20261121-060000-digits-gcn-pipe-0a1b2c
  siafu logs RUN --role graph_server --index 0
  siafu logs runs/20261121-060000-digits-gcn-pipe     of a run directory
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Print the logs of a run by role, from a deployment or from a run directory."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "run",
        nargs="?",
        default="",
        metavar="RUN",
        help="a run directory, or a run's name in siafu status [the newest]",
    )
    parser.add_argument("-f", "--follow", action="store_true", help="print new lines until the run ends")
    parser.add_argument("--role", choices=ROLES, default="", help="only this role")
    parser.add_argument("--index", type=int, metavar="I", help="with --role: only the server with this number")
    add_config(parser)


def main(args: argparse.Namespace) -> int:
    if args.index is not None and not args.role:
        raise ConfigError(f"--index {args.index} needs --role")
    wanted = _pattern(args.role, args.index)
    local = Path(args.run) if args.run else None
    if local is not None and local.is_dir():
        logs = list(_of_folder(local, wanted))
        for name, text in logs:
            _print(name, text)
        if not any(text for _, text in logs):
            print(f"{local}: nothing in {', '.join(name for name, _ in logs) or 'logs/'}", file=sys.stderr)
        return 0
    _follow(config_of(args), args.run, wanted, follow=args.follow)
    return 0


def _follow(config: Config, run: str, wanted: re.Pattern[str], *, follow: bool) -> None:
    """Prints the logs of a run on a deployment. Logs in run directories are printed without boto3."""
    with on_deployment(run):
        with extras.needed("aws"):
            from infra.machines import found, runfiles, runs
        mailbox = found.mailbox_of(config)
        asked = runs.named(mailbox, run)
    tail, begun = Tail(mailbox, runfiles.Listing(mailbox, asked.run, "logs/"), wanted), time.monotonic()
    while True:
        # Before we read: what was written last is there then.
        over = not follow or runs.end_of(mailbox, asked.run) is not None
        over = over or not runs.alive(mailbox, asked, runs.coordinator(mailbox))
        for name, text in tail.read():
            _print(name, text)
        sys.stdout.flush()
        if over:
            return
        time.sleep(runfiles.pace_s(time.monotonic() - begun, FOLLOW_S))


class Tail:
    """New lines of a run's logs."""

    def __init__(self, mailbox: Any, listing: Any, wanted: re.Pattern[str]):
        """Takes an ``infra.machines.mailbox.Mailbox``, and the ``Listing`` of the run's logs
        (``infra.machines.runfiles``)."""
        self._mailbox, self._wanted, self._listing = mailbox, wanted, listing
        # All mutable state:
        self._seen: set[str] = set()  # keys of pieces

    def read(self) -> Iterator[tuple[str, str]]:
        """The new text of each log, with the log's name."""
        for entry, path, _ in list(self._listing.entries()):
            if entry.key in self._seen or not self._wanted.fullmatch(path):
                continue
            self._seen.add(entry.key)
            yield path, (self._mailbox.get(entry.key) or b"").decode(errors="replace")


def _of_folder(run_dir: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Prints the logs in a run directory. ConfigError if it is none."""
    if not (run_dir / "logs").is_dir():
        raise ConfigError(f"{run_dir}: not a run directory: it has no logs/")
    for path in sorted((run_dir / "logs").rglob("*.log")):
        name = path.relative_to(run_dir).as_posix()
        if wanted.fullmatch(name):
            yield name, path.read_text(errors="replace")


def _pattern(role: str, index: int | None) -> re.Pattern[str]:
    """Paths of the role's logs; without a role, those of all roles but Lambdas, which are many."""
    number = r"\d+" if index is None else str(index)
    if role == "lambda":
        return re.compile(rf"logs/lambda-{number}/.*\.log" if index is not None else r"logs/lambda-.*\.log")
    if role == "coordinator":
        return re.compile(r"logs/coordinator\.log")
    return re.compile(rf"logs/{role}-{number}\.log" if role else r"logs/[^/]*\.log")


def _print(name: str, text: str) -> None:
    label = name.removeprefix("logs/").removesuffix(".log").replace("-", " ", 1)
    for line in text.splitlines():
        print(f"{label:16}| {line}")
