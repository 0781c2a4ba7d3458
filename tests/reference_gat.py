"""The oracle for GAT: full batch, in float64 numpy, with an array that has a row per
edge, as a textbook would write it.

    T = drop(H) W,  s = <T, a_source>,  t = <T, a_target>                      by head
    α_vu = w_vu exp(e_vu) / Σ_u' w_vu' exp(e_vu'),  e_vu = LeakyReLU(t_v + s_u)   over in-edges and v itself
    Z_v = Σ_u m_vu α_vu T_u                                                    m: dropout of coefficients
    H' = σ(LayerNorm(Z + b (+ R))),  logits = mean of Z over heads + b (+ R)

With siafu it shares the first weights and the dropout masks. ``tests.reference`` trains with it;
tests/siafu/models/test_gat.py holds it to torch's autograd.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from siafu import ops
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array
from tests import reference


class EdgeList(NamedTuple):
    """Every edge, and one from each vertex to itself."""

    src: Array
    dst: Array
    weight: Array
    num_vertices: int

    @classmethod
    def of(cls, graph: Graph) -> EdgeList:
        own = np.arange(graph.num_vertices)
        weight = np.ones(len(graph.src)) if graph.weight is None else graph.weight.astype(np.float64)
        src, dst = np.concatenate([graph.src, own]), np.concatenate([graph.dst, own])
        return cls(src, dst, np.concatenate([weight, np.ones(len(own))]), graph.num_vertices)

    def sum_at(self, vertices: Array, values: Array) -> Array:
        """Values of edges [E, ...], summed by vertex: [N, ...]."""
        shape = self.num_vertices, len(vertices)
        matrix = scipy.sparse.csr_array((np.ones(len(vertices)), (vertices, np.arange(len(vertices)))), shape=shape)
        flat = values.reshape(len(values), -1)
        return np.asarray(matrix @ flat).reshape(self.num_vertices, *values.shape[1:])


def forward(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], epoch: int | None
) -> tuple[Array, list[dict[str, Any]]]:
    """Logits [N, C] and what backward needs of each layer. ``epoch``: whose dropout masks; None: no dropout."""
    edges, H, tape = EdgeList.of(graph), reference.features(graph), []
    for layer in range(spec.num_layers):
        last = layer == spec.num_layers - 1
        heads = spec.out_heads if last else spec.heads
        scale = reference.dropout_scale(H, spec, epoch, layer)
        X = H * scale
        T = (X @ weights[f"{layer}.weight"]).reshape(len(X), heads, -1)  # [N, K, D]
        a, b = (weights[f"{layer}.{name}"].reshape(heads, -1) for name in ("source", "target"))
        score = (T * a).sum(2)[edges.src] + (T * b).sum(2)[edges.dst]  # [E, K]
        slope = np.where(score < 0, spec.slope, 1.0)
        e = score * slope
        peak = np.full((len(X), heads), -np.inf)
        np.maximum.at(peak, edges.dst, e)
        alpha = edges.weight[:, None] * np.exp(e - peak[edges.dst])
        alpha /= edges.sum_at(edges.dst, alpha)[edges.dst]
        mask = edge_mask(edges, spec, epoch, layer, heads)
        Z = edges.sum_at(edges.dst, (mask * alpha)[:, :, None] * T[edges.src])  # [N, K, D]
        P = Z.mean(1) if last else Z.reshape(len(X), -1)
        if spec.bias:
            P = P + weights[f"{layer}.bias"]
        if spec.residual:
            P = P + (X @ weights[f"{layer}.residual"] if f"{layer}.residual" in weights else X)
        tape.append({"X": X, "T": T, "alpha": alpha, "slope": slope, "mask": mask, "P": P, "scale": scale})
        if not last:
            N = P
            if spec.norm == "layer":
                N = reference.normalised(P)[0] * weights[f"{layer}.gain"] + weights[f"{layer}.shift"]
            tape[-1]["N"] = N
            H = activate(N, spec.activation)
    return P, tape


def loss_and_gradients(
    graph: Graph, spec: ModelSpec, weights: dict[str, Array], *, epoch: int, split: int = 0
) -> tuple[float, dict[str, Array]]:
    """The mean loss over the training vertices and its gradient by parameter."""
    edges = EdgeList.of(graph)
    logits, tape = forward(graph, spec, weights, epoch)
    loss, dP = reference.loss_and_gradient(graph, spec, logits, np.flatnonzero(graph.split[:, split] == TRAIN))
    gradients: dict[str, Array] = {}
    for layer in reversed(range(spec.num_layers)):
        kept = tape[layer]
        dH = kept["scale"] * layer_backward(edges, spec, layer, dP, kept, weights, gradients)
        if layer > 0:
            dP = before_activation(spec, layer - 1, dH, tape[layer - 1], weights, gradients)
    return loss, gradients


def layer_backward(
    edges: EdgeList,
    spec: ModelSpec,
    layer: int,
    dP: Array,
    kept: dict[str, Any],
    weights: dict[str, Array],
    gradients: dict[str, Array],
) -> Array:
    """dX [N, F_in]; adds the gradients of the layer's parameters."""
    X, T, alpha, slope, mask = (kept[name] for name in ("X", "T", "alpha", "slope", "mask"))
    heads = T.shape[1]
    if layer == spec.num_layers - 1:
        dZ = np.repeat(dP[:, None, :], heads, axis=1) / heads
    else:
        dZ = dP.reshape(T.shape)
    dalpha = mask * (dZ[edges.dst] * T[edges.src]).sum(2)  # [E, K]
    dT = edges.sum_at(edges.src, (mask * alpha)[:, :, None] * dZ[edges.dst])
    de = alpha * (dalpha - edges.sum_at(edges.dst, alpha * dalpha)[edges.dst])  # softmax
    dscore = de * slope
    for name, vertices in (("source", edges.src), ("target", edges.dst)):
        d = edges.sum_at(vertices, dscore)  # [N, K]
        a = weights[f"{layer}.{name}"].reshape(heads, -1)
        gradients[f"{layer}.{name}"] = (d[:, :, None] * T).sum(0).reshape(-1)
        dT = dT + d[:, :, None] * a
    dT = dT.reshape(len(X), -1)
    gradients[f"{layer}.weight"] = X.T @ dT
    if spec.bias:
        gradients[f"{layer}.bias"] = dP.sum(0)
    dX = dT @ weights[f"{layer}.weight"].T
    if spec.residual:
        name = f"{layer}.residual"
        if name in weights:
            gradients[name] = X.T @ dP
        dX = dX + (dP @ weights[name].T if name in weights else dP)
    return dX


def before_activation(
    spec: ModelSpec,
    layer: int,
    dH: Array,
    kept: dict[str, Any],
    weights: dict[str, Array],
    gradients: dict[str, Array],
) -> Array:
    """dP [N, F] of a hidden layer from dH of its activations; adds the gradients of LayerNorm's parameters."""
    N, P = kept["N"], kept["P"]
    dN = dH * slope_of(N, spec.activation)
    if spec.norm == "none":
        return dN
    X, deviation = reference.normalised(P)
    gradients[f"{layer}.gain"], gradients[f"{layer}.shift"] = (dN * X).sum(0), dN.sum(0)
    dX = dN * weights[f"{layer}.gain"]
    return (dX - dX.mean(1, keepdims=True) - X * (dX * X).mean(1, keepdims=True)) / deviation


def edge_mask(edges: EdgeList, spec: ModelSpec, epoch: int | None, layer: int, heads: int) -> Array:
    """What coefficients are multiplied by, [E, K]."""
    if epoch is None or not spec.attn_dropout:
        return np.ones((len(edges.src), heads))
    key = ops.edge_key(spec.seed, epoch, layer)
    return ops.edge_dropout(edges.src, edges.dst, heads, spec.attn_dropout, key, np.float64)


def activate(N: Array, kind: str) -> Array:
    if kind == "elu":
        return np.where(N > 0, N, np.exp(np.minimum(N, 0)) - 1)
    return np.tanh(N) if kind == "tanh" else np.where(N > 0, N, 0)


def slope_of(N: Array, kind: str) -> Array:
    if kind == "elu":
        return np.where(N > 0, 1, np.exp(np.minimum(N, 0)))
    return 1 - np.tanh(N) ** 2 if kind == "tanh" else np.asarray(N > 0, np.float64)
