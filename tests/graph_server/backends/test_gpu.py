"""``servers.backend = gpu`` computes what the cpu backend does; on torch's CPU kernels here,
and on a GPU where there is one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra gpu")

import torch

from graph_data.prepare import prepare
from graph_server import operators
from graph_server.aggregate import Gather
from graph_server.backends.gpu import Arithmetic, DeviceEdges, DeviceLinear, DeviceStore, Memory, device_of
from graph_server.buffers import TableStore
from siafu import arithmetic as host
from siafu import ops as exact
from siafu.config import Config, Servers
from siafu.errors import ConfigError
from siafu.kernels import to_bfloat16
from siafu.ops import Activation
from siafu.shards import ShardSet
from siafu.sparse import Array
from tests.fleet import Fleet
from tests.toy_graphs import random_graph, sparse, with_sparse_features

CPU = torch.device("cpu")
GRAPHS = {
    "directed": random_graph(1),
    "undirected": random_graph(2, directed=False, weighted=False),
    "sparse": with_sparse_features(random_graph(3)),
    "multi-label": random_graph(4, multilabel=True),
}
SETTINGS: dict[str, Any] = {
    "data.parts": 2,
    "model.hidden": 6,
    "model.layers": 3,
    "model.dropout": 0.3,
    "model.dtype": "float64",
    "train.lr": 0.05,
    "train.epochs": 2,
    "train.intervals": 2,
    "train.mode": "pipe",
    "servers.device": "cpu",
}
#: name -> settings, graph
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "gcn": ({"model.name": "gcn"}, "directed"),
    "gcn, LayerNorm, elu": (
        {"model.name": "gcn", "model.residual": True, "model.norm": "layer", "model.activation": "elu"},
        "sparse",
    ),
    "sage, tanh": ({"model.name": "sage", "model.activation": "tanh"}, "directed"),
    "sage": ({"model.name": "sage", "model.narrow": False}, "multi-label"),
    "gin": ({"model.name": "gin"}, "undirected"),
    "gcnii": ({"model.name": "gcnii"}, "undirected"),
    "appnp": ({"model.name": "appnp", "model.layers": 2, "model.hops": 3}, "sparse"),
    "gat": ({"model.name": "gat", "model.heads": 2, "model.attn_dropout": 0.3, "model.layers": 2}, "directed"),
    "rgcn": ({"model.name": "rgcn", "model.layers": 2}, "directed"),
}


@pytest.fixture
def ops() -> Arithmetic:
    return Arithmetic(Memory(CPU))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ShardSet]:
    folder: Path = tmp_path_factory.mktemp("shards")

    @cache
    def shards(name: str) -> ShardSet:
        graph = GRAPHS[name]
        return prepare(graph, folder / name, parts=2, partitioner="random", directed=graph.directed)

    return shards


# --- whole runs -------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_weights_are_those_of_the_cpu_backend(name: str, dtype: str, tolerance: float, prepared: Any) -> None:
    options, graph = MODELS[name]
    weights = []
    for backend in ("cpu", "gpu"):
        config = Config().replace({**SETTINGS, "servers.backend": backend, "model.dtype": dtype, **options})
        run = Fleet(config, prepared(graph), seed=0)
        run.train()
        weights.append(run.final_weights())
    assert weights[1].keys() == weights[0].keys()
    for parameter, W in weights[0].items():
        np.testing.assert_allclose(weights[1][parameter], W, rtol=tolerance, atol=tolerance, err_msg=parameter)


def test_late_rows_and_bfloat16_are_those_of_the_cpu_backend(prepared: Any) -> None:
    options = {"model.dtype": "float32", "model.rows": "bfloat16", "train.mode": "async"}
    losses = []
    for backend in ("cpu", "gpu"):
        run = Fleet(
            Config().replace({**SETTINGS, **options, "servers.backend": backend}), prepared("undirected"), seed=3
        )
        run.train()
        losses.append([record["loss"] for record in run.records if "loss" in record])
    assert losses[0]
    # Of bfloat16, sums in another order may round the other way: 2^-9 of a value.
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)


def test_the_graph_is_summed_on_the_device(prepared: Any) -> None:
    for backend, expected in (("gpu", DeviceLinear), ("cpu", operators.linear.Linear)):
        run = Fleet(Config().replace({**SETTINGS, "servers.backend": backend}), prepared("directed"), seed=0)
        run.train()
        found = {type(operator) for partition in run.partitions for operator in partition._operators.made.values()}
        assert found == {expected}


# --- where there is no GPU --------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_without_a_gpu_it_is_refused(device: Any) -> None:
    with pytest.raises(ConfigError, match=r"^servers\.backend = gpu: torch sees no GPU here"):
        device_of(Servers(backend="gpu", device=device), 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu_weights_are_those_of_the_cpu_backend(name: str, prepared: Any) -> None:
    options, graph = MODELS[name]
    weights = []
    for backend, device in (("cpu", "cpu"), ("gpu", "cuda")):
        config = Config().replace({**SETTINGS, **options, "servers.backend": backend, "servers.device": device})
        run = Fleet(config, prepared(graph), seed=0)
        run.train()
        weights.append(run.final_weights())
    for parameter, W in weights[0].items():
        np.testing.assert_allclose(weights[1][parameter], W, rtol=1e-9, atol=1e-9, err_msg=parameter)


# --- arithmetic -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["dense", "sparse", "bfloat16", "uint8"])
def test_products_are_those_of_numpy(ops: Arithmetic, dtype: Any, kind: str) -> None:
    rng = np.random.default_rng(0)
    X: Any = rng.integers(0, 3, (7, 5)).astype(dtype)
    X = {
        "sparse": sparse,
        "bfloat16": lambda X: to_bfloat16(X.astype(np.float32)),
        "uint8": lambda X: X.astype(np.uint8),
    }.get(kind, lambda X: X)(X)
    W, D, add = (rng.normal(size=shape).astype(dtype) for shape in ((5, 3), (7, 3), (7, 3)))
    found = ops.matmul(X, W, add=(into := add.copy()))
    assert found is into
    tolerance = {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(found, exact.matmul(X, W) + add, **tolerance)
    np.testing.assert_allclose(ops.matmul_transposed(X, D), exact.matmul_transposed(X, D), **tolerance)
    np.testing.assert_allclose(ops.matmul(D, W.T), exact.matmul(D, W.T), **tolerance)
    assert found.dtype == ops.matmul(X, W).dtype == ops.matmul_transposed(X, D).dtype == dtype


@pytest.mark.parametrize("kind", ["dense", "sparse", "bfloat16"])
def test_products_of_rounded_operands_are_those_of_numpy(ops: Arithmetic, kind: str) -> None:
    rng = np.random.default_rng(1)
    X: Any = rng.normal(size=(7, 5)).astype(np.float32)
    X = {"sparse": sparse, "bfloat16": to_bfloat16}.get(kind, lambda X: X)(X)
    W, D = (rng.normal(size=shape).astype(np.float32) for shape in ((5, 3), (7, 3)))
    tolerance = {"rtol": 1e-5, "atol": 1e-6}  # bfloat16 has 2^-9 = 2e-3
    np.testing.assert_allclose(ops.matmul(X, W, rounds=True), exact.matmul(X, W, rounds=True), **tolerance)
    found, expected = (made.matmul_transposed(X, D, rounds=True) for made in (ops, exact))
    np.testing.assert_allclose(found, expected, **tolerance)


@pytest.mark.parametrize("kind", ["relu", "tanh", "elu", "identity"])
@pytest.mark.parametrize("in_place", [False, True])
def test_activations_are_the_hosts(ops: Arithmetic, kind: Activation, in_place: bool) -> None:
    N, dH = np.random.default_rng(0).normal(size=(2, 6, 4)) * 3
    wanted = host.activate(N.copy(), kind)
    mine = N.copy()
    found = ops.activate(mine, kind, out=mine if in_place else None)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert (found is mine) == (in_place or kind == "identity")
    # 1 - tanh² is a difference of near equals: what one bit of either tanh makes of it
    # is up to 2e-16, and dH is up to 6.
    found = ops.activate_backward(dH, N, kind)
    np.testing.assert_allclose(found, host.activate_backward(dH, N, kind), rtol=1e-12, atol=6e-15)


def test_layer_norm_is_the_hosts(ops: Arithmetic) -> None:
    rng = np.random.default_rng(0)
    P, dN, gain, shift = rng.normal(size=(6, 4)), rng.normal(size=(6, 4)), rng.normal(size=4), rng.normal(size=4)
    np.testing.assert_allclose(ops.layer_norm(P, gain, shift), host.layer_norm(P, gain, shift), rtol=1e-12)
    found, wanted = ops.layer_norm_backward(dN, P, gain), host.layer_norm_backward(dN, P, gain)
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("num_rows", [6, 0])
def test_losses_are_the_hosts(ops: Arithmetic, num_rows: int) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(num_rows, 4)) * 200  # shares that are 0 in any precision
    labels, several = rng.integers(0, 4, num_rows), rng.integers(0, 2, (num_rows, 4)).astype(np.uint8)
    for found, wanted in (
        (ops.cross_entropy(logits, labels), host.cross_entropy(logits, labels)),
        (ops.binary_cross_entropy(logits, several), host.binary_cross_entropy(logits, several)),
    ):
        assert found[0] == pytest.approx(wanted[0], rel=1e-12)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12, atol=1e-15)


# --- memory -----------------------------------------------------------------------------------------------------------


def constant(X: Array) -> Array:
    X.flags.writeable = False
    return X


def test_what_cannot_change_is_copied_once_and_goes_with_its_array() -> None:
    memory = Memory(CPU)
    W = constant(np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]))
    copy = memory.put(W)
    assert memory.put(W) is copy
    assert memory.put(W.T).data_ptr() == copy.data_ptr()
    assert memory.put(W.T).tolist() == W.T.tolist()
    assert memory.held == W.nbytes
    del W
    gc.collect()
    assert memory.held == 0


def test_what_may_change_is_copied_each_time() -> None:
    memory, X = Memory(CPU), np.zeros((2, 2))
    memory.put(X)
    X[0, 0] = 5
    assert memory.put(X)[0, 0] == 5
    assert memory.held == 0


def test_copies_beyond_the_budget_are_not_kept() -> None:
    memory = Memory(CPU, keep_bytes=100)
    arrays = [constant(np.full(8, float(value))) for value in range(3)]  # 64 bytes each
    assert [memory.put(X)[0].item() for X in arrays * 2] == [0, 1, 2, 0, 1, 2]
    assert memory.held == 64


# --- graph tasks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", ["float32", "float64", "bfloat16"])
def test_rows_are_stored_as_the_hosts_tables_have_them(storage: str) -> None:
    rng = np.random.default_rng(0)
    dtype = np.float64 if storage == "float64" else np.float32
    stores: list[Any] = [TableStore(9, 5, storage), DeviceStore(9, 5, storage, CPU)]
    for place in (slice(2, 6), np.array([8, 0, 7], np.int32)):
        count = 4 if isinstance(place, slice) else 3
        rows, scale = rng.normal(size=(count, 5)).astype(dtype), rng.random(count).astype(dtype)
        for store in stores:
            store.write(place, rows, scale=scale)
    assert stores[0].travelling == stores[1].travelling
    assert np.array_equal(stores[0].read(slice(None)), stores[1].read(slice(None)))
    assert np.array_equal(stores[0].cut(slice(1, 4)), stores[1].cut(slice(1, 4)))
    travelling = stores[0].cut(slice(2, 5))
    for store in stores:
        store.paste(slice(0, 3), travelling)
    assert np.array_equal(stores[0].read(slice(None)), stores[1].read(slice(None)))


def test_what_was_read_does_not_change() -> None:
    store = DeviceStore(2, 1, "float64", CPU)
    before = store.read(slice(None))
    store.write(slice(None), np.ones((2, 1)))
    assert before.tolist() == [[0], [0]]


@pytest.mark.parametrize("graph", ["directed", "undirected"])
@pytest.mark.parametrize("aggregation", ["gcn", "mean", "sum"])
@pytest.mark.parametrize("backward", [False, True])
def test_sums_over_edges_are_the_hosts(graph: str, aggregation: Any, backward: bool, prepared: Any) -> None:
    shard = prepared(graph).partition(0)
    gather = Gather(shard, aggregation, backward=backward, dtype=np.float64)
    n, ghosts = len(shard.vertices), len(shard.ghosts_out if backward else shard.ghosts_in)
    stores: list[Any] = [TableStore(n + ghosts, 3, "float64"), DeviceStore(n + ghosts, 3, "float64", CPU)]
    rows = np.random.default_rng(0).normal(size=(n + ghosts, 3))
    for store in stores:
        store.write(slice(None), rows, scale=gather.source_scale)
    edges = DeviceEdges(gather, np.dtype(np.float64), CPU)
    for start, stop in ((0, n), (2, n - 3), (4, 4)):
        wanted = gather(start, stop, stores[0].table, factor=0.5)
        np.testing.assert_allclose(edges(start, stop, stores[1].rows, 0.5), wanted, rtol=1e-12, atol=1e-15)
