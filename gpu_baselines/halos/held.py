"""The part of the graph that a rank of a pipeline holds: its share of every chunk, in one piece for evaluation, and
in chunks.

A stage's rank ``g`` has parts g K .. (g + 1) K - 1 of the graph, and of these the k-th is its share of chunk k: METIS
numbers neighbouring parts side by side, so that little travels between the ranks of a stage.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.chunks import Chunk, Memory
from gpu_baselines.halos.halo import Exact, PartGraph, Pending, Routes
from gpu_baselines.halos.joined import joined, owners
from gpu_baselines.masks import Masks
from gpu_baselines.part import Part, alone, load, seen
from gpu_baselines.run import Run
from gpu_baselines.stages import Place
from siafu.tasks import Lane


class Held:
    """A rank's part of the graph in one lane: its share of every chunk."""

    def __init__(self, run: Run, place: Place, lane: Lane, masks: Masks):
        """Collective in the stage."""
        manifest = run.shards.manifest
        self._run, self._place, self._masks = run, place, masks
        self.num_parts = manifest.num_partitions // place.groups
        mine = range(place.member * self.num_parts, (place.member + 1) * self.num_parts)
        self._shards = [seen(run.shards.partition(p), manifest.edge_types, lane) for p in mine]
        member = np.arange(manifest.num_partitions) // self.num_parts
        whole = joined(self._shards, member, features=place.first)
        self.part: Part = load(run, whole, lane, place.group, "none")
        self.seen = _Seen(Routes(self.part, place.group, run.clock, kind="evaluation"), run.clock, overlap=False)
        self.graph = PartGraph(self.part, self.seen, place.group, masks, training=False)

    def chunks(self, count: int) -> tuple[Memory, list[Chunk]]:
        """``count`` chunks, each of several partitions if there are more of these."""
        run, of_part = self._run, np.arange(self.num_parts) * count // self.num_parts
        of_partition = of_part[np.arange(run.shards.manifest.num_partitions) % self.num_parts]
        chunk_of = of_partition[owners(run.shards)]  # [N]
        between = 2.0 if run.baseline.unbiased else 1.0
        memory = Memory(self.graph, chunk_of, self._place.group, self._masks, run.clock, between)
        chunks, start = [], 0
        for number in range(count):
            shard = joined([self._shards[i] for i in np.flatnonzero(of_part == number)], of_partition, features=False)
            part = alone(run, shard)
            chunks.append(Chunk(number, slice(start, start + part.num_inner), part, memory))
            start += part.num_inner
        return memory, chunks


class _Seen(Exact):
    """Exact rows of the whole graph; keeps the rows of a pass, for a history."""

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.rows: dict[int, Tensor] | None = None  # by layer, [n + h, F]; None: not wanted

    def forward(self, layer: int, H: Tensor) -> Pending:
        pending = super().forward(layer, H)

        def wait() -> Tensor:
            rows = pending()
            if self.rows is not None:
                self.rows[layer] = torch.cat([H.detach(), rows])
            return rows

        return wait
