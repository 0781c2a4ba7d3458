"""``python -O`` drops assertions, so that none may do work: every shipped assertion is read."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from tests.test_imports import ROOMS

TREE = Path(__file__).parents[1]
#: Calls that leave everything as it was. Another name is added here only once its function has been read.
WITHOUT_EFFECT = {"isinstance", "len", "list", "set", "values", "setting", "num_endpoints"}


def doing_work(source: str) -> list[str]:
    """The conditions of assertions that call what may have an effect, or assign."""
    conditions = [node.test for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]
    return [
        ast.unparse(condition)
        for condition in conditions
        for part in ast.walk(condition)
        if isinstance(part, ast.NamedExpr | ast.Await | ast.Yield)
        or (isinstance(part, ast.Call) and ast.unparse(part.func).rpartition(".")[2] not in WITHOUT_EFFECT)
    ]


def test_no_assertion_does_work() -> None:
    files = [file for room in ROOMS for file in sorted((TREE / room).rglob("*.py"))]
    assert len(files) > 300
    asserting = {str(file): text for file in files if "assert" in (text := file.read_text())}
    assert {file: found for file, text in asserting.items() if (found := doing_work(text))} == {}


def test_work_in_an_assertion_is_found() -> None:
    assert doing_work("assert seen.setdefault(1, x) is x\nassert (n := 3)\nassert len(x) == 2") == [
        "seen.setdefault(1, x) is x",
        "(n := 3)",
    ]


def test_messages_are_known_without_assertions() -> None:
    counted = [
        subprocess.run(
            [sys.executable, *flags, "-c", "from siafu import wire; print(len(wire.MESSAGES))"],
            env={**os.environ, "PYTHONPATH": str(TREE)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for flags in ([], ["-O"], ["-OO"])
    ]
    assert len(set(counted)) == 1
    assert int(counted[0]) > 30
