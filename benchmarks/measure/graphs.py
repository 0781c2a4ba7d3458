"""The graphs that are measured on: prepared once, as one partition whose files every contender maps."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graph_data.prepare import cached
from siafu import allotment
from siafu.errors import ConfigError
from siafu.shards import ShardSet, folder_of
from siafu.sparse import Array

HUB_EDGES = 25_000  # into the one vertex that is made a hub, where the graph has none of 20,000
HUB_AT_LEAST = 20_000
EVEN = 3  # no vertex has more in-edges than so many times the mean, once hubs are cut


@dataclass(frozen=True)
class Measured:
    """A prepared graph's only partition."""

    shards: ShardSet

    @property
    def folder(self) -> str:
        return str((self.shards.path / folder_of(0)).resolve())

    @property
    def num_vertices(self) -> int:
        return self.shards.manifest.num_vertices

    @property
    def num_edges(self) -> int:
        return self.shards.manifest.num_edges

    @property
    def title(self) -> str:
        return f"{self.shards.manifest.name}: {self.num_vertices:,} vertices, {self.num_edges:,} edges"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graph",
        default="synthetic:reddit-small?scale=0.05",
        metavar="SOURCE",
        help="what siafu prepare takes [synthetic:reddit-small?scale=0.05]",
    )
    parser.add_argument(
        "--order", default="given", metavar="ORDER", help="of the vertices, for all contenders alike [given]"
    )
    cores = allotment.cores()
    parser.add_argument("--threads", type=int, default=cores, metavar="N", help=f"of every contender [{cores}]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="interleaved repetitions [5]")


def opened(args: argparse.Namespace) -> Measured:
    """The graph of the arguments, prepared now or before. Raises: ConfigError for counts below 1."""
    for name in ("threads", "rounds"):
        if getattr(args, name) < 1:
            raise ConfigError(f"--{name} {getattr(args, name)}: must be >= 1")
    print(f"preparing {args.graph}", file=sys.stderr, flush=True)
    return Measured(ShardSet.open(cached(args.graph, parts=1, partitioner="chunk", order=args.order)))


# --- hubs -------------------------------------------------------------------------------------------------------------


def with_hub(indptr: Array, indices: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """The graph with one vertex of at least ``HUB_AT_LEAST`` in-edges: its own, or edges of others turned to one.

    Every edge keeps its source. Raises: ConfigError for a graph with fewer than twice ``HUB_EDGES`` edges.
    """
    degree = np.diff(indptr)
    if degree.max() >= HUB_AT_LEAST:
        return indptr, indices
    if len(indices) < 2 * HUB_EDGES:
        raise ConfigError(f"--skew: the graph has {len(indices)} edges, must have at least {2 * HUB_EDGES}")
    target = np.repeat(np.arange(len(degree), dtype=np.int64), degree)
    target[rng.choice(len(target), HUB_EDGES, replace=False)] = int(degree.argmax())
    return _by_target(target, indices, len(degree))


def without_hubs(indptr: Array, indices: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """As many edges from the same sources, but none of the targets has more than ``EVEN`` times the mean (about)."""
    degree = np.diff(indptr)
    cap = EVEN * len(indices) / len(degree)
    target = np.repeat(np.arange(len(degree), dtype=np.int64), degree)
    kept = rng.random(len(target)) < np.minimum(1, cap / np.maximum(degree, 1))[target]
    target[~kept] = rng.choice(np.flatnonzero(degree < cap / 2), int((~kept).sum()))
    return _by_target(target, indices, len(degree))


def _by_target(target: Array, source: Array, n: int) -> tuple[Array, Array]:
    keys = target * n + source
    keys.sort()
    indptr = np.searchsorted(keys, np.arange(n + 1) * n).astype(np.int64)
    return indptr, (keys % n).astype(np.int32)


def saved(folder: Path, edges: tuple[Array, Array]) -> str:
    """Writes edges as a contender maps them. Returns the folder."""
    folder.mkdir()
    for what, array in zip(("indptr", "indices"), edges, strict=True):
        np.save(folder / f"in_{what}.npy", array)
    return str(folder)
