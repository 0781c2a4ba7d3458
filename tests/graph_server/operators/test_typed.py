"""Columns of relations side by side: what a peer pastes, it reads as the owner does."""

from __future__ import annotations

import numpy as np
import pytest

from graph_server.buffers import TableStore
from graph_server.operators.typed import Multiplied, SideBySide


@pytest.mark.parametrize("storage", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("place", [slice(2, 5), np.array([6, 0, 3])], ids=["slice", "rows"])
def test_what_a_peer_pastes_it_reads_as_the_owner_does(storage: str, place: slice | np.ndarray):
    ours, theirs = (SideBySide([TableStore(7, 4, storage) for _ in range(3)]) for _ in range(2))
    rows = np.random.default_rng(1).normal(size=(3, 12)).astype(np.float64 if storage == "float64" else np.float32)
    ours.write(place, rows)
    cut = ours.cut(place)
    assert (cut.shape[1], cut.dtype) == ours.travelling
    theirs.paste(place, cut)
    np.testing.assert_array_equal(theirs.read(slice(None)), ours.read(slice(None)))
    np.testing.assert_allclose(ours.read(place), rows, rtol=0 if storage != "bfloat16" else 1e-2)
    assert not theirs.read(np.setdiff1d(np.arange(7), np.arange(7)[place])).any()


@pytest.mark.parametrize("storage", ["float32", "float64", "bfloat16"])
def test_rows_that_travel_once_lie_in_every_block_times_its_factor(storage: str):
    ours, theirs = (Multiplied([TableStore(7, 4, storage) for _ in range(3)]) for _ in range(2))
    real = np.float64 if storage == "float64" else np.float32
    rows = np.random.default_rng(2).normal(size=(2, 4 + 3)).astype(real)
    place = np.array([5, 1])
    ours.write(place, rows)
    cut = ours.cut(place)
    assert (cut.shape[1], cut.dtype) == ours.travelling == (7, np.dtype(real))
    theirs.paste(place, cut)
    for i, (mine, other) in enumerate(zip(ours.blocks, theirs.blocks, strict=True)):
        np.testing.assert_array_equal(mine.read(slice(None)), other.read(slice(None)))
        np.testing.assert_allclose(mine.read(place), rows[:, :4] * rows[:, 4 + i, None], rtol=1e-2)
