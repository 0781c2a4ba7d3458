"""Attention's kernels on a GPU against torch's own operations on tensors of values per edge, in float64 on the CPU."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from gpu_baselines.graph import AttentionEdges
from gpu_baselines.layers import gat
from tests.gpu_baselines.triton_interpreter import interpreted

#: Targets, sources, heads, values of a head, the most edges of a target.
SIZES = ((5, 9, 1, 3, 4), (7, 7, 3, 5, 40), (4, 30, 4, 8, 90), (3, 3, 1, 600, 12))


def edges_of(num_targets: int, num_sources: int, most: int, weighted: bool, device: str) -> AttentionEdges:
    """One target has a single edge, and the last source none."""
    rng = np.random.default_rng(num_targets)
    counts = np.concatenate([[1], rng.integers(1, most + 1, num_targets - 1)])
    target = np.repeat(np.arange(num_targets), counts)
    source = rng.integers(0, num_sources - 1, len(target))
    weight = torch.from_numpy(rng.uniform(0.1, 2, len(target))).to(device) if weighted else None
    ends = (torch.from_numpy(end).to(device) for end in (source, target))
    return AttentionEdges(*ends, weight, (source, target), num_targets, num_sources)


def same_attention(device: str) -> None:
    """Called by the tests below, where Triton compiles or is interpreted."""
    from gpu_baselines.kernels.attention import Attend

    for (n, m, heads, width, most), weighted, dropped in product(SIZES, (False, True), (False, True)):
        rng = np.random.default_rng(3)

        def normal(*shape: int, rng: np.random.Generator = rng) -> Tensor:
            return torch.from_numpy(rng.normal(size=shape) * 3)

        rows, dZ = (normal(m, heads, width), normal(m, heads), normal(n, heads)), normal(n, heads, width)
        found = []
        for where in ("cpu", device):
            edges = edges_of(n, m, most, weighted, where)
            kept = torch.from_numpy(np.random.default_rng(4).integers(0, 2, (len(edges.source), heads)) * 2.0).to(where)
            # Of their own, not the views that another pass has: gradients are leaves'.
            T, s, t = leaves = [X.to(where, copy=True).requires_grad_() for X in rows]
            if where == "cpu" and not found:
                Z = gat._attended(T, s, t, edges, 0.2, kept if dropped else None)
            else:
                Z = Attend.apply(T, s, t, edges, 0.2, kept if dropped else None)
            Z.backward(dZ.to(where))
            found.append([Z.detach(), *(X.grad for X in leaves)])
        for name, wanted, mine in zip(("Z", "T", "s", "t"), *found, strict=True):
            np.testing.assert_allclose(
                mine.cpu(), wanted, rtol=1e-9, atol=1e-9, err_msg=f"{name} {heads} {width} {weighted} {dropped}"
            )


@pytest.mark.gpu
def test_attention_on_a_gpu_is_that_of_torch() -> None:
    same_attention("cuda")


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed: torch's wheel for CPUs has none")
def test_attention_by_interpreted_triton_is_that_of_torch() -> None:
    interpreted("from tests.gpu_baselines.kernels.test_attention import same_attention as same; same('cpu')")


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_by_source_are_those_by_target(weighted: bool) -> None:
    edges = edges_of(6, 11, 9, weighted, "cpu")
    by_source, by_target = edges.by_source, edges.by_target
    assert by_source.edge is not None
    assert len(by_source.first) == 12
    assert len(by_target.first) == 7
    assert torch.equal(edges.source[by_source.edge], torch.repeat_interleave(by_source.first.diff()))
    assert torch.equal(edges.target[by_source.edge], by_source.other.long())
    assert torch.equal(edges.target, torch.repeat_interleave(by_target.first.diff()))
    assert torch.equal(edges.source, by_target.other.long())
