"""``siafu prepare``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from urllib.parse import urlencode

from datasets.choice import CHOICES
from datasets.orders import ORDERS
from datasets.partitioners import PARTITIONERS
from datasets.prepare import estimate, prepare, resolve
from siafu.errors import ConfigError

EXAMPLES = """sources:
  digits                         1,797 images of handwritten digits as a graph of look-alikes
  FILE.npz                       your own graph; README.md describes the format
  EDGES                          an edge list: FILE.parquet, FILE.csv, FILE.tsv (.gz too), 'PATTERN*.parquet' or a folder
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon, friendster or ogbn-products
  NAME                           NAME.npz in the folder that $SIAFU_DATA names, or in data/

edge lists: the first two columns are source and target, ids are integers >= 0. They are vertex numbers if --num-vertices
is given or a .npy file has a row per vertex; else they are renumbered in ascending order, and OUT/ids.npy keeps them.
  --features  F.npy [N, F], may be larger than memory; M.npz of scipy.sparse.save_npz; a table whose first column is the
              id; random:F, standard normal [random:32]
  --labels    L.npy [N] or [N, C], or a table of id and label; without: no labels, and nothing to train on
  --split     S.npy [N] or a table of id and 1 (train), 2 (validation) or 3 (test); without: --train-per-class
  These flags and the options of a source are the same: 'edges:PATH?src=a&dst=b&weight=w&labels=L.npy'.

memory: a graph that would take more than --memory is sorted on disk instead: the same shards as in memory with order
"given", which "auto" then is, and a partitioner other than metis. If it is interrupted, the same call continues. ldg and
fennel read the edges 5 times, fennel:10 ten times: more passes, fewer cut edges.

examples:
  siafu prepare digits --out shards/digits
  siafu prepare my_graph.npz --parts 4 --out shards/mine
  siafu train shards/mine
  siafu prepare edges.parquet --labels labels.csv --features x.npy --parts 4 --partitioner fennel --out shards/big
  siafu prepare 'edges/*.parquet' --num-vertices 65608366 --memory 6GiB --out shards/huge
  siafu prepare 'synthetic:amazon?scale=0.01&seed=1' --parts 2 --partitioner chunk --out shards/amazon
"""


EDGE_FLAGS = {  # of edge lists: flag -> what it takes, and what that is
    "src": ("COLUMN", "of the sources of edges [the first]"),
    "dst": ("COLUMN", "of their targets [the second]"),
    "weight": ("COLUMN", "of their weights, > 0 [none]"),
    "num-vertices": ("N", "ids of edges are 0..N-1"),
    "features": ("FILE", "of vertices; see below"),
    "labels": ("FILE", "of vertices; see below"),
    "split": ("FILE", "of vertices; see below"),
}


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
        "--order",
        default="auto",
        metavar="|".join((*CHOICES, *ORDERS)),
        help="of vertices in a partition; auto: clusters; best: the fastest gather [auto]",
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
    parser.add_argument("--memory", metavar="LIMIT", help="such as 6GiB or 500MB [60%% of what is free]")
    parser.add_argument("--stream", action="store_true", help="over the disk, whatever the size")
    edges = parser.add_argument_group("edge lists")
    for flag, (takes, what) in EDGE_FLAGS.items():
        edges.add_argument(f"--{flag}", metavar=takes, help=what)
    parser.add_argument("--json", action="store_true", help="print one JSON object with the manifest's counts")


def main(args: argparse.Namespace) -> int:
    start = time.monotonic()
    source = source_with_flags(args.source, {flag: getattr(args, flag.replace("-", "_")) for flag in EDGE_FLAGS})
    print(f"preparing {source}", file=sys.stderr)
    options = {
        "parts": args.parts, "partitioner": args.partitioner, "order": args.order, "directed": args.directed,
        "feature_norm": args.feature_norm, "seed": args.seed, "train_per_class": args.train_per_class,
        "val_per_class": args.val_per_class, "memory": args.memory, "stream": True if args.stream else None,
    }  # fmt: skip
    guess = estimate(source, **options)
    shards = prepare(source, args.out, **options, say=lambda line: print(line, file=sys.stderr, flush=True))
    manifest = shards.manifest
    seconds = time.monotonic() - start
    if args.json:
        counts = {key: value for key, value in asdict(manifest).items() if key != "partitions"}
        sizes = [{k: v for k, v in asdict(entry).items() if k != "files"} for entry in manifest.partitions]
        print(
            json.dumps(
                {
                    **counts,
                    "digest": manifest.digest,
                    "partitions": sizes,
                    "seconds": seconds,
                    "out": args.out,
                    "estimate": asdict(guess),
                }
            )
        )
        return 0
    print(
        f"{manifest.name}: {manifest.num_vertices:,} vertices, {manifest.num_edges:,} edges, {manifest.num_features} features, "
        f"{manifest.num_classes} classes; {manifest.num_partitions} partition(s) by {manifest.partitioner}, "
        f"{manifest.cut_edges / max(manifest.num_edges, 1):.1%} of edges cut; {seconds:.1f} s; {args.out}"
    )
    sys.stdout.flush()
    return 0


def source_with_flags(source: str, flags: dict[str, str | None]) -> str:
    """The name of an edge list with these flags as its options. Raises: ConfigError if the source is no edge list."""
    given = {flag.replace("-", "_"): value for flag, value in flags.items() if value is not None}
    if not given:
        return source
    if resolve(source).kind != "edges":
        raise ConfigError(f"--{next(iter(given)).replace('_', '-')} is for edge lists, and {source!r} is none")
    path, _, query = source.removeprefix("edges:").partition("?")
    return f"edges:{path}?{query + '&' if query else ''}{urlencode(given, safe='/:*')}"
