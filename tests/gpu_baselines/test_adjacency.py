"""Edges from a halo are summed for the targets that have any: AdaQP's marginal vertices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpu_baselines.adjacency import Adjacency, Outer
from siafu.shards import Edges
from siafu.sparse import Array


def edges_of(marginal: Array, n: int, h: int, rng: np.random.Generator, *, weighted: bool) -> Edges:
    """Some edges from h sources to each of the marginal ones of n targets."""
    counts = np.zeros(n, np.int64)
    counts[marginal] = rng.integers(1, h + 1, len(marginal))
    columns = [np.sort(rng.choice(h, count, replace=False)) for count in counts]
    indices = np.concatenate(columns).astype(np.int32) if len(marginal) else np.zeros(0, np.int32)
    weight = rng.uniform(0.5, 2, len(indices)).astype(np.float32) if weighted else None
    return Edges(np.concatenate([[0], np.cumsum(counts)]), indices, weight)


@pytest.mark.parametrize("marginal", [[], [0], [3, 4, 9], list(range(12))])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_sums_over_outer_edges_are_those_of_the_matrix(marginal: list[int], weighted: bool, scaled: bool) -> None:
    rng = np.random.default_rng(len(marginal))
    n, h, width = 12, 5, 3
    edges = edges_of(np.array(marginal, np.int64), n, h, rng, weighted=weighted)
    scales = [torch.from_numpy(rng.uniform(0.5, 2, size)) if scaled else None for size in (n, h)]
    outer, plain = (made(edges, h, *scales) for made in (Outer, Adjacency))
    Z, X, D = (torch.from_numpy(rng.normal(size=(rows, width))) for rows in (n, h, n))
    added = outer.add_to(Z.clone(), X)
    assert torch.equal(added, Z + plain(X))
    assert torch.equal(outer.transposed(D), plain.transposed(D))
    assert len(outer._rows.edges.indptr) - 1 == len(marginal)
