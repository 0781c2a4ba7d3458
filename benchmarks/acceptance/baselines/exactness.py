"""Issue 6, acceptance 1: what is exact beside one machine: the losses of every epoch, and the final weights.

    python -m benchmarks.acceptance.baselines.exactness [--epochs 8] [--only cagnet] [--ranks 2 3 4] [--json FILE]

Vanilla, PipeGCN of depth 0, CAGNET (1D and 1.5D) and GNNPipe with one chunk, in float64 with dropout 0.5 and weight
decay, of every model that baselines have, on a directed weighted graph with vertices without edges, one with sparse
features, one with several labels per vertex, and one of seven vertices, whose parts are smaller than is convenient;
beside the oracle of the tests. Their ranks are threads here; ``--processes`` runs GCN of each method over Gloo, too.
Gossip on one rank is held against Cluster-GCN. The bound is 1e-9.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.acceptance import table
from run_coordinator.baseline import train_baseline
from siafu import model_file
from siafu.baseline import BaselineConfig
from siafu.graph import Graph, tidy
from siafu.shards import ShardSet
from tests.gpu_baselines import training
from tests.toy_graphs import random_graph, with_sparse_features

BOUND = 1e-9
#: Line -> method, and its settings ("section__key").
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "pipegcn, depth 0": ("pipegcn", {"baseline__depth": 0}),
    "cagnet": ("cagnet", {}),
    "cagnet 1.5D": ("cagnet", {"baseline__replicas": 2}),
    "gnnpipe, K = 1": ("gnnpipe", {"baseline__chunks": 1}),
}
MODELS: Mapping[str, Mapping[str, Any]] = {
    "gcn": {"model__hidden": "6", "model__norm": "layer"},
    "sage": {"model__name": "sage", "model__hidden": "6"},
    "gat": {"model__name": "gat", "model__hidden": "6", "model__heads": 2, "model__attn_dropout": 0.3},
    "gcnii": {"model__name": "gcnii", "model__hidden": "5"},
}
GRAPHS: Mapping[str, Graph] = {
    "directed, weighted": random_graph(1),
    "sparse features": with_sparse_features(random_graph(2, directed=False, weighted=False)),
    "multi-label": random_graph(3, multilabel=True),
    "tiny": replace(random_graph(4, num_vertices=7, num_edges=5), name="tiny"),
}
LAYERS = 4  # a pipeline of four stages has a layer for each


@dataclass(frozen=True)
class Row:
    method: str
    model: str
    graph: str
    ranks: int
    where: str
    losses: float  # the largest difference of an epoch's
    weights: float  # and of any final weight

    @property
    def holds(self) -> bool:
        return max(self.losses, self.weights) <= BOUND


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        epochs=8,
        only=list(METHODS),
        ranks=[2, 3, 4],
        processes=(False, "GCN also with ranks as processes, over Gloo"),
    ).parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            method, settings = METHODS[name]
            found = _rows(name, method, settings, Path(folder), args.ranks, args.epochs, processes=args.processes)
            worst = max((max(row.losses, row.weights) for row in found), default=0.0)
            print(f"{name}: {len(found)} combinations, the largest difference is {worst:.2g}", flush=True)
            rows += found
        gossip = _gossip(Path(folder))
    shown = []
    for name in dict.fromkeys(row.method for row in rows):
        for ranks in sorted({row.ranks for row in rows if row.method == name}):
            mine = [row for row in rows if (row.method, row.ranks) == (name, ranks)]
            worst_of = {what: max(getattr(row, what) for row in mine) for what in ("losses", "weights")}
            shown.append({"method": name, "ranks": ranks, "combinations": len(mine), **worst_of})
    table.show(shown)
    print(f"gossip on one rank and Cluster-GCN: {gossip or 'the same weights'}")
    table.record(args.json, [asdict(row) for row in rows])
    for row in rows:
        if not row.holds:
            print(f"beyond {BOUND:g}: {row}")
    return 0 if all(row.holds for row in rows) and not gossip.startswith("DIFFERENT") else 1


def _rows(
    name: str,
    method: str,
    settings: Mapping[str, Any],
    folder: Path,
    all_ranks: Sequence[int],
    epochs: int,
    *,
    processes: bool,
) -> list[Row]:
    found = []
    for ranks in all_ranks:
        if ranks % int(settings.get("baseline__replicas", 1)):
            continue
        for model, options in MODELS.items():
            for graph_name, graph in GRAPHS.items():
                config = training.config_of(
                    method, ranks, model__layers=LAYERS, model__dropout=0.5, **{**options, **settings}
                )
                shards = training.prepared(graph, folder / str(config.partitions), config.partitions)
                wanted = training.oracle(config, shards, tidy(graph, directed=graph.directed), epochs)
                ran = training.train(config, shards, epochs)
                found.append(_row(name, model, graph_name, ranks, "threads", ran.losses, ran.weights, wanted))
                if processes and (model, graph_name) == ("gcn", "directed, weighted"):
                    losses, weights = _over_gloo(config, shards, epochs)
                    found.append(_row(name, model, graph_name, ranks, "gloo", losses, weights, wanted))
    return found


def _row(
    method: str,
    model: str,
    graph: str,
    ranks: int,
    where: str,
    losses: list[float],
    weights: Mapping[str, Any],
    wanted: Any,
) -> Row:
    off = max(float(np.abs(weights[name] - W).max(initial=0)) for name, W in wanted.weights.items())
    return Row(method, model, graph, ranks, where, training.differs_by(losses, wanted.losses), off)


def _over_gloo(config: BaselineConfig, shards: ShardSet, epochs: int) -> tuple[list[float], dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        asked = config.replace(
            {"data.source": str(shards.path), "train.epochs": epochs, "run.dir": f"{folder}/run", "data.parts": 1}
        )
        run = train_baseline(config.baseline.method, config=asked)
        return run.result["loss_history"], model_file.load_model(run.dir / "final.safetensors")[0]


def _gossip(folder: Path) -> str:
    """ "" if gossip on one rank has Cluster-GCN's weights."""
    graph, options = GRAPHS["directed, weighted"], {"model__hidden": 6, "baseline__subgraphs": 4}
    found = []
    for method in ("gossip", "cluster"):
        config = training.config_of(method, 1, **options)
        shards = training.prepared(graph, folder / "batches", config.partitions)
        found.append(training.train(config, shards, 5))
    same = all(np.array_equal(found[1].weights[name], W) for name, W in found[0].weights.items())
    return "" if same else "DIFFERENT"


if __name__ == "__main__":
    sys.exit(main())
