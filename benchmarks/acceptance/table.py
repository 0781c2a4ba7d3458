"""What every script of this room shares: flags, the file of finished runs, the table and its record."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def parser(doc: str | None, **flags: Any) -> argparse.ArgumentParser:
    """``name=default`` or ``name=(default, help)`` is ``--name``: False is a switch, several names are what may be
    chosen of, several numbers any. ``set`` is ``--set SECTION.KEY=VALUE``, and ``--json FILE`` is always there."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, told in {**flags, "json": (None, "write the figures there")}.items():
        default, text = told if isinstance(told, tuple) else (told, None)
        more: dict[str, Any] = {"type": type(default), "default": default}
        if default is False:
            more = {"action": "store_true"}
        elif name == "set":
            more = {"action": "append", "default": [], "metavar": "SECTION.KEY=VALUE"}
        elif isinstance(default, Path) or default is None:
            more = {"type": Path, "default": default, "metavar": "FILE"}
        elif not isinstance(default, str | int | float):
            choices = [one for one in default if isinstance(one, str)]
            more = {"nargs": "+", "default": list(default), "choices": choices or None}
            more["type"] = str if choices else int
        made.add_argument(f"--{name.replace('_', '-')}", help=text, **more)
    return made


def settings(args: argparse.Namespace) -> dict[str, str]:
    """Of ``--set``."""
    return dict(one.split("=", 1) for one in args.set)


class Results(dict[str, dict[str, Any]]):
    """Finished runs by key, a line of the file for each: a second call goes on where the first was interrupted."""

    def __init__(self, file: Path):
        lines = file.read_text().splitlines() if file.is_file() else []
        super().__init__({line["key"]: line for line in map(json.loads, lines)})
        self._file = file

    def add(self, key: str, found: Mapping[str, Any]) -> None:
        self[key] = {"key": key, **found}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(self[key]) + "\n")
        say(f"{key}: {dict(found)}")


def say(text: object) -> None:
    """How far it is, beside the results."""
    print(text, file=sys.stderr, flush=True)


def show(rows: Sequence[Mapping[str, Any]], title: str | None = None, red: Sequence[bool] = ()) -> None:
    """A row for each, a column for each of its names, numbers to four digits; ``red``: the row misses its bar."""
    table = Table(*(rows[0] if rows else ()), title=title)
    for number, row in enumerate(rows):
        cells = ("" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row.values())
        table.add_row(*map(str, cells), style="red" if number < len(red) and red[number] else "")
    Console(width=160).print(table)


def markdown(rows: Sequence[Mapping[str, Any]]) -> None:
    """The same for a page."""
    for cells in (rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows)):
        print("| " + " | ".join(map(str, cells)) + " |")


def record(file: Path | None, found: Any) -> None:
    """As JSON; None: nowhere."""
    if file is not None:
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False, default=str) + "\n")
