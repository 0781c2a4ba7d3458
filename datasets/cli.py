"""``siafu prepare``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict

from datasets.partitioners import PARTITIONERS
from datasets.prepare import prepare

EXAMPLES = """sources:
  digits                         1,797 images of handwritten digits as a graph of look-alikes
  FILE.npz                       your own graph; README.md describes the format
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon, friendster or ogbn-products
  NAME                           NAME.npz in the folder that $SIAFU_DATA names, or in data/

examples:
  siafu prepare digits --out shards/digits
  siafu prepare my_graph.npz --parts 4 --out shards/mine
  siafu train shards/mine
  siafu prepare 'synthetic:amazon?scale=0.01&seed=1' --parts 2 --partitioner chunk --out shards/amazon
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu prepare SOURCE --out DIR [--FLAG VALUE ...]"
    parser.description = (
        "Turn a graph into shards: partitioned, ordered, memory-mapped files that every server reads its part of."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="what to prepare; see below")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="where the shards go; a prepared graph there is replaced"
    )
    parser.add_argument("--parts", type=int, default=1, metavar="P", help="partitions, one per graph server [1]")
    parser.add_argument(
        "--partitioner",
        default="metis",
        metavar="|".join(PARTITIONERS),
        help="how vertices are spread over graph servers [metis]",
    )
    parser.add_argument(
        "--order", default="auto", metavar="auto|metis|given|random", help="of vertices in a partition [auto]"
    )
    parser.add_argument("--directed", action="store_true", help="keep edge directions")
    parser.add_argument(
        "--feature-norm",
        default="none",
        metavar="none|row|standard",
        help="row: each row sums to 1; standard: z-score per column [none]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the partitioner and a missing split [0]")
    parser.add_argument("--train-per-class", type=int, default=20, metavar="N", help="where there is no split [20]")
    parser.add_argument("--val-per-class", type=int, default=30, metavar="N", help="where there is no split [30]")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the manifest's counts")


def main(args: argparse.Namespace) -> int:
    start = time.monotonic()
    print(f"preparing {args.source}", file=sys.stderr)
    shards = prepare(
        args.source, args.out, parts=args.parts, partitioner=args.partitioner, order=args.order, directed=args.directed,
        feature_norm=args.feature_norm, seed=args.seed, train_per_class=args.train_per_class,
        val_per_class=args.val_per_class,
    )  # fmt: skip
    manifest = shards.manifest
    seconds = time.monotonic() - start
    if args.json:
        counts = {key: value for key, value in asdict(manifest).items() if key != "partitions"}
        sizes = [{k: v for k, v in asdict(entry).items() if k != "files"} for entry in manifest.partitions]
        print(
            json.dumps({**counts, "digest": manifest.digest, "partitions": sizes, "seconds": seconds, "out": args.out})
        )
        return 0
    print(
        f"{manifest.name}: {manifest.num_vertices:,} vertices, {manifest.num_edges:,} edges, {manifest.num_features} features, "
        f"{manifest.num_classes} classes; {manifest.num_partitions} partition(s) by {manifest.partitioner}, "
        f"{manifest.cut_edges / max(manifest.num_edges, 1):.1%} of edges cut; {seconds:.1f} s; {args.out}"
    )
    sys.stdout.flush()
    return 0
