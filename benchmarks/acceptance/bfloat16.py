"""What ``model.rows = bfloat16`` does to accuracy: the same runs with rows in float32 and in bfloat16.

    python -m benchmarks.acceptance.bfloat16 --results FILE [--seeds 5] [--only GRAPH] [--model gcn]

Goes on where it stopped.

A pair has the same seed of the split, the first weights and dropout. ± of a score is the standard deviation over seeds,
of a difference the standard error of the mean of the pairs' differences.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.acceptance import table
from benchmarks.acceptance.table import Results
from run_coordinator import api

SHARED = {
    "model.hidden": 64,
    "model.dropout": 0.5,
    "train.mode": "pipe",
    "train.lr": 0.01,
    "train.weight_decay": 5e-4,
    "train.epochs": 200,
    "train.eval_every": 5,
    "servers.backend": "cpu",
}
ROW: dict[str, Any] = {"data.feature_norm": "row"}
#: graph -> its own settings; features of the others are as published
GRAPHS: dict[str, dict[str, Any]] = {
    "cora": ROW,
    "citeseer": ROW,
    "amazon_computers": {},
    "coauthor_cs": ROW,
    "coauthor_physics": ROW,
    "blogcatalog": {},
    "dblp": {},
    "tolokers": {"data.feature_norm": "standard"},
}
ROWS = {"float32": "exact", "bfloat16": "bfloat16"}  # name -> model.rows


def main(argv: Sequence[str] | None = None) -> int:
    parser = table.parser(
        __doc__, results=(Path("bfloat16.jsonl"), "finished runs"), seeds=5, only=("", "graphs whose name contains it")
    )
    parser.add_argument("--model", default="gcn", metavar="NAME", help="gcn, sage, gat, ... [gcn]")
    args = parser.parse_args(argv)
    results, rows = Results(args.results), []
    for graph in (graph for graph in GRAPHS if args.only in graph):
        rows.append(line(graph, args.model, results, args.seeds))
        table.show(rows)
    table.markdown(rows)
    table.record(args.json, rows)
    return 0


def line(graph: str, model: str, results: Results, seeds: int) -> dict[str, str]:
    scores = {kind: [score(graph, model, kind, seed, results) for seed in range(seeds)] for kind in ROWS}
    pairs = [100 * (short - full) for full, short in zip(scores["float32"], scores["bfloat16"], strict=True)]
    told = {kind: _told(100 * statistics.fmean(found), _spread(found, 100)) for kind, found in scores.items()}
    difference = _told(statistics.fmean(pairs), _spread(pairs) / seeds**0.5, sign="+")
    return {"model": model, "graph": graph, **told, "bfloat16 minus float32, points": difference}


def score(graph: str, model: str, kind: str, seed: int, results: Results) -> float:
    """Test accuracy at the best validation score."""
    key = f"{model} {graph} {kind} seed {seed}"
    if key not in results:
        own = {"model.name": model, "model.rows": ROWS[kind], "train.seed": seed, "data.seed": seed}
        settings = {**SHARED, **GRAPHS[graph], **own}
        with tempfile.TemporaryDirectory() as folder:
            run = api.train(graph, settings=settings, run_dir=f"{folder}/run")
        results.add(key, {"test": run.result["test_acc"], "epoch_s": run.result["epoch_seconds_median"]})
    return float(results[key]["test"])


def _spread(values: Sequence[float], factor: float = 1.0) -> float:
    return factor * statistics.stdev(values) if len(values) > 1 else 0.0


def _told(mean: float, spread: float, sign: str = "") -> str:
    return f"{mean:{sign}.2f} ± {spread:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
