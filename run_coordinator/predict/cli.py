"""``siafu predict``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graph_data import source_flags
from run_coordinator import run_config
from run_coordinator.predict import predict_to
from run_coordinator.predict.plan import check_run
from siafu.errors import ConfigError
from siafu.progress import Display

EXAMPLES = """siafu starts the run's servers with its settings and the best epoch's weights, and evaluates every
vertex; with the run's partitions, the scores equal the run's. FILE's ending chooses the format; rows
are in the order of the graph's vertices:

  .csv      id, class, true (the label, if there is one), split, and a column for each score
  .parquet  the same, the scores as one list (needs pyarrow)
  .npy      the scores alone: row v is vertex v

Ids and classes are written as in the graph's files. Regression gives numbers; link prediction and
--layer give embeddings. Classes and edge types of another graph are matched by name (else by number).
It may lack some of them, or all labels, but may not have others. Another graph is prepared as the run's
was, and standardised (feature_norm = standard) with the run's means and deviations.

examples:
  siafu predict runs/20260301-120000-cora-gcn-pipe
  siafu predict runs/mine --out predictions.parquet --scores logits
  siafu predict runs/mine --graph tomorrow.npz --out tomorrow.csv --json
  siafu predict runs/mine --graph new.csv --features users2.csv
  siafu predict runs/mine --layer 1 --out hidden.npy --backend cpu
"""
FLAGS = {"parts": "data.parts", "backend": "servers.backend", "on": "run.on"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu predict RUN [--out FILE] [--FLAG VALUE ...]"
    parser.description = (
        "Predict every vertex of a graph with a run's model: classes and scores, numbers, or embeddings."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", help="directory of a run: finished, or with a checkpoint")
    parser.add_argument(
        "--graph", default="", metavar="NEW", help="another graph with as many features, as for siafu train"
    )
    parser.add_argument(
        "--layer", default=None, metavar="K", help="write the activations that enter layer K (1 or more) instead"
    )
    parser.add_argument(
        "--scores", default="probabilities", metavar="KIND", help="probabilities or logits [probabilities]"
    )
    parser.add_argument("--out", default="", metavar="FILE", help=".csv, .parquet or .npy [RUN/predictions.csv]")
    parser.add_argument("--parts", default=None, metavar="P", help="number of graph servers [as in the run]")
    parser.add_argument(
        "--backend", default=None, metavar="lambda|cpu|gpu", help="where tensor tasks run [as in the run]"
    )
    parser.add_argument("--on", default=None, metavar="local|ray", help="where the servers run [as in the run]")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="any other setting; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    source_flags.add_to(parser)


def main(args: argparse.Namespace) -> int:
    check_run(Path(args.run))
    out = Path(args.out or f"{args.run}/predictions.csv")
    settings: dict[str, Any] = run_config.settings_of(args.set)
    settings |= {key: getattr(args, flag) for flag, key in FLAGS.items() if getattr(args, flag) is not None}
    graph, options = args.graph, source_flags.given(args)
    if options and not graph:
        raise ConfigError(f"--{next(iter(options)).replace('_', '-')}: is for another graph: give it by --graph")
    graph = source_flags.with_options(graph, options)
    with Display(f"{args.graph or args.run}, predicted", 0, quiet=args.quiet) as display:
        result = predict_to(
            out,
            args.run,
            graph=graph,
            layer=_layer(args.layer),
            scores=args.scores,
            settings=settings,
            on_status=display,
        )
    print(json.dumps(result) if args.json else "\n".join(_summary(result)))
    return 0


def _layer(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise ConfigError(f"layer = {text!r}: must be an integer")
    return None if text is None else int(text)


def _summary(result: Mapping[str, Any]) -> list[str]:
    what = f"what enters layer {result['layer']}" if result["layer"] is not None else result["what"]
    lines = [f"written     {what}: {result['columns']} columns of {result['vertices']} vertices"]
    scores = [f"{split} {found['acc']:.4f}" for split, found in (result["scores"] or {}).items() if found]
    if scores:
        lines.append(f"scores      {', '.join(scores)}")
    return [*lines, f"saved in    {result['out']}"]
