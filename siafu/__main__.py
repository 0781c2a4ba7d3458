"""The command line: a table of verbs, loaded when called."""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
from collections.abc import Sequence

from siafu import __version__
from siafu.errors import GnnError

#: verb -> (module that has ``add_arguments(parser)`` and ``main(args) -> int``, what the verb does)
VERBS = {
    "prepare": ("datasets.cli", "turn a graph into shards on disk"),
    "train": ("bench.cli", "train a model"),
    "doctor": ("bench.doctor", "say what this machine can do"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a verb. Exit code 0; 1 for a failure; 2 for the user's mistake; 130 after Ctrl-C."""
    argv = list(sys.argv[1:] if argv is None else argv)
    args = _parse(argv)
    logging.basicConfig(level=logging.INFO if args.verbose else logging.WARNING, format="%(name)s: %(message)s")
    try:
        return int(importlib.import_module(VERBS[args.verb][0]).main(args))
    except GnnError as error:
        if getattr(args, "json", False):
            print(json.dumps({"error": str(error), "type": type(error).__name__}))
        print(f"siafu {args.verb}: {error}", file=sys.stderr)
        if args.verbose:
            for note in getattr(error, "__notes__", []):
                print(note, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"siafu {args.verb}: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="siafu", description="Full-graph GNN training on CPU servers and serverless tensor workers.",
        epilog="siafu VERB --help tells more. First try: siafu train digits",
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"siafu {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, what) in VERBS.items():
        verb = verbs.add_parser(name, help=what, formatter_class=argparse.RawDescriptionHelpFormatter)
        verb.add_argument("-v", "--verbose", action="store_true", help="log to stderr, and tracebacks of remote failures")
        if name == chosen:  # only then is its module needed
            importlib.import_module(module).add_arguments(verb)
    return parser.parse_args(argv)


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
