"""The oracle: full-batch training on one machine, in float64 numpy, each model as a textbook would write it.

No interval, no partition, no pipeline, no message: one propagation matrix ``A`` [N, N] and dense rows of all vertices.
``tests/tape.py`` takes the gradients; models with a file of their own (``OTHERS``) take theirs themselves.

It shares with siafu the first weights (``init``), the key of an epoch's masks and which edges a link model drops,
which are definitions, and nothing else: it draws its dropout masks itself. ``tests/test_reference.py`` holds it
to torch's autograd and optimisers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from siafu import ops
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec, build
from siafu.sparse import Array, SparseRows
from tests import tape
from tests.tape import Node

LAYER_NORM_EPS = 1e-5
SPLIT_MIX_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, odd
AGGREGATE = {"sage": "mean", "gin": "sum"}  # all others: gcn
#: Models whose oracle is a module with ``forward`` and ``loss_and_gradients``.
OTHERS = {"gat": "tests.reference_gat", "rgcn": "tests.reference_rgcn"}


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
    clip_norm: float = 0.0,
    first: dict[str, Array] | None = None,
    weight_decay_rest: float = -1.0,
) -> Trained:
    """Full-batch gradient descent. The arguments are those of ``[train]`` in the config;
    ``first``: weights to begin with."""
    rates: dict[str, Callable[[int], float]] = {
        "constant": lambda epoch: lr,
        "cosine": lambda epoch: lr * (1 + math.cos(math.pi * epoch / epochs)) / 2,
        "step": lambda epoch: lr * step_factor ** (epoch // step_epochs),
    }
    step = {"adam": Adam(), "sgd": Momentum(momentum)}[optimizer].step
    weights = first_weights(spec) if first is None else dict(first)
    rest, losses = build(spec).rest, []
    for epoch in range(epochs):
        loss, gradients = loss_and_gradients(graph, spec, weights, epoch=epoch, split=split)
        losses.append(loss)
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        if clip_norm and norm > clip_norm:
            gradients = {name: g * clip_norm / (norm + 1e-6) for name, g in gradients.items()}
        for name, W in weights.items():
            decay = weight_decay_rest if weight_decay_rest >= 0 and rest(name) else weight_decay
            weights[name] = step(name, W, gradients[name] + decay * W, rates[schedule](epoch))
    return Trained(losses, weights, predict(graph, spec, weights))


def first_weights(spec: ModelSpec) -> dict[str, Array]:
    return {name: W.astype(np.float64) for name, W in build(spec).init().items()}


def predict(graph: Graph, spec: ModelSpec, weights: dict[str, Array]) -> Array:
    """Logits [N, C] of all vertices, without dropout."""
    if spec.name in OTHERS:
        logits: Array = importlib.import_module(OTHERS[spec.name]).forward(graph, spec, weights, epoch=None)[0]
        return logits
    return MODELS[spec.name](graph, spec, Leaves(weights), None).value


# --- the graph --------------------------------------------------------------------------------------------------------


def propagation(graph: Graph, aggregate: str) -> Any:
    """The matrix A [N, N] with Z = A H, row v over the in-edges of v.

    gcn: w_uv / sqrt(deg_u deg_v) for every edge u -> v and 1 / deg_v on the diagonal, deg = weighted in-degree + 1.
    mean: w_uv / weighted in-degree; a row of zeros where v has no in-edge.
    sum: w_uv.
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
        values = w / in_degree[dst] if aggregate == "mean" else w
    return scipy.sparse.csr_array((values, (dst, src)), shape=(n, n))


def features(graph: Graph) -> Array:
    X = graph.features.dense() if isinstance(graph.features, SparseRows) else graph.features
    return X.astype(np.float64)  # [N, F]


# --- the models -------------------------------------------------------------------------------------------------------


class Leaves(dict[str, Node]):
    """The weights, by name, as leaves of the tape."""

    def __init__(self, weights: dict[str, Array]):
        super().__init__({name: Node(W) for name, W in weights.items()})

    def dense(self, X: Node, layer: int, weight: str = "weight", bias: str = "bias") -> Node:
        """X W + b, where there is a b."""
        return self.biased(X @ self[f"{layer}.{weight}"], layer, bias)

    def biased(self, P: Node, layer: int, bias: str = "bias") -> Node:
        return P + self[f"{layer}.{bias}"] if f"{layer}.{bias}" in self else P

    def normalised(self, P: Node, layer: int) -> Node:
        if f"{layer}.gain" not in self:
            return P
        return tape.normalised(P, self[f"{layer}.gain"], self[f"{layer}.shift"], LAYER_NORM_EPS)


def convolution(graph: Graph, spec: ModelSpec, W: Leaves, epoch: int | None) -> Node:
    """GCN: A H W + b. GraphSAGE: H W_self + A H W_neighbour + b. GIN: MLP((1 + ε) H + A H). Plus residual; activation;
    jumping knowledge."""
    A, H, hidden = propagation(graph, AGGREGATE.get(spec.name, "gcn")), Node(features(graph)), []
    num_layers = len(spec.widths) + (spec.jump == "none")
    for layer in range(num_layers):
        Z = tape.through(A, H)
        if layer == 0:  # dropped here, after the gather; deeper inputs were dropped as activations
            keys = (1, 0) if spec.name == "sage" else (0, 1)
            Z, H = dropped(Z, spec, epoch, keys[0]), dropped(H, spec, epoch, keys[1])
        if spec.name == "sage":
            P = H @ W[f"{layer}.self"] + Z @ W[f"{layer}.neighbour"]
        elif spec.name == "gin":
            own = H * W[f"{layer}.eps"] if spec.train_eps else H * spec.eps
            P = (Z + H + own) @ W[f"{layer}.weight"]
        else:
            P = Z @ W[f"{layer}.weight"]
        P = W.biased(P, layer)
        if spec.name == "gin":
            P = W.dense(tape.activated(W.normalised(P, layer), spec.activation), layer, "second", "second_bias")
        if spec.residual:
            P = P + (H @ W[f"{layer}.residual"] if f"{layer}.residual" in W else H)
        if layer == num_layers - 1 and spec.jump == "none":
            return P
        N = P if spec.name == "gin" else W.normalised(P, layer)
        H = dropped(tape.activated(N, spec.activation), spec, epoch, 2 + layer)
        hidden.append(H)
    joined = {"cat": tape.side_by_side, "max": tape.largest, "sum": lambda layers: sum(layers[1:], layers[0])}
    return W.dense(joined[spec.jump](hidden), num_layers)


def gcnii(graph: Graph, spec: ModelSpec, W: Leaves, epoch: int | None) -> Node:
    A, last = propagation(graph, "gcn"), len(spec.widths) + 1
    R = tape.activated(W.dense(dropped(Node(features(graph)), spec, epoch, 0), 0), spec.activation)
    H = dropped(R, spec, epoch, 1)
    for layer in range(1, last + 1):
        beta = math.log(spec.theta / layer + 1)
        S = tape.through(A, H) * (1 - spec.alpha) + R * spec.alpha
        P = S * (1 - beta) + (S @ W[f"{layer}.weight"]) * beta
        H = dropped(tape.activated(P, spec.activation), spec, epoch, 1 + layer)
    return W.dense(H, last + 1)


def appnp(graph: Graph, spec: ModelSpec, W: Leaves, epoch: int | None) -> Node:
    A, H = propagation(graph, "gcn"), dropped(Node(features(graph)), spec, epoch, 0)
    for layer in range(len(spec.widths)):
        N = W.normalised(W.dense(H, layer), layer)
        H = dropped(tape.activated(N, spec.activation), spec, epoch, 1 + layer)
    first = Z = W.dense(H, len(spec.widths))
    for _ in range(spec.hops):
        Z = tape.through(A, Z) * (1 - spec.alpha) + first * spec.alpha
    return Z


def sgc(graph: Graph, spec: ModelSpec, W: Leaves, epoch: int | None) -> Node:
    A, Z = propagation(graph, "gcn"), dropped(Node(features(graph)), spec, epoch, 0) @ W["0.weight"]
    for _ in range(spec.hops):
        Z = tape.through(A, Z)
    return W.biased(Z, 1)


#: Logits [N, C] of every vertex. ``epoch``: whose dropout masks; None: no dropout.
MODELS: dict[str, Callable[[Graph, ModelSpec, Leaves, int | None], Node]] = {
    "gcn": convolution,
    "sage": convolution,
    "gin": convolution,
    "gcnii": gcnii,
    "appnp": appnp,
    "sgc": sgc,
}


def loss_and_gradients(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], *, epoch: int, split: int = 0
) -> tuple[float, dict[str, Array]]:
    """The mean loss over the training vertices and its gradient by parameter."""
    if spec.name in OTHERS:
        module = importlib.import_module(OTHERS[spec.name])
        found: tuple[float, dict[str, Array]] = module.loss_and_gradients(
            graph, spec, weights, epoch=epoch, split=split
        )
        return found
    leaves = Leaves(weights)
    logits = MODELS[spec.name](graph, spec, leaves, epoch)
    loss, d = loss_and_gradient(graph, spec, logits.value, np.flatnonzero(graph.split[:, split] == TRAIN))
    return loss, tape.gradients(logits, d, leaves)


def dropped(X: Node, spec: ModelSpec, epoch: int | None, key: int) -> Node:
    return X * dropout_scale(X.value, spec, epoch, key)


def dropout_scale(X: Array, spec: ModelSpec, epoch: int | None, layer: int) -> Array | float:
    """What X is multiplied by: 0 where an entry is dropped, 1 / (share kept) elsewhere. ``layer`` is the mask's key."""
    if epoch is None or not spec.dropout:
        return 1.0
    return kept_entries(X.shape, spec, epoch, layer) / (1 - round(spec.dropout * 65536) / 65536)


def kept_entries(shape: tuple[int, ...], spec: ModelSpec, epoch: int, layer: int) -> Array:
    """Bool ``shape``: entry (v, c) is kept if 16 bits of a hash of vertex v and column c are at least the share
    dropped.

    Four columns share 64 bits, the first of them the lowest 16. Written entry by entry, not as ``siafu.ops`` does it.
    """
    vertex, column = np.indices(shape, dtype=np.uint64)
    row = split_mix(vertex * SPLIT_MIX_STEP + np.uint64(ops.run_key(spec.seed, epoch, layer)))
    bits = split_mix(row + column // np.uint64(4) * SPLIT_MIX_STEP) >> (column % np.uint64(4) * np.uint64(16))
    return np.asarray(bits % np.uint64(65536) >= np.uint64(round(spec.dropout * 65536)))


def split_mix(x: Array) -> Array:
    """SplitMix64's output function (Steele, Lea & Flood, OOPSLA 2014, figure 17), of uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))


def normalised(P: Array) -> tuple[Array, Array]:
    """Rows of mean 0 and variance 1, and the deviation [N, 1] they were divided by."""
    deviation = np.sqrt(P.var(1, keepdims=True) + LAYER_NORM_EPS)
    return (P - P.mean(1, keepdims=True)) / deviation, deviation


def loss_and_gradient(graph: Graph, spec: ModelSpec, logits: Array, train: Array) -> tuple[float, Array]:
    """Mean loss over the rows named by ``train``, and its gradient [N, C]: zero in all other rows."""
    assert len(train) == spec.num_train
    x, y = logits[train], graph.labels[train]  # [n, C]
    gradient = np.zeros_like(logits)
    if spec.target == "numbers":
        error = x - y.reshape(x.shape)
        gradient[train] = 2 * error / x.size
        return float((error**2).mean()), gradient
    if spec.multilabel:
        loss = -(y * log_sigmoid(x) + (1 - y) * log_sigmoid(-x)).mean()
        gradient[train] = (np.exp(log_sigmoid(x)) - y) / x.size
        return float(loss), gradient
    # [n, C]
    target = np.eye(spec.num_classes)[y] * (1 - spec.label_smoothing) + spec.label_smoothing / spec.num_classes
    peak = x.max(1, keepdims=True)
    log_probability = x - peak - np.log(np.exp(x - peak).sum(1, keepdims=True))
    gradient[train] = (np.exp(log_probability) - target) / len(train)
    return float(-(target * log_probability).sum() / len(train)), gradient


def log_sigmoid(x: Array) -> Array:
    return -np.logaddexp(0, -x)


# --- optimisers, as torch.optim ---------------------------------------------------------------------------------------


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
