"""``siafu convert``: a graph from any source, in another format."""

from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graph_data import source_flags
from graph_data.counts import counts_of
from graph_data.partitioners import PARTITIONERS, partition
from graph_data.prepare import found_in
from graph_data.sinks import SINKS, Written, save
from graph_data.sinks.bsnap import save_parts
from siafu import outputs
from siafu.errors import ConfigError, DatasetError, one_of
from siafu.features import checked
from siafu.graph import Graph, check, tidy
from siafu.streams import say

EXAMPLES = """formats, and what they become in DIR:
  npz       NAME.npz, which loses nothing
  csv       edges.csv, features.csv (features.npz if sparse), labels.csv, split.csv
  parquet   the same in Parquet
  bsnap     Dorylus' graph.bsnap, features.bsnap, labels.bsnap; .npy files of what these cannot hold
  pyg       NAME.pt, which torch and PyG read: Data.from_dict(torch.load('NAME.pt'))
  dgl       NAME.dgl for dgl.load_graphs; DGL is not needed to write it

Sources are those of siafu prepare. Edges are written as they are listed, self-loops and parallel
ones too, unless --tidy.
The last line on stdout is the name of a source that reads the result again.

examples:
  siafu convert digits --to csv --out digits-csv
  siafu convert follows.csv --features users.csv --labels users.csv#job --to npz --out follows
  siafu convert cora --to bsnap --parts 4 --out data/cora
  siafu convert data/cora --to pyg --tidy --out cora-pyg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu convert SOURCE --to FORMAT --out DIR [--tidy] [--parts P --partitioner NAME]"
    parser.description = "Write a graph in another format, such as npz, CSV, Parquet, PyG or DGL."
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="graph to write; any source of siafu prepare")
    parser.add_argument("--to", required=True, metavar="|".join(SINKS), help="the format")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument(
        "--tidy", action="store_true", help="write the edges that siafu trains on: symmetric, merged, no self-loops"
    )
    parser.add_argument("--directed", action="store_true", help="with --tidy: keep edge directions")
    parser.add_argument("--parts", type=int, default=0, metavar="P", help="bsnap: write parts_P/graph.bsnap.parts too")
    parser.add_argument(
        "--partitioner",
        default="metis",
        metavar="|".join(PARTITIONERS),
        help="with --parts: how vertices are assigned to partitions [metis]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="with --parts: seed of the partitioner [0]")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the counts")
    source_flags.add_to(parser)


def main(args: argparse.Namespace) -> int:
    if args.to not in SINKS:
        raise ConfigError(f"--to {args.to}: {one_of(args.to, SINKS)}")
    if args.parts and args.to != "bsnap":
        raise ConfigError(f"--parts {args.parts} is for --to bsnap, not {args.to}")
    _check_out(args.out)
    graph = loaded(source_flags.with_options(args.source, source_flags.given(args)))
    before = counts_of(graph)
    say(f"{graph.name}: {before.line()}")
    for note in graph.notes:
        say(note)
    if args.tidy:
        graph = tidy(graph, args.directed)
        say(f"tidied: {counts_of(graph).line()}")
    written = convert(graph, args.to, args.out, args.parts, args.partitioner, args.seed)
    for note in written.notes:
        say(note)
    if args.json:
        print(
            json.dumps({**asdict(counts_of(graph)), "out": args.out, "source": written.source, "notes": written.notes})
        )
    else:
        print(written.source)
    return 0


def loaded(source: Any) -> Graph:
    """The graph of a name, or of an object in memory."""
    found = found_in(source)
    return found if isinstance(found, Graph) else found.load()


def convert(
    source: Any, kind: str, out: str | Path, parts: int = 0, partitioner: str = "metis", seed: int = 0
) -> Written:
    """Writes a graph in the format ``kind``, a key of SINKS, to the folder ``out``; leaves no half of it behind.

    ``source``: as for ``prepare``. Raises: DatasetError if the graph is malformed, the folder is
    there and not empty, or cannot be made.
    """
    _check_out(out)
    graph = loaded(source)
    check(graph)
    checked(graph.features, graph.num_vertices, graph.name)
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DatasetError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        written = save(graph, kind, folder)
        if parts:
            save_parts(partition(tidy(graph), partitioner, parts, seed), folder)
    except BaseException as error:
        shutil.rmtree(folder)
        if isinstance(error, OSError):
            raise DatasetError(f"{folder}: cannot be written: {error.strerror or error}") from None
        raise
    return written


def _check_out(out: str | Path) -> None:
    outputs.check_folder("out", out)
    if Path(out).is_dir() and any(Path(out).iterdir()):
        raise DatasetError(f"{out}: is not empty")
