"""Masks made in torch, as a GPU makes them, are numpy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_baselines.masks import Masks, edge_places, kept, kept_edges, kept_entries, row_keys
from siafu import ops
from siafu.sparse import SparseRows

VERTICES = np.array([0, 1, 7, 2**31, 2**40 + 3, 12345], np.int64)


@pytest.mark.parametrize("p", [1e-6, 0.1, 0.5, 0.9, 0.999999])
@pytest.mark.parametrize("width", [1, 3, 4, 5, 33])
def test_torch_hashes_as_numpy_does(width: int, p: float) -> None:
    for epoch in range(20):  # run keys with and without their highest bit
        like = np.zeros((len(VERTICES), width), np.float32)
        wanted = ops.dropout_mask(like, p, seed=3, epoch=epoch, layer=2, vertices=VERTICES)
        keys = row_keys(torch.from_numpy(VERTICES), int(ops.run_key(3, epoch, 2)))
        assert np.array_equal(kept(keys, width, ops.dropout_threshold(p)[0]).numpy(), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_entries_of_a_sparse_matrix_are_dropped_as_numpy_drops_them(p: float) -> None:
    rng = np.random.default_rng(1)
    full = rng.random((len(VERTICES), 70)) < 0.3
    rows = SparseRows(
        np.concatenate([[0], np.cumsum(full.sum(1))]), np.nonzero(full)[1].astype(np.int32), rng.random(full.sum()), 70
    )
    wanted = ops.dropout_mask(rows, p, seed=3, epoch=1, layer=2, vertices=VERTICES)
    keys = row_keys(torch.from_numpy(VERTICES), int(ops.run_key(3, 1, 2)))[torch.from_numpy(rows.row_of_entry())]
    found = kept_entries(keys, torch.from_numpy(rows.indices).long(), ops.dropout_threshold(p)[0])
    assert np.array_equal(found.numpy(), wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("heads", [1, 4, 6])
@pytest.mark.parametrize("p", [0.1, 0.6])
def test_torch_drops_the_edges_that_numpy_drops(heads: int, p: float) -> None:
    sources, targets = np.repeat(VERTICES, len(VERTICES)), np.tile(VERTICES, len(VERTICES))
    places = edge_places(torch.from_numpy(sources), torch.from_numpy(targets))
    for epoch in range(20):
        key = ops.edge_key(3, epoch, 1)
        wanted = ops.edge_dropout(sources, targets, heads, p, key) > 0
        assert np.array_equal(kept_edges(places, heads, key, ops.dropout_threshold(p)[0]).numpy(), wanted)


@pytest.mark.gpu
def test_a_gpu_drops_what_the_cpu_drops() -> None:
    there, here = (Masks(0.5, 3, torch.device(device), torch.float32) for device in ("cuda", "cpu"))
    found, wanted = there(VERTICES, 33, epoch=1, key=2), here(VERTICES, 33, epoch=1, key=2)
    assert found is not None
    assert wanted is not None
    assert found.is_cuda
    assert torch.equal(found.cpu(), wanted)
