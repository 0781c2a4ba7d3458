"""Is training on many servers full-batch training? Loss histories of ``pipe`` beside those of ``tests/reference.py``.

    python -m bench.acceptance.exactness [--epochs 50] [--only cora-gcn-float64-lambda] [--intervals 4] [--json FILE]

Every combination of graph, model, precision, backend, partitions and parameter servers, with dropout 0.5 and weight decay
5e-4. The figure is the largest relative difference of an epoch's loss; the bound is 1e-9 in float64 and 1e-4 in float32.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from bench import api
from datasets.prepare import prepare, resolve
from siafu import config as configs
from siafu.graph import Graph, tidy
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from tests import reference
from tests.toy_graphs import random_graph

BOUND = {"float64": 1e-9, "float32": 1e-4}
WEIGHT_DECAY = 5e-4
GRAPHS = ("random", "cora")
#: Slowest last, so that something broken shows early.
CASES = (("gcn", "sage"), ("float64", "float32"), ("cpu", "lambda"), (1, 2, 4), (1, 3))


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
    """Cora as published, or a directed weighted graph with vertices that have no edge, or none in one direction."""
    if name == "cora":
        return tidy(resolve("cora").load(), directed=False, feature_norm="none")
    return random_graph(11, 400, num_edges=1600, num_features=30)


class Measurement:
    """Runs cases; a reference is trained once for all that share it."""

    def __init__(self, epochs: int, intervals: int, folder: Path):
        self.epochs, self.intervals, self.folder = epochs, intervals, folder
        # All mutable state:
        self._graphs: dict[str, Graph] = {}
        self._references: dict[tuple[str, str, str], list[float]] = {}
        self._num_runs = 0

    def row(self, graph: str, model: str, dtype: str, backend: str, parts: int, param_servers: int) -> Row:
        shards = self._shards(graph, parts)
        self._num_runs += 1
        run = api.train(
            str(shards), run_dir=str(self.folder / f"run-{self._num_runs}"), mode="pipe", model=model, backend=backend,
            param_servers=param_servers, epochs=self.epochs, intervals=self.intervals, hidden=16, dropout=0.5,
            weight_decay=WEIGHT_DECAY, eval_every=0, settings={"model.dtype": dtype},
        )  # fmt: skip
        expected = self._expected(
            graph, ModelSpec.of(configs.load(run.dir / "config.toml"), ShardSet.open(shards).manifest)
        )
        found = np.array(run.result["loss_history"])
        return Row(graph, model, dtype, backend, parts, param_servers, float(np.max(np.abs(found / expected - 1))))

    def _shards(self, name: str, parts: int) -> Path:
        if name not in self._graphs:
            self._graphs[name] = load(name)
        path = self.folder / f"{name}-{parts}"
        if not path.exists():
            prepare(self._graphs[name], path, parts=parts, directed=self._graphs[name].directed)
        return path

    def _expected(self, graph: str, spec: ModelSpec) -> list[float]:
        key = graph, spec.name, spec.dtype
        if key not in self._references:
            trained = reference.train(self._graphs[graph], spec, epochs=self.epochs, weight_decay=WEIGHT_DECAY)
            self._references[key] = trained.losses
        return self._references[key]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--intervals", type=int, default=4, help="per graph server")
    parser.add_argument("--only", default="", help="rows whose name starts with this: GRAPH-MODEL-DTYPE-BACKEND-P-Q")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args(argv)
    table = Table("graph", "model", "dtype", "backend", "P", "Q", "largest relative difference", "")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        measurement = Measurement(args.epochs, args.intervals, Path(folder))
        for graph, model, dtype, backend, parts, servers in itertools.product(GRAPHS, *CASES):
            if not f"{graph}-{model}-{dtype}-{backend}-{parts}-{servers}".startswith(args.only):
                continue
            row = measurement.row(graph, model, dtype, backend, parts, servers)
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
            values = [str(value) for value in list(asdict(row).values())[:-1]]
            table.add_row(*values, f"{row.difference:.1e}", "" if row.holds else "TOO LARGE")
    Console(width=120).print(table)
    for dtype, bound in BOUND.items():
        worst = max((row.difference for row in rows if row.dtype == dtype), default=0.0)
        print(f"{dtype}: at most {worst:.1e} over {args.epochs} epochs, bound {bound:g}")
    held = all(row.holds for row in rows)
    print(f"exactness {'holds' if held else 'FAILS'} in {len(rows)} runs")
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
