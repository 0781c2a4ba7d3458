"""``siafu watch``."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from run_coordinator.watch import Folder
from run_coordinator.watch.server import Server
from siafu.errors import ConfigError

EXAMPLES = """The page changes nothing, and only this machine can open it. From another machine, forward the port of
siafu watch --port 8765: ssh -L 8765:127.0.0.1:8765 HOST. Ctrl-C ends the page, not the runs. A run with
siafu train --trace also has a timeline: each task of its last two epochs.

examples:
  siafu watch                         all runs in runs/, the newest first
  siafu watch runs/mine --no-browser
  siafu watch experiments --port 8765
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu watch [RUN|FOLDER] [--port N] [--no-browser]"
    parser.description = "Show runs live in the browser: curves, tasks in flight, where the time goes, cost."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "folder",
        nargs="?",
        default="runs",
        metavar="RUN|FOLDER",
        help="run directory, or a folder of run directories [runs]",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 [a free one]")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")


def main(args: argparse.Namespace) -> int:
    folder = Folder(Path(args.folder))
    folder.lines()  # what cannot be shown is said here
    if not 0 <= args.port < 1 << 16:
        raise ConfigError(f"--port {args.port}: must be 0 to 65535")
    try:
        server = Server(folder, args.port)
    except OSError as error:
        raise ConfigError(f"--port {args.port}: {error.strerror}") from None
    with server:
        print(f"watching {args.folder} at {server.url} (Ctrl-C ends)", flush=True)
        if not args.no_browser:
            webbrowser.open(server.url)
        server.serve_forever(poll_interval=0.2)
    return 0
