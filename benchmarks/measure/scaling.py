"""``python -m benchmarks measure scaling``: what grows with the graph and with the intervals, per unit of each.

Two questions: is an edge as cheap in a graph of 300 million as in one of a million (but for caches); and is a task as
cheap among 10,000 intervals as among 10, for a server's thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from benchmarks.measure import Measurement, bookkeeping
from siafu import kernels
from siafu.errors import ConfigError
from siafu.shards import Edges
from siafu.sparse import Array

PARTS = ("gather", "bookkeeping")
COLUMNS = ("part", "case", "value", "unit", "limit", "share_of_limit")
DEGREE = 50  # in-edges of a vertex, on average: between ogbn-products' and reddit's
SKEW = 1.5  # exponent of who is an edge's source: the first tenth of the vertices has about a fifth of the edges
DRAWS = 1 << 22  # edges drawn together

T = TypeVar("T", int, float)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Time per edge and per task, as each of them gets more."
    parser.add_argument("--edges", default="1e6,1e7,1e8,3e8", metavar="E,...", help="sizes of graphs [1e6,1e7,1e8,3e8]")
    parser.add_argument("--width", type=int, default=64, metavar="F", help="columns that are gathered [64]")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads that gather [2]")
    parser.add_argument(
        "--intervals", default="10,100,1000,10000", metavar="K,...", help="intervals of a server [10,100,1000,10000]"
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved repeats, medians [5]")
    parser.add_argument("--only", default=",".join(PARTS), metavar="PART,...", help=f"of {', '.join(PARTS)} [all]")


def measure(args: argparse.Namespace) -> Measurement:
    only = args.only.split(",")
    if not set(only) <= set(PARTS):
        raise ConfigError(f"--only {args.only}: must be of {', '.join(PARTS)}")
    if min(args.rounds, args.width, args.threads) < 1:
        raise ConfigError(f"--rounds {args.rounds}, --width {args.width}, --threads {args.threads}: must be >= 1")
    rows: list[dict[str, Any]] = []
    if "gather" in only:
        edges = numbers("--edges", args.edges, lambda text: int(float(text)))
        rows += [_gather_row(count, args.width, args.threads, args.rounds) for count in edges]
    if "bookkeeping" in only:
        rows += bookkeeping.rows(numbers("--intervals", args.intervals, int), args.rounds)
    return Measurement("time per edge, per task", COLUMNS, rows, summary(rows))


def numbers(flag: str, text: str, parse: Callable[[str], T]) -> list[T]:
    """A comma-separated list of positive numbers. ConfigError naming the flag."""
    try:
        found = [parse(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{flag} {text}: {error}") from None
    if min(found) <= 0:
        raise ConfigError(f"{flag} {text}: must all be > 0")
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much dearer each kind of unit is at its largest size than at its cheapest."""
    found: dict[str, Any] = {}
    for part, name, size in (
        ("gather", "edge_growth", "edges"),
        ("bookkeeping", "server_task_growth", "intervals"),
    ):
        mine = [row for row in rows if row["part"] == part]
        if mine:
            largest = max(row[size] for row in mine)
            last = max(row["value"] for row in mine if row[size] == largest)
            found[name] = last / min(row["value"] for row in mine)
    return found


# --- gather -----------------------------------------------------------------------------------------------------------


def _gather_row(num_edges: int, width: int, threads: int, rounds: int) -> dict[str, Any]:
    """ns per edge of the GCN-like sum, and of reading the same rows in the same order and doing nothing with them."""
    edges = random_edges(num_edges, seed=0)
    n = len(edges.indptr) - 1
    base = kernels.Table(n, width)
    base.write(slice(0, n), np.broadcast_to(np.arange(width, dtype=np.float32), (n, width)))
    scale, out = np.full(n, 1 / DEGREE, np.float32), np.zeros((n, width), np.float32)
    kernels.gather(edges, 0, n, base, scale=scale, out=out, threads=threads)
    seconds: dict[str, list[float]] = {"gather": [], "limit": []}
    for _ in range(rounds):
        seconds["gather"].append(
            _timed(lambda: kernels.gather(edges, 0, n, base, scale=scale, out=out, threads=threads))
        )
        seconds["limit"].append(float(kernels.read_rows(edges.indices, base, threads)))
    ours, limit = (1e9 * float(np.median(seconds[kind])) / num_edges for kind in ("gather", "limit"))
    return {
        "part": "gather",
        "case": f"{num_edges:,} edges",
        "value": ours,
        "unit": "ns/edge",
        "limit": limit,
        "share_of_limit": limit / ours,
        "edges": num_edges,
        "gb_per_s": 4 * width / ours,
        "isa": kernels.ISA,
        "table_mb": base.nbytes / 1e6,
    }


def random_edges(num_edges: int, seed: int) -> Edges:
    """Edges of ``num_edges / DEGREE`` vertices, their in-degrees spread by half, some sources drawn more often.

    Made in 4 bytes an edge and a block.
    """
    rng = np.random.default_rng(seed)
    n = max(1, num_edges // DEGREE)
    share = rng.uniform(0.5, 1.5, n)
    indptr = np.zeros(n + 1, np.int64)
    indptr[1:] = np.round(np.cumsum(share) * (num_edges / share.sum()))
    indices = np.empty(num_edges, np.int32)
    spread = 7919 % n or 1  # those drawn often do not stand side by side
    for start in range(0, num_edges, DRAWS):
        block = indices[start : start + DRAWS]
        drawn = rng.random(len(block), dtype=np.float32) ** np.float32(SKEW)
        block[:] = np.minimum((drawn * np.float32(n)).astype(np.int64), n - 1) * spread % n
    return Edges(indptr, indices, None)


def _timed(once: Callable[[], Array]) -> float:
    start = time.perf_counter()
    once()
    return time.perf_counter() - start
