"""GossipGCN (thesis, 2021): workers take batches from a pool, and average gradients in pairs, whenever two are ready.

1. v2 is Algorithm 6, v1 Algorithm 5: ``gpu_baselines.work_pool`` has both, and the work of workers between their
   questions.
2. The thesis' pool has every batch once for each epoch. Our pool has the batches of one epoch, by their places in
   ``gpu_baselines.batches``, and workers wait for each other between epochs, since the runner evaluates and saves
   there; a worker that is still awaited is served at each epoch's end.
3. A worker that leaves gives the gradient of its last step; one that has computed none yet takes its partner's.
4. Each worker updates its own model, and the best one is the result (``gpu_baselines.worker``).
5. Which worker computes which batch depends on their speeds: with several ranks two runs differ, and so does a resumed
   run. One worker is Cluster-GCN, bit for bit.
6. Two workers with an interval of 1 have nobody else to choose, and are as slow as the slower one; with four, a slow
   worker holds up one other at a time. A worker waits for up to ``interval`` batches of its partner:
   ``baseline.timeout_s`` must be longer.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gpu_baselines.net import Net
from gpu_baselines.run import Run
from gpu_baselines.work_pool import NONE, POOLS, Action, Ask, Average, Compute, Pool, program
from gpu_baselines.work_pool_server import Door, door
from gpu_baselines.worker import Worker
from siafu.sparse import Array


class GossipGCN:
    def __init__(self, run: Run):
        self._run = run
        self._worker = Worker(run, apart=run.group.size > 1)
        self._pool_group = run.group.twin(host=True)
        self.net: Net = self._worker.net
        self._batches: list[Array] = []  # of this epoch
        self._done = np.zeros(run.group.size, np.int64)  # batches that each rank has computed
        self._averages = 0  # of pairs

    def epoch(self, epoch: int) -> float:
        run, worker, baseline = self._run, self._worker, self._run.baseline
        before, averages = worker.count, 0
        self._batches = worker.batches(epoch)
        with door(self._pool_group, lambda: self._pool(epoch), baseline.timeout_s) as ask:
            steps = program(baseline.gossip, run.group.rank, run.group.size, baseline.interval, worker.count)
            answer, action = NONE, next(steps)
            while True:
                answer = self._do(action, ask, epoch)
                averages += isinstance(action, Average)
                try:
                    action = steps.send(answer)
                except StopIteration:
                    break
        told = run.group.share([worker.take_loss(), worker.count - before, averages])
        self._done += [one[1] for one in told]
        self._averages += sum(one[2] for one in told) // 2
        return float(sum(one[0] for one in told)) / run.spec.num_train

    def tally(self) -> Array:
        return self._worker.tally()

    def state(self) -> dict[str, Tensor]:
        counts = {"done": torch.from_numpy(self._done.copy()), "averages": torch.tensor(self._averages)}
        return {**self._worker.state(), **counts}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._worker.restore(state)
        self._done, self._averages = state["done"].numpy().copy(), int(state["averages"])

    def facts(self) -> dict[str, object]:
        return {
            "elected": self._worker.elected,
            "batches_per_rank": self._done.tolist(),
            "averages": self._averages,
            **self._worker.facts(),
        }

    def close(self) -> None:
        pass

    def _pool(self, epoch: int) -> Pool:
        baseline = self._run.baseline
        drawn, batches = np.random.default_rng([self._run.spec.seed, epoch]), range(len(self._batches))
        return POOLS[baseline.gossip](self._run.group.size, batches, lambda count: int(drawn.integers(count)))

    def _do(self, action: Action, ask: Door, epoch: int) -> int:
        worker, clock = self._worker, self._run.clock
        if isinstance(action, Ask):
            with clock("communicate"):
                return ask(action)
        if isinstance(action, Compute):
            worker.count += 1
            worker.compute(self._batches[action.batch], epoch)
        elif isinstance(action, Average):
            with clock("reduce"):
                self._average(action.partner)
        else:
            worker.update(epoch)
        return NONE

    def _average(self, partner: int) -> None:
        """Averages with a partner. Both add in the same order of ranks, so that they get equal bits."""
        group, mine = self._run.group, self._worker.gradient
        nothing, theirs = mine.new_empty(0), torch.empty_like(mine)
        sends, recvs = [nothing] * group.size, [nothing] * group.size
        sends[partner], recvs[partner] = mine, theirs
        group.exchange(sends, recvs, "gossip")  # of these two alone: nothing else travels
        self._worker.average(mine + theirs)
