"""What asynchrony costs in epochs: ``async`` with s = 0 and 1 beside ``pipe``, as
siafu does it and as the paper has it.

    python -m benchmarks.acceptance.asynchrony [--seeds 5] [--only GRAPH] [--backend cpu|lambda] [--json FILE]

For each graph and seed, ``pipe`` sets the bar: its best validation accuracy less half a point. A variant's figure is
the number of epochs until its validation accuracy first reaches the bar, as a ratio to pipe's own number; the mean over
seeds of epochs divided by pipe's mean. Validation sets are small, so pipe runs a second time with other initial weights
against the first one's bar: how far that ratio is from 1 is the noise of the measurement. The staleness bound is
checked on the trace of every asynchronous run.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.acceptance import table
from run_coordinator import api

REDDIT = "synthetic:reddit-small?scale=0.05"
#: name -> (source, epochs, settings)
GRAPHS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "amazon_computers": ("amazon_computers", 150, {}),
    "amazon_computers, row": ("amazon_computers", 120, {"feature_norm": "row"}),
    "reddit-small 0.05": (REDDIT, 60, {}),
    "coauthor_cs": ("coauthor_cs", 60, {}),
}
#: The paper's asynchrony: gathers never wait, intervals have no locality; with s > 0 as many as can may run ahead.
PAPER = {"train.freshness": 0.0, "train.warmup_epochs": 0, "data.order": "random"}
#: name -> (staleness or None for pipe, settings)
VARIANTS: dict[str, tuple[int | None, dict[str, Any]]] = {
    "pipe": (None, {}),
    "pipe other init": (None, {"train.seed": 1000}),
    "s=0": (0, {}),
    "s=1": (1, {}),
    "s=0 as published": (0, PAPER),
    "s=1 as published": (1, {**PAPER, "train.ahead": 1.0}),
}
BAR = 0.005


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        seeds=5,
        only=("", "graphs whose name contains this"),
        backend="cpu",
        variants=",".join(VARIANTS),
        val_per_class=30,
        set=([], "for every variant but pipe"),
    ).parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name in (name for name in GRAPHS if args.only in name):
        rows += measure(
            name, args.seeds, args.variants.split(","), args.backend, args.val_per_class, table.settings(args)
        )
        table.show([shown(row) for row in rows])
    table.record(args.json, rows)
    return 0


def measure(
    name: str, seeds: int, variants: list[str], backend: str, val_per_class: int, extra: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row per variant: epochs to pipe's bar by seed (None: never), best accuracies, seconds per epoch."""
    source, epochs, settings = GRAPHS[name]
    results: dict[str, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for seed in range(seeds):
        for variant in variants:
            staleness, more = VARIANTS[variant]
            short = mode_of(staleness)
            values = {"data.val_per_class": val_per_class, "data.seed": seed, "train.seed": seed}
            values |= extra if staleness is not None else {}
            values |= {key: value + seed if key == "train.seed" else value for key, value in more.items()}
            with tempfile.TemporaryDirectory() as folder:
                run = api.train(
                    source,
                    settings=values,
                    parts=2,
                    intervals=16,
                    hidden=64,
                    epochs=epochs,
                    backend=backend,
                    run_dir=f"{folder}/run",
                    **short,
                    **settings,
                )
                accuracy = [
                    scores["acc"] for line in run.metrics() if line["event"] == "evaluation" and (scores := line["val"])
                ]
                if staleness is not None:
                    check_bound(run.dir, staleness)
                results[variant].append({"accuracy": accuracy, "epoch_s": run.result["epoch_seconds_median"]})
    rows = []
    for variant in variants:
        bars = [max(pipe["accuracy"]) - BAR for pipe in results["pipe"]]
        reached = [first(r["accuracy"], bar) for r, bar in zip(results[variant], bars, strict=True)]
        reference = [first(r["accuracy"], bar) for r, bar in zip(results["pipe"], bars, strict=True)]
        rows.append(
            {
                "graph": name,
                "variant": variant,
                "epochs": reached,
                "missed": reached.count(None),
                # A seed that never gets there counts with all the epochs it was given: the ratio is then a lower bound.
                "ratio": sum(n or epochs for n in reached) / sum(n or epochs for n in reference),
                "best": float(np.mean([max(r["accuracy"]) for r in results[variant]])),
                "epoch_s": float(np.median([r["epoch_s"] for r in results[variant]])),
                "curves": [r["accuracy"] for r in results[variant]],
            }
        )
    return rows


def mode_of(staleness: int | None) -> dict[str, Any]:
    """The flags of a variant."""
    traced = {"trace": True}  # of pipe too: it takes its time
    return {"mode": "pipe", **traced} if staleness is None else {"mode": "async", "staleness": staleness, **traced}


def first(accuracy: list[float], bar: float) -> int | None:
    """Number of epochs after which the bar is reached."""
    return next((epoch + 1 for epoch, value in enumerate(accuracy) if value >= bar), None)


def check_bound(run_dir: Path, staleness: int) -> None:
    """From the traces: no interval enters an epoch more than ``staleness`` after the slowest interval of any server."""
    lines = [json.loads(line) for path in run_dir.glob("trace-*.jsonl") for line in path.read_text().splitlines()]
    train = sorted((line for line in lines if line["lane"] == "train"), key=lambda line: line["time_s"])
    last_pc = max(line["pc"] for line in train)
    finished = {
        (line["interval"], line["epoch"] - 1): line["time_s"]
        for line in train
        if line["event"] == "done" and line["pc"] == last_pc
    }
    latest: dict[int, float] = {}  # epoch -> when its last interval finished
    for (_, epoch), when in finished.items():
        latest[epoch] = max(latest.get(epoch, 0.0), when)
    for line in train:
        if line["event"] == "start" and line["pc"] == 0 and line["epoch"] - 1 > staleness:
            # Epoch e may begin when every interval has finished epoch e - s - 1.
            assert line["time_s"] >= latest[line["epoch"] - staleness - 2], (
                f"staleness bound {staleness} exceeded: {line}"
            )


def shown(row: dict[str, Any]) -> dict[str, str]:
    return {
        "graph": row["graph"],
        "variant": row["variant"],
        "epochs by seed": " ".join("-" if n is None else str(n) for n in row["epochs"]),
        "ratio": f"{'>' if row['missed'] else ''}{row['ratio']:.2f}",
        "best val": f"{row['best']:.4f}",
        "ms/epoch": f"{1000 * row['epoch_s']:.0f}",
    }


if __name__ == "__main__":
    sys.exit(main())
