"""The oracle: full-batch training of GCN and GraphSAGE on one machine, in float64 numpy, as a textbook would write it.

No interval, no partition, no pipeline, no message: one propagation matrix ``A`` [N, N] and dense rows of all vertices.

    Z_l = A H_l                                 GCN: A = D̃^-1/2 (W + I) D̃^-1/2;  GraphSAGE: A = D^-1 W
    P_l = drop(Z_l) W_l + b_l                   GraphSAGE: drop(H_l) W_self + drop(Z_l) W_neighbour + b_l
    H_{l+1} = σ(LayerNorm(P_l))                 last layer: logits = P_l
    loss = mean over the training vertices

It shares with siafu the first weights (``init``) and the dropout masks (``ops.dropout_mask``), which are definitions, and
nothing else. ``tests/test_reference.py`` holds it to torch's autograd and optimisers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from siafu import ops
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec, build
from siafu.sparse import Array, SparseRows

LAYER_NORM_EPS = 1e-5


class Trained(NamedTuple):
    losses: list[float]  # of each epoch's forward pass, before its step
    weights: dict[str, Array]
    logits: Array  # [N, C] under the final weights, without dropout


def train(
    graph: Graph,
    spec: ModelSpec,
    *,
    epochs: int,
    lr: float = 0.01,
    weight_decay: float = 0.0,
    optimizer: str = "adam",
    momentum: float = 0.9,
    schedule: str = "constant",
    step_epochs: int = 50,
    step_factor: float = 0.5,
    split: int = 0,
) -> Trained:
    """Full-batch gradient descent. The arguments are those of ``[train]`` in the config."""
    rates: dict[str, Callable[[int], float]] = {
        "constant": lambda epoch: lr,
        "cosine": lambda epoch: lr * (1 + math.cos(math.pi * epoch / epochs)) / 2,
        "step": lambda epoch: lr * step_factor ** (epoch // step_epochs),
    }
    step = {"adam": Adam(), "sgd": Momentum(momentum)}[optimizer].step
    weights = first_weights(spec)
    losses = []
    for epoch in range(epochs):
        loss, gradients = loss_and_gradients(graph, spec, weights, epoch=epoch, split=split)
        losses.append(loss)
        for name, W in weights.items():
            weights[name] = step(name, W, gradients[name] + weight_decay * W, rates[schedule](epoch))
    return Trained(losses, weights, predict(graph, spec, weights))


def first_weights(spec: ModelSpec) -> dict[str, Array]:
    return {name: W.astype(np.float64) for name, W in build(spec).init().items()}


def predict(graph: Graph, spec: ModelSpec, weights: dict[str, Array]) -> Array:
    """Logits [N, C] of all vertices, without dropout."""
    return forward(graph, spec, weights, epoch=None)[0]


# --- the graph --------------------------------------------------------------------------------------------------------


def propagation(graph: Graph, aggregate: str) -> Any:
    """The matrix A [N, N] with Z = A H, row v over the in-edges of v.

    gcn: w_uv / sqrt(deg_u deg_v) for every edge u -> v and 1 / deg_v on the diagonal, deg = weighted in-degree + 1.
    mean: w_uv / weighted in-degree; a row of zeros where v has no in-edge.
    """
    n, src, dst = graph.num_vertices, graph.src, graph.dst
    w = np.ones(len(src)) if graph.weight is None else graph.weight.astype(np.float64)  # [E]
    in_degree = np.bincount(dst, w, n)  # [N]
    if aggregate == "gcn":
        degree = in_degree + 1
        own = np.arange(n)
        values = np.concatenate([w / np.sqrt(degree[src] * degree[dst]), 1 / degree])
        src, dst = np.concatenate([src, own]), np.concatenate([dst, own])
    else:
        values = w / in_degree[dst]
    return scipy.sparse.csr_array((values, (dst, src)), shape=(n, n))


def features(graph: Graph) -> Array:
    X = graph.features.dense() if isinstance(graph.features, SparseRows) else graph.features
    return X.astype(np.float64)  # [N, F]


# --- one pass ---------------------------------------------------------------------------------------------------------


def forward(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], epoch: int | None
) -> tuple[Array, list[dict[str, Any]]]:
    """Logits [N, C] and what backward needs of each layer. ``epoch``: whose dropout masks; None: no dropout."""
    A = propagation(graph, "gcn" if spec.name == "gcn" else "mean")
    H = features(graph)  # [N, F_0]
    tape = []
    for layer in range(spec.num_layers):
        Z = A @ H  # [N, F_in]
        inputs = {"weight": Z} if spec.name == "gcn" else {"self": H, "neighbour": Z}
        if layer == 0:  # dropped here, after the gather; deeper inputs were dropped as activations
            inputs = {what: X * dropout_scale(X, spec, epoch, key) for key, (what, X) in enumerate(inputs.items())}
        P = sum(X @ weights[f"{layer}.{what}"] for what, X in inputs.items())  # [N, F_out]
        if spec.bias:
            P = P + weights[f"{layer}.bias"]
        tape.append({"A": A, "inputs": inputs, "P": P})
        if layer < spec.num_layers - 1:
            N = P
            if spec.norm == "layer":
                N = normalised(P)[0] * weights[f"{layer}.gain"] + weights[f"{layer}.shift"]
            tape[-1]["N"] = N
            H = np.tanh(N) if spec.activation == "tanh" else np.where(N > 0, N, 0)
            tape[-1]["scale"] = dropout_scale(H, spec, epoch, 2 + layer)  # the mask of H_{layer + 1}
            H = H * tape[-1]["scale"]
    return P, tape


def loss_and_gradients(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], *, epoch: int, split: int = 0
) -> tuple[float, dict[str, Array]]:
    """The mean loss over the training vertices and its gradient by parameter."""
    logits, tape = forward(graph, spec, weights, epoch)
    loss, dP = loss_and_gradient(graph, spec, logits, np.flatnonzero(graph.split[:, split] == TRAIN))
    gradients: dict[str, Array] = {}
    for layer in reversed(range(spec.num_layers)):
        kept = tape[layer]
        if spec.bias:
            gradients[f"{layer}.bias"] = dP.sum(0)
        d = {}
        for what, X in kept["inputs"].items():
            gradients[f"{layer}.{what}"] = X.T @ dP
            d[what] = dP @ weights[f"{layer}.{what}"].T  # [N, F_in]
        A = kept["A"]
        dH = A.T @ d["weight"] if spec.name == "gcn" else d["self"] + A.T @ d["neighbour"]
        if layer > 0:
            dP = before_activation(spec, layer - 1, dH, tape[layer - 1], weights, gradients)
    return loss, gradients


def before_activation(
    spec: ModelSpec,
    layer: int,
    dH: Array,
    kept: dict[str, Any],
    weights: dict[str, Array],
    gradients: dict[str, Array],
) -> Array:
    """dP [N, F_out] of a hidden layer from dH of its activations; adds the gradients of LayerNorm's parameters."""
    N, P = kept["N"], kept["P"]
    dH = dH * kept["scale"]
    dN = dH * (1 - np.tanh(N) ** 2) if spec.activation == "tanh" else dH * (N > 0)
    if spec.norm == "none":
        return dN
    X, deviation = normalised(P)
    gradients[f"{layer}.gain"] = (dN * X).sum(0)
    gradients[f"{layer}.shift"] = dN.sum(0)
    dX = dN * weights[f"{layer}.gain"]
    width = P.shape[1]
    return (width * dX - dX.sum(1, keepdims=True) - X * (dX * X).sum(1, keepdims=True)) / (width * deviation)


def dropout_scale(X: Array, spec: ModelSpec, epoch: int | None, layer: int) -> Array | float:
    """What X is multiplied by: 0 where an entry is dropped, 1 / (share kept) elsewhere. ``layer`` is the mask's key."""
    if epoch is None or not spec.dropout:
        return 1.0
    mask = ops.dropout_mask(X, spec.dropout, seed=spec.seed, epoch=epoch, layer=layer, vertices=np.arange(len(X)))
    return mask / (1 - round(spec.dropout * 65536) / 65536)  # the mask drops in steps of 1/65536


def normalised(P: Array) -> tuple[Array, Array]:
    """Rows of mean 0 and variance 1, and the deviation [N, 1] they were divided by."""
    deviation = np.sqrt(P.var(1, keepdims=True) + LAYER_NORM_EPS)
    return (P - P.mean(1, keepdims=True)) / deviation, deviation


def loss_and_gradient(graph: Graph, spec: ModelSpec, logits: Array, train: Array) -> tuple[float, Array]:
    """Mean loss over the rows named by ``train``, and its gradient [N, C]: zero in all other rows."""
    assert len(train) == spec.num_train
    x, y = logits[train], graph.labels[train]  # [n, C]
    gradient = np.zeros_like(logits)
    if spec.multilabel:
        loss = -(y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)).mean()
        gradient[train] = (np.exp(log_sigmoid(x)) - y) / x.size
        return float(loss), gradient
    target = np.eye(spec.num_classes)[y]  # [n, C]
    peak = x.max(1, keepdims=True)
    log_probability = x - peak - np.log(np.exp(x - peak).sum(1, keepdims=True))
    gradient[train] = (np.exp(log_probability) - target) / len(train)
    return float(-(target * log_probability).sum() / len(train)), gradient


def log_sigmoid(x: Array) -> Array:
    return -np.logaddexp(0, -x)


# --- optimisers, as torch.optim -----------------------------------------------------------------------------------------


class Adam:
    """Kingma & Ba, algorithm 1, with its constants."""

    def __init__(self) -> None:
        self.state: dict[str, tuple[int, Array, Array]] = {}

    def step(self, name: str, W: Array, g: Array, lr: float) -> Array:
        t, m, v = self.state.get(name, (0, np.zeros_like(W), np.zeros_like(W)))
        t, m, v = t + 1, 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        self.state[name] = t, m, v
        return W - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)


class Momentum:
    """Gradient descent with heavy-ball momentum; the first step's velocity is the gradient."""

    def __init__(self, momentum: float) -> None:
        self.momentum = momentum
        self.velocity: dict[str, Array] = {}

    def step(self, name: str, W: Array, g: Array, lr: float) -> Array:
        self.velocity[name] = self.momentum * self.velocity.get(name, np.zeros_like(W)) + g
        return W - lr * self.velocity[name]
