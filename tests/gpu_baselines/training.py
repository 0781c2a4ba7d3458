"""Baselines on toy graphs, their ranks threads of this process; and the oracle's epochs beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from gpu_baselines.group import Group
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from graph_data.prepare import prepare
from siafu.baseline import BaselineConfig, first_settings
from siafu.graph import Graph
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests import reference
from tests.gpu_baselines.ranks import on_ranks

LR, WEIGHT_DECAY = 0.02, 5e-4


class Trained(NamedTuple):
    losses: list[float]
    weights: dict[str, Array]
    scores: Any  # the tallies of all ranks, after the last epoch
    bytes: dict[str, int]  # sent by all ranks, by kind
    facts: dict[str, object]


def config_of(method: str, ranks: int, **settings: Any) -> BaselineConfig:
    """settings: "section.key" with a double underscore for the dot: ``model__name="gat"``."""
    changes = {
        "model.dtype": "float64",
        "train.lr": LR,
        "train.weight_decay": WEIGHT_DECAY,
        "baseline.device": "cpu",
        **first_settings(method, settings.get("model__name", "gcn")),
        "baseline.ranks": ranks,
        **{key.replace("__", "."): value for key, value in settings.items()},
    }
    return BaselineConfig().replace(changes)


def prepared(graph: Graph, folder: Path, parts: int, **options: Any) -> ShardSet:
    """Cut at random: every part has a halo, and needs all others'."""
    out = folder / f"{graph.name}-{parts}"
    if not out.exists():
        prepare(graph, out=out, parts=parts, partitioner="random", directed=graph.directed, **options)
    return ShardSet.open(out)


def train(config: BaselineConfig, shards: ShardSet, epochs: int) -> Trained:
    def one(group: Group) -> Trained:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        method = made(run)
        losses = [method.epoch(epoch) for epoch in range(epochs)]
        tally = method.tally()
        found = Trained(losses, method.net.weights(), tally, group.traffic.by_kind(), method.facts())
        method.close()
        return found

    ranks = on_ranks(config.baseline.ranks, one)
    for other in ranks[1:]:
        assert other.losses == ranks[0].losses
        assert all(np.array_equal(other.weights[name], W) for name, W in ranks[0].weights.items())
    kinds = {kind for rank in ranks for kind in rank.bytes}
    total = {kind: sum(rank.bytes.get(kind, 0) for rank in ranks) for kind in kinds}
    return ranks[0]._replace(scores=[rank.scores for rank in ranks], bytes=total)


class Judged(NamedTuple):
    test_acc: float  # where validation is best
    facts: dict[str, object]


def judged(config: BaselineConfig, shards: ShardSet, epochs: int, every: int) -> Judged:
    """Trains, and evaluates after every so many epochs."""

    def one(group: Group) -> Judged:
        torch.set_num_threads(1)
        run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))
        method, metric = made(run), METRICS[run.spec.target]
        best, test = -1.0, 0.0
        for epoch in range(epochs):
            method.epoch(epoch)
            if epoch % every == every - 1:
                scores = metric.scores(metric.merge([np.asarray(one) for one in group.share(method.tally().tolist())]))
                val, its = scores["val"], scores["test"]
                if val is not None and its is not None and val["acc"] > best:
                    best, test = val["acc"], its["acc"]
        facts = method.facts()
        method.close()
        return Judged(test, facts)

    return on_ranks(config.baseline.ranks, one)[0]


def oracle(config: BaselineConfig, shards: ShardSet, graph: Graph, epochs: int) -> reference.Trained:
    """The same epochs on one machine: float64, no ranks."""
    spec = ModelSpec.of(config, shards.manifest)
    return reference.train(graph, spec, epochs=epochs, lr=LR, weight_decay=WEIGHT_DECAY)


def differs_by(one: list[float], other: list[float]) -> float:
    return float(np.max(np.abs(np.array(one) - np.array(other))))
