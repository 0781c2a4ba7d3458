"""Acceptance 4: sources that cannot be prepared, and the line that a user sees.

    python -m benchmarks.acceptance.malformed [--only npz] [--markdown] [--json FILE]

Every case of ``tests/graph_data/malformed.py`` through the command line, in an empty folder: exit code 2, the one line
that the table there says, nothing left behind. Exit code 1 if any is otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.graph_data.malformed import CASES, Answer, Case, ask


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acceptance.malformed", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name or command contains it")
    parser.add_argument("--markdown", action="store_true", help="a table for a page")
    parser.add_argument("--json", metavar="FILE", help="write the answers there")
    args = parser.parse_args(argv)
    os.environ.pop("SIAFU_DATA", None)  # whose names a message lists
    answers = {case: _asked(case) for case in CASES if args.only in f"{case.name} {case.typed}"}
    if args.json:
        rows = [{"name": c.name, "typed": c.typed, "sound": _sound(c, a), **asdict(a)} for c, a in answers.items()]
        Path(args.json).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    _print_markdown(answers) if args.markdown else Console().print(_table(answers))
    sound = sum(_sound(case, answer) for case, answer in answers.items())
    print(f"{sound} of {len(answers)} malformed sources answered by the line expected", file=sys.stderr)
    return 0 if sound == len(answers) else 1


def _asked(case: Case) -> Answer:
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return ask(case, Path(folder))
        finally:
            os.chdir(here)


def _sound(case: Case, answer: Answer) -> bool:
    """Whether it is answered as it should be; what a library says differs from version to version."""
    message = answer.messages[0] if len(answer.messages) == 1 else ""
    ours = case.message.removesuffix("…)")
    same = message == case.message if ours == case.message else message.startswith(ours)
    return same and answer.exit_code == 2 and not answer.left


def _table(answers: dict[Case, Answer]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "what is wrong", "siafu prepare", "answer"):
        table.add_column(column, overflow="fold")
    for case, answer in answers.items():
        table.add_row("ok" if _sound(case, answer) else "BAD", case.name, case.typed, "\n".join(answer.messages))
    return table


def _print_markdown(answers: dict[Case, Answer]) -> None:
    print("| what is wrong | siafu prepare | answer (exit code 2) |\n|---|---|---|")
    for case, answer in answers.items():
        print(f"| {case.name} | `{case.typed}` | `{' '.join(answer.messages)}` |")


if __name__ == "__main__":
    sys.exit(main())
