"""Where ApplyEdge costs less: the choice as a table, and the bytes that its tasks move,
against those that they do move."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from run_coordinator.placement import Estimate, Load, Seconds, edge_steps, explained, nbytes_of_epoch
from siafu import models
from siafu.graph import TRAIN
from siafu.models import ModelSpec
from siafu.tasks import TENSOR_KINDS, Kind, Lane
from tests.graph_server.graph_steps import GraphSteps
from tests.toy_graphs import random_graph

#: As measured on one core for 8 heads of 8 without dropout, rounded: nanoseconds of an edge in an epoch.
COMPILED = Seconds(fused=100e-9, given=1000e-9, task=500e-9)
#: Where numpy does both, the gathers cost alike.
ALIKE = Seconds(fused=1000e-9, given=700e-9, task=500e-9)
MILLION, LINK, MEMORY = 1_000_000, 75e6, 5e9


@pytest.mark.parametrize(
    ("seconds", "threads", "environments", "core", "link", "here", "server_s", "lambda_s", "best"),
    [
        # --- environments on this machine: they take its cores' time
        (COMPILED, 2, 4, 1.0, MEMORY, True, 0.05, (1.0 + 0.5 + 0.05) / 2, "server"),
        (ALIKE, 2, 4, 1.0, MEMORY, True, 0.5, (0.7 + 0.5 + 0.05) / 2, "server"),
        # --- elsewhere: the servers' gathers and the environments' tasks beside each other
        (COMPILED, 8, 100, 0.1, LINK, False, 0.0125, 0.125, "server"),
        (COMPILED, 1, 100, 1.0, LINK, False, 0.1, 1.0, "server"),
        (ALIKE, 1, 100, 1.0, LINK, False, 1.0, 0.7, "lambda"),
        (ALIKE, 1, 5, 1.0, LINK, False, 1.0, (0.5 + 250 / 75) / 5, "lambda"),
        (ALIKE, 1, 2, 1.0, LINK, False, 1.0, (0.5 + 250 / 75) / 2, "server"),
        (ALIKE, 1, 8, 0.1, LINK, False, 1.0, (5.0 + 250 / 75) / 8, "server"),
        (ALIKE, 8, 100, 1.0, LINK, False, 0.125, 0.0875, "lambda"),
        (Seconds(1e-6, 1e-6, 0.0), 1, 1, 1.0, 1e30, False, 1.0, 1.0, "server"),  # the same: nothing need travel
        (Seconds(1e-6, 9e-7, 0.0), 1, 1, 1.0, 1e30, False, 1.0, 0.9, "server"),  # or not clearly less
    ],
)
def test_the_choice(seconds, threads, environments, core, link, here, server_s, lambda_s, best):
    load = Load(MILLION, 0, 250 * MILLION, threads, environments, core, link, here)
    estimate = Estimate.of(seconds, load)
    assert (estimate.server_s, estimate.lambda_s) == pytest.approx((server_s, lambda_s))
    assert estimate.best == best
    many = Estimate.of(seconds, replace(load, tasks=100_000))  # of ten edges each
    assert many.best == "server"
    assert many.lambda_s - estimate.lambda_s > 0.4


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bytes_are_those_of_the_tasks(dtype, weighted):
    graph = random_graph(11, weighted=weighted)
    spec = ModelSpec(
        "gat",
        7,
        4,
        int((graph.split[:, 0] == TRAIN).sum()),
        widths=(6, 4),
        heads=2,
        out_heads=3,
        dtype=dtype,
        attn_dropout=0.3,
        apply_edge="lambda",
    )
    model, bounds = models.build(spec), (0, 6, 17, 23)
    expected = nbytes_of_epoch(model, len(graph.src) + 23, 23, 3, weighted=weighted)
    assert travelled(graph, model, bounds) == expected


def travelled(graph, model, bounds) -> int:
    """Bytes of the rows of all edge tasks and of their results, in one epoch that is walked."""
    steps, total = GraphSteps(graph, model, Lane.TRAIN, bounds), 0
    weights = model.init()
    rows = [
        {"H0": graph.features[a:b], "label": graph.labels[a:b], "train": (graph.split[:, 0] == TRAIN)[a:b]}
        for a, b in pairwise(bounds)
    ]
    for step in model.program(Lane.TRAIN).steps:
        for number, mine in enumerate(rows):
            if step.kind in TENSOR_KINDS:
                sent = {slot: mine[slot] for slot in step.reads}
                sent |= steps.edge_rows(step, number, 0, mine) if step.gathers else {}
                made = model.run(step, sent, weights, epoch=0, lane=Lane.TRAIN).rows
                if step.gathers:
                    total += sum(value.nbytes for value in (*sent.values(), *made.values()))
                mine |= made
            elif step.kind is not Kind.WU:
                mine |= steps.run(step, number, 0, mine)
    return total


def test_models_without_edge_tasks_have_none():
    assert not edge_steps(models.build(ModelSpec("gcn", 7, 4, 9)))
    assert not edge_steps(models.build(ModelSpec("gat", 7, 4, 9)))
    assert [step.name for step in edge_steps(models.build(ModelSpec("gat", 7, 4, 9, apply_edge="lambda")))] == [
        "AE0",
        "AE1",
        "AE'1",
        "AE'0",
    ]


def test_the_choice_is_explained_by_its_figures():
    load = Load(10, 64, 2500, 2, 4, 1.0, LINK, False)
    said = explained("server", "auto", 5000, Estimate(0.5, 0.75), load)
    assert said["server"] == {"bytes_per_epoch": 0, "epoch_s": 0.5}
    assert said["lambda"] == {"bytes_per_epoch": 5000, "epoch_s": 0.75}
    assert said["load"]["environments"] == 4
    assert explained("lambda", "lambda", 5000, None, None) == {
        "chosen": "lambda",
        "asked": "lambda",
        "server": {"bytes_per_epoch": 0},
        "lambda": {"bytes_per_epoch": 5000},
    }
    assert np.isfinite([said["server"]["epoch_s"], said["lambda"]["epoch_s"]]).all()
