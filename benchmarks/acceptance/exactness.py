"""Is training on many servers full-batch training? Loss histories of ``pipe`` beside those of ``tests/reference.py``.

    python -m benchmarks.acceptance.exactness [--epochs 50] [--only
    cora-gcn-float64-lambda] [--intervals 4] [--json FILE]

Every combination of graph, model, precision, backend, partitions and parameter servers, with dropout 0.5 and
weight decay 5e-4; models besides GCN and GraphSAGE with the options below, and with one parameter server for
one partition and three for more. The figure is the largest relative difference of an epoch's loss; the bound is
1e-9 in float64 and 1e-4 in float32.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.acceptance import table
from graph_data.link_split import Shares, hold_out
from graph_data.prepare import prepare, resolve
from run_coordinator import api
from siafu import config as configs
from siafu.config import Config
from siafu.graph import Graph, tidy
from siafu.models import ModelSpec, build
from siafu.run_files import CONFIG
from siafu.shards import Manifest, ShardSet
from siafu.tasks import Lane
from tests import reference, reference_links
from tests.toy_graphs import random_graph

BOUND = {"float64": 1e-9, "float32": 1e-4}
WEIGHT_DECAY = 5e-4
GRAPHS = ("random", "cora", "typed", "links")
#: Graphs that are for some models alone, and these for no other graph.
MADE_FOR = {"typed": ("rgcn", "rgcn_bases"), "links": ("links_dot", "links_mlp")}
SHARES = Shares(val=0.05, test=0.1, negatives=3, eval_negatives=5)  # of "links"
#: Slowest last, so that something broken shows early.
CASES = (("float64", "float32"), ("cpu", "lambda"), (1, 2, 4), (1, 3))
#: A row's model -> its settings, so that every option of every model is in some row.
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {},
    "sage": {},
    "gat": {"model.name": "gat", "model.heads": 4, "model.attn_dropout": 0.3, "model.activation": "elu"},
    "gat_edge_tasks": {"model.name": "gat", "model.heads": 4, "model.residual": True, "lambda.apply_edge": "lambda"},
    "gin": {"model.name": "gin", "model.eps": 0.1, "model.norm": "layer"},
    "gin_learnt": {"model.name": "gin", "model.layers": 3, "model.train_eps": True, "model.jump": "cat"},
    "gcnii": {"model.name": "gcnii", "model.layers": 8, "train.weight_decay_rest": 0.01},
    "appnp": {"model.name": "appnp"},
    "sgc": {"model.name": "sgc", "model.hops": 2},
    "gcn_jump": {"model.name": "gcn", "model.layers": 3, "model.jump": "max", "model.residual": True},
    "rgcn": {"model.name": "rgcn", "model.layers": 3, "model.norm": "layer"},
    "rgcn_bases": {"model.name": "rgcn", "model.bases": 2},
    "links_dot": {"model.name": "gcn"},
    "links_mlp": {"model.name": "sage", "model.decoder": "mlp"},
}


@dataclass(frozen=True)
class Row:
    graph: str
    model: str
    dtype: str
    backend: str
    parts: int
    param_servers: int
    difference: float

    @property
    def holds(self) -> bool:
        return self.difference <= BOUND[self.dtype]


def load(name: str) -> Graph:
    """Cora as published, or a directed weighted graph with vertices that have no edge, or none in one direction; one
    whose edges have types; or one whose edges are to be predicted."""
    if name == "cora":
        return tidy(resolve("cora").load(), directed=False, feature_norm="none")
    if name == "typed":
        return tidy(resolve("synthetic:typed?vertices=400&relations=3&classes=3&seed=1").load())
    return random_graph(11, 400, num_edges=1600, num_features=30, directed=name != "links")


class Measurement:
    """Runs cases; a reference is trained once for all that share it."""

    def __init__(self, epochs: int, intervals: int, folder: Path):
        self.epochs, self.intervals, self.folder = epochs, intervals, folder
        # All mutable state:
        self._graphs: dict[str, Graph] = {}
        self._references: dict[tuple[str, ModelSpec], list[float]] = {}
        self._num_runs = 0

    def row(self, graph: str, model: str, dtype: str, backend: str, parts: int, param_servers: int) -> Row:
        shards = self._shards(graph, parts)
        self._num_runs += 1
        heeded = backend == "lambda"
        options = {key: value for key, value in MODELS[model].items() if heeded or not key.startswith("lambda.")}
        run = api.train(
            str(shards),
            run_dir=str(self.folder / f"run-{self._num_runs}"),
            mode="pipe",
            backend=backend,
            param_servers=param_servers,
            epochs=self.epochs,
            intervals=self.intervals,
            hidden=16,
            dropout=0.5,
            weight_decay=WEIGHT_DECAY,
            eval_every=0,
            settings={"model.name": model, "model.dtype": dtype, **options},
        )
        expected = self._expected(graph, configs.load(run.dir / CONFIG), ShardSet.open(shards).manifest)
        found = np.array(run.result["loss_history"])
        return Row(graph, model, dtype, backend, parts, param_servers, float(np.max(np.abs(found / expected - 1))))

    def _shards(self, name: str, parts: int) -> Path:
        if name not in self._graphs:
            self._graphs[name] = load(name)
        path = self.folder / f"{name}-{parts}"
        if not path.exists():
            task = {"task": "link", **_options(SHARES)} if name == "links" else {}
            prepare(self._graphs[name], path, parts=parts, directed=self._graphs[name].directed, **task)
        return path

    def _expected(self, graph: str, config: Config, manifest: Manifest) -> list[float]:
        # Where tensor tasks run and what they recompute is not the reference's business.
        spec = replace(ModelSpec.of(config, manifest), apply_edge="server", rematerialise=True)
        key = graph, spec
        if key not in self._references and graph == "links":
            held, number = hold_out(tidy(self._graphs[graph]), SHARES, manifest.seed), _number_of_pairs(spec)
            trained = reference_links.train(
                held, spec, number, epochs=self.epochs, lr=config.train.lr, weight_decay=WEIGHT_DECAY
            )
            self._references[key] = trained.losses
        elif key not in self._references:
            trained = reference.train(
                self._graphs[graph],
                spec,
                epochs=self.epochs,
                weight_decay=WEIGHT_DECAY,
                weight_decay_rest=config.train.weight_decay_rest,
            )
            self._references[key] = trained.losses
        return self._references[key]


def _options(shares: Shares) -> dict[str, Any]:
    """As ``prepare`` calls them."""
    return {
        "val_edges": shares.val,
        "test_edges": shares.test,
        "negatives": shares.negatives,
        "eval_negatives": shares.eval_negatives,
    }


def _number_of_pairs(spec: ModelSpec) -> int:
    """Of the step that scores pairs."""
    return next(step.layer for step in build(spec).program(Lane.EVAL).steps if step.operator == "pairs")


def main(argv: Sequence[str] | None = None) -> int:
    args = table.parser(
        __doc__,
        epochs=50,
        intervals=(4, "per graph server"),
        only=("", "rows whose name starts with this: GRAPH-MODEL-DTYPE-BACKEND-P-Q"),
    ).parse_args(argv)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        measurement = Measurement(args.epochs, args.intervals, Path(folder))
        for graph, model, dtype, backend, parts, servers in itertools.product(GRAPHS, MODELS, *CASES):
            if any((graph == made) != (model in models) for made, models in MADE_FOR.items()):
                continue
            if model not in ("gcn", "sage") and servers != (1 if parts == 1 else 3):
                continue
            if model == "gat_edge_tasks" and backend == "cpu":
                continue
            if not f"{graph}-{model}-{dtype}-{backend}-{parts}-{servers}".startswith(args.only):
                continue
            row = measurement.row(graph, model, dtype, backend, parts, servers)
            rows.append(row)
            table.say(row)
    table.show([asdict(row) for row in rows], red=[not row.holds for row in rows])
    for dtype, bound in BOUND.items():
        worst = max((row.difference for row in rows if row.dtype == dtype), default=0.0)
        print(f"{dtype}: at most {worst:.1e} over {args.epochs} epochs, bound {bound:g}")
    held = all(row.holds for row in rows)
    print(f"exactness {'holds' if held else 'FAILS'} in {len(rows)} runs")
    table.record(args.json, [asdict(row) for row in rows])
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
