"""Whether the autotuner finds the number of environments that a sweep of fixed numbers finds best, on the queueing
model of ``benchmarks.measure.pipeline_model``.

Best fixed number: the smallest of a sweep whose epochs, as a mean over several seeds, take at most ``FLAT`` longer than
those of the best. Fewer environments cost less; what is gained beyond is within the noise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.measure import Measurement
from benchmarks.measure.pipeline_model import Load, PipelineModel
from graph_server.lambdas.autotune import Autotuner

RATIOS = (0.2, 1.0, 5.0)  # tensor work / graph work
FLAT = 0.03
DECISIONS = 30
WARM_UP = 3  # epochs
#: A sweep goes through numbers so far apart, from so much less than the work's balance to so much more.
SWEEP_STEP, SWEEP_FROM, SWEEP_TO = 1.07, 0.7, 2.2


@dataclass(frozen=True)
class Found:
    """What one run of the autotuner came to."""

    wanted: int  # after ``DECISIONS``
    latest: int  # after twice as many
    changes: int  # of the number, from the ``DECISIONS``-th decision on
    epoch_s: float  # mean of the epochs since
    queue_drift: float  # of the mean graph queue, from the first to the second half of those epochs, in intervals
    queue: float  # the mean graph queue in them


def sweep(load: Load, *, seeds: int = 4, epochs: int = 25) -> dict[int, float]:
    """Number of environments -> mean seconds of an epoch."""
    balance = load.threads * load.ratio
    steps = np.arange(0, np.log(SWEEP_TO / SWEEP_FROM) / np.log(SWEEP_STEP))
    numbers = {1, 2, *np.round(SWEEP_FROM * balance * SWEEP_STEP**steps).astype(int).tolist(), load.intervals}
    return {
        number: float(np.mean([_fixed(load, number, seed, epochs) for seed in range(1000, 1000 + seeds)]))
        for number in sorted(numbers)
        if 1 <= number <= load.intervals
    }


def best(found: dict[int, float]) -> int:
    limit = (1 + FLAT) * min(found.values())
    return min(number for number, epoch_s in found.items() if epoch_s <= limit)


def tuned(load: Load, seed: int) -> Found:
    """The autotuner as a graph server would make it, for ``DECISIONS`` and as many again."""
    tuner = Autotuner(
        load.intervals, load.intervals, load.threads, load.intervals * load.layers, in_layers=load.in_layers
    )
    model = PipelineModel(load, tuner.wanted, seed, tuner)
    while tuner.num_decisions < DECISIONS:
        model.run(1)
    wanted, changes, epochs, begun = tuner.wanted, len(model.decisions), len(model.epoch_ends), model.time_s
    while tuner.num_decisions < 2 * DECISIONS:
        model.run(1)
    epoch_s = (model.time_s - begun) / (len(model.epoch_ends) - epochs)
    first, second = np.array_split(np.array(model.queue_means[epochs:]), 2)
    drift = float(abs(second.mean() - first.mean()))
    queue = float(np.mean(model.queue_means[epochs:]))
    return Found(wanted, tuner.wanted, len(model.decisions) - changes, epoch_s, drift, queue)


def _fixed(load: Load, number: int, seed: int, epochs: int) -> float:
    model = PipelineModel(load, number, seed)
    model.run(WARM_UP)
    return model.run(epochs) / epochs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=8, help="graph threads of the server (default 8)")
    parser.add_argument("--intervals", type=int, default=128, help="intervals of the server (default 128)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of the autotuner (default 5)")


def measure(args: argparse.Namespace) -> Measurement:
    rows = []
    for in_layers in (False, True):
        for ratio in RATIOS:
            load = Load(threads=args.threads, intervals=args.intervals, ratio=ratio, in_layers=in_layers)
            rows.append(row(load, args.seeds))
    columns = (
        "mode",
        "tensor/graph",
        "best fixed",
        "ms/epoch",
        "started at",
        f"after {DECISIONS} decisions",
        "off by at most",
        "epoch time",
        "changes later",
        "queue",
        "queue drift",
    )
    worst = max(row["off by at most"] for row in rows if row["mode"] == "async")
    return Measurement(
        f"autotuner against a sweep, {args.threads} threads, {args.intervals} intervals, {args.seeds} seeds",
        columns,
        rows,
        {"largest deviation in async": worst},
    )


def row(load: Load, seeds: int) -> dict[str, Any]:
    fixed = sweep(load)
    number, fastest = best(fixed), min(fixed.values())
    runs = [tuned(load, seed) for seed in range(seeds)]
    numbers = sorted(run.wanted for run in runs)
    return {
        "mode": "pipe" if load.in_layers else "async",
        "tensor/graph": load.ratio,
        "best fixed": number,
        "ms/epoch": 1000 * fixed[number],
        "started at": min(load.intervals, 100),
        f"after {DECISIONS} decisions": f"{numbers[0]} to {numbers[-1]}",
        "off by at most": max(abs(n - number) for n in numbers) / number,
        "epoch time": float(np.mean([run.epoch_s for run in runs])) / fastest,
        "changes later": max(run.changes for run in runs),
        "queue": float(np.mean([run.queue for run in runs])),
        "queue drift": max(run.queue_drift for run in runs),
        "sweep": {str(n): s for n, s in fixed.items()},
    }
