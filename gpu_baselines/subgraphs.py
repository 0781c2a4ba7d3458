"""Batches of partitions, which training uses, and the partitions of a rank as one, which evaluation uses.

A batch is some partitions with all edges that both begin and end in it, those between its partitions too (Cluster-GCN,
Chiang et al., KDD 2019, section 3.2). Edges to other partitions are left out: degrees are those inside the batch, as
Cluster-GCN normalises anew, and not the whole graph's. Dropout masks are by global vertex id, like everybody's.
Evaluation is exact: ``merged_part`` puts the partitions of a rank together again, with the halo that they have in
common.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gpu_baselines.batches import Batches, counted, enough, kept, mixture
from gpu_baselines.halos.halo import Exact, PartGraph, Routes
from gpu_baselines.halos.joined import joined
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part, alone, load
from gpu_baselines.run import Run
from siafu.errors import ConfigError
from siafu.graph import TRAIN
from siafu.shards import Edges, Shard
from siafu.sparse import Array, stack
from siafu.tasks import Lane
from siafu.views import view


class Subgraphs:
    """All partitions in one lane, from which batches are cut: edges of the whole graph, by target."""

    def __init__(self, run: Run, masks: Masks):
        manifest = run.shards.manifest
        parts = [
            view(run.shards.partition(number), manifest.edge_types, Lane.TRAIN)
            for number in range(manifest.num_partitions)
        ]
        self._run, self._masks = run, masks
        self._whole = joined(parts, np.zeros(len(parts), np.int32), features=False)
        self._features = [part.features for part in parts]  # mapped: ranks of a machine share them
        sizes = [len(part.vertices) for part in parts]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])  # int64 [n + 1], of each subgraph's vertices
        self._of_vertex = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)  # [N]

    def batch(self, subgraphs: Array) -> PartGraph:
        """The graph of these subgraphs (numbers, ascending), with all edges among their vertices; without any
        exchange."""
        run = self._run
        part = alone(run, self._cut(subgraphs))
        nobody = [torch.zeros(0, dtype=torch.int64, device=run.device)] * run.group.size
        part = replace(part, wanted=[0] * run.group.size, given=nobody)
        halo = Exact(Routes(part, run.group, run.clock, kind="setup"), run.clock, overlap=False)
        return PartGraph(part, halo, run.group, self._masks, training=True)

    def _cut(self, subgraphs: Array) -> Shard:
        whole, starts = self._whole, self._starts
        pieces = [slice(starts[number], starts[number + 1]) for number in subgraphs]
        edges = self._edges(subgraphs, pieces)
        return replace(
            whole,
            vertices=np.concatenate([whole.vertices[piece] for piece in pieces]),
            in_edges=edges,
            out_edges=edges,
            degree=_weighted_degree(edges),
            features=stack([self._features[number] for number in subgraphs]),
            labels=np.concatenate([whole.labels[piece] for piece in pieces]),
            split=np.concatenate([whole.split[piece] for piece in pieces]),
        )

    def _edges(self, subgraphs: Array, pieces: list[slice]) -> Edges:
        """Edges from these rows to these rows. Columns of a row stay ascending, as subgraphs are."""
        edges, starts = self._whole.in_edges, self._starts
        sizes = np.diff(starts)
        shift = np.zeros(len(sizes), np.int64)  # from a subgraph's place in the whole graph to that in the batch
        shift[subgraphs] = np.cumsum(sizes[subgraphs]) - sizes[subgraphs] - starts[subgraphs]
        inside = np.zeros(len(sizes), bool)
        inside[subgraphs] = True
        spans = [slice(edges.indptr[piece.start], edges.indptr[piece.stop]) for piece in pieces]
        source = np.concatenate([edges.indices[span] for span in spans])
        owner = self._of_vertex[source]
        kept = np.flatnonzero(inside[owner])
        counts = np.concatenate([np.diff(edges.indptr[piece.start : piece.stop + 1]) for piece in pieces])
        ends = np.concatenate([[0], np.cumsum(counts)])
        indptr = np.searchsorted(kept, ends).astype(np.int64)
        weight = None if edges.weight is None else np.concatenate([edges.weight[span] for span in spans])[kept]
        return Edges(indptr, (source[kept] + shift[owner[kept]]).astype(np.int32), weight)


def batches_of(run: Run) -> Batches:
    """Batches as ``baseline.per_batch`` asks. Raises: ConfigError for fewer batches than ranks."""
    split, count, asked = run.config.data.split, run.shards.manifest.num_partitions, run.baseline.per_batch
    parts = [run.shards.partition(number) for number in range(count)]
    train = [np.asarray(part.labels)[np.asarray(part.split)[:, split] == TRAIN] for part in parts]
    counts = counted(train, run.spec.num_classes, run.spec.target)
    inside = _inside(parts)
    per_batch = min(asked, count) or enough(counts, inside, most=max(1, count // run.group.size))
    if -(-count // per_batch) < run.group.size:
        raise ConfigError(
            f"baseline.per_batch = {per_batch}: {count} subgraphs are {-(-count // per_batch)} batches, "
            f"must be >= {run.group.size}, the number of ranks"
        )
    share, trains = kept(inside, count, per_batch), np.array([len(labels) > 0 for labels in train])
    return Batches(per_batch, mixture(counts, per_batch), share, trains, run.spec.seed)


def _inside(parts: list[Shard]) -> float:
    """The share of edges whose ends are in the same partition; 1 without edges."""
    edges = sum(len(part.in_edges.indices) for part in parts)
    inside = sum(int((np.asarray(part.in_edges.indices) < len(part.vertices)).sum()) for part in parts)
    return inside / edges if edges else 1.0


def merged_part(run: Run, lane: Lane = Lane.EVAL) -> Part:
    """This rank's share of the whole graph (partitions whose number is its own modulo the
    ranks), with its halo. Collective."""
    group, manifest = run.group, run.shards.manifest
    numbers = range(group.rank, manifest.num_partitions, group.size)
    mine = [view(run.shards.partition(number), manifest.edge_types, lane) for number in numbers]
    return load(run, joined(mine, np.arange(manifest.num_partitions) % group.size), lane, group, "none")


def _weighted_degree(edges: Edges) -> Array:
    """Weighted in-degrees, float64 [n]."""
    n = len(edges.indptr) - 1
    row = np.repeat(np.arange(n), np.diff(edges.indptr))
    weight = None if edges.weight is None else np.asarray(edges.weight, np.float64)
    return np.bincount(row, weight, n).astype(np.float64)
