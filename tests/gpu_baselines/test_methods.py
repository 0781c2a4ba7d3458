"""The contract of ``gpu_baselines.run.Method``, held by every line of METHODS and by its main settings."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from gpu_baselines import runner
from gpu_baselines.group import Group
from gpu_baselines.run import Run
from gpu_baselines.runner import made
from siafu.baseline import METHODS
from siafu.graph import tidy
from siafu.metrics import METRICS
from siafu.models import ModelSpec
from tests import reference
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, prepared
from tests.toy_graphs import random_graph

EPOCHS, SAVED_AT = 5, 3
GRAPH = random_graph(7, 40, num_edges=160, directed=False, weighted=False)


class Case(NamedTuple):
    method: str
    ranks: int = 2
    settings: dict[str, Any] = {}  # noqa: RUF012 (never changed)


_BATCHES = {"baseline__subgraphs": 4}
CASES = {
    "vanilla": Case("vanilla"),
    "pipegcn": Case("pipegcn", 3),
    "pipegcn-FG": Case("pipegcn", 2, {"baseline__smooth": "FG", "baseline__depth": 2}),
    "adaqp": Case("adaqp", 2, {"baseline__period": 2}),
    "adaqp-fixed": Case("adaqp", 2, {"baseline__scheme": "fixed", "baseline__bits": 4, "baseline__feedback": True}),
    "pipelined and quantised": Case("pipegcn", 2, {"baseline__scheme": "uniform", "baseline__smooth": "F"}),
    "gnnpipe": Case("gnnpipe", 2, {"model__name": "gcnii", "model__layers": 4}),
    "gnnpipe-groups": Case("gnnpipe", 4, {"baseline__groups": 2}),
    "allreduce": Case("allreduce", 2, _BATCHES),
    "gossip-v1": Case("gossip", 3, {**_BATCHES, "baseline__gossip": "v1"}),
    "gossip-v2": Case("gossip", 2, _BATCHES),
    "gossip-alone": Case("gossip", 1, _BATCHES),
    "cluster": Case("cluster", 1, _BATCHES),
    "sancus": Case("sancus"),
    "cagnet": Case("cagnet"),
    "cagnet-1.5D": Case("cagnet", 4, {"baseline__replicas": 2}),
    "sampling": Case("sampling", 2, {"baseline__batch": 4}),
}
#: Whoever is free meets: no seed fixes the order, and two whole runs differ, too.
FREE = {"gossip-v1", "gossip-v2"}


def case(name: str) -> Any:
    """The case, skipped while the method's module is not there."""
    module = METHODS[CASES[name].method].program.partition(":")[0]
    there = importlib.util.find_spec(f"gpu_baselines.methods.{module}") is not None
    return pytest.param(
        name, marks=[] if there else pytest.mark.skip(reason=f"gpu_baselines.methods.{module} is not written")
    )


every_case = pytest.mark.parametrize("name", [case(name) for name in CASES])


def run_of(name: str, folder: Path, group: Group, **more: Any) -> Run:
    method, ranks, settings = CASES[name]
    config = config_of(
        method, ranks, **{"model__hidden": 6, "model__dropout": 0.5, "train__epochs": EPOCHS, **settings, **more}
    )
    shards = prepared(GRAPH, folder, config.partitions)
    torch.set_num_threads(1)
    return Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device("cpu"))


def test_every_method_is_in_a_case() -> None:
    assert {case.method for case in CASES.values()} == METHODS.keys()


@pytest.mark.sampled(2)
@every_case
def test_ranks_agree_and_judge_the_weights_exactly(name: str, tmp_path: Path) -> None:
    """Loss and weights are equal on all ranks; the ranks' tallies add up to what one
    machine finds with these weights."""
    config = run_of(name, tmp_path, on_ranks(1, lambda group: group)[0]).config  # prepares, before there are threads

    def one(group: Group) -> Any:
        method = made(run_of(name, tmp_path, group))
        try:
            losses = [method.epoch(epoch) for epoch in range(EPOCHS)]
            tally = method.tally()
            return losses, tally, method.net.weights(), json.dumps(method.facts())
        finally:
            method.close()

    (losses, _, weights, _), *others = found = on_ranks(CASES[name].ranks, one)
    assert np.isfinite(losses).all()
    for other in others:
        assert other[0] == losses
        assert all(np.array_equal(other[2][key], W) for key, W in weights.items())
    graph = tidy(GRAPH, directed=False)
    spec = ModelSpec.of(config, prepared(GRAPH, tmp_path, config.partitions).manifest)
    metric = METRICS[spec.target]
    wanted = metric.scores(metric.tally(reference.predict(graph, spec, weights), graph.labels, graph.split[:, 0]))
    scores = metric.scores(metric.merge([tally for _, tally, _, _ in found]))
    for split, expected in wanted.items():
        assert scores[split] == pytest.approx(expected, abs=1e-9), split


@pytest.mark.long
@every_case
def test_resumes_to_the_same_weights(name: str, tmp_path: Path) -> None:
    """From the checkpoint after three of five epochs, with rank 0's lines of the epochs done again cut off."""
    run_of(name, tmp_path, on_ranks(1, lambda group: group)[0])
    folder = tmp_path / "run"
    folder.mkdir()

    def one(group: Group, resume: bool) -> dict[str, Any]:
        run = run_of(name, tmp_path, group, run__checkpoint_every=SAVED_AT)
        return runner.train(run, folder, resume=resume)

    ranks = CASES[name].ranks
    whole = on_ranks(ranks, lambda group: one(group, False))[0]
    assert [path.name for path in folder.glob("checkpoint-*")] == [f"checkpoint-{SAVED_AT}"]
    again = on_ranks(ranks, lambda group: one(group, True))[0]
    assert again["epochs"] == EPOCHS
    assert again["loss_history"][:SAVED_AT] == whole["loss_history"][:SAVED_AT]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines if line["event"] == "epoch"] == list(range(1, EPOCHS + 1))
    if name in FREE:
        assert np.isfinite(again["loss_history"]).all()
        return
    assert again["weights_digest"] == whole["weights_digest"]
    assert again["loss_history"] == whole["loss_history"]
