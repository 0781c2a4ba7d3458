"""``siafu prepare``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from graph_data import source_flags
from graph_data.choice import AUTO
from graph_data.chosen import as_read
from graph_data.inspection.report import inspect_source
from graph_data.inspection.show import show
from graph_data.options import Options
from graph_data.orders import ORDERS
from graph_data.partitioners import PARTITIONERS
from graph_data.prepare import estimate, prepare
from graph_data.sources.names import SOURCES, check_files
from siafu import outputs
from siafu.errors import ConfigError
from siafu.parser import show_few
from siafu.streams import say

EXAMPLES = f"""sources:
  digits                         1,797 images of handwritten digits, linked by similarity
  FILE.npz                       your own graph; docs/guide.md describes the format
  EDGES                          an edge list: FILE.parquet, FILE.csv, FILE.tsv (.gz too),
                                 'PATTERN*.parquet' or a folder
  synthetic:NAME?scale=S&seed=N  a random graph shaped like reddit-small, reddit-large, amazon,
                                 friendster or ogbn-products
  synthetic:typed?relations=R    a random graph with R edge types, on which the labels depend
  FILE.pt, FILE.dgl              a graph saved by PyG (torch.save(data, ..), a processed data set) or DGL
                                 (dgl.save_graphs); PyG and DGL are not needed
  ogb:NAME                       an OGB node property graph, unpacked in dataset/; or ogb:FOLDER
  bsnap:FOLDER                   Dorylus' graph.bsnap, features.bsnap and labels.bsnap;
                                 --partitioner file:graph.bsnap.parts
  distdgl:FOLDER                 a graph that DGL's partition_graph wrote
  NAME                           NAME.npz in $SIAFU_DATA or data/; siafu get NAME fetches some
Kinds: {", ".join(SOURCES)};
docs/data.md has them all, with examples.

edge lists: source and target are the columns with such names (source, target; from, to; ...), else
the first two; a note says which. Ids may be integers, text, UUIDs, dates, ...: the first row of a
text file or the schema of a Parquet file decides. They are numbered in ascending order and kept in
OUT/ids.npy (64-bit integers) or OUT/ids.parquet, where row v is vertex v. Ids are vertex numbers
themselves with --num-vertices, or if a .npy file has one row per vertex. Labels and edge types that
are words, or integers other than 0, 1, 2, ..., are numbered in ascending order too, and kept in
OUT/names.json; with --num-edge-types, types are not renumbered.
  --features  F.npy [N, F], may be larger than memory; M.npz of scipy.sparse.save_npz; a table with
              a column of ids; random:F, F columns of standard normal numbers
  --labels    L.npy [N] or [N, C], or a table of id and label: a word, an integer from 0 on, a
              number with a fraction (regression), or a column of 0 and 1 for every class. A vertex
              without a label (or -1) is in no split. Without --labels, only --task link can train
  --split     S.npy [N] or a table of id and train, val or test (or 1, 2, 3); without --split, it
              is drawn at random (--train-per-class)
  FILE#COLUMN,COLUMN takes only those columns, FILE#-COLUMN all but this one, FILE#* all; of features,
  COLUMN:onehot is a column of 0 and 1 for each word in it ('users.csv#*,brand:onehot'). Columns that
  --labels and --split take are not features. A source can have these flags as options:
  'edges:PATH?src=a&dst=b&weight=w&labels=L.npy'.

memory: a graph that needs more than --memory is sorted on disk. The shards equal those made in
memory with --order given, which --order auto then means; metis is not available. After an
interruption, repeat the command to continue. ldg and fennel read the edges 5 times, fennel:10 ten
times: more passes give fewer cut edges.

examples:
  siafu prepare digits --out shards/digits
  siafu prepare my_graph.npz --parts 4 --out shards/mine
  siafu train shards/mine
  siafu prepare cora --inspect
  siafu prepare follows.csv --features users.csv --labels users.csv#job --split users.csv#role \\
      --type kind --out shards/users
  siafu prepare edges.parquet --labels labels.csv --features x.npy --parts 4 --out shards/big
  siafu prepare 'edges/*.parquet' --num-vertices 65608366 --features random:32 --partitioner fennel --memory 6GiB \\
      --out shards/huge
  siafu prepare 'synthetic:amazon?scale=0.01' --parts 2 --partitioner chunk --out shards/amazon
  siafu prepare coauthor_cs --task link --test-edges 0.1 --out shards/links
  siafu prepare cora --inductive --parts 4 --out shards/inductive
"""


#: What --help ends with; --help-all has ``EXAMPLES``.
BRIEF = """SOURCE is a name (digits, cora), FILE.npz, a table of edges (FILE.csv, FILE.parquet, a folder
of them), a graph saved by PyG or DGL, a random one (synthetic:NAME), and others: --help-all lists them.

examples:
  siafu prepare my_graph.npz --parts 4 --out shards/mine
  siafu train shards/mine
  siafu prepare cora --inspect
  siafu prepare follows.csv --features users.csv --labels users.csv#job --out shards/users
"""
#: Flags that the short --help shows.
COMMON = ("--out", "--parts", "--inspect", "--features", "--labels", "--split")
#: Option of ``Options`` -> its flag's argument and help, to which the default is added.
FLAGS = {
    "parts": ("P", "partitions, one per graph server"),
    "partitioner": ("|".join(PARTITIONERS), "how vertices are assigned to graph servers"),
    "order": (
        "|".join((AUTO, *ORDERS)),
        "vertex order inside a partition; auto: by clusters",
    ),
    "directed": ("", "keep edge directions"),
    "feature_norm": (
        "none|row|standard",
        "row: each row sums to 1; standard: z-score per column (inductive: of training vertices)",
    ),
    "seed": ("N", "seed of the partitioner, and of the split if the source has none"),
    "train_per_class": ("N", "training vertices per class, without a split"),
    "val_per_class": ("N", "validation vertices per class, without a split"),
    "task": ("node|link", "what to predict: labels of vertices, or held-out edges"),
    "val_edges": ("SHARE", "task link: share of edges held out for validation"),
    "test_edges": ("SHARE", "task link: share of edges held out for test"),
    "negatives": ("N", "task link: pool of negative edges per training edge"),
    "eval_negatives": ("N", "task link: negative edges that each held-out edge is ranked among"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "siafu prepare SOURCE (--out DIR | --inspect) [--FLAG VALUE ...]"
    parser.description = "Partition a graph into shards: memory-mapped files, one part per graph server."
    parser.epilog = EXAMPLES
    parser.add_argument("source", metavar="SOURCE", help="graph to prepare; see below")
    parser.add_argument("--out", metavar="DIR", help="folder for the shards; replaces a prepared graph in it")
    parser.add_argument(
        "--inspect", action="store_true", help="show sizes, degrees, labels and warnings; prepare nothing"
    )
    for name, (takes, what) in FLAGS.items():
        flag, default = f"--{name.replace('_', '-')}", getattr(Options(), name)
        if default is False:
            parser.add_argument(flag, action="store_true", help=what)
        else:
            told = {"type": type(default), "default": default, "metavar": takes, "help": f"{what} [{default}]"}
            parser.add_argument(flag, **told)
    parser.add_argument(
        "--inductive",
        type=int,
        nargs="?",
        const=0,
        metavar="SPLIT",
        help="train only on the training vertices of this split (default: the first) and the edges among them",
    )
    parser.add_argument(
        "--features-as",
        default="",
        metavar="RUN",
        help="use the feature columns of a run or of shards: match them by name, in the same order, and standardise "
        "with the same means and deviations",
    )
    parser.add_argument("--memory", metavar="LIMIT", help="memory limit, such as 6GiB or 500MB [60%% of free memory]")
    parser.add_argument("--stream", action="store_true", help="sort on disk, even a graph that fits into memory")
    source_flags.add_to(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object with the manifest's counts")
    show_few(parser, BRIEF, COMMON)


def main(args: argparse.Namespace) -> int:
    start = time.monotonic()
    source = source_flags.with_options(args.source, source_flags.given(args))
    if args.inspect:
        return inspect(source, args)
    if not args.out:
        raise ConfigError("--out DIR is missing: the folder for the shards")
    outputs.check_folder("--out", Path(args.out).absolute().parent)
    check_files(source)
    print(f"preparing {source}", file=sys.stderr)
    options: dict[str, Any] = {field.name: getattr(args, field.name) for field in fields(Options)}
    options |= {"memory": args.memory, "stream": True if args.stream else None}
    guess = estimate(source, **options)
    shards = prepare(source, args.out, **options, say=say)
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
    """Shows the graph. Raises: ConfigError if it does not fit in memory."""
    if args.out:
        raise ConfigError("--inspect prepares nothing: leave --out away, or --inspect")
    if args.features_as:
        source = as_read(source, args.features_as)
    report = inspect_source(source, directed=args.directed, memory=args.memory)
    if args.json:
        print(json.dumps(report.as_json()))
    else:
        show(report)
    return 0
