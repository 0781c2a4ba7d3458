"""AllReduce-GCN: Cluster-GCN's batches on several workers (GossipGCN thesis, 2021, Algorithms 3 and 4).

1. The batches of an epoch are divided evenly: worker r of p has batches r, r + p, ... of ``gpu_baselines.batches``.
   With one subgraph a batch, as in the thesis, they are the same in every epoch.
2. In every ``interval``-th step (counted over all epochs, alike on all workers) the gradients are averaged over
   all workers, else each steps with its own: Algorithm 4's "update weights" belongs to every batch, as in
   Algorithm 6, whose text calls both local SGD. Weights are not averaged: with an interval above 1, models
   drift apart (``gpu_baselines.worker``).
3. Where the workers do not divide the batches, those without one in the last step take part in its average with none.

Cluster-GCN is the same on one worker (Algorithm 1).
"""

from __future__ import annotations

import math

from torch import Tensor

from gpu_baselines.net import Net
from gpu_baselines.run import Run
from gpu_baselines.worker import Worker
from siafu.errors import ConfigError
from siafu.sparse import Array


class AllReduceGCN:
    def __init__(self, run: Run):
        self._run = run
        self._worker = Worker(run, apart=run.group.size > 1 and run.baseline.interval > 1)
        self.net: Net = self._worker.net

    def epoch(self, epoch: int) -> float:
        run, worker = self._run, self._worker
        batches = worker.batches(epoch)
        mine = batches[run.group.rank :: run.group.size]
        for step in range(math.ceil(len(batches) / run.group.size)):
            worker.count += 1
            averages = worker.count % run.baseline.interval == 0
            has_batch = step < len(mine)
            if has_batch:
                worker.compute(mine[step], epoch)
            if averages:
                total = worker.gradient.clone() if has_batch else worker.gradient.new_zeros(len(worker.gradient))
                with run.clock("reduce"):
                    run.group.all_reduce(total)
                worker.average(total)
            if has_batch or averages:
                worker.update(epoch)
        return sum(run.group.share(worker.take_loss())) / run.spec.num_train

    def tally(self) -> Array:
        return self._worker.tally()

    def state(self) -> dict[str, Tensor]:
        return self._worker.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._worker.restore(state)

    def facts(self) -> dict[str, object]:
        return {"elected": self._worker.elected, **self._worker.facts()}

    def close(self) -> None:
        pass


class ClusterGCN(AllReduceGCN):
    def __init__(self, run: Run):
        if run.group.size != 1:
            raise ConfigError(f"baseline.ranks = {run.group.size}: cluster has one worker; allreduce has more")
        super().__init__(run)
