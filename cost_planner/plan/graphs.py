"""The graph of a plan: its counts, from shards, from a source, or given; and its estimated cut into any number of
parts.

1. Edges are as gathered: an undirected one counts twice.
2. Shards of several parts show how many edges cross, and how many distinct remote ends (ghosts) these have. For other
   numbers of parts P, the share that crosses goes with log P, and ghosts are fewer than random ends by the same factor.
   MEASURED (``python -m benchmarks.acceptance.ghosts``): eleven graphs, METIS, ghosts of 2, 8 and 16 parts from those
   of 4: half within 15%, the worst 1.7 times off.
3. For a graph that nobody has partitioned, ``cut (1 - 1/P)`` of the edges are assumed to cross, and ghosts to be
   ``SHARED`` times fewer than random ends: the geometric mean of those graphs, of 1.06 to 3.1.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from graph_data.estimate import sizes_of
from graph_data.sources import synthetic
from graph_data.sources.names import resolve
from run_coordinator import prepared
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.shards import FileEntry, Manifest, PartitionEntry, ShardSet, SplitSizes, is_prepared

#: Of a graph that nobody has cut: what a streaming partitioner should reach (docs/scale.md).
CUT = 0.5
SHARED = 1.84
#: What else it may be: what METIS finds in a graph with communities, and hardly better than at random.
LOW_CUT, HIGH_CUT = 0.1, 0.9
#: Shares of training and validation vertices in a graph without shards: Reddit's, as GraphSAGE split it.
TRAINS, VALIDATES = 0.66, 0.1
#: A source with fewer edges than this is cut into so many parts, to see how many rows cross: seconds of METIS.
TRIAL_PARTS, TRIAL_EDGES = 4, 5_000_000
SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}


ASSUMED = "assumed, the graph is not partitioned"


@dataclass(frozen=True)
class Graph:
    name: str
    vertices: int
    edges: int
    features: int
    classes: int
    cut: float = CUT  # share of the edges that cross between ``cut_parts``, or between many if that is 0
    cut_parts: int = 0
    shared: float = SHARED  # random remote ends of crossing edges over ghosts
    cut_source: str = ASSUMED
    shards: Manifest | None = None  # that were looked at
    inductive: bool = False  # of a graph without shards: whether training sees training vertices alone

    def manifest(self, parts: int) -> Manifest:
        """The manifest of ``parts`` equal shards."""
        if self.shards and self.shards.num_partitions == parts:
            return self.shards
        n, m, crossing = self.vertices // parts, self.edges // parts, self.crossing(parts)
        remote = self.vertices * (1 - 1 / parts)
        g = int(drawn(crossing * self.edges / parts, remote) / self.shared) if parts > 1 else 0
        sizes = {
            "in_indptr.npy": 8 * (n + 1),
            "in_indices.npy": 4 * m,
            "vertices.npy": 8 * n,
            "ghosts_in.npy": 12 * g,
            "degree.npy": 8 * (n + g),
            "labels.npy": 8 * n,
            "split.npy": n,
            **({"in_type.npy": 2 * m, "train_degree.npy": 8 * (n + g)} if self.inductive else {}),
        }
        files = {name: FileEntry(nbytes, "", 0) for name, nbytes in sizes.items()}
        files |= (
            _features(self.shards, parts) if self.shards else {"features.npy": FileEntry(4 * n * self.features, "", 0)}
        )
        entry = PartitionEntry(n, m, m, int(crossing * m), g, g, files)
        base = self.shards or Manifest(
            siafu="",
            name=self.name,
            num_vertices=self.vertices,
            num_edges=self.edges,
            num_features=self.features,
            num_classes=self.classes,
            multilabel=False,
            directed=False,
            weighted=False,
            sparse_features=False,
            feature_norm="none",
            partitioner="",
            order="given",
            seed=0,
            num_partitions=parts,
            splits=(SplitSizes(int(TRAINS * self.vertices), int(VALIDATES * self.vertices), 0),),
            cut_edges=0,
            partitions=(),
            **self._inductive(),
        )
        cut_edges = int(crossing * self.edges)
        return replace(base, num_partitions=parts, partitions=(entry,) * parts, cut_edges=cut_edges)

    def _inductive(self) -> dict[str, Any]:
        """Manifest entries of inductive training if nobody has counted its edges: as if training vertices lay
        anywhere."""
        if not self.inductive:
            return {}
        among = int(TRAINS**2 * self.edges)
        counts = among, self.edges - among
        return {"edge_types": "inductive", "num_edge_types": 2, "type_counts": counts, "inductive_split": 0}

    @property
    def cut_is_assumed(self) -> bool:
        return self.cut_source == ASSUMED

    def crossing(self, parts: int) -> float:
        """The share of edges that cross between ``parts`` parts."""
        most = 1 - 1 / parts
        return min(most, self.cut * math.log(parts, self.cut_parts)) if self.cut_parts else self.cut * most

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "vertices": self.vertices,
            "edges": self.edges,
            "features": self.features,
            "classes": self.classes,
            "cut": self.cut,
            "cut_parts": self.cut_parts or None,
            "ghosts_shared": self.shared,
            "cut_source": self.cut_source,
        }


def of_counts(
    vertices: int, edges: int, features: int, classes: int, cut: float | None = None, *, inductive: bool = False
) -> Graph:
    name = f"{short(vertices)} vertices, {short(edges)} edges"
    return _told(Graph(name, vertices, edges, features, classes, inductive=inductive), cut)


def of_source(config: Config, cut: float | None = None) -> Graph:
    """The graph of ``data.source``. Shards are read; a synthetic graph is counted, not made; any other is prepared as
    by ``siafu train``, and kept for it. DatasetError as ``siafu prepare``."""
    source, data = config.data.source, config.data
    if not is_prepared(source):
        found = resolve(source)
        family = synthetic.FAMILIES.get(found.argument.partition("?")[0]) if found.kind == "synthetic" else None
        if family is not None:
            vertices, edges, features = synthetic.counts(found.argument)
            counts = vertices, edges, features, family.num_classes
            return _told(Graph(source, *counts, inductive=data.inductive), cut)
        if data.parts == 1 and sizes_of(found).num_edges < TRIAL_EDGES:
            config = config.replace({"data.parts": TRIAL_PARTS})
    return _told(of_manifest(ShardSet.open(prepared.shards_of(config)).manifest), cut)


def of_manifest(manifest: Manifest) -> Graph:
    parts = manifest.num_partitions
    counts = manifest.num_vertices, manifest.num_edges, manifest.num_features, manifest.num_classes
    if parts == 1:
        return Graph(manifest.name, *counts, shards=manifest)
    cut, remote = manifest.cut_edges / max(1, manifest.num_edges), manifest.num_vertices * (1 - 1 / parts)
    ghosts = sum(entry.ghosts_in for entry in manifest.partitions) / parts
    shared = drawn(manifest.cut_edges / parts, remote) / ghosts if ghosts else SHARED
    return Graph(manifest.name, *counts, cut, parts, shared, f"counted, {manifest.partitioner}", manifest)


def _told(graph: Graph, cut: float | None) -> Graph:
    if cut is None:
        return graph
    if not 0 <= cut <= 1:
        raise ConfigError(f"--cut {cut:g}: must be a share of the edges, 0 to 1")
    if graph.cut_parts:
        raise ConfigError(f"--cut {cut:g}: the shards say it, {graph.cut:.3g}")
    return replace(graph, cut=cut, cut_source="as told")


def _features(manifest: Manifest, parts: int) -> dict[str, FileEntry]:
    """Feature files of one of ``parts`` parts."""
    names = {name for entry in manifest.partitions for name in entry.files if name.startswith("features")}
    return {
        name: FileEntry(sum(e.files[name].bytes for e in manifest.partitions if name in e.files) // parts, "", 0)
        for name in names
    }


def drawn(times: float, remote: float) -> float:
    """Expected number of distinct vertices in ``times`` random draws from ``remote`` vertices."""
    return remote * -math.expm1(-times / remote)


def count(text: str, flag: str) -> int:
    """The number in "65.6M", "3.6B", "10k", "1e9" or "1_000_000"; ConfigError for anything else."""
    found = re.fullmatch(r"([0-9_]*\.?[0-9_]+(?:e[0-9]+)?)\s*([kmbgt]?)", text.strip().lower())
    try:
        value = round(float(found[1]) * SUFFIXES[found[2]]) if found else 0
    except (ValueError, OverflowError):
        value = 0
    if value < 1:
        raise ConfigError(f"--{flag} {text}: must be a number of at least 1, such as 65.6M, 3.6B, 1e9 or 32")
    return value


def short(number: float) -> str:
    """65_600_000 -> "65.6M", 2708 -> "2,708"."""
    for suffix in ("b", "m", "k") if number >= 10_000 else ():
        if number >= SUFFIXES[suffix]:
            return f"{number / SUFFIXES[suffix]:.4g}{suffix.upper()}"
    return f"{number:,.0f}"
