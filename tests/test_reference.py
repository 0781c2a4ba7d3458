"""The oracle itself is held to torch: autograd for its gradients, torch.optim for its steps, all in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from siafu import ops
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference
from tests.toy_graphs import random_graph, with_sparse_features

torch.set_num_threads(1)  # the matrices are tiny: threads would only wait for each other

EPOCHS = 12
VARIANTS = {
    "plain": {},
    "one layer": {"widths": ()},
    "three layers": {"widths": (6, 5)},
    "no bias": {"bias": False},
    "tanh": {"activation": "tanh"},
    "dropout": {"dropout": 0.4, "widths": (6, 5)},
    "layer norm": {"norm": "layer", "widths": (6, 5)},
    "multi-label": {"multilabel": True},
    "everything": {"widths": (6, 5), "dropout": 0.3, "norm": "layer", "activation": "tanh", "multilabel": True},
    "residual, jump cat": {"widths": (7, 6), "residual": True, "jump": "cat", "dropout": 0.3, "activation": "elu"},
    "jump max": {"widths": (6, 6), "jump": "max", "norm": "layer"},
    "jump sum": {"widths": (6, 6), "jump": "sum", "activation": "elu"},
    "learnt eps": {"eps": 0.2, "train_eps": True, "widths": (6, 5)},
}
MANY = ("plain", "dropout", "everything")
CASES = [
    *(("gcn", variant) for variant in VARIANTS if variant != "learnt eps"),
    *(("sage", variant) for variant in VARIANTS if "residual" not in variant and variant != "learnt eps"),
    *(("gin", variant) for variant in VARIANTS),
    *(("gcnii", variant) for variant in ("plain", "dropout", "tanh", "multi-label")),
    *(("appnp", variant) for variant in (*MANY, "one layer", "layer norm")),
    *(("sgc", variant) for variant in ("plain", "dropout", "no bias")),
]


def spec_of(graph: Graph, name: str, **options: object) -> ModelSpec:
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    spec = ModelSpec(name, graph.num_features, graph.num_classes, num_train, widths=(6,), seed=3, dtype="float64")
    spec = replace(spec, **options)
    if name == "gcnii":
        spec = replace(spec, widths=(6,) * 4, theta=1.0, alpha=0.2)
    return replace(spec, hops=3, alpha=0.15) if name == "appnp" else replace(spec, hops=2) if name == "sgc" else spec


# --- the same model in torch ------------------------------------------------------------------------------------------


def matrix(graph: Graph, name: str) -> torch.Tensor:
    """Z = A H with A built edge by edge, as the definition reads."""
    n = graph.num_vertices
    weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight
    W = torch.zeros(n, n, dtype=torch.float64)
    for u, v, w in zip(graph.src, graph.dst, weight, strict=True):
        W[v, u] = float(w)
    if name == "gin":
        return W
    if name == "sage":
        return W / W.sum(1, keepdim=True).clamp(min=1e-300)
    W = W + torch.eye(n, dtype=torch.float64)
    degree = W.sum(1)
    return degree.rsqrt()[:, None] * W * degree.rsqrt()


class Net(torch.nn.Module):
    def __init__(self, graph: Graph, spec: ModelSpec, weights: dict[str, Array]):
        super().__init__()
        self.spec, self.A, self.X = spec, matrix(graph, spec.name), torch.from_numpy(reference.features(graph))
        self.W = {name: torch.nn.Parameter(torch.from_numpy(W.copy())) for name, W in weights.items()}
        self.y = torch.from_numpy(graph.labels)
        self.chosen = torch.from_numpy(graph.split[:, 0] == TRAIN)

    def dropped(self, X: torch.Tensor, key: int, epoch: int | None) -> torch.Tensor:
        if epoch is None or not self.spec.dropout:
            return X
        mask = ops.dropout_mask(
            X.detach().numpy(),
            self.spec.dropout,
            seed=self.spec.seed,
            epoch=epoch,
            layer=key,
            vertices=np.arange(len(X)),
        )
        kept = 1 - round(self.spec.dropout * 65536) / 65536
        return torch.where(torch.from_numpy(mask), X / kept, 0.0)

    def forward(self, epoch: int | None) -> torch.Tensor:
        return {"gcnii": self.gcnii, "appnp": self.propagated, "sgc": self.propagated}.get(
            self.spec.name, self.convolution
        )(epoch)

    def linear(self, X: torch.Tensor, layer: int, weight: str = "weight", bias: str = "bias") -> torch.Tensor:
        return functional.linear(X, self.W[f"{layer}.{weight}"].T, self.W.get(f"{layer}.{bias}"))

    def normed(self, P: torch.Tensor, layer: int) -> torch.Tensor:
        if self.spec.norm == "none":
            return P
        return functional.layer_norm(P, P.shape[1:], self.W[f"{layer}.gain"], self.W[f"{layer}.shift"])

    def activated(self, N: torch.Tensor) -> torch.Tensor:
        return {"relu": torch.relu, "tanh": torch.tanh, "elu": functional.elu}[self.spec.activation](N)

    def convolution(self, epoch: int | None) -> torch.Tensor:
        name, H, layers = self.spec.name, self.X, []
        num_layers = len(self.spec.widths) + (self.spec.jump == "none")
        for layer in range(num_layers):
            Z = self.A @ H
            if layer == 0:
                Z = self.dropped(Z, 1 if name == "sage" else 0, epoch)
                H = self.dropped(H, 0 if name == "sage" else 1, epoch)
            if name == "gcn":
                P = self.linear(Z, layer)
            elif name == "sage":
                P = self.linear(H, layer, "self") + Z @ self.W[f"{layer}.neighbour"]
            else:
                P = self.linear((1 + self.W.get(f"{layer}.eps", self.spec.eps)) * H + Z, layer)
            if name == "gin":
                P = self.linear(self.activated(self.normed(P, layer)), layer, "second", "second_bias")
            if self.spec.residual:
                P = P + (H @ self.W[f"{layer}.residual"] if f"{layer}.residual" in self.W else H)
            if layer == num_layers - 1 and self.spec.jump == "none":
                return P
            N = P if name == "gin" else self.normed(P, layer)
            H = self.dropped(self.activated(N), 2 + layer, epoch)
            layers.append(H)
        stacked = torch.stack(layers) if self.spec.jump != "cat" else torch.empty(0)
        joined = {"cat": lambda: torch.cat(layers, 1), "max": lambda: stacked.max(0)[0], "sum": lambda: stacked.sum(0)}
        return self.linear(joined[self.spec.jump](), num_layers)

    def gcnii(self, epoch: int | None) -> torch.Tensor:
        first = self.activated(self.linear(self.dropped(self.X, 0, epoch), 0))
        H = self.dropped(first, 1, epoch)
        for layer in range(1, len(self.spec.widths) + 2):
            beta = math.log(self.spec.theta / layer + 1)
            S = (1 - self.spec.alpha) * (self.A @ H) + self.spec.alpha * first
            identity = torch.eye(H.shape[1], dtype=torch.float64)
            P = S @ ((1 - beta) * identity + beta * self.W[f"{layer}.weight"])
            H = self.dropped(self.activated(P), 1 + layer, epoch)
        return self.linear(H, len(self.spec.widths) + 2)

    def propagated(self, epoch: int | None) -> torch.Tensor:
        H, simple = self.dropped(self.X, 0, epoch), self.spec.name == "sgc"
        num_hidden = 0 if simple else len(self.spec.widths)
        for layer in range(num_hidden):
            H = self.dropped(self.activated(self.normed(self.linear(H, layer), layer)), 1 + layer, epoch)
        if simple:
            return self.linear(torch.linalg.matrix_power(self.A, self.spec.hops) @ H, 0, bias="none") + self.W.get(
                "1.bias", 0
            )
        Z = first = self.linear(H, num_hidden)
        for _ in range(self.spec.hops):
            Z = (1 - self.spec.alpha) * (self.A @ Z) + self.spec.alpha * first
        return Z

    def loss(self, epoch: int | None) -> torch.Tensor:
        logits = self(epoch)[self.chosen]
        if self.spec.multilabel:
            return functional.binary_cross_entropy_with_logits(logits, self.y[self.chosen].double())
        return functional.cross_entropy(logits, self.y[self.chosen])


# --- facts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "variant"), CASES)
def test_gradients_equal_autograd(name, variant):
    graph = random_graph(1, multilabel=VARIANTS[variant].get("multilabel", False))
    spec = spec_of(graph, name, **VARIANTS[variant])
    rng = np.random.default_rng(5)
    weights = {key: W + 0.1 * rng.normal(size=W.shape) for key, W in reference.first_weights(spec).items()}
    net = Net(graph, spec, weights)
    expected = net.loss(epoch=4)
    expected.backward()
    loss, gradients = reference.loss_and_gradients(graph, spec, weights, epoch=4)
    assert loss == pytest.approx(expected.item(), abs=1e-10)
    assert gradients.keys() == net.W.keys()
    for key, W in net.W.items():
        np.testing.assert_allclose(gradients[key], W.grad.numpy(), rtol=1e-10, atol=1e-12, err_msg=key)


OPTIMISERS = {
    "adam": ({"optimizer": "adam"}, lambda p: torch.optim.Adam(p, lr=0.02)),
    "adam with decay": (
        {"optimizer": "adam", "weight_decay": 0.05},
        lambda p: torch.optim.Adam(p, lr=0.02, weight_decay=0.05),
    ),
    "sgd": ({"optimizer": "sgd", "momentum": 0.0}, lambda p: torch.optim.SGD(p, lr=0.02)),
    "momentum with decay": (
        {"optimizer": "sgd", "momentum": 0.8, "weight_decay": 0.05},
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8, weight_decay=0.05),
    ),
}
SCHEDULES = {
    "constant": ({}, lambda o: torch.optim.lr_scheduler.ConstantLR(o, factor=1.0)),
    "cosine": ({"schedule": "cosine"}, lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=EPOCHS)),
    "step": (
        {"schedule": "step", "step_epochs": 5, "step_factor": 0.3},
        lambda o: torch.optim.lr_scheduler.StepLR(o, step_size=5, gamma=0.3),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMISERS)
@pytest.mark.parametrize("name", ["gcn", "sage"])
def test_training_equals_torch(name, optimizer, schedule):
    graph = random_graph(2)
    spec = spec_of(graph, name, dropout=0.2, norm="layer")
    options, make_optimizer = OPTIMISERS[optimizer]
    more, make_schedule = SCHEDULES[schedule]
    net = Net(graph, spec, reference.first_weights(spec))
    torch_optimizer = make_optimizer(list(net.W.values()))
    torch_schedule = make_schedule(torch_optimizer)
    expected = []
    for epoch in range(EPOCHS):
        torch_optimizer.zero_grad()
        loss = net.loss(epoch)
        loss.backward()
        torch_optimizer.step()
        torch_schedule.step()
        expected.append(loss.item())
    losses, weights, logits = reference.train(graph, spec, epochs=EPOCHS, lr=0.02, **options, **more)
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    for key, W in net.W.items():
        np.testing.assert_allclose(weights[key], W.detach().numpy(), rtol=1e-9, atol=1e-10, err_msg=key)
    np.testing.assert_allclose(logits, net(None).detach().numpy(), rtol=1e-9, atol=1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "variant"),
    [*((n, v) for n in ("gcn", "sage", "gin") for v in ("dropout", "everything")), ("gcnii", "dropout")],
)
def test_long_training_equals_torch(name, variant):
    graph = random_graph(3, multilabel=VARIANTS[variant].get("multilabel", False))
    spec = spec_of(graph, name, **VARIANTS[variant])
    net = Net(graph, spec, reference.first_weights(spec))
    optimizer = torch.optim.Adam(net.W.values(), lr=0.01, weight_decay=5e-4)
    expected = []
    for epoch in range(60):
        optimizer.zero_grad()
        loss = net.loss(epoch)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    losses = reference.train(graph, spec, epochs=60, lr=0.01, weight_decay=5e-4).losses
    np.testing.assert_allclose(losses, expected, rtol=1e-8)


def test_training_lowers_the_loss():
    graph = random_graph(4)
    losses = reference.train(graph, spec_of(graph, "gcn"), epochs=100, lr=0.02).losses
    assert losses[-1] < 0.5 * losses[0]


def test_sparse_features_train_like_dense_ones():
    graph = random_graph(6)
    spec = spec_of(graph, "sage", dropout=0.3)
    dense, sparse = (reference.train(g, spec, epochs=3) for g in (graph, with_sparse_features(graph)))
    assert dense.losses == sparse.losses


def test_each_split_trains_on_its_own_vertices():
    graph = random_graph(7)
    swapped = replace(graph, split=graph.split[:, ::-1])
    num_train = int((graph.split[:, 1] == TRAIN).sum())
    spec = spec_of(graph, "gcn", num_train=num_train)
    assert reference.train(graph, spec, epochs=2, split=1).losses == reference.train(swapped, spec, epochs=2).losses


# One edge 0 -> 1 of weight 3 and a vertex 2 without edges.
LINE = replace(
    random_graph(0, 3, num_edges=0), src=np.array([0]), dst=np.array([1]), weight=np.array([3.0], np.float32)
)


def test_gcn_matrix_in_closed_form():
    expected = [
        [1.0, 0.0, 0.0],  # deg 0 + 1
        [3 / 2, 1 / 4, 0.0],  # deg 3 + 1: 3 / sqrt(1 * 4), 1 / 4
        [0.0, 0.0, 1.0],
    ]
    np.testing.assert_allclose(reference.propagation(LINE, "gcn").toarray(), expected, rtol=1e-15)


def test_mean_matrix_in_closed_form():
    np.testing.assert_array_equal(reference.propagation(LINE, "mean").toarray(), [[0, 0, 0], [1, 0, 0], [0, 0, 0]])
