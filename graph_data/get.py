"""``siafu get``: a published graph, fetched and converted to NAME.npz in the data folder."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from dataclasses import replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from graph_data.convert import convert
from graph_data.counts import counts_of
from graph_data.download import Unreachable, download
from graph_data.published import OGB, PublishedFile, PublishedGraph, graphs
from graph_data.sources.names import DATA_VARIABLE, data_folders, resolve
from siafu import extras
from siafu.errors import ConfigError, DownloadError
from siafu.locks import lock_in
from siafu.parser import offer
from siafu.streams import say

EXAMPLES = f"""Without NAME it lists all graphs. It writes NAME.npz to the folder ${DATA_VARIABLE}, else to data/, where
other commands find NAME. It continues a stopped download, and compares every file with its published hash.
{" and ".join(OGB)} need the package ogb.

examples:
  siafu get
  siafu get cora
  siafu train cora
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu get [NAME] [--json]"
    parser.description = "Fetch a public graph and convert it to NAME.npz in the data folder."
    parser.epilog = EXAMPLES
    name = parser.add_argument("name", nargs="?", default="", metavar="NAME", help="the graph [list all graphs]")
    offer(name, [*graphs(), *OGB])
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def main(args: argparse.Namespace) -> int:
    if not args.name:
        _list(args.json)
        return 0
    known = [*graphs(), *OGB]
    if args.name not in known:
        close = get_close_matches(args.name, known, 1)
        advice = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise ConfigError(f"{args.name}: no graph that siafu get knows, {advice}")
    source = _found(args.name)
    is_new = source is None
    if source is None:
        source = _fetch_by_ogb(args.name) if args.name in OGB else str(_fetch(graphs()[args.name]))
    else:
        say(f"{args.name}: is there already: {source}")
    print(json.dumps({"name": args.name, "source": source, "fetched": is_new}) if args.json else source)
    return 0


def _list(as_json: bool) -> None:
    rows = [
        {
            "name": graph.name,
            "nbytes": graph.nbytes or None,
            "licence": graph.licence,
            "from": graph.repository,
            "verified_by": graph.verified_by,
            "there": _found(graph.name) is not None,
        }
        for graph in graphs().values()
    ]
    by_ogb = {"nbytes": None, "licence": "OGB's", "from": "the package ogb", "verified_by": "not verified"}
    rows += [{"name": name, **by_ogb, "there": _found(name) is not None} for name in OGB]
    if as_json:
        print(json.dumps({"graphs": rows}))
        return
    print(f"{'graph':18}{'there':7}{'licence':9}{'verified by':14}from")
    for row in rows:
        there = "yes" if row["there"] else "-"
        print(f"{row['name']:18}{there:7}{row['licence']:9}{row['verified_by']:14}{row['from']}")


def _found(name: str) -> str | None:
    """The source of a graph that is already on the disk; None: it is not."""
    for folder in data_folders():
        if name in OGB and (folder / name.replace("-", "_") / "raw").is_dir():
            return f"ogb:{name}"
        if (folder / f"{name}.npz").is_file():
            return str(folder / f"{name}.npz")
    return None


def _fetch(graph: PublishedGraph) -> Path:
    """Fetches NAME.npz into the data folder, whole or not at all."""
    folder = data_folders()[0]
    target = folder / f"{graph.name}.npz"
    draft = folder / f".get-{graph.name}"
    lock = lock_in(draft, wait=True)
    assert lock is not None
    with lock:
        if not target.is_file():  # else another process has fetched it while we waited
            _fetch_into(draft, graph, target)
        shutil.rmtree(draft, ignore_errors=True)  # who begins to wait just now may hold a new lock in it
    return target


def _fetch_into(draft: Path, graph: PublishedGraph, target: Path) -> None:
    count = f"{len(graph.files)} files" if len(graph.files) > 1 else "1 file"
    size = f"{graph.nbytes / 1e6:.1f} MB, " if graph.nbytes else ""
    say(f"{graph.name}: {count}, {size}from {graph.repository}, licence {graph.licence}")
    with _progress() as progress:
        for file in graph.files:
            if not (draft / file.name).is_file():
                _fetch_file(file, draft, progress, graph.name)
    found = resolve(str(draft / graph.files[0].name)).load()
    converted = draft / "converted"
    shutil.rmtree(converted, ignore_errors=True)
    convert(replace(found, name=graph.name), "npz", converted)
    os.replace(converted / target.name, target)
    say(f"{graph.name}: {counts_of(found).line()}; verified by {graph.verified_by}")


def _fetch_file(file: PublishedFile, draft: Path, progress: Progress, name: str) -> None:
    task = progress.add_task(file.name, total=file.nbytes or None)
    try:
        download(
            file, draft / file.name, lambda size, total: progress.update(task, completed=size, total=total or None)
        )
    except Unreachable as error:
        raise DownloadError(
            f"{error}: fetch {name} on a machine that reaches it, and copy {name}.npz into the folder that "
            f"${DATA_VARIABLE} names (now {data_folders()[0]})"
        ) from None


def _progress() -> Progress:
    """Shows a bar for each file on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True, markup=False)
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _fetch_by_ogb(name: str) -> str:
    try:
        ogb = import_module("ogb.nodeproppred")
    except ImportError:
        raise ConfigError(
            f"{name} is fetched by the package ogb, which is not installed: {extras.pip()} install ogb"
        ) from None
    folder = data_folders()[0]
    say(f"{name}: the package ogb fetches it into {folder}")
    try:
        ogb.NodePropPredDataset(name=name, root=str(folder))
    except OSError as error:
        raise DownloadError(
            f"{name}: {error}: unpack OGB's download in the folder that ${DATA_VARIABLE} names (now {folder})"
        ) from None
    return f"ogb:{name}"
