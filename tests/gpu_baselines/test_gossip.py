"""GossipGCN at work, its ranks threads; the orders in which they can meet are in test_gossip_schedules.py."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.group import Group
from gpu_baselines.methods.gossip import GossipGCN
from gpu_baselines.run import Run
from gpu_baselines.work_pool import AllChoose, Ask, Pool
from gpu_baselines.work_pool_server import door
from siafu.errors import PeerLost
from siafu.graph import tidy
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.test_allreduce import GRAPH, SUBGRAPHS, resumed
from tests.gpu_baselines.training import config_of, prepared, train
from tests.toy_graphs import random_graph

EPOCHS = 4
NUM_BATCHES = 6  # subgraphs of GRAPH that have a training vertex


@pytest.mark.parametrize(("version", "per_batch"), [("v1", 1), ("v2", 1), ("v2", 3)])
def test_one_worker_is_cluster_gcn_bit_for_bit(version: str, per_batch: int, tmp_path: Path) -> None:
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)
    settings: dict[str, Any] = {
        "baseline__subgraphs": SUBGRAPHS,
        "baseline__per_batch": per_batch,
        "model__dropout": 0.5,
    }
    cluster = train(config_of("cluster", 1, **settings), shards, EPOCHS)
    gossip = train(config_of("gossip", 1, baseline__gossip=version, **settings), shards, EPOCHS)
    assert gossip.losses == cluster.losses
    assert all(np.array_equal(gossip.weights[name], W) for name, W in cluster.weights.items())
    own = {"batches_per_rank": [EPOCHS * (NUM_BATCHES if per_batch == 1 else 3)], "averages": 0}
    assert gossip.facts == {**cluster.facts, **own}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("version", "ranks", "interval"), [("v1", 2, 1), ("v1", 4, 2), ("v2", 2, 1), ("v2", 3, 2)])
def test_workers_share_all_batches_and_learn(version: str, ranks: int, interval: int, tmp_path: Path) -> None:
    """Whoever is faster: features say what the labels are. ``train`` holds all ranks to the same losses and weights.

    The last epoch's loss would not do: a worker that was late in every epoch before may compute its batches with
    weights that are nearly those of the start. Whichever model is elected has learned.
    """
    easy = replace(GRAPH, name="easy", features=3 * np.eye(GRAPH.num_classes, dtype=np.float32)[GRAPH.labels])
    config = config_of(
        "gossip",
        ranks,
        model__name="sage",
        train__lr=0.05,
        baseline__subgraphs=SUBGRAPHS,
        baseline__per_batch=1,
        baseline__gossip=version,
        baseline__interval=interval,
    )
    trained = train(config, prepared(easy, tmp_path, SUBGRAPHS), 25)
    done = trained.facts["batches_per_rank"]
    assert isinstance(done, list)
    assert sum(done) == 25 * NUM_BATCHES
    metric = METRICS["classes"]
    elected = metric.scores(metric.merge(trained.scores))["train"]
    assert elected is not None
    assert elected["loss"] < trained.losses[0] / 2
    averages = trained.facts["averages"]
    assert isinstance(averages, int)
    size = sum(W.size for W in trained.weights.values()) + 1
    assert trained.bytes.get("gossip", 0) == averages * 2 * size * 8
    assert trained.bytes["pool"] > 0


def test_partners_get_the_mean_and_one_without_a_gradient_gets_the_others(tmp_path: Path) -> None:
    config = config_of("gossip", 2, baseline__subgraphs=SUBGRAPHS, baseline__per_batch=1)
    shards = prepared(GRAPH, tmp_path, SUBGRAPHS)

    def one(group: Group) -> list[torch.Tensor]:
        method = GossipGCN(Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu")))
        worker, found = method._worker, []
        worker.compute(worker.batches(0)[group.rank], 0)
        found.append(worker.gradient.clone())
        method._average(1 - group.rank)
        found.append(worker.gradient.clone())
        if group.rank:
            worker.gradient.zero_()
        found.append(worker.gradient.clone())
        method._average(1 - group.rank)
        found.append(worker.gradient.clone())
        return found

    first, second = on_ranks(2, one)
    assert not torch.equal(first[0], second[0])
    assert torch.equal(first[1], (first[0] + second[0]) / 2)
    assert torch.equal(first[1], second[1])
    assert torch.equal(first[3], first[2])
    assert torch.equal(second[3], first[2])


def test_the_result_is_the_best_workers_model(tmp_path: Path) -> None:
    """With an interval that is never reached, each worker trains alone."""
    graph = random_graph(9, num_vertices=60, num_edges=200)
    config = config_of("gossip", 3, baseline__subgraphs=6, baseline__interval=10_000, train__lr=0.05)
    trained = train(config, prepared(graph, tmp_path, 6), 6)
    assert trained.facts["averages"] == 0
    assert trained.facts["elected"] in (0, 1, 2)
    assert sum(np.asarray(one)[1].sum() for one in trained.scores) > 0
    assert (tidy(graph, directed=True).split[:, 0] == 2).any()


def test_one_worker_resumes_with_the_same_bits(tmp_path: Path) -> None:
    config = config_of("gossip", 1, baseline__subgraphs=SUBGRAPHS, baseline__interval=2, model__dropout=0.5)
    whole, again = resumed(config, prepared(GRAPH, tmp_path, SUBGRAPHS), epochs=3, stop=1)
    assert all(np.array_equal(whole[name], again[name]) for name in whole)


def test_several_workers_resume(tmp_path: Path) -> None:
    config = config_of("gossip", 3, baseline__subgraphs=SUBGRAPHS)
    _, again = resumed(config, prepared(GRAPH, tmp_path, SUBGRAPHS), epochs=3, stop=1)
    assert all(np.isfinite(W).all() for W in again.values())


class Lost:
    """A group whose other rank is gone."""

    rank, size = 0, 2

    def receive(self, tensor: torch.Tensor, peer: int) -> None:
        raise PeerLost("rank 0: rank 1 is lost: connection closed")


class Alone:
    rank, size = 0, 1


class Silent(AllChoose):
    def handle(self, worker: int, ask: Ask) -> list[Any]:
        return []


def asked_once(group: Any, pool: Pool, timeout_s: float) -> None:
    """A question of rank 0, after whatever happens to those of the others."""
    with door(group, lambda: pool, timeout_s) as ask:
        for thread in threading.enumerate():
            if thread.name == "pool of rank 1":
                thread.join()
        ask(Ask.TAKE)


def test_rank_0_learns_with_its_next_question_that_another_is_lost() -> None:
    with pytest.raises(PeerLost, match="rank 1 is lost"):
        asked_once(Lost(), AllChoose(2, [], min), 30.0)


def test_a_question_that_nobody_answers_ends_in_time() -> None:
    with pytest.raises(PeerLost, match="has not answered within"):
        asked_once(Alone(), Silent(1, [], min), 0.01)
