"""Issue 38, section A: what methods on batches of subgraphs learn from raw features, beside vanilla.

    python -m benchmarks.acceptance.baselines.batches --only amazon_computers --seeds 5 --results FILE
    python -m benchmarks.acceptance.baselines.batches --report --results FILE             the table, as Markdown

GCN 2 x 64, Adam, learning rate .01, dropout .5, 40 METIS subgraphs, features as they are. "one" is one subgraph a
batch, "mixed" the default. Ranks are threads of this process: accuracies are those of processes, times are not. A
score is the test accuracy where validation is best, judged every fifth epoch; vanilla takes more epochs, as it steps
once in each. Every run is a line of the results file, and is not run again. Exit code 1 if a default is more than 3
points below vanilla.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpu_baselines.group import Group
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from run_coordinator import api
from run_coordinator.baseline import settings as baseline_settings
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from tests.gpu_baselines.ranks import on_ranks

GRAPHS = ("amazon_computers", "coauthor_cs", "blogcatalog", "dblp")
MODEL = {"model.hidden": 64, "baseline.device": "cpu"}
ONE, TWO = {"baseline.ranks": 1}, {"baseline.ranks": 2}
V1 = {"baseline.gossip": "v1", **TWO}
#: Row of the table -> method and its settings.
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vanilla": ("vanilla", ONE),
    "cluster": ("cluster", ONE),
    "allreduce": ("allreduce", TWO),
    "gossip v1": ("gossip", V1),
    "gossip v2": ("gossip", TWO),
}
BATCHES: Mapping[str, Mapping[str, Any]] = {"mixed": {}, "one": {"baseline.per_batch": 1}}
EVERY, BAR = 5, 3.0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parse(argv)
    torch.set_num_threads(1)
    known = _known(args.results)
    for seed in range(args.seeds if not args.report else 0):
        for graph in args.only:
            for name in METHODS:
                for kind in BATCHES if name != "vanilla" else ("",):
                    key = (graph, name, kind, seed)
                    if key in known:
                        continue
                    epochs = args.epochs if kind else args.vanilla_epochs
                    found = {"key": key, "epochs": epochs, **trained(*key, epochs)}
                    known[key] = found
                    with args.results.open("a") as file:
                        file.write(json.dumps(found) + "\n")
                    print(json.dumps(found), flush=True)
    return _show(known, args.only)


def trained(graph: str, name: str, kind: str, seed: int, epochs: int) -> dict[str, Any]:
    method, own = METHODS[name]
    changes = {**MODEL, **own, **BATCHES.get(kind, {}), "train.seed": seed, "data.seed": seed, "train.epochs": epochs}
    config = baseline_settings.resolve(method, graph, None, changes, {})
    config = config.replace({"data.parts": config.partitions})
    shards = ShardSet.open(api.shards_of(config))
    config = baseline_settings.fitted(config, shards)
    spec = ModelSpec.of(config, shards.manifest)
    metric = METRICS[spec.target]

    def rank(group: Group) -> dict[str, Any]:
        learning = made(Run(config, shards, group, spec, torch.device("cpu")))
        best, test = -1.0, 0.0
        for epoch in range(epochs):
            learning.epoch(epoch)
            if epoch % EVERY == EVERY - 1:
                tallies = group.share(learning.tally().tolist())
                scores = metric.scores(metric.merge([np.asarray(one) for one in tallies]))
                val, its = scores["val"], scores["test"]
                if val is not None and its is not None and val["acc"] > best:
                    best, test = val["acc"], its["acc"]
        facts = learning.facts()
        learning.close()
        return {"test_acc": test, **{what: facts[what] for what in ("per_batch", "mixture") if what in facts}}

    return on_ranks(config.baseline.ranks, rank)[0]


def _known(file: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    lines = file.read_text().splitlines() if file.is_file() else []
    return {tuple(line["key"]): line for line in map(json.loads, lines)}


def _show(known: Mapping[tuple[Any, ...], Mapping[str, Any]], graphs: Sequence[str]) -> int:
    """Mean test accuracies ± their deviation over seeds; 1 if a default misses the bar."""
    missed = 0
    print("| graph | seeds | method | vanilla | one subgraph | mixed, the default | minus vanilla, points |")
    print("|---|---|---|---|---|---|---|")
    for graph in graphs:
        for name in METHODS:
            seeds = [key[3] for key in known if key[:3] == (graph, name, "mixed")]
            kinds = {"vanilla": ("vanilla", ""), "one": (name, "one"), "mixed": (name, "mixed")}
            keys = {column: [(graph, *which, seed) for seed in seeds] for column, which in kinds.items()}
            rows = {column: [known[key] for key in wanted if key in known] for column, wanted in keys.items()}
            if not seeds or any(len(found) != len(seeds) for found in rows.values()):
                continue
            scores = {column: [one["test_acc"] for one in found] for column, found in rows.items()}
            points = [100 * (a - b) for a, b in zip(scores["mixed"], scores["vanilla"], strict=True)]
            missed += statistics.mean(points) < -BAR
            sizes = sorted({one["per_batch"] for one in rows["mixed"]})
            cells = [f"{statistics.mean(s):.3f} ± {statistics.pstdev(s):.3f}" for s in scores.values()]
            print(
                f"| {graph} | {len(seeds)} | {name} | {cells[0]} | {cells[1]} | {cells[2]} "
                f"({', '.join(map(str, sizes))}) | {statistics.mean(points):+.1f} |"
            )
    return 1 if missed else 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=GRAPHS, choices=GRAPHS, help="graphs, of $SIAFU_DATA")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=30, help="of methods on batches [30, as the thesis]")
    parser.add_argument("--vanilla-epochs", type=int, default=150)
    parser.add_argument("--results", type=Path, default=Path("batches.jsonl"), metavar="FILE")
    parser.add_argument("--report", action="store_true", help="run nothing")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
