"""GAT on whole fleets: exact on any number of servers and in both placements of ApplyEdge,
whatever the order and the faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_data.prepare import prepare
from graph_server.operators.attention import Attention, RecordStore
from siafu import views
from siafu.address import Address
from siafu.address import graph_server as graph_server_address
from siafu.config import Config
from siafu.errors import RemoteProtocolError
from siafu.graph import TRAIN, Graph
from siafu.shards import ShardSet
from siafu.tasks import Lane
from siafu.wire import PublishedRows
from tests.fleet import Faults, Fleet
from tests.integration.test_fleet import FAULTS, SETTINGS, close, ordeal, textbook
from tests.toy_graphs import random_graph, with_sparse_features

pytestmark = pytest.mark.usefixtures("short_parts")

GRAPHS: dict[str, Callable[[], Graph]] = {
    "directed": lambda: random_graph(1),
    "undirected": lambda: random_graph(2, directed=False, weighted=False),
    "sparse": lambda: with_sparse_features(random_graph(3)),
}
GAT: dict[str, Any] = {
    **SETTINGS,
    "model.name": "gat",
    "model.hidden": 6,
    "model.heads": 2,
    "model.out_heads": 3,
    "model.activation": "elu",
    "model.attn_dropout": 0.4,
    "model.residual": True,
}
PLACEMENTS = ("server", "lambda")
Build = Callable[..., Fleet]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(name: str, parts: int, inductive: int | None) -> ShardSet:
        graph, path = GRAPHS[name](), folder / f"{name}-{parts}-{inductive}"
        return prepare(
            graph, path, parts=parts, partitioner="random", order="random", directed=graph.directed, inductive=inductive
        )

    return shards


@pytest.fixture
def fleet(prepared: Callable[..., ShardSet]) -> Build:
    """A fleet by its settings; the seed is that of the postman."""

    def build(options: dict[str, Any], seed: int = 0, faults: Faults | None = None, graph: str = "directed") -> Fleet:
        config = Config().replace({**GAT, "data.directed": GRAPHS[graph]().directed, **options})
        return Fleet(config, prepared(graph, config.data.parts, 0 if config.data.inductive else None), seed, faults)

    return build


# --- exactness --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("apply_edge", PLACEMENTS)
@pytest.mark.parametrize("backend", ["cpu", "lambda"])
@pytest.mark.parametrize("parts", [1, 2, 4])
def test_pipe_equals_full_batch_training(fleet: Build, parts: int, backend: str, apply_edge: str):
    options = {"data.parts": parts, "servers.backend": backend, "lambda.apply_edge": apply_edge, "train.intervals": 3}
    run = fleet({**options, "train.epochs": 4, "servers.param_servers": 2})
    result, expected = run.train(), textbook(run, GRAPHS["directed"]())
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.weights("final"), expected.weights)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("directed", {"model.layers": 1}),
        ("directed", {"model.layers": 3, "model.hidden": "6 4", "model.norm": "layer"}),
        ("directed", {"data.parts": 4, "train.intervals": 9}),  # more intervals than vertices: some are empty
        ("undirected", {"model.residual": False, "model.bias": False}),
        ("sparse", {"model.heads": 1, "model.out_heads": 1}),
    ],
)
@pytest.mark.parametrize("apply_edge", PLACEMENTS)
def test_every_kind_of_graph_equals_full_batch_training(
    fleet: Build, apply_edge: str, graph: str, options: dict[str, Any]
):
    run = fleet({"lambda.apply_edge": apply_edge, "servers.backend": "lambda", **options}, graph=graph)
    result, expected = run.train(), textbook(run, GRAPHS[graph]())
    np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
    close(run.weights("final"), expected.weights)


@pytest.mark.parametrize("apply_edge", PLACEMENTS)
def test_inductive_training_attends_among_training_vertices(fleet: Build, apply_edge: str):
    graph = GRAPHS["directed"]()
    run = fleet({"data.inductive": True, "lambda.apply_edge": apply_edge})
    is_train = graph.split[:, 0] == TRAIN
    kept = is_train[graph.src] & is_train[graph.dst]
    assert graph.weight is not None
    inside = Graph(**{**vars(graph), "src": graph.src[kept], "dst": graph.dst[kept], "weight": graph.weight[kept]})
    np.testing.assert_allclose(run.train()["loss_history"], textbook(run, inside).losses, rtol=1e-9)


@pytest.mark.parametrize("apply_edge", PLACEMENTS)
@pytest.mark.parametrize(("rows", "tolerance"), [("exact", 1e-4), ("bfloat16", 2e-2)])
def test_single_precision_and_rows_of_16_bits_stay_near(fleet: Build, rows: str, tolerance: float, apply_edge: str):
    options = {"model.dtype": "float32", "model.rows": rows, "lambda.apply_edge": apply_edge, "train.epochs": 5}
    one, two = (fleet({**options, "data.parts": parts}) for parts in (1, 2))
    losses = textbook(one, GRAPHS["directed"]()).losses
    histories = [run.train()["loss_history"] for run in (one, two)]
    np.testing.assert_allclose(histories[0], losses, rtol=tolerance)
    np.testing.assert_allclose(histories[1], histories[0], rtol=max(1e-5, tolerance / 4))
    store = two.partitions[0].published[Lane.TRAIN, "T0"].store
    assert isinstance(store, RecordStore)
    assert store.records.dtype == ("bfloat16" if rows == "bfloat16" else "float32")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("left_out", [0.0, 1.0])  # at least: any edge is left out, or none is
@pytest.mark.parametrize("graph", ["directed", "undirected"])
@pytest.mark.parametrize("options", [{}, {"train.mode": "async"}])
def test_attention_of_the_loss_passes_along_edges_into_training_vertices_alone(
    fleet: Build, options: dict[str, Any], graph: str, left_out: float, monkeypatch: pytest.MonkeyPatch
):
    """Its rows of ghosts that do not train never come: nobody may attend to what stands in their place."""
    monkeypatch.setattr(views, "LEAST_LEFT_OUT", left_out)
    run = fleet({"data.parts": 3, "train.epochs": 4, **options}, graph=graph)
    result = run.train()
    for partition in run.partitions:
        of_loss, every = (partition._operators.made[Lane.TRAIN, "attention", kind] for kind in (True, False))
        assert isinstance(of_loss, Attention)
        assert isinstance(every, Attention)
        for backward in (False, True):
            fewer, edges = of_loss.edges[backward], every.edges[backward]
            assert len(fewer.indices) < len(edges.indices) if left_out == 0.0 else fewer is edges
        store = partition.published[Lane.TRAIN, "dZ1"].store
        assert isinstance(store, RecordStore)
        log_total, n = store.records.scores[:, 1], len(partition.shard.vertices)
        trains = partition.ghosts.counts(Lane.TRAIN)[n:]
        assert np.isfinite(log_total[:n]).all()
        if not options:
            assert (np.isinf(log_total[n:]) == ~trains[:, None]).all()
            assert not trains.all()
    if not options:  # else what is stale depends on the order of events
        expected = textbook(run, GRAPHS[graph]())
        np.testing.assert_allclose(result["loss_history"], expected.losses, rtol=1e-9)
        close(run.weights("final"), expected.weights)


# --- any order, any fault ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("apply_edge", PLACEMENTS)
def test_pipe_has_the_same_bits_in_any_order_and_through_any_faults(fleet: Build, apply_edge: str):
    for parts in (1, 2, 4):
        outcomes = set()
        for seed in range(5):
            lambdas = seed % 2 == 1
            options = {
                "data.parts": parts,
                "lambda.apply_edge": apply_edge,
                "servers.backend": "lambda" if lambdas else "cpu",
                "train.mode": "no-pipe" if seed == 2 else "pipe",
                "lambda.stream": False,
            }
            result = ordeal(fleet(options, seed, FAULTS if lambdas and seed > 2 else None))
            outcomes.add((result["weights_digest"], *result["loss_history"]))
        assert len(outcomes) == 1, parts


@pytest.mark.sampled(2)
@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("apply_edge", PLACEMENTS)
def test_async_keeps_its_bounds_in_any_order_and_through_any_faults(fleet: Build, apply_edge: str, staleness: int):
    histories = set()
    for seed in range(6):
        rng, lambdas = random.Random(seed), seed % 2 == 1
        options = {
            "data.parts": (2, 4)[seed % 3 == 1],
            "lambda.apply_edge": apply_edge,
            "train.mode": "async",
            "train.epochs": 4,
            "train.staleness": staleness,
            "servers.backend": "lambda" if lambdas else "cpu",
            "train.freshness": rng.choice([0, 0.5]),
            "train.ahead": rng.choice([0.5, 1.0]),
        }
        result = ordeal(fleet(options, seed, FAULTS if lambdas else None))
        assert np.isfinite(result["loss_history"]).all()
        histories.add(tuple(result["loss_history"]))
    assert len(histories) > 3  # they do differ


# --- the wire ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["exact", "bfloat16"])
def test_rows_of_another_shape_are_refused(fleet: Build, rows: str):
    run = fleet({"model.dtype": "float32", "model.rows": rows})
    run.train()
    partition, peer = run.partitions[0], graph_server_address(1)
    slot, pc = partition.published[Lane.TRAIN, "T0"], partition.programs[Lane.TRAIN].publisher["T0"]
    interval = next(i for i in slot.places if i not in partition.intervals)
    columns, dtype = slot.store.travelling
    assert (columns, dtype) == ((10, np.uint16) if rows == "bfloat16" else (8, np.float32))
    length = len(slot.places[interval])  # type: ignore[arg-type]
    for shape, kind in (
        ((length, columns - 2), dtype),
        ((length + 1, columns), dtype),
        ((length, columns), np.float16),
    ):
        message = PublishedRows("train", 0, pc, interval, np.zeros(shape, kind))
        with pytest.raises(RemoteProtocolError, match=rf"must be {dtype} \[{length}, {columns}\]"):
            partition.handle(peer, message, 0.0)


def test_rows_of_another_server_or_of_no_server_are_refused(fleet: Build):
    run = fleet({"data.parts": 3})
    run.train()
    partition = run.partitions[0]
    slot, pc = partition.published[Lane.TRAIN, "T0"], partition.programs[Lane.TRAIN].publisher["T0"]
    interval = next(i for i in slot.places if i // len(partition.intervals) == 1)
    for sender in (graph_server_address(2), Address("param_server", "1"), Address("worker", "1")):
        message = PublishedRows("train", 0, pc, interval, np.zeros((1, 1), np.float32))
        with pytest.raises(RemoteProtocolError, match=rf"^{sender}: rows of interval {interval}, .* is not its own$"):
            partition.handle(sender, message, 0.0)
    for changed in ({"pc": 99}, {"pc": -1}, {"interval": 10**6}, {"epoch": -1}, {"epoch": run.config.train.epochs}):
        fields = {"lane": "train", "epoch": 0, "pc": pc, "interval": interval, "values": message.values, **changed}
        with pytest.raises(RemoteProtocolError, match=r"no step gathers them$"):
            partition.handle(graph_server_address(1), PublishedRows(**fields), 0.0)
