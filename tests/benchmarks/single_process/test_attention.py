"""Graph attention of the single-process loop is what torch's autograd makes of the formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.single_process import loop as single
from benchmarks.single_process.attention import first_weights
from benchmarks.single_process.loop import Loop
from siafu.errors import ConfigError
from siafu.graph import TRAIN
from tests.benchmarks.single_process.test_loop import GRAPHS, prepared, spec_of

torch.set_num_threads(1)
HEADS = 2
# 30 in-edges: whole vectors of them
DENSE = {"directed": True, "weighted": False, "num_vertices": 60, "num_edges": 1800}
CASES = {"one layer": (), "two layers": (6,), "three layers": (6, 4)}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(single, "BLOCK_ROWS", 5)


class Net(torch.nn.Module):
    """GAT with a dense matrix of scores, in float64; the weight of an edge multiplies the exponential of its score."""

    def __init__(self, graph, spec, weights):
        super().__init__()
        self.W = {name: torch.nn.Parameter(torch.from_numpy(W.astype(np.float64))) for name, W in weights.items()}
        self.X = torch.from_numpy(np.asarray(graph.features, np.float64))
        self.A = torch.eye(graph.num_vertices, dtype=torch.float64)
        weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight
        self.A[torch.from_numpy(graph.dst.astype(np.int64)), torch.from_numpy(graph.src.astype(np.int64))] = (
            torch.tensor(np.asarray(weight, np.float64))
        )
        self.chosen = torch.from_numpy(graph.split[:, 0] == TRAIN)
        self.y, self.num_layers = torch.from_numpy(graph.labels), spec.num_layers

    def forward(self):
        H = self.X
        for layer in range(self.num_layers):
            source, target = self.W[f"{layer}.source"], self.W[f"{layer}.target"]
            T = (H @ self.W[f"{layer}.weight"]).reshape(len(H), *source.shape)  # [n, heads, D]
            e = (T * target).sum(2)[:, None] + (T * source).sum(2)[None]  # [target, source, heads]
            e = torch.nn.functional.leaky_relu(e, 0.2)
            alpha = self.A[:, :, None] * torch.exp(e)
            alpha = alpha / alpha.sum(1, keepdim=True)
            H = torch.einsum("vuh,uhd->vhd", alpha, T).flatten(1) + self.W[f"{layer}.bias"]
            H = torch.relu(H) if layer < self.num_layers - 1 else H
        return torch.nn.functional.cross_entropy(H[self.chosen], self.y[self.chosen])


@pytest.mark.parametrize("kind", [*GRAPHS, "dense"])
@pytest.mark.parametrize("widths", CASES.values(), ids=CASES)
def test_gradients_are_those_of_autograd(tmp_path, widths, kind):
    graph, shard = prepared(tmp_path, **{**GRAPHS, "dense": DENSE}[kind])
    spec = spec_of(graph, "gat", widths)
    rng = np.random.default_rng(1)
    weights = {n: (W + rng.normal(size=W.shape) / 4).astype(np.float32) for n, W in first_weights(spec, HEADS).items()}
    net = Net(graph, spec, weights)
    expected = net()
    expected.backward()
    loss, gradients = Loop(shard, spec, threads=2, heads=HEADS, weights=weights).loss_and_gradients()
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5)
    for name, W in net.W.items():
        np.testing.assert_allclose(gradients[name], W.grad.numpy(), rtol=1e-4, atol=2e-6, err_msg=name)


def test_training_follows_torchs_adam(tmp_path):
    graph, shard = prepared(tmp_path, directed=False, weighted=False)
    spec = spec_of(graph, "gat", (6,))
    net = Net(graph, spec, first_weights(spec, HEADS))
    optimiser = torch.optim.Adam(net.W.values(), lr=0.01)
    expected = []
    for _ in range(20):
        optimiser.zero_grad()
        loss = net()
        loss.backward()
        optimiser.step()
        expected.append(float(loss.detach()))
    loop = Loop(shard, spec, heads=HEADS)
    np.testing.assert_allclose([loop.epoch() for _ in range(20)], expected, rtol=1e-4)
    narrow = Loop(shard, spec, heads=HEADS, dtype="bfloat16")
    np.testing.assert_allclose([narrow.epoch() for _ in range(20)], expected, rtol=0.02)


def test_hidden_width_must_be_a_multiple_of_the_heads(tmp_path):
    graph, _ = prepared(tmp_path)
    with pytest.raises(ConfigError, match="hidden width 6 must be a multiple of the 4 heads"):
        first_weights(spec_of(graph, "gat", (6,)), 4)
