"""A worker of AllReduce-GCN and GossipGCN: a local model, and batches that are subgraphs.

The loss of a batch is the mean over its training vertices, as in Cluster-GCN. Workers average gradients and never
weights, as in the thesis' Algorithms 4-6, each with its own optimiser. If not all of them average in every step, their
models differ, and the result is the best of them by validation score (Algorithm 6, line 55): all are evaluated, on the
whole graph, whenever the runner evaluates.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from gpu_baselines import net as nets
from gpu_baselines.batches import KEPT, MIXED, Batches
from gpu_baselines.halos.halo import PartGraph
from gpu_baselines.learner import Learner, loss_of
from gpu_baselines.masks import Masks
from gpu_baselines.methods.halo import Evaluation
from gpu_baselines.net import Net
from gpu_baselines.run import Run
from gpu_baselines.subgraphs import Subgraphs, batches_of, merged_part
from siafu.errors import ConfigError
from siafu.metrics import METRICS
from siafu.sparse import Array

logger = logging.getLogger(__name__)


class Worker:
    def __init__(self, run: Run, *, apart: bool):
        """apart: whether ranks' models differ."""
        baseline = run.baseline
        if baseline.slow_rank >= run.group.size:
            raise ConfigError(
                f"baseline.slow_rank = {baseline.slow_rank}: must be < {run.group.size}, the number of ranks"
            )
        if baseline.subgraphs < run.group.size:
            raise ConfigError(
                f"baseline.subgraphs = {baseline.subgraphs}: must be >= {run.group.size}, the number of ranks"
            )
        self._run, self._apart = run, apart
        self.net = nets.build(run.spec, run.device)  # what is judged and saved: equal on all ranks
        self._model: Net = nets.build(run.spec, run.device) if apart else self.net
        self._learner = Learner(run, self._model)
        self._slower = baseline.slow_factor - 1 if baseline.slow_rank == run.group.rank else 0.0
        masks = Masks(run.spec.dropout, run.spec.seed, run.device, run.dtype)
        self.batches = batches_of(run)
        self.warning = warning(self.batches)
        if self.warning and not run.group.rank:
            logger.warning("%s", self.warning)
        self._subgraphs = Subgraphs(run, masks)
        self._kept: dict[bytes, PartGraph] = {}  # of batches that come again in every epoch
        self._evaluation = Evaluation(run, merged_part(run), masks)
        # Of the last batch, and behind it for how many batches it stands: 1, or 0 before the first.
        size = sum(W.numel() for _, W in self._model.named())
        self.gradient = torch.zeros(size + 1, dtype=run.dtype, device=run.device)
        self.count = 0  # batches so far
        self.loss = 0.0  # summed over training vertices, since ``take_loss``
        self.elected = 0  # whose model ``net`` is

    def compute(self, batch: Array, epoch: int) -> None:
        """Computes the local gradient of a batch; batch: int64, the numbers of its subgraphs."""
        begin = time.perf_counter()
        graph, spec = self._graph(batch), self._run.spec
        graph.epoch = epoch
        rows = graph.part.train
        loss = loss_of(spec, self._model(graph, graph.features)[rows], graph.part.labels[rows])
        (loss / len(rows)).backward()
        self.gradient = torch.cat([*self._flat(), torch.ones(1, dtype=self._run.dtype, device=self._run.device)])
        self._learner.optimiser.zero_grad(set_to_none=True)
        self.loss += float(loss.detach())
        if self._slower:  # a slow machine, emulated
            time.sleep(self._slower * (time.perf_counter() - begin))

    def average(self, total: Tensor) -> None:
        """Sets ``gradient`` to the mean of a sum of gradients; the last entry of ``total`` is their number. A worker
        without a gradient gets it too."""
        if total[-1] > 0:
            self.gradient = total / total[-1]

    def update(self, epoch: int) -> None:
        """Steps the local weights."""
        if self.gradient[-1] > 0:
            self._learner.apply(epoch, self.gradient[:-1])

    def take_loss(self) -> float:
        loss, self.loss = self.loss, 0.0
        return loss

    def tally(self) -> Array:
        """Counts of the best model, which becomes ``net``. Collective."""
        if not self._apart:
            return self._evaluation.tally(self.net)
        metric, group = METRICS[self._run.spec.target], self._run.group
        weights, tallies = [], []
        for root in range(group.size):
            weights.append(self._weights_of(root))
            self._put(weights[root])
            tallies.append(self._evaluation.tally(self.net))
        everybody = [
            [np.asarray(one) for one in theirs] for theirs in group.share([tally.tolist() for tally in tallies])
        ]
        scores = [
            metric.scores(metric.merge([theirs[root] for theirs in everybody]))["val"] for root in range(group.size)
        ]
        self.elected = max(range(group.size), key=lambda root: _rank(scores[root], root))
        self._put(weights[self.elected])
        return tallies[self.elected]

    def facts(self) -> dict[str, object]:
        found: dict[str, object] = {"per_batch": self.batches.per_batch, "mixture": self.batches.mixture}
        found["edges_kept"] = self.batches.kept
        return {**found, "warnings": [self.warning]} if self.warning else found

    def state(self) -> dict[str, Tensor]:
        local = {f"local.{name}": W.detach().clone() for name, W in self._model.named()} if self._apart else {}
        return {**self._learner.state(), **local, "count": torch.tensor(self.count)}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._learner.restore(state)
        self.count = int(state["count"])
        if self._apart:
            self._model.load({name: state[f"local.{name}"].cpu().numpy() for name, _ in self._model.named()})

    def _graph(self, batch: Array) -> PartGraph:
        if not self.batches.fixed:
            return self._subgraphs.batch(batch)
        key = batch.tobytes()
        if key not in self._kept:
            self._kept[key] = self._subgraphs.batch(batch)
        return self._kept[key]

    def _flat(self) -> list[Tensor]:
        return [torch.zeros_like(W).flatten() if W.grad is None else W.grad.flatten() for _, W in self._model.named()]

    def _weights_of(self, root: int) -> Tensor:
        flat = torch.cat([W.detach().flatten() for _, W in self._model.named()])
        self._run.group.broadcast(flat, root, "evaluation")
        return flat

    def _put(self, flat: Tensor) -> None:
        parameters = [W for _, W in self.net.named()]
        with torch.no_grad():
            for W, part in zip(parameters, flat.split([W.numel() for W in parameters]), strict=True):
                W.copy_(part.view_as(W))


def warning(batches: Batches) -> str:
    """A warning about batches with few classes or few edges; "" without either."""
    few = f"see few classes (their labels' entropy is {batches.mixture:.0%} of the graph's): training may collapse"
    if batches.mixture >= MIXED:
        if batches.kept >= KEPT:
            return ""
        few = f"keep {batches.kept:.0%} of their edges: the full graph, which is evaluated, looks unlike them"
    return (
        f"batches of {batches.per_batch} of {len(batches.trains)} subgraphs {few}; --per-batch 0 takes enough, on "
        "fewer ranks or with more --subgraphs"
    )


def _rank(val: Mapping[str, float] | None, root: int) -> tuple[float, float, int]:
    """A model's rank: the largest is the best, by score, loss and number; by number alone without validation
    vertices."""
    return (val["acc"], -val["loss"], -root) if val else (0.0, 0.0, -root)
