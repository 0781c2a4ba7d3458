"""``siafu clean``: lists caches that siafu can make again, and old runs; ``--yes`` removes them.

1. The cache (``siafu.config.cache_folder``) holds prepared graphs, environments with peers' packages, wheels and the
   like, which are made again when needed. Three things stay: files that an active run reads, wherever the run is;
   measurements of ``siafu plan --calibrate``; and notes of ``siafu deploy``.
2. Runs are removed only if ``--runs AGE`` gives an age, and active runs never. A folder of several runs is removed as a
   whole, by the age of its newest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.table import Table

from run_coordinator.past_runs import runs
from run_coordinator.past_runs.deployments import NOTED
from run_coordinator.run_directory import is_read, is_under_way
from siafu.config import cache_folder
from siafu.errors import ConfigError
from siafu.progress import duration, size
from siafu.setting import SECONDS

EXAMPLES = """Without --yes it removes nothing and shows what it would remove. It removes run directories only
with --runs, and never a running run or the prepared graph that such a run reads, whatever --folder is.

examples:
  siafu clean                         show the size of the cache
  siafu clean --yes                   remove it; later runs prepare their graphs again
  siafu clean --older 30d --yes       remove only graphs not used for 30 days
  siafu clean --runs 90d              also runs that began more than 90 days ago
"""


#: Of the table.
MOST_ROWS = 20
#: Begins the files of ``cost_planner.plan.calibration``.
MEASURED = "calibration-"


@dataclass(frozen=True)
class Entry:
    path: Path
    what: str  # "cache" or "run"
    bytes: int
    age_s: float  # since it was last used; of a run, since it began


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu clean [--older AGE] [--runs AGE] [--yes] [--json]"
    parser.description = "Show, and with --yes remove, what siafu has kept: prepared graphs, and old runs."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--older", default="0s", metavar="AGE", help="only prepared graphs not used for this long, such as 30d [all]"
    )
    parser.add_argument("--runs", default="", metavar="AGE", help="also runs that began so long ago: 90d")
    parser.add_argument("--folder", metavar="FOLDER", help="where run directories are [runs]")
    parser.add_argument("--yes", action="store_true", help="remove it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    older, runs_older = age_of("--older", args.older), age_of("--runs", args.runs) if args.runs else None
    if args.folder is not None and not Path(args.folder).is_dir():
        raise ConfigError(f"--folder {args.folder}: no such folder")
    found = entries(Path(args.folder or "runs"), older, runs_older)
    if args.yes:
        for entry in found:
            remove(entry.path)
    if args.json:
        told = [{"path": str(one.path), "what": one.what, "bytes": one.bytes, "age_s": one.age_s} for one in found]
        print(json.dumps({"removed": args.yes, "bytes": sum(one.bytes for one in found), "entries": told}))
    else:
        show(found, Console(markup=False), removed=args.yes)
    return 0


def entries(folder: Path, older_s: float, runs_older_s: float | None) -> list[Entry]:
    """Everything that ``--yes`` removes. A run that cannot be read stays: its state is unknown."""
    found = [one for one in _in_cache() if one.age_s >= older_s and not is_read(one.path)]
    if runs_older_s is None:
        return found
    for one in runs(folder) if folder.is_dir() else ():
        age_s = min((_since(run.started, run.dir) for run in one.runs), default=0.0)
        goes_on = is_under_way(one.dir) or any(run.state == "running" for run in one.runs)
        if one.runs and age_s >= runs_older_s and not goes_on:
            found.append(Entry(one.dir, "run", _size(one.dir), age_s))
    return found


def remove(path: Path) -> None:
    """Removes a file or folder. Renames it first, so that others never see half a folder. Raises: OSError."""
    going = path.with_name(f".{path.name.lstrip('.')}.removed.{os.getpid()}")
    path.rename(going)
    if going.is_dir() and not going.is_symlink():
        shutil.rmtree(going)
    else:
        going.unlink()


def show(found: list[Entry], console: Console, *, removed: bool) -> None:
    if not found:
        console.print("nothing to remove")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what")
    for heading in ("size", "age"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in sorted(found, key=lambda one: -one.bytes)[:MOST_ROWS]:
        table.add_row(f"{one.what} {one.path.name}", size(one.bytes), duration(one.age_s))
    console.print(table)
    if (more := len(found) - MOST_ROWS) > 0:
        console.print(f"and {more} smaller ones: --json has all")
    total = f"{size(sum(one.bytes for one in found))} of {_places(found)}"
    console.print(f"removed     {total}" if removed else f"would free  {total}; --yes removes it")


def _places(found: list[Entry]) -> str:
    return " and ".join({str(one.path.parent): 0 for one in found})


def age_of(flag: str, text: str) -> float:
    """ "30d" -> seconds. Raises: ConfigError."""
    try:
        return SECONDS.read(text)
    except ValueError:
        raise ConfigError(f"{flag} {text}: must be {SECONDS.words}, 30d") from None


def _in_cache() -> Iterator[Entry]:
    folder = cache_folder()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.name.startswith((MEASURED, NOTED)):
            continue
        with contextlib.suppress(FileNotFoundError):  # another process writes or removes it
            yield Entry(path, "cache", _size(path), max(0.0, time.time() - _used(path)))


def _used(path: Path) -> float:
    """The last time that a file in it was read or written, by the file system. The folder's own times are not used:
    listing it, as we do, changes them."""
    files = [one for one in path.iterdir() if one.is_file()] if path.is_dir() and not path.is_symlink() else []
    seen = [one.lstat() for one in files]
    return max((max(one.st_atime, one.st_mtime) for one in seen), default=path.lstat().st_mtime)


def _size(path: Path) -> int:
    """Bytes of the files on the disk; a file with several names counts once."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size
    seen = {}
    for folder, _, names in os.walk(path):
        for name in names:
            found = os.lstat(os.path.join(folder, name))
            seen[found.st_dev, found.st_ino] = found.st_blocks * 512
    return sum(seen.values())


def _since(started: str, path: Path) -> float:
    try:
        begun = datetime.fromisoformat(started[:-2] + ":" + started[-2:]).astimezone(timezone.utc).timestamp()
    except ValueError:
        begun = path.stat().st_mtime
    return max(0.0, time.time() - begun)
