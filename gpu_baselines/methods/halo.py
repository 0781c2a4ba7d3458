"""Full-graph training whose ranks exchange halo rows: vanilla, PipeGCN, AdaQP, and what lies between them.

forward    Z = A_inner drop(H) + A_outer drop(halo)          halo: as ``gpu_baselines.halos.halo.Halo`` gets them here
backward   dH = A_innerᵀ dZ + what the owners of others' halos get back
step       gradients are summed over ranks; every rank takes the same step
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gpu_baselines import net as nets
from gpu_baselines.halos.halo import Exact, Halo, PartGraph, Routes
from gpu_baselines.halos.late import Late
from gpu_baselines.halos.quantised import Quantised
from gpu_baselines.halos.smoothing import WAYS, Smoothing
from gpu_baselines.learner import Learner, loss_of
from gpu_baselines.masks import Masks
from gpu_baselines.net import Net
from gpu_baselines.part import Part, load
from gpu_baselines.run import Run, as_array
from siafu.metrics import METRICS
from siafu.sparse import Array
from siafu.tasks import Lane


class HaloTraining:
    def __init__(self, run: Run):
        self._run = run
        self.part = _part(run, Lane.TRAIN)
        self.halo: Halo = made_halo(run, self.part)
        inductive = run.shards.manifest.edge_types == "inductive"
        self.net: Net = made_net(run, self.part.train if inductive else None)
        self._learner = Learner(run, self.net)
        masks = Masks(run.spec.dropout, run.spec.seed, run.device, run.dtype)
        self._graph = PartGraph(
            self.part, self.halo, run.group, masks, training=True, preaggregate=run.baseline.preaggregate
        )
        whole = _part(run, Lane.EVAL) if inductive else self.part
        self._evaluation = Evaluation(run, whole, masks, self._graph)

    def epoch(self, epoch: int) -> float:
        self._graph.epoch = epoch
        self.halo.begin(epoch)
        rows = self.part.train
        logits = self.net(self._graph, self._graph.features)[rows]
        loss = loss_of(self._run.spec, logits, self.part.labels[rows]) / self.part.num_train
        loss.backward()
        self.halo.end()
        return self._learner.step(epoch, loss)

    def tally(self) -> Array:
        return self._evaluation.tally(self.net)

    def state(self) -> dict[str, Tensor]:
        return {**self._learner.state(), **self.halo.state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        self._learner.restore(state)
        self.halo.restore(state)

    def facts(self) -> dict[str, object]:
        return self.halo.facts()

    def close(self) -> None:
        self.halo.close()


def made_halo(run: Run, part: Part) -> Halo:
    """The halo of the settings: exact rows, late ones, quantised ones, and any combination."""
    asked, clock = run.baseline, run.clock
    quantised = Quantised(run, part) if asked.scheme != "none" else None
    routes = Routes(part, run.group, clock, quantised)
    if not asked.depth:
        return Exact(routes, clock, overlap=asked.overlap)
    smoothing = Smoothing(WAYS[asked.smooth], asked.gamma, correct=asked.correct)
    return Late(routes, clock, smoothing, depth=asked.depth, correct=asked.correct, overlap=asked.overlap)


def made_net(run: Run, rows: Tensor | None) -> Net:
    """The net. ``rows``: of this rank, those that SyncBN may learn from; None: all."""
    num_linear = run.baseline.num_linear
    if run.baseline.norm != "batch":
        return nets.build(run.spec, run.device, num_linear=num_linear)
    num_vertices = run.shards.manifest.num_vertices if rows is None else run.spec.num_train
    batch_norm = nets.BatchNorm(lambda X: _AllReduce.apply(X, run), num_vertices, rows)
    return nets.build(run.spec, run.device, batch_norm=batch_norm, num_linear=num_linear)


class Evaluation:
    """Exact full-graph inference over parts with halos, with which every method with parts is evaluated."""

    def __init__(self, run: Run, part: Part, masks: Masks, training: PartGraph | None = None):
        self._run, self._part = run, part
        halo = Exact(Routes(part, run.group, run.clock, kind="evaluation"), run.clock, overlap=False)
        self._graph = PartGraph(part, halo, run.group, masks, training=False, beside=training)

    def logits(self, net: Net) -> Tensor:
        with torch.no_grad():
            return net(self._graph, self._graph.features)

    def tally(self, net: Net) -> Array:
        metric = METRICS[self._run.spec.target]
        return metric.tally(as_array(self.logits(net)), as_array(self._part.labels), self._part.split)


def _part(run: Run, lane: Lane) -> Part:
    shards = run.shards
    return load(run, shards.partition(run.group.rank), lane, run.group, shards.manifest.edge_types)


class _AllReduce(torch.autograd.Function):
    """The sum over all ranks; its gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, X: Tensor, run: Run) -> Tensor:
        ctx.run = run
        return _summed(X.detach(), run)

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor, None]:
        return _summed(d, ctx.run), None


def _summed(X: Tensor, run: Run) -> Tensor:
    total = X.contiguous().clone()
    with run.clock("reduce"):
        run.group.all_reduce(total, "norm")
    return total
