"""``python -m benchmarks measure gather``: one layer's aggregation, beside the peers' products and
beside what the memory can do at most.

Every contender multiplies the normalised adjacency of GCN with a matrix [N, width]: scaling, packing and allocation of
the result are inside its time. The limit reads the rows that the edges name, in their order, and does nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Measurement, graphs
from benchmarks.measure.graphs import Measured
from benchmarks.measure.limits import triad
from benchmarks.measure.rounds import Contender, Times, race
from run_coordinator import peers
from siafu import allotment, kernels, start
from siafu.errors import ConfigError
from siafu.sparse import Array

OWN = tuple(start.command("benchmarks.measure.own_process"))
PEER_PROGRAM = str(Path(__file__).with_name("peer_process.py"))
PEERS = {"dgl": 28, "torch": 12, "pyg": 24, "scipy": 12}  # contender -> bytes per edge that it holds, about
DTYPES = {"float32": 4, "bfloat16": 2}
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-2}  # relative error against siafu's float32 product
CRASHES_ABOVE = 256  # columns: from there on, DGL may die of whole rows
UNIFORM = "limit, uniform"  # reading rows at random instead of those that the edges name: for comparison
AT_LEAST_S = 0.2  # a repetition is as many products as take so long
TRIAD_BYTES = 1 << 28
COLUMNS = (
    "width",
    "contender",
    "ms",
    "GB/s",
    "limit GB/s",
    "share_of_limit",
    "times siafu",
    "ratio_vs_dgl",
    "ratio_vs_best_peer",
    "note",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    graphs.add_arguments(parser)
    parser.add_argument("--widths", default="16,64,128,256,602", metavar="F,F,...", help="columns [16,64,128,256,602]")
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=DTYPES,
        metavar="NAME",
        help="float32 or bfloat16: which of siafu's rows the summary is about [float32]",
    )
    parser.add_argument("--peers", default=",".join(PEERS), metavar="NAME,...", help=f"of {', '.join(PEERS)} [all]")
    parser.add_argument(
        "--skew", action="store_true", help="instead: a hub of 20,000 in-edges against none, siafu alone"
    )


def measure(args: argparse.Namespace) -> Measurement:
    widths = _widths(args.widths)
    names = chosen(args.peers, PEERS)
    graph = graphs.opened(args)
    if args.skew:
        return _skew(args, graph, widths)
    rate = triad(TRIAD_BYTES, args.threads)
    python = peers.interpreter() if names else ""
    rows: list[dict[str, Any]] = []
    for width in widths:
        print(f"width {width}", file=sys.stderr, flush=True)
        times = _race(args, graph, width, names, python)
        rows += _rows(times, graph, width)
    mine = [row for row in rows if row["contender"] == _own_name(args.dtype)]
    return Measurement(
        title=f"gather, {graph.title}, {args.threads} threads, {kernels.ISA}",
        columns=COLUMNS,
        rows=rows,
        summary={
            "dtype": args.dtype,
            "ratio_vs_best_peer": _worst(mine, "ratio_vs_best_peer"),
            "ratio_vs_dgl": {str(row["width"]): row["ratio_vs_dgl"] for row in mine},
            "share_of_limit": _worst(mine, "share_of_limit"),
            "triad_gb_per_s": rate,
            "threads": args.threads,
            "rounds": args.rounds,
        },
    )


def chosen(text: str, known: Any) -> list[str]:
    """Names from a list with commas. Raises: ConfigError for one that is not known."""
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known:
            raise ConfigError(f"--peers {name}: unknown, must be of {', '.join(known)}")
    return names


def _widths(text: str) -> list[int]:
    try:
        widths = [int(width) for width in text.split(",")]
    except ValueError:
        widths = []
    if not widths or min(widths) < 1:
        raise ConfigError(f"--widths {text}: must be numbers >= 1 with commas between")
    return widths


# --- one width --------------------------------------------------------------------------------------------------------


def _race(args: argparse.Namespace, graph: Measured, width: int, names: list[str], python: str) -> dict[str, Times]:
    contenders = [_own(args, graph.folder, graph, width, dtype, "gather") for dtype in DTYPES]
    contenders += [
        _own(args, graph.folder, graph, width, dtype, subject) for subject in ("packed", "limit") for dtype in DTYPES
    ]
    uniform = _own(args, graph.folder, graph, width, "float32", "limit")
    contenders.append(replace(uniform, name=UNIFORM, setup=uniform.setup | {"uniform": True}))
    contenders += [_peer(args, graph, width, name, python) for name in names]
    times = race(contenders, args.rounds, {"at_least_s": AT_LEAST_S})
    if "dgl" in times and "died" in times["dgl"].failed and width > CRASHES_ABOVE:
        again = [*contenders[:2], _peer(args, graph, width, "dgl", python, cut=True)]
        times["dgl"] = race(again, args.rounds, {"at_least_s": AT_LEAST_S})["dgl"]
    return times


def _own_name(dtype: str, subject: str = "gather") -> str:
    return ("siafu" if subject == "gather" else subject) + ("" if dtype == "float32" else " bfloat16")


def _own(args: argparse.Namespace, folder: str, graph: Measured, width: int, dtype: str, subject: str) -> Contender:
    setup = {"subject": subject, "graph": folder, "threads": args.threads, "width": width, "dtype": dtype}
    nbytes = 12 * graph.num_vertices * width
    return Contender(_own_name(dtype, subject), OWN, setup, nbytes, peer=False)


def _peer(
    args: argparse.Namespace, graph: Measured, width: int, name: str, python: str, cut: bool = False
) -> Contender:
    setup = {
        "subject": "gather",
        "contender": name,
        "graph": graph.folder,
        "threads": args.threads,
        "width": width,
        "cut": cut,
    }
    nbytes = PEERS[name] * graph.num_edges + 16 * graph.num_vertices * width
    return Contender(name, (python, PEER_PROGRAM), setup, nbytes, peer=True)


def _rows(times: dict[str, Times], graph: Measured, width: int) -> list[dict[str, Any]]:
    """One row per contender; the limits stand beside siafu's."""
    exact = times[_own_name("float32")].check.get("sample")
    best = min((t.median_s for name, t in times.items() if name in PEERS and t.median_s), default=None)
    rows = []
    for name, found in times.items():
        if name.startswith(("limit", "packed")):
            continue
        dtype = "bfloat16" if name.endswith("bfloat16") else "float32"
        gigabytes = graph.num_edges * width * DTYPES[dtype] / 1e9
        row: dict[str, Any] = {"width": width, "contender": name, "dtype": dtype, "note": found.failed or found.note}
        rows.append(row)
        if found.median_s is None:
            continue
        row |= {"ms": 1000 * found.median_s, "GB/s": gigabytes / found.median_s, "seconds": found.seconds}
        row["times siafu"] = found.ratio_to(_own_name("float32"))
        row["relative_error"] = relative_error(found.check.get("sample"), exact)
        if (row["relative_error"] or 0) > TOLERANCE[dtype]:
            row["note"] = f"WRONG by {row['relative_error']:.1e} {row['note']}"
        if name in PEERS:
            continue
        limit = times[_own_name(dtype, "limit")]
        if limit.median_s:
            share = limit.ratio_to(_own_name(dtype, "packed"))  # of gather alone: reading packs nothing either
            row |= {"limit GB/s": gigabytes / limit.median_s, "share_of_limit": share, "limit": limit.note}
        if dtype == "float32" and (uniform := times.get(UNIFORM)) and uniform.median_s:
            row["uniform limit GB/s"] = gigabytes / uniform.median_s
        row["ratio_vs_best_peer"] = None if best is None else _best_ratio(times, name)
        row["ratio_vs_dgl"] = times["dgl"].ratio_to(name) if "dgl" in times else None
    return rows


def _best_ratio(times: dict[str, Times], name: str) -> float | None:
    """How many times faster than the fastest peer."""
    return min((r for peer in PEERS if peer in times and (r := times[peer].ratio_to(name)) is not None), default=None)


def relative_error(sample: Any, exact: Any) -> float | None:
    """Largest difference between two samples of rows over the largest value."""
    if sample is None or exact is None:
        return None
    a, b = np.asarray(sample), np.asarray(exact)
    return float(np.abs(a - b).max() / np.abs(b).max())


def _worst(rows: list[dict[str, Any]], key: str) -> float | None:
    return min((row[key] for row in rows if row.get(key) is not None), default=None)


# --- skew -------------------------------------------------------------------------------------------------------------


def _skew(args: argparse.Namespace, graph: Measured, widths: list[int]) -> Measurement:
    """Time per edge with a hub, over that of the same edges spread evenly."""
    edges: tuple[Array, Array] = (graph.shards.partition(0).in_edges.indptr, graph.shards.partition(0).in_edges.indices)
    rng, rows, ratios = np.random.default_rng(0), [], []
    with tempfile.TemporaryDirectory() as folder:
        hub = graphs.with_hub(*edges, rng)
        kinds = {"hub": hub, "even": graphs.without_hubs(*hub, rng)}
        folders = {kind: graphs.saved(Path(folder) / kind, made) for kind, made in kinds.items()}
        largest = {kind: int(np.diff(made[0]).max()) for kind, made in kinds.items()}
        for width in widths:
            contenders = [
                Contender(kind, *_own_parts(_own(args, where, graph, width, args.dtype, "gather")))
                for kind, where in folders.items()
            ]
            times = race(contenders, args.rounds, {"at_least_s": AT_LEAST_S})
            ratios.append(times["hub"].ratio_to("even"))
            rows += [
                {
                    "width": width,
                    "graph": kind,
                    "largest in-degree": largest[kind],
                    "ns/edge": None if t.median_s is None else 1e9 * t.median_s / graph.num_edges,
                    "times even": t.ratio_to("even"),
                    "note": t.failed,
                }
                for kind, t in times.items()
            ]
    columns = ("width", "graph", "largest in-degree", "ns/edge", "times even", "note")
    worst = max((ratio for ratio in ratios if ratio is not None), default=None)
    title = f"gather of skewed degrees, {graph.title}, {args.threads} threads, {args.dtype}"
    return Measurement(title, columns, rows, {"skew_ratio": worst, "threads": args.threads, "cores": allotment.cores()})


def _own_parts(contender: Contender) -> tuple[tuple[str, ...], dict[str, Any], int, bool]:
    return contender.program, contender.setup, contender.nbytes, contender.peer
