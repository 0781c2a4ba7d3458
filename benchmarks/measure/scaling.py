"""``python -m benchmarks measure scaling``: how cost grows.

1. gather: is an edge as cheap in a graph of 300 million as in one of a million (but for caches)?
2. bookkeeping: is a task as cheap among 10,000 intervals as among 10, for a server's thread?
3. intervals: what does an epoch of ``siafu train`` cost in more and smaller intervals, on threads and local Lambdas?
4. parts: and in more partitions, on this machine's cores, behind links of a network? All messages between the servers
   share one link with the rate of as many as there are partitions, so links that are loaded evenly are modelled, and
   links that are not, too well. It is a token bucket on the loopback device of a network namespace; needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.measure import Measurement, bookkeeping
from benchmarks.measure.epoch import trained_s
from benchmarks.measure.limits import read_rows
from siafu import kernels
from siafu.errors import ConfigError, GnnError
from siafu.shards import Edges
from siafu.sparse import Array

PARTS = ("gather", "bookkeeping", "intervals", "parts")
COLUMNS = ("part", "case", "value", "unit", "limit", "share_of_limit")
DEGREE = 50  # in-edges of a vertex, on average: between ogbn-products' and reddit's
SKEW = 1.5  # exponent of who is an edge's source: the first tenth of the vertices has about a fifth of the edges
DRAWS = 1 << 22  # edges drawn together

GRAPH = "synthetic:ogbn-products?scale=0.2"  # of trainings: 490 thousand vertices, 24.7 million edges
MODEL = ("--model=gcn", "--hidden=128", "--layers=2")
EPOCHS = 6  # of a training
INTERVALS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
PLACES = {"cpu": ("--backend=cpu",), "local Lambdas": ("--backend=lambda", "--lambda-memory=1024")}
PARTITIONS = (1, 2, 4, 8)
LINKS = {"no limit": 0.0, "10 Gbit/s": 10.0, "1 Gbit/s": 1.0}
NAMESPACE = "siafu-scaling"

T = TypeVar("T", int, float)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Time per edge and per task as each of them gets more, and per epoch."
    parser.add_argument("--edges", default="1e6,1e7,1e8,3e8", metavar="E,...", help="sizes of graphs [1e6,1e7,1e8,3e8]")
    parser.add_argument("--width", type=int, default=64, metavar="F", help="columns that are gathered [64]")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="threads that gather [2]")
    parser.add_argument(
        "--intervals", default="10,100,1000,10000", metavar="K,...", help="intervals of a server [10,100,1000,10000]"
    )
    parser.add_argument("--graph", default=GRAPH, metavar="SOURCE", help=f"that is trained on [{GRAPH}]")
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
    rows += _trainings(only, args.graph, args.rounds)
    return Measurement("time per edge, per task, per epoch", COLUMNS, rows, summary(rows))


def numbers(flag: str, text: str, parse: Callable[[str], T]) -> list[T]:
    """A comma-separated list of positive numbers. ConfigError naming the flag."""
    try:
        found = [parse(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"{flag} {text}: {error}") from None
    if min(found) <= 0:
        raise ConfigError(f"{flag} {text}: must all be > 0")
    return found


def _trainings(only: list[str], graph: str, rounds: int) -> list[dict[str, Any]]:
    """A row per case of ``intervals`` and ``parts``; every case runs once in each round."""
    cases: dict[tuple[str, str, int], list[str]] = {}
    for place, words in PLACES.items() if "intervals" in only else ():
        cases |= {("intervals", place, k): [*words, f"--intervals={k}", "--parts=1"] for k in INTERVALS}
    for link in LINKS if "parts" in only else ():
        cases |= {("parts", link, p): [*PLACES["cpu"], f"--parts={p}"] for p in PARTITIONS}
    seconds: dict[tuple[str, str, int], list[float]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        for number, (case, flags) in itertools.product(range(rounds), cases.items()):
            part, way, size = case
            run_dir = Path(folder, f"{number}-{way}-{size}".replace("/", " "))
            with _link(LINKS[way] * size if part == "parts" else 0.0) as within:
                seconds[case].append(trained_s([graph, *MODEL, *flags], EPOCHS, run_dir, within))
            print(f"  {case}: {1000 * seconds[case][-1]:.0f} ms", file=sys.stderr, flush=True)
    return [
        {
            "part": part,
            "case": f"{size} {part}, {way}",
            "value": 1000 * float(np.median(found)),
            "unit": "ms/epoch",
            "way": way,
            part: size,
            "seconds": found,
        }
        for (part, way, size), found in seconds.items()
    ]


@contextlib.contextmanager
def _link(gbit_per_s: float) -> Iterator[tuple[str, ...]]:
    """The words before a command whose messages are to share such a link; 0: none, no limit. Raises: GnnError."""
    if not gbit_per_s:
        yield ()
        return
    bucket = f"tbf rate {gbit_per_s:g}gbit burst 1mb latency 1s"
    inside = ("ip", "netns", "exec", NAMESPACE)
    try:
        try:
            subprocess.run(("ip", "netns", "add", NAMESPACE), check=True)
            for command in ("ip link set lo up", f"tc qdisc add dev lo root {bucket}"):
                subprocess.run((*inside, *command.split()), check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise GnnError(f"no link of {gbit_per_s:g} Gbit/s can be made here: {error}") from error
        yield inside
    finally:
        with contextlib.suppress(OSError):
            subprocess.run(("ip", "netns", "del", NAMESPACE), check=False)


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
        seconds["limit"].append(float(read_rows(edges.indices, base, threads)))
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
