"""GraphSAGE mini-batches of sampled neighbourhoods (Hamilton et al., NeurIPS 2017), in place of DGL's and AliGraph's.

1. An epoch is all training vertices in a new order, in batches of ``baseline.batch`` over all ranks; each rank computes
   those that it owns, and gradients are summed in every step: the loss of a batch is the mean over its vertices.
2. ``gpu_baselines.neighbourhood`` draws. Batches and draws depend on the seed alone, not on the number of ranks.
3. Dropout's masks are new in every step. With fanouts above all degrees and one batch, this is full-graph training.

Evaluation is exact, on the whole graph, as everybody's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gpu_baselines import net as nets
from gpu_baselines.halos.joined import owners
from gpu_baselines.learner import Learner, loss_of
from gpu_baselines.masks import Masks
from gpu_baselines.methods.halo import Evaluation
from gpu_baselines.neighbourhood import Store, blocks
from gpu_baselines.net import Net
from gpu_baselines.run import Run
from gpu_baselines.subgraphs import merged_part
from siafu import models
from siafu.errors import ConfigError
from siafu.graph import TRAIN
from siafu.sparse import Array
from siafu.tasks import Lane
from siafu.views import view


class Sampling:
    def __init__(self, run: Run):
        spec, fanouts = run.spec, run.baseline.fanouts
        if spec.name == "gcnii":
            raise ConfigError("model.name = gcnii: sampling has gcn, sage and gat")
        if spec.narrow and spec.name != "gat":
            raise ConfigError("model.narrow = true: sampled neighbours are summed before they are transformed")
        if len(fanouts) != spec.num_layers:
            raise ConfigError(f"baseline.fanouts = {list(fanouts)}: the model has {spec.num_layers} layers")
        self._run, self._aggregation = run, models.build(spec).aggregate
        self.net: Net = nets.build(spec, run.device)
        self._learner = Learner(run, self.net)
        self._masks = Masks(spec.dropout, spec.seed, run.device, run.dtype)
        shard = view(run.shards.partition(run.group.rank), run.shards.manifest.edge_types, Lane.TRAIN)
        self._owner, self._train = _census(run)
        self._store = Store(shard, self._owner, run.group, run.clock, device=run.device, dtype=run.dtype)
        self._labels = torch.from_numpy(np.array(shard.labels)).to(run.device)
        self._place = np.full(run.shards.manifest.num_vertices, -1, np.int64)
        self._place[shard.vertices] = np.arange(len(shard.vertices))
        self._evaluation = Evaluation(run, merged_part(run), self._masks)

    def epoch(self, epoch: int) -> float:
        run, size = self._run, self._run.baseline.batch
        order = np.random.default_rng([run.spec.seed, epoch]).permutation(self._train)
        steps = -(-len(order) // size)
        total = 0.0
        for number in range(steps):
            batch = order[number * size : (number + 1) * size]
            loss = self._loss(batch, epoch * steps + number) / len(batch)
            loss.backward()
            total += self._learner.step(epoch, loss) * len(batch)
        return total / len(order)

    def tally(self) -> Array:
        return self._evaluation.tally(self.net)

    def state(self) -> dict[str, Tensor]:
        return self._learner.state()

    def restore(self, state: dict[str, Tensor]) -> None:
        self._learner.restore(state)

    def facts(self) -> dict[str, object]:
        return {}

    def close(self) -> None:
        pass

    def _loss(self, batch: Array, step: int) -> Tensor:
        """The loss summed over this rank's share of the batch."""
        run = self._run
        seeds = batch[self._owner[batch] == run.group.rank]
        made, H = blocks(self._store, seeds, run.baseline.fanouts, self._aggregation, self._masks, step, run.threads)
        state: dict[str, Tensor] = {}
        for layer, block in zip(self.net.layers, made, strict=True):
            H = layer(block, H, state)
        return loss_of(run.spec, H, self._labels[torch.from_numpy(self._place[seeds]).to(run.device)])


def _census(run: Run) -> tuple[Array, Array]:
    """Each vertex's rank (int32 [N]), and all training vertices in the order of their ids."""
    parts = [run.shards.partition(number) for number in range(run.group.size)]
    train = [np.asarray(one.vertices)[np.asarray(one.split)[:, run.config.data.split] == TRAIN] for one in parts]
    return owners(run.shards), np.sort(np.concatenate(train))
