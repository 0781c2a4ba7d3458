"""``python -m benchmarks measure prepare``: how fast a source becomes shards, in how much memory, and
how well each partitioner cuts it.

Every preparation runs in a process of its own, so that its peak memory is its own; contenders take turns. Where a
source is made in memory (a generator, an npz file), reading it is timed apart: it is no part of preparing an edge list.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement, synthesize
from benchmarks.measure.footprint import PROC
from graph_data import prepare as preparation
from siafu import start
from siafu.errors import ConfigError, DatasetError
from siafu.shards import Manifest

COLUMNS = (
    "partitioner",
    "parts",
    "edges",
    "read_s",
    "prepare_s",
    "edges_per_s",
    "peak_mb",
    "cut_share",
    "vertex_balance",
    "edge_balance",
    "hours_for_3_6_billion",
)
#: Edges of Friendster as Dorylus counts them: the largest graph that the project is for.
FRIENDSTER_EDGES = 3_600_000_000
#: Sources whose reader is called apart from ``prepare``: they make a graph in memory.
IN_MEMORY = ("digits", "npz", "synthetic")
#: In-edges of a vertex of a synthesized edge list, as listed: once, in one direction.
SYNTHESIZED_DEGREE = 30


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Prepare a graph with every partitioner: edges per second, peak memory, share of edges cut."
    parser.add_argument(
        "--graph",
        default="synthetic:reddit-small?scale=0.05",
        metavar="SOURCE",
        help="any source of siafu prepare [synthetic:reddit-small?scale=0.05]",
    )
    parser.add_argument(
        "--synthesize",
        metavar="E",
        help="instead: write a random Parquet edge list of E edges, such as 1e9, and prepare that",
    )
    parser.add_argument(
        "--work", metavar="DIR", help="where edge list and shards go, until the end [a temporary folder]"
    )
    parser.add_argument("--parts", type=int, default=2, metavar="P", help="partitions [2]")
    parser.add_argument("--memory", metavar="LIMIT", help="of a preparation, such as 6GiB [60%% of what is free]")
    parser.add_argument(
        "--partitioners", default="metis,ldg,fennel,random", metavar="NAME,...", help="[metis,ldg,fennel,random]"
    )
    parser.add_argument("--order", default="auto", metavar="NAME", help="of vertices in a partition [auto]")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="interleaved repeats, medians [1]")


def measure(args: argparse.Namespace) -> Measurement:
    if args.parts < 1 or args.rounds < 1:
        raise ConfigError(f"--parts {args.parts}, --rounds {args.rounds}: must be >= 1")
    names = args.partitioners.split(",")
    with tempfile.TemporaryDirectory(prefix="siafu-prepare-", dir=args.work) as work:
        source = _synthesized(Path(work), args.synthesize) if args.synthesize else args.graph
        options = {"parts": args.parts, "order": args.order, **({"memory": args.memory} if args.memory else {})}
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(args.rounds):
            for name in names:
                found[name].append(run(source, Path(work) / "shards", {**options, "partitioner": name}))
    rows = [_row(name, args.parts, outcomes) for name, outcomes in found.items()]
    return Measurement(f"preparing {args.graph if not args.synthesize else source}", COLUMNS, rows, summary(rows))


def _synthesized(work: Path, text: str) -> str:
    """An edge list of so many edges, as the name of a source."""
    try:
        num_edges = int(float(text))
    except ValueError as error:
        raise ConfigError(f"--synthesize {text}: {error}") from None
    num_vertices = max(2, num_edges // SYNTHESIZED_DEGREE)
    for done in synthesize.write(work / "edges", num_vertices, num_edges, seed=0):
        if done % synthesize.FILE_EDGES == 0 or done == num_edges:
            print(f"  {done:,} of {num_edges:,} edges written", file=sys.stderr, flush=True)
    return f"edges:{work / 'edges'}?num_vertices={num_vertices}&features=random:32"


# --- one preparation --------------------------------------------------------------------------------------------------


def run(source: str, out: Path, options: dict[str, Any]) -> dict[str, Any]:
    """What ``_child`` tells of one preparation, in a process of its own. DatasetError
    with its last line if it fails."""
    print(f"  {options['partitioner']}", file=sys.stderr, flush=True)
    request = json.dumps({"source": source, "out": str(out), "options": options})
    done = subprocess.run(
        start.command("benchmarks.measure.prepare", request),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise DatasetError(
            f"{source}, {options['partitioner']}: {lines[-1] if lines else f'exit code {done.returncode}'}"
        )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _child(source: str, out: str, options: dict[str, Any]) -> dict[str, Any]:
    """Prepares; seconds, peak resident bytes, and how the graph was cut."""
    start = time.perf_counter()
    found = preparation.resolve(source)
    graph = found.load() if found.kind in IN_MEMORY else source
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    manifest = preparation.prepare(graph, out, **options).manifest
    return {"read_s": read_s, "prepare_s": time.perf_counter() - start, "peak_bytes": peak_bytes(), **quality(manifest)}


def peak_bytes() -> int:
    """The most that this process ever held."""
    try:  # what its parent held before it became this one is in ru_maxrss too
        text = (PROC / "self" / "status").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM")) << 10
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def quality(manifest: Manifest) -> dict[str, Any]:
    """Edges, the share of them that is cut, and how much more than its share the largest partition has."""
    vertices = [entry.vertices for entry in manifest.partitions]
    in_edges = [entry.in_edges for entry in manifest.partitions]
    return {
        "edges": manifest.num_edges,
        "cut_share": manifest.cut_edges / max(1, manifest.num_edges),
        "vertex_balance": max(vertices) * len(vertices) / max(1, sum(vertices)),
        "edge_balance": max(in_edges) * len(in_edges) / max(1, sum(in_edges)),
    }


# --- the table --------------------------------------------------------------------------------------------------------


def _row(name: str, parts: int, outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    last = outcomes[-1]
    prepare_s = statistics.median(outcome["prepare_s"] for outcome in outcomes)
    rate = last["edges"] / prepare_s
    return {
        **last,
        "partitioner": name,
        "parts": parts,
        "prepare_s": prepare_s,
        "read_s": statistics.median(outcome["read_s"] for outcome in outcomes),
        "edges_per_s": rate,
        "peak_mb": max(outcome["peak_bytes"] for outcome in outcomes) / 1e6,
        "hours_for_3_6_billion": FRIENDSTER_EDGES / rate / 3600,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the partitioner that cuts least, and of the fastest. Time grows with edges: extrapolated in proportion."""
    best, fastest = (
        min(rows, key=lambda row: float(row["cut_share"])),
        max(rows, key=lambda row: float(row["edges_per_s"])),
    )
    return {
        "cuts_least": best["partitioner"],
        "cut_share": best["cut_share"],
        "fastest": fastest["partitioner"],
        "edges_per_s": fastest["edges_per_s"],
        "hours_for_3_6_billion": fastest["hours_for_3_6_billion"],
    }


if __name__ == "__main__":
    print(json.dumps(_child(**json.loads(sys.argv[1]))))
