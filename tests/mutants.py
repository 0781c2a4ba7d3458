"""Mutation check of the servers' rooms: one small fault at a time is put into a copy of
the tree, and the tests must fail.

    .venv/bin/python -m tests.mutants --count 60 --seed 19 --out /tmp/mutants.jsonl

Each line of the output is one mutant, with the test that killed it. A run goes on where the file ends. A survivor wants
a test, or dead code wants deleting.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOMS = ("graph_server", "param_server", "lambda_funcs")
ROOT = Path(__file__).parent.parent
SWAPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}
LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)
SPEECH = {"print", "debug", "info", "warning", "error", "exception"}  # what is only said changes no run

#: A round of tests that takes longer is a kill by time: a loop that no longer ends.
ROUND_S = 300
TEST_S = 100


@dataclass(frozen=True)
class Mutant:
    """Bytes ``start`` to ``end`` of ``path`` become ``new``."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    def applied(self, source: bytes) -> bytes:
        """``source`` with the fault. ValueError when it is not the text the mutant was drawn from."""
        if source[self.start : self.end] != self.old.encode():
            raise ValueError(
                f"{self.path}:{self.line} has changed since the mutants were drawn: draw again into a new file"
            )
        return source[: self.start] + self.new.encode() + source[self.end :]


class Sites(ast.NodeVisitor):
    """Every mutant of one file. Annotations, docstrings and the text of errors have none."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Mutant]()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.visit(ast.parse(source))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def add(self, kind: str, node: ast.expr | ast.stmt, start: int, end: int, new: str) -> None:
        self.found.append(Mutant(self.path, node.lineno, kind, start, end, self.source[start:end].decode(), new))

    def replace(self, kind: str, node: ast.expr | ast.stmt, new: str) -> None:
        self.add(kind, node, *self.span(node), new)

    def swap(self, kind: str, op: ast.AST, left: ast.expr, right: ast.expr) -> None:
        """Another operator between ``left`` and ``right``."""
        if (pair := SWAPS.get(type(op))) is not None:
            start, end = self.span(left)[1], self.span(right)[0]
            between = self.source[start:end].decode()
            self.add(kind, left, start, end, between.replace(pair[0], pair[1], 1))

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.body[-1], LEAVES) and "__name__" not in ast.unparse(node.test):
            self.replace("removed check", node.test, "False")
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        if ast.unparse(node.test).endswith("is not None"):  # there for mypy
            return
        self.replace("removed check", node, "pass")
        self.visit(node.test)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for value in node.values:
            self.replace("dropped operand", value, str(isinstance(node.op, ast.And)))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for op, left, right in zip(node.ops, [node.left, *node.comparators[:-1]], node.comparators, strict=True):
            self.swap("swapped comparison", op, left, right)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = (ast.JoinedStr, ast.List, ast.Tuple)
        text = any(
            isinstance(side, texts) or isinstance(getattr(side, "value", 0), str | bytes)
            for side in (node.left, node.right)
        )
        if not text:
            self.swap("swapped sign", node.op, node.left, node.right)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            self.replace("swapped comparison", node.func, {"min": "max", "max": "min"}[node.func.id])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.replace("dropped not", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is int:
            self.replace("constant off by one", node, str(node.value + 1))

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            func = node.value.func
            if (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) in SPEECH:
                return
            self.replace("dropped line", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self.replace("dropped line", node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.replace("dropped line", node, "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for part in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None), *node.body):
            self.visit(part)

    def visit_Raise(self, node: ast.Raise) -> None: ...

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None: ...


def drawn(count: int, seed: int, only: str) -> list[Mutant]:
    """``count`` mutants, each site of the three rooms as likely as any other."""
    files = sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    sites = [
        mutant for path in files if path.startswith(only) for mutant in Sites(path, (ROOT / path).read_bytes()).found
    ]
    return random.Random(seed).sample(sites, min(count, len(sites)))


def rounds(tree: Path, path: str) -> Iterator[tuple[str, list[str]]]:
    """Tests from the nearest to the farthest, each file once."""
    room, stem = path.split("/")[0], Path(path).stem
    stem = Path(path).parent.name if stem == "__init__" else stem
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    head, _, tail = module.rpartition(".")
    imports = re.compile(
        rf"from {re.escape(module)} import|import {re.escape(module)}\b|from {re.escape(head)} import [^\n]*\b{tail}\b"
    )
    every = sorted(str(p.relative_to(tree)) for p in (tree / "tests").rglob("test_*.py"))
    fleets = [test for test in every if "tests.fleet import" in (tree / test).read_text()]
    steps = {
        "mirror": [
            test for test in every if test.startswith(f"tests/{room}/") and Path(test).stem.startswith(f"test_{stem}")
        ],
        "room": [test for test in every if test.startswith(f"tests/{room}/")],
        "importers": [test for test in every if imports.search((tree / test).read_text())],
        "fleets": fleets,
        "contracts": [test for test in every if test.startswith(("tests/contracts/", "tests/chaos/"))],
        "integration": [test for test in every if test.startswith("tests/integration/")],
    }
    done = set[str]()
    for name, tests in steps.items():
        if left := [test for test in tests if test not in done]:
            yield name, left
        done.update(tests)


def tested(copy: Path, tests: list[str]) -> str | None:
    """The test that fails first, or "time". Runs in a fork, which has numpy, zmq, torch and pytest loaded already."""
    log = copy.parent / "log"
    if (pid := os.fork()) == 0:
        os.setsid()
        with log.open("wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        os.chdir(copy)
        os.environ["PYTHONPATH"] = str(copy)
        sys.path[:] = [str(copy), *(entry for entry in sys.path if Path(entry or ".").resolve() != ROOT)]
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        import pytest

        code = 3
        try:
            which = ("-m", "(sampled or not long) and not slow and not gpu and not aws")
            told = ("-xq", "--tb=line", "-rfE", f"--timeout={TEST_S}", "-p", "no:cacheprovider")
            code = pytest.main([*which, *told, *tests])
        finally:
            os._exit(code)  # whatever was raised: the copy is not this process's to remove
    end = time.monotonic() + ROUND_S
    while (status := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.1)
    if status[0] == 0:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return "time"
    if os.waitstatus_to_exitcode(status[1]) in (0, 5):  # 5: the file's tests are all of them slow, or want a GPU
        return None
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", log.read_text(errors="replace"), re.MULTILINE)
    return failed[0] if failed else f"exit {status[1]}"


def judged(copy: Path, mutant: Mutant) -> dict[str, str | float | None]:
    """The round and the test that killed ``mutant``; both None for a survivor."""
    target, began = copy / mutant.path, time.monotonic()
    source = target.read_bytes()
    shutil.rmtree(target.parent / "__pycache__", ignore_errors=True)  # told apart by whole seconds and size: too coarse
    target.write_bytes(mutant.applied(source))
    try:
        for name, tests in rounds(copy, mutant.path):
            if (killer := tested(copy, tests)) is not None:
                return {"round": name, "killer": killer, "seconds": round(time.monotonic() - began, 1)}
        return {"round": None, "killer": None, "seconds": round(time.monotonic() - began, 1)}
    finally:
        target.write_bytes(source)
        shutil.rmtree(target.parent / "__pycache__", ignore_errors=True)


def main() -> None:
    """Draws, and runs those that the output does not have yet."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--only", default="", help="a path, or the beginning of one")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "mutants.jsonl")
    args = parser.parse_args()
    import numpy, pytest, scipy.sparse, torch, zmq  # noqa: E401, F401, I001

    done = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    known = {(line["path"], line["start"], line["new"]) for line in done}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "tree"
        files = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
        for file in [*files, *(str(path.relative_to(ROOT)) for path in (ROOT / "siafu").rglob("*.so"))]:
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, copy / file)
        for mutant in drawn(args.count, args.seed, args.only):
            if (mutant.path, mutant.start, mutant.new) in known:
                continue
            line = asdict(mutant) | judged(copy, mutant)
            with args.out.open("a") as out:
                out.write(json.dumps(line) + "\n")
            print(
                f"{mutant.path}:{mutant.line} {mutant.kind}: {mutant.old!r} -> {mutant.new!r}: "
                f"{line['killer'] or 'SURVIVED'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
