"""``siafu prepare``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from urllib.parse import urlencode

from graph_data.choice import CHOICES
from graph_data.inspection import plot
from graph_data.inspection.report import inspect_source
from graph_data.inspection.show import show
from graph_data.orders import ORDERS
from graph_data.partitioners import PARTITIONERS
from graph_data.prepare import estimate, prepare, resolve
from graph_data.sources.beside import TOLD
from graph_data.sources.columns import path_and_options
from siafu.errors import ConfigError

EXAMPLES = """sources:
  digits                         1,797 images of handwritten digits as a graph of look-alikes
  FILE.npz                       your own graph; README.md describes the format
  EDGES                          an edge list: FILE.parquet, FILE.csv, FILE.tsv (.gz too),
                                 'PATTERN*.parquet' or a folder
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon,
                                 friendster or ogbn-products
  synthetic:typed?relations=R    a random graph whose edges have R types, which tell the labels
  FILE.pt, FILE.dgl              a graph of PyG (torch.save(data, ..), a processed data set) or DGL
                                 (dgl.save_graphs); needs no PyG, no DGL
  ogb:NAME                       a node property graph of OGB's, unpacked in dataset/; or ogb:FOLDER
  bsnap:FOLDER                   Dorylus' graph.bsnap, features.bsnap and labels.bsnap;
                                 --partitioner file:graph.bsnap.parts
  distdgl:FOLDER                 what DGL's partition_graph has written
  NAME                           NAME.npz in the folder that $SIAFU_DATA names, or in data/
docs/data.md has them all, with examples.

edge lists: source and target are columns of such names (source, target; from, to; ...), else the
first two; a line for each file says which. Ids are integers, text, UUIDs, dates, ...: what the
first row has in text, or what the schema says in Parquet. They are numbered in ascending order,
and OUT/ids.npy, or OUT/ids.parquet if they are no 64-bit integers, keeps them (row v is vertex v),
unless they are vertex numbers: with --num-vertices, or with a .npy file that has a row per vertex.
Words of labels and types are numbered in ascending order too, and kept in OUT/names.json; so are
integers of labels that are not 0, 1, 2, ..., and of --type, unless --num-edge-types says that they
are numbers of types.
  --features  F.npy [N, F], may be larger than memory; M.npz of scipy.sparse.save_npz; a table with
              a column of ids; random:F, F columns of standard normal numbers
  --labels    L.npy [N] or [N, C], or a table of id and label: a word, an integer from 0 on, a
              number with a fraction (regression), or 0 or 1 in a column for every class. A vertex
              whose label is missing or -1 is in no split. Without: nothing to train on
  --split     S.npy [N] or a table of id and train, val or test (or 1, 2, 3); without:
              --train-per-class
  FILE#COLUMN,COLUMN takes only those columns; what --labels and --split take from the table of
  --features is no feature. These flags and the options of a source are the same:
  'edges:PATH?src=a&dst=b&weight=w&labels=L.npy'.

memory: a graph that would take more than --memory is sorted on disk instead: the same shards as in
memory with order "given", which "auto" then is, and a partitioner other than metis. If it is
interrupted, the same call continues. ldg and fennel read the edges 5 times, fennel:10 ten times:
more passes, fewer cut edges.

examples:
  siafu prepare digits --out shards/digits
  siafu prepare my_graph.npz --parts 4 --out shards/mine
  siafu train shards/mine
  siafu prepare cora --inspect --plot cora.png
  siafu prepare follows.csv --features users.csv --labels users.csv#job --split users.csv#role \\
      --type kind --out shards/users
  siafu prepare edges.parquet --labels labels.csv --features x.npy --parts 4 --out shards/big
  siafu prepare 'edges/*.parquet' --num-vertices 65608366 --features random:32 --partitioner fennel --memory 6GiB \\
      --out shards/huge
  siafu prepare 'synthetic:amazon?scale=0.01' --parts 2 --partitioner chunk --out shards/amazon
  siafu prepare coauthor_cs --task link --test-edges 0.1 --out shards/links
  siafu prepare cora --inductive --parts 4 --out shards/inductive
"""


EDGE_FLAGS = {  # of edge lists: flag -> what it takes, and what that is
    "src": ("COLUMN", "of the sources of edges [source, src, from, ..., or the first]"),
    "dst": ("COLUMN", "of their targets [target, dst, to, ..., or the second]"),
    "weight": ("COLUMN", "of their weights, > 0 [none]"),
    "type": ("COLUMN", "of their types, integers or words [none]"),
    "num-edge-types": ("R", "types are 0..R-1"),
    "ids": ("auto|integer|text", "what ids are taken for [auto]"),
    "id": ("COLUMN", "of the vertices in their tables [id, node_id, or the first]"),
    "num-vertices": ("N", "ids of edges are 0..N-1"),
    "features": ("FILE|random:F", "of vertices; any file's or folder's, too, that has none; see below"),
    "labels": ("FILE", "of vertices; see below"),
    "target": (
        "auto|classes|labels|numbers",
        "what labels are taken for, of any file, too; labels: any number of classes [auto]",
    ),
    "split": ("FILE", "of vertices; see below"),
}


TASK_FLAGS: dict[str, tuple[str, type, object, str]] = {  # flag -> what it takes, its type, its default, what that is
    "task": ("node|link", str, "node", "what is predicted: labels of vertices, or edges that are held out"),
    "val-edges": ("SHARE", float, 0.05, "task link: of the edges, held out for validation"),
    "test-edges": ("SHARE", float, 0.1, "task link: of the edges, held out for test"),
    "negatives": ("N", int, 8, "task link: false edges per training edge"),
    "eval-negatives": ("N", int, 100, "task link: false edges that a held-out edge is ranked among"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu prepare SOURCE (--out DIR | --inspect) [--FLAG VALUE ...]"
    parser.description = (
        "Partition a graph into shards: memory-mapped files, of which each graph server reads its part."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="what to prepare; see below")
    parser.add_argument("--out", metavar="DIR", help="where the shards go; a prepared graph there is replaced")
    parser.add_argument(
        "--inspect", action="store_true", help="prepare nothing: show the graph, and what is odd about it"
    )
    parser.add_argument("--plot", metavar="FILE", help="with --inspect: a picture too, such as graph.png")
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
        help="row: each row sums to 1; standard: z-score per column, inductive by training vertices [none]",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the partitioner and a missing split [0]")
    parser.add_argument("--train-per-class", type=int, default=20, metavar="N", help="where there is no split [20]")
    parser.add_argument("--val-per-class", type=int, default=30, metavar="N", help="where there is no split [30]")
    for flag, (takes, kind, default, what) in TASK_FLAGS.items():
        parser.add_argument(f"--{flag}", type=kind, default=default, metavar=takes, help=f"{what} [{default}]")
    parser.add_argument(
        "--inductive",
        type=int,
        nargs="?",
        const=0,
        metavar="SPLIT",
        help="train on the training vertices of this split, by default the first, and the edges among them alone",
    )
    parser.add_argument(
        "--features-as",
        default="",
        metavar="RUN",
        help="features as those of a run's graph, or of shards: columns by name, in the same order; standardised by "
        "the same means and deviations [its own]",
    )
    parser.add_argument("--memory", metavar="LIMIT", help="such as 6GiB or 500MB [60%% of what is free]")
    parser.add_argument("--stream", action="store_true", help="over the disk, whatever the size")
    edges = parser.add_argument_group("edge lists")
    for flag, (takes, what) in EDGE_FLAGS.items():
        edges.add_argument(f"--{flag}", metavar=takes, help=what)
    parser.add_argument("--json", action="store_true", help="print one JSON object with the manifest's counts")


def main(args: argparse.Namespace) -> int:
    start = time.monotonic()
    source = source_with_flags(args.source, {flag: getattr(args, flag.replace("-", "_")) for flag in EDGE_FLAGS})
    if args.inspect:
        return inspect(source, args)
    if args.plot or not args.out:
        raise ConfigError("--plot is for --inspect" if args.plot else "--out DIR is missing: where do the shards go?")
    print(f"preparing {source}", file=sys.stderr)
    options = {
        "parts": args.parts,
        "partitioner": args.partitioner,
        "order": args.order,
        "directed": args.directed,
        "feature_norm": args.feature_norm,
        "seed": args.seed,
        "train_per_class": args.train_per_class,
        "val_per_class": args.val_per_class,
        "inductive": args.inductive,
        "features_as": args.features_as,
        **{key: getattr(args, key) for key in (flag.replace("-", "_") for flag in TASK_FLAGS)},
        "memory": args.memory,
        "stream": True if args.stream else None,
    }
    guess = estimate(source, **options)
    shards = prepare(source, args.out, **options, say=lambda line: print(line, file=sys.stderr, flush=True))
    manifest = shards.manifest
    seconds = time.monotonic() - start
    if args.json:
        counts = {key: value for key, value in asdict(manifest).items() if key not in ("partitions", "files")}
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
    features = f"{manifest.num_features} features{' (random)' if manifest.random_features else ''}"
    edges = "edges and pairs" if manifest.edge_types == "links" else "edges"
    print(
        f"{manifest.name}: {manifest.num_vertices:,} vertices, {manifest.num_edges:,} {edges}, {features}, "
        f"{manifest.num_classes} {manifest.target}; {manifest.num_partitions} partition(s) by {manifest.partitioner}, "
        f"{manifest.cut_edges / max(manifest.num_edges, 1):.1%} of edges cut; {seconds:.1f} s; {args.out}"
    )
    if sys.stdout is not None:
        sys.stdout.flush()
    return 0


def inspect(source: str, args: argparse.Namespace) -> int:
    """Shows the graph. Raises: ConfigError if it does not fit in memory, or the plot cannot be drawn."""
    if args.out:
        raise ConfigError("--inspect prepares nothing: leave --out away, or --inspect")
    if args.plot:
        plot.check(args.plot)
    report = inspect_source(source, directed=args.directed, memory=args.memory)
    if args.json:
        print(json.dumps(report.as_json()))
    else:
        show(report)
    if args.plot:
        plot.draw(report, args.plot)
        print(f"plot in {args.plot}", file=sys.stderr)
    return 0


def source_with_flags(source: str, flags: dict[str, str | None]) -> str:
    """The name of a source with these flags as its options. Raises: ConfigError if they are
    for edge lists, and it is none."""
    given = {flag.replace("-", "_"): value for flag, value in flags.items() if value is not None}
    if not given:
        return source
    if resolve(source).kind != "edges":
        if resolve(source).kind in ("digits", "synthetic"):
            raise ConfigError(
                f"--{next(iter(given)).replace('_', '-')} is for graphs that are read, and {source!r} is made"
            )
        if not (edges_only := [flag for flag in given if flag not in TOLD]):
            joint = "&" if path_and_options(resolve(source).argument)[1] else "?"
            return f"{source}{joint}{urlencode(given, safe='/:*', errors='surrogateescape')}"
        given = dict.fromkeys(edges_only, "")
        raise ConfigError(f"--{next(iter(given)).replace('_', '-')} is for edge lists, and {source!r} is none")
    path, query = path_and_options(source.removeprefix("edges:"))
    return f"edges:{path}?{query + '&' if query else ''}{urlencode(given, safe='/:*', errors='surrogateescape')}"
