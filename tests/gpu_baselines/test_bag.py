"""Sparse features: products where they are wanted, and layers that get them on a device other than the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpu_baselines.bag import Bag, features, linear
from gpu_baselines.entries import Entries
from gpu_baselines.masks import Masks
from gpu_baselines.methods.halo import HaloTraining
from gpu_baselines.run import Run
from siafu.models import ModelSpec
from siafu.sparse import SparseRows
from tests.gpu_baselines.ranks import on_ranks
from tests.gpu_baselines.training import config_of, prepared, train
from tests.toy_graphs import random_graph, with_sparse_features

HOST = torch.device("cpu")
#: torch's own products of sparse matrices, which are a GPU's way, say so on the CPU.
beta = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")


def sparse_rows(num_rows: int, width: int, seed: int = 0) -> SparseRows:
    rng = np.random.default_rng(seed)
    full = rng.random((num_rows, width)) < 0.2
    indptr = np.concatenate([[0], np.cumsum(full.sum(1))])
    return SparseRows(indptr, np.nonzero(full)[1].astype(np.int32), rng.standard_normal(full.sum()), width)


@beta
@pytest.mark.parametrize(("num_rows", "width"), [(7, 11), (1, 3), (5, 1), (3, 0)])
def test_products_of_entries_are_those_of_the_matrix(num_rows: int, width: int) -> None:
    rows = sparse_rows(num_rows, width)
    entries, X = Entries.of(rows, HOST), torch.from_numpy(rows.dense())
    rng = np.random.default_rng(1)
    W, D = (torch.from_numpy(rng.standard_normal((size, 4))) for size in (width, num_rows))
    torch.testing.assert_close(entries.product(W), X @ W)
    torch.testing.assert_close(entries.product_transposed(D), X.T @ D)
    assert torch.equal(entries.dense(), X)


@beta
def test_entries_are_dropped_and_differentiated_as_the_bag_on_the_host_is() -> None:
    rows, vertices = sparse_rows(9, 13), np.arange(100, 109)
    bag, masks = Bag(rows, HOST), Masks(0.5, 3, HOST, torch.float64)
    entries = Entries.of(rows, HOST)
    where = entries.structure
    dropped = entries.times(masks.of_entries(vertices, where.row, where.column, epoch=1, key=0))
    wanted = bag.dropped(masks, vertices, epoch=1, key=0)
    torch.testing.assert_close(dropped.dense(), wanted.dense())
    gradients = []
    for one in (dropped, wanted):
        W = torch.ones(13, 4, dtype=torch.float64, requires_grad=True)
        linear(one, W).square().sum().backward()  # type: ignore[no-untyped-call]
        gradients.append(W.grad)
    torch.testing.assert_close(gradients[0], gradients[1])


def test_a_bag_becomes_dense_on_its_device() -> None:
    bag = features(sparse_rows(4, 6), torch.device("meta"), torch.float32)
    assert isinstance(bag, Bag)
    assert bag.dense().device.type == "meta"
    assert bag.rows(slice(1, 3)).dense().device.type == "meta"


GRAPH = with_sparse_features(random_graph(3))


@pytest.mark.parametrize("method", ["vanilla", "adaqp", "cagnet"])
def test_features_that_are_fetched_in_every_epoch_are_counted_as_other_rows(method: str, tmp_path: Path) -> None:
    """They were fetched anew in every epoch, whole, and counted as set-up."""
    settings: dict[str, Any] = {"model__hidden": 6, "model__dropout": 0.5, "baseline__preaggregate": False}
    config = config_of(method, 2, **settings)
    shards = prepared(GRAPH, tmp_path, 2)
    one, three = (train(config, shards, epochs).bytes for epochs in (1, 3))
    once = train(config_of(method, 2, **settings | {"baseline__preaggregate": True}), shards, 1).bytes
    assert one["halo"] > once["halo"]
    assert three.get("setup", 0) == one.get("setup", 0)


@pytest.mark.gpu
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_sparse_features_train_on_a_gpu_as_on_the_cpu(model: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model__attn_dropout": 0.3} if model == "gat" else {}
    options |= {"model__residual": True} if model != "sage" else {}
    config = config_of("vanilla", 1, model__name=model, model__dropout=0.5, **options)
    shards = prepared(GRAPH, tmp_path, 1)

    def losses(device: str) -> list[float]:
        def one(group: Any) -> list[float]:
            run = Run(config, shards, group, ModelSpec.of(config, shards.manifest), torch.device(device))
            method = HaloTraining(run)
            return [method.epoch(epoch) for epoch in range(3)]

        return on_ranks(1, one)[0]

    assert losses("cuda") == pytest.approx(losses("cpu"), abs=1e-9)
