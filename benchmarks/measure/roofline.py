"""``python -m benchmarks measure roofline``: every step of a training epoch beside what this machine allows.

Each model trains for some epochs through ``siafu train --trace``, on one server with one interval, so that one step
runs at a time on all threads. A step's limit is the longest of what it cannot do without:

- *compute*: its products, at the rate of a large product of our own kernels;
- *memory*: the bytes that it reads and writes once, at the rate of STREAM's triad;
- *rows*: of a gather, the rows of the edges' other ends, read in the same order and layout, and summed in registers
  (``benchmarks.measure.limits.read_rows``).

Products and bytes are those that ``siafu plan`` counts (``cost_planner.plan.work``). What is no product (dropout,
activations, losses, softmax, the optimiser) has no limit but the memory's.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.measure import Measurement, graphs
from benchmarks.measure.graphs import Measured
from benchmarks.measure.limits import read_rows, triad
from cost_planner.plan.speeds import Speeds
from cost_planner.plan.work import LINE_VALUES, Counts, work_of
from siafu import kernels, models, run_files, start
from siafu.baseline import load
from siafu.config import Config
from siafu.errors import ConfigError, GnnError
from siafu.models import MODELS, Model, ModelSpec
from siafu.tasks import Kind, Lane, Step

COLUMNS = ("model", "step", "ms", "GFLOP", "MB", "limit ms", "share", "limited by")
#: First epochs, in which layer 0 is aggregated and buffers are made.
WARMUP_EPOCHS = 2
#: The product whose rate is the limit of all others: rows, columns, columns of the result.
PRODUCT = (65_536, 512, 256)
TRIAD_BYTES = 1 << 30
NOTHING = Speeds().scaled(0.0)


@dataclass(frozen=True)
class Limits:
    """Of this machine, by all threads."""

    flops: float  # per second
    bytes_per_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    graphs.add_arguments(parser)
    parser.add_argument("--models", default=",".join(MODELS), metavar="NAME,...", help=f"of {', '.join(MODELS)} [all]")
    parser.add_argument("--hidden", type=int, default=128, metavar="H", help="width of the hidden layers [128]")
    parser.add_argument("--epochs", type=int, default=5, metavar="E", help="timed in each round, medians [5]")


def measure(args: argparse.Namespace) -> Measurement:
    names = args.models.split(",")
    if not set(names) <= set(MODELS):
        raise ConfigError(f"--models {args.models}: must be of {', '.join(MODELS)}")
    if args.epochs < 1:
        raise ConfigError(f"--epochs {args.epochs}: must be >= 1")
    graph = graphs.opened(args)
    limits = limits_of(args.threads, args.rounds)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="siafu-roofline-") as folder:
        for name in names:
            seconds: dict[str, list[float]] = defaultdict(list)
            for number in range(args.rounds):
                run_dir = Path(folder) / f"{name}-{number}"
                _train(args, name, run_dir)
                for step, times in step_seconds(run_dir / "trace-0.jsonl").items():
                    seconds[step] += times
                print(f"  {name}, round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
            config = load(run_dir / run_files.CONFIG)
            rows += rows_of(
                config, graph, {step: median(times) for step, times in seconds.items()}, limits, args.threads
            )
    summary = {
        "GFLOP/s": limits.flops / 1e9,
        "GB/s": limits.bytes_per_s / 1e9,
        "threads": args.threads,
        "rounds": args.rounds,
    }
    return Measurement(f"steps of an epoch, hidden {args.hidden}, {graph.title}", COLUMNS, rows, summary)


def limits_of(threads: int, rounds: int) -> Limits:
    """The best of ``rounds``."""
    rng = np.random.default_rng(0)
    n, k, m = PRODUCT
    X, W = rng.standard_normal((n, k), np.float32), rng.standard_normal((k, m), np.float32)
    out = np.empty((n, m), np.float32)
    product_s = min(_seconds(lambda: kernels.matmul(X, W, out=out, threads=threads)) for _ in range(rounds + 1))
    return Limits(2 * n * k * m / product_s, 1e9 * max(triad(TRIAD_BYTES, threads) for _ in range(rounds)))


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _train(args: argparse.Namespace, model: str, run_dir: Path) -> None:
    """Raises: GnnError with the last line of ``siafu train``."""
    settings = {
        "model": model,
        **({} if "hidden" in models.named(model).unused_settings else {"hidden": args.hidden}),
        "epochs": WARMUP_EPOCHS + args.epochs,
        "order": args.order,
        "run-dir": run_dir,
    }
    told = {"train.intervals": 1, "servers.threads": args.threads, "train.eval_every": 0, "run.trace": True}
    command = start.command(
        "siafu",
        "train",
        args.graph,
        "--backend",
        "cpu",
        "--quiet",
        *(word for name, value in settings.items() for word in (f"--{name}", str(value))),
        *(word for key, value in told.items() for word in ("--set", f"{key}={str(value).lower()}")),
    )
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise GnnError(f"{model}: {(done.stderr.strip().splitlines() or [f'exit code {done.returncode}'])[-1]}")


def step_seconds(trace: Path) -> dict[str, list[float]]:
    """Step -> its seconds in each epoch behind the first: of a tensor task what computing took, of a graph task from
    its thread to its end."""
    begun: dict[tuple[int, str], float] = {}
    found: dict[str, list[float]] = defaultdict(list)
    for line in map(json.loads, trace.read_text().splitlines()):
        key = line["epoch"], line["step"]
        if line["lane"] != Lane.TRAIN.value or line["epoch"] <= WARMUP_EPOCHS:
            continue
        if line["event"] == "begin":
            begun[key] = line["time_s"]
        elif line["event"] == "answered":
            found[line["step"]].append(line["compute_s"])
            begun.pop(key, None)
        elif line["event"] == "done" and key in begun:
            found[line["step"]].append(line["time_s"] - begun.pop(key))
    return dict(found)


def rows_of(
    config: Config, graph: Measured, seconds: Mapping[str, float], limits: Limits, threads: int
) -> list[dict[str, Any]]:
    """One for each step that takes time, and one of all."""
    manifest = graph.shards.manifest
    model = models.kept(ModelSpec.of(config, manifest))
    counts = Counts.of(manifest, config.data.split)
    flops, values = (
        [1e9 * work.seconds for work in work_of(config, model, counts, replace(NOTHING, **{name: 1.0}))]
        for name in ("flop_ns", "value_ns")
    )
    nbytes = [work.memory for work in work_of(config, model, counts, NOTHING)]
    found = []
    for place, step in enumerate(model.program(Lane.TRAIN).steps):
        if step.name not in seconds or step.kind is Kind.WU:
            continue
        times = {"compute": flops[place] / limits.flops, "memory": nbytes[place] / limits.bytes_per_s}
        if values[place]:
            read = LINE_VALUES * math.ceil(model.width(str(step.gathers)) / LINE_VALUES)
            edges = values[place] / (read * (2 if step.operator == "attention" else 1))
            times["rows"] = rows_s(graph, model, step, config.model.rows, threads) * edges / manifest.num_edges
        by = max(times, key=lambda name: times[name])
        found.append(_row(model, step.name, seconds[step.name], flops[place], nbytes[place], times[by], by))
    total = {key: sum(row[key] for row in found) for key in ("ms", "GFLOP", "MB", "limit ms")}
    return [*found, {"model": model.spec.name, "step": "all", **total, "share": total["limit ms"] / total["ms"]}]


def _row(
    model: Model, step: str, seconds: float, flops: float, nbytes: float, limit_s: float, by: str
) -> dict[str, Any]:
    return {
        "model": model.spec.name,
        "step": step,
        "ms": 1e3 * seconds,
        "GFLOP": flops / 1e9,
        "MB": nbytes / 1e6,
        "limit ms": 1e3 * limit_s,
        "share": limit_s / seconds,
        "limited by": by,
    }


def rows_s(graph: Measured, model: Model, step: Step, rows: str, threads: int) -> float:
    """Seconds to read the rows that a gather over all edges reads, in its order and layout."""
    shard = graph.shards.partition(0)
    edges = shard.out_edges if step.backward else shard.in_edges
    dtype = "bfloat16" if rows == "bfloat16" else model.spec.dtype
    table = kernels.Table(graph.num_vertices, model.width(str(step.gathers)), dtype, edges=edges.per_row)
    table.write(slice(None), np.ones(table.shape, np.float32), None)
    return min(read_rows(edges.indices, table, threads) for _ in range(3))
