"""Acceptance 4: sources that cannot be prepared, and the line that a user sees.

    python -m benchmarks.acceptance.malformed [--only npz] [--markdown] [--json FILE]

Every case of ``tests/graph_data/malformed.py`` through the command line, in an empty folder: exit code 2, the one line
that the table there says, nothing left behind. Exit code 1 if any is otherwise.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.acceptance import table
from tests.graph_data.malformed import CASES, Answer, Case, ask


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__, only=("", "cases whose name or command contains it"), markdown=(False, "a table for a page")
    ).parse_args(argv)
    os.environ.pop("SIAFU_DATA", None)  # whose names a message lists
    answers = {case: _asked(case) for case in CASES if args.only in f"{case.name} {case.typed}"}
    rows = [{"name": c.name, "typed": c.typed, "sound": _sound(c, a), **asdict(a)} for c, a in answers.items()]
    table.record(args.json, rows)
    if args.markdown:
        print("| what is wrong | siafu prepare | answer (exit code 2) |\n|---|---|---|")
        for case, answer in answers.items():
            print(f"| {case.name} | `{case.typed}` | `{' '.join(answer.messages)}` |")
    else:
        table.show([{name: row[name] for name in ("sound", "name", "typed", "messages")} for row in rows])
    sound = sum(_sound(case, answer) for case, answer in answers.items())
    table.say(f"{sound} of {len(answers)} malformed sources answered by the line expected")
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


if __name__ == "__main__":
    sys.exit(main())
