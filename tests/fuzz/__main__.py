"""``python -m tests.fuzz TARGET --minutes 10 --seed 1``: fuzzes a parser, says what was
found, keeps it in tests/fuzz/found.

``python -m tests.fuzz tables --count 300``: tables with what goes wrong on the way, compared
with the graphs they were made of.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from tests.fuzz import mishaps
from tests.fuzz.inputs import CORPUS, FOUND, MENDED, name_of, size_of, store, unpack
from tests.fuzz.targets import TARGETS, target_of
from tests.fuzz.watch import Result, fuzz


def main(argv: list[str]) -> int:
    """0: nothing was found; 1: something was."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=[*TARGETS, "all", "tables"], help="all: one after the other, but for tables")
    parser.add_argument("--count", type=int, default=300, help="tables: files")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each target")
    parser.add_argument(
        "--keep", action="store_true", help="the smallest inputs of the same coverage become the corpus"
    )
    parser.add_argument(
        "--replay", metavar="NAME", help="runs one input of found/ or of the corpus, with its traceback"
    )
    asked = parser.parse_args(argv)
    if asked.target == "tables":
        return mishaps.main(asked.count, asked.seed)
    if asked.replay:
        return replay(asked.target, asked.replay)
    found = 0
    for name in TARGETS if asked.target == "all" else [asked.target]:
        result = fuzz(name, 60 * asked.minutes, asked.seed)
        for finding in result.findings:
            store(FOUND / name, finding.given)
        if asked.keep:
            keep(result)
        print(result.to_json() if asked.json else told(result), flush=True)
        found += len(result.findings)
    return 1 if found else 0


def told(result: Result) -> str:
    rate = result.executions / max(result.seconds, 1e-9)
    lines = [
        (
            f"{result.target}: {result.executions:,} runs in {result.seconds:.0f} s ({rate:,.0f} a second), seed "
            f"{result.seed}: {result.edges:,} edges, {result.inputs} inputs that took new ones ({len(result.corpus)} "
            f"take them all), {len(result.findings)} findings"
        )
    ]
    for finding in result.findings:
        lines.append(f"  {finding.what}: --replay {name_of(finding.given)} ({size_of(finding.given)} bytes)")
        lines += [f"    {line}" for line in finding.detail.strip().splitlines()[-3:]]
    return "\n".join(lines)


def keep(result: Result) -> None:
    folder = CORPUS / result.target
    for old in folder.iterdir() if folder.is_dir() else ():
        if old.name != MENDED:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for given in result.corpus:
        store(folder, given)


def replay(target: str, name: str) -> int:
    places = (FOUND / target / name, CORPUS / target / name, CORPUS / target / MENDED / name)
    path = next((path for path in places if path.is_file()), None)
    if path is None:
        print(f"no input {name} of {target} in found/ or corpus/", file=sys.stderr)
        return 2
    given = unpack(path.read_bytes())
    for part, content in given:
        print(f"{part}: {len(content)} bytes: {content[:300]!r}")
    target_of(target).run(given)
    print("it is accepted")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
