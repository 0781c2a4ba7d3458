"""``siafu export``."""

from __future__ import annotations

import argparse
import json

from run_coordinator.export import TARGETS, export
from siafu.progress import Display

EXAMPLES = """The files in DIR do not need siafu: model.py, its weights and settings, and a README.md that loads
them in five lines; for onnx, model.onnx and README.md. siafu first runs the export on the run's
graph. If its logits differ from siafu's by more than 1e-5 times the largest logit (at least 1),
nothing is written and the exit code is 1.

  torch   plain modules over a sparse adjacency
  pyg     layers of PyTorch Geometric: GCNConv, GATConv, ...
  dgl     layers of DGL
  onnx    for onnxruntime, graphs of any size

Needed: torch and the library (the extra export). If DGL is not installed, siafu once
creates a separate environment for it: 2 GB.

examples:
  siafu export runs/mine --to torch --out exported
  siafu export runs/mine --to onnx --out exported-onnx --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu export RUN --to torch|pyg|dgl|onnx --out DIR [--json]"
    parser.description = (
        "Write a run's model as a PyTorch, PyG, DGL or ONNX model, and check that it gives the same logits."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("run", metavar="RUN", help="directory of a finished run")
    parser.add_argument("--to", required=True, metavar="|".join(TARGETS), help="the library")
    parser.add_argument("--out", required=True, metavar="DIR", help="a new or empty folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result")
    parser.add_argument("--quiet", action="store_true", help="print no progress")


def main(args: argparse.Namespace) -> int:
    with Display(f"{args.run}, exported", 0, quiet=args.quiet) as display:
        result = export(args.run, to=args.to, out=args.out, on_status=display)
    if args.json:
        print(json.dumps(result))
        return 0
    print(
        f"checked     logits of {result['vertices']} vertices differ from ours by "
        f"{result['max_abs_logit_difference']:.3g} at most; the largest is {result['max_abs_logit']:.3g}\n"
        f"saved in    {result['out']}: {', '.join(result['files'])}"
    )
    return 0
