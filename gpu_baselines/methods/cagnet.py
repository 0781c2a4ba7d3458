"""CAGNET (Tripathy, Yelick & Buluç, SC 2020): blocks of rows are broadcast, needed or not; 1D, and 1.5D with
replicas.

What is counted is what it sends: (P - 1) n F numbers per rank, layer and direction in 1D. In 1.5D with c replicas a
rank's block goes to P / c - 1 others, once in its row, and partial sums of n F numbers are all-reduced among c.
Backward it broadcasts gradients of sums, as it does forward with rows; the paper's outer product, followed by a
reduce-scatter, moves as many numbers. Beyond the paper, which has GCN alone: attention wants single rows, whose
gradients go back as whole blocks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from gpu_baselines import net as nets
from gpu_baselines.blocks import BlockGraph, Broadcasts, Grid, block_ids
from gpu_baselines.learner import Learner, loss_of
from gpu_baselines.masks import Masks
from gpu_baselines.methods.halo import Evaluation
from gpu_baselines.part import Part, load, seen
from gpu_baselines.run import Run
from siafu import models
from siafu.metrics import METRICS
from siafu.sparse import Array
from siafu.tasks import Lane


class Cagnet:
    def __init__(self, run: Run):
        self.run, self._grid = run, Grid(run.group, run.baseline.replicas)
        manifest = run.shards.manifest
        self.part = self._loaded(Lane.TRAIN)
        ids = block_ids(self.part, self._grid)
        self.carrier = self.made_carrier(self._grid, [len(one) for one in ids])
        self.net = nets.build(run.spec, run.device)
        self._learner = Learner(run, self.net)
        masks = Masks(run.spec.dropout, run.spec.seed, run.device, run.dtype)
        shard = seen(run.shards.partition(self._grid.block), manifest.edge_types, Lane.TRAIN)
        self._graph = BlockGraph(
            self.part,
            shard,
            self._grid,
            self.carrier,
            ids,
            masks,
            run.clock,
            aggregation=models.build(run.spec).aggregate,
            threads=run.threads,
            preaggregate=run.baseline.preaggregate,
        )
        whole = self._loaded(Lane.EVAL) if manifest.edge_types == "inductive" else self.part
        self._evaluation = Evaluation(replace(run, group=self._grid.column), whole, masks)

    def made_carrier(self, grid: Grid, sizes: list[int]) -> Broadcasts:
        """``sizes``: rows of each block."""
        return Broadcasts(grid, sizes, self.run.clock)

    def epoch(self, epoch: int) -> float:
        self._graph.epoch = epoch
        rows = self.part.train
        logits = self.net(self._graph, self._graph.features)[rows]
        loss = loss_of(self.run.spec, logits, self.part.labels[rows]) / self.part.num_train
        loss.backward()
        if self._grid.replica:  # all replicas have this gradient: the first one's is counted
            self._learner.optimiser.zero_grad(set_to_none=True)
            loss = loss * 0
        return self._learner.step(epoch, loss)

    def tally(self) -> Array:
        """Evaluates on the first replica; the others count no vertex."""
        if not self._grid.replica:
            return self._evaluation.tally(self.net)
        spec, none = self.run.spec, np.zeros(0, np.int64)
        logits, labels = np.zeros((0, spec.num_classes)), self.part.labels[:0].cpu().numpy()
        return METRICS[spec.target].tally(logits, labels, none.astype(np.uint8))

    def state(self) -> dict[str, Tensor]:
        return {**self._learner.state(), **self.carrier.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._learner.restore(state)
        self.carrier.restore(state)

    def facts(self) -> dict[str, object]:
        return {"blocks": self._grid.num_blocks, **self.carrier.facts()}

    def close(self) -> None:
        pass

    def _loaded(self, lane: Lane) -> Part:
        shards = self.run.shards
        return load(self.run, shards.partition(self._grid.block), lane, self._grid.column, shards.manifest.edge_types)
