"""Partitions by themselves, and several of them as one: what batches are made of, and what judges the result.

A batch is one partition with the edges that both begin and end in it (Cluster-GCN, Chiang et al., KDD 2019); edges to
other partitions are as if there were none. So degrees are those inside the batch, as Cluster-GCN normalises anew, and
not the whole graph's. Dropout masks are by global vertex id, like everybody's. Evaluation is exact: ``merged_part``
puts the partitions of a rank together again, with the halo that they have in common.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from gpu_baselines.adjacency import columns
from gpu_baselines.halos.halo import Exact, PartGraph, Routes
from gpu_baselines.halos.joined import joined
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part, alone, load
from gpu_baselines.run import Run
from siafu import models
from siafu.shards import Edges, Shard
from siafu.sparse import Array
from siafu.tasks import Lane
from siafu.views import view


def subgraph(run: Run, number: int, masks: Masks) -> PartGraph:
    """A partition as a batch: a part whose halo is empty, to and from which nothing travels."""
    shard = by_itself(view(run.shards.partition(number), run.shards.manifest.edge_types, Lane.TRAIN))
    part = alone(
        shard,
        models.build(run.spec).aggregate,
        split=run.config.data.split,
        num_train=run.spec.num_train,
        device=run.device,
        dtype=run.dtype,
        threads=run.threads,
    )
    nobody = [torch.zeros(0, dtype=torch.int64, device=run.device)] * run.group.size
    part = replace(part, wanted=[0] * run.group.size, given=nobody)
    halo = Exact(Routes(part, run.group, run.clock, kind="setup"), run.clock, overlap=False)
    return PartGraph(part, halo, run.group, masks, training=True)


def by_itself(shard: Shard) -> Shard:
    """Without ghosts and the edges from them. Small arrays are read: with hundreds of
    batches, files must not stay mapped."""
    n = len(shard.vertices)
    edges = columns(shard.in_edges, 0, n)
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    return replace(
        shard,
        vertices=np.array(shard.vertices),
        in_edges=edges,
        out_edges=edges,
        ghosts_in=none,
        ghosts_in_owner=none.astype(np.int32),
        ghosts_out=none,
        ghosts_out_owner=none.astype(np.int32),
        degree=_weighted_degree(edges),
        degree_ghosts_in=nothing,
        degree_ghosts_out=nothing,
        split=np.array(shard.split),
    )


def merged_part(run: Run, lane: Lane = Lane.EVAL) -> Part:
    """This rank's share of the whole graph (partitions whose number is its own modulo the
    ranks), with its halo. Collective."""
    group, manifest = run.group, run.shards.manifest
    numbers = range(group.rank, manifest.num_partitions, group.size)
    mine = [view(run.shards.partition(number), manifest.edge_types, lane) for number in numbers]
    return load(
        joined(mine, np.arange(manifest.num_partitions) % group.size),
        group,
        models.build(run.spec).aggregate,
        edge_types="none",
        lane=lane,
        split=run.config.data.split,
        num_train=run.spec.num_train,
        device=run.device,
        dtype=run.dtype,
        threads=run.threads,
    )


def _weighted_degree(edges: Edges) -> Array:
    """float64 [n], of in-edges."""
    n = len(edges.indptr) - 1
    row = np.repeat(np.arange(n), np.diff(edges.indptr))
    weight = None if edges.weight is None else np.asarray(edges.weight, np.float64)
    return np.bincount(row, weight, n).astype(np.float64)
