"""GAT, as in ``siafu.models.gat``. Every rank transforms the rows of its own halo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gpu_baselines.graph import AttentionEdges, Graph
from gpu_baselines.masks import kept_edges
from gpu_baselines.net import ACTIVATIONS, BatchNorm, Layer
from siafu import ops
from siafu.models import ModelSpec


def layers(spec: ModelSpec, parameters: Mapping[str, Tensor], normalised: BatchNorm | None) -> list[Layer]:
    return [Attention(spec, number, parameters) for number in range(spec.num_layers)]


class Attention(Layer):
    """T = drop(H) W;  e_vu = LeakyReLU(t_v + s_u);  Z_v = Σ_u drop(softmax(e)) T_u;  H' = σ(norm(Z + b (+ R)))."""

    def __init__(self, spec: ModelSpec, number: int, parameters: Mapping[str, Tensor]):
        super().__init__(number, parameters)
        self._spec = spec
        self._last = number == spec.num_layers - 1
        self._heads = spec.out_heads if self._last else spec.heads

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        spec, heads, n, edges = self._spec, self._heads, graph.num_inner, graph.edges
        X = graph.rows(self.number, H, self.number)  # [n + h, F]
        T = (X @ self.weights["weight"]).unflatten(1, (heads, -1))  # [n + h, K, D]
        s = (T * self.weights["source"].view(heads, -1)).sum(-1)  # [n + h, K]
        t = (T[:n] * self.weights["target"].view(heads, -1)).sum(-1)  # [n, K]
        kept = self._kept(edges, heads, graph.epoch, T) if graph.training and spec.attn_dropout else None
        Z = _attended(T, s, t, edges, spec.slope, kept)  # [n, K, D]
        P = Z.mean(1) if self._last else Z.flatten(1)
        if "bias" in self.weights:
            P = P + self.weights["bias"]
        if spec.residual:
            P = P + (X[:n] @ self.weights["residual"] if "residual" in self.weights else X[:n])
        if self._last:
            return P
        if spec.norm == "layer":
            P = functional.layer_norm(P, P.shape[1:], self.weights["gain"], self.weights["shift"])
        return ACTIVATIONS[spec.activation](P)

    def _kept(self, edges: AttentionEdges, heads: int, epoch: int, like: Tensor) -> Tensor:
        key = ops.edge_key(self._spec.seed, epoch, self.number)
        if like.device.type != "cpu":  # as ``Masks``: a GPU hashes for itself
            threshold, scale = ops.dropout_threshold(self._spec.attn_dropout)
            return kept_edges(edges.places, heads, key, threshold).to(like.dtype).mul_(scale)
        dtype = np.dtype(np.float64 if like.dtype == torch.float64 else np.float32)
        found = ops.edge_dropout(edges.source_ids, edges.target_ids, heads, self._spec.attn_dropout, key, dtype)
        return torch.from_numpy(found).to(like.device)


def _attended(T: Tensor, s: Tensor, t: Tensor, edges: AttentionEdges, slope: float, kept: Tensor | None) -> Tensor:
    """Z [n, K, D]; ``kept`` [m, K] multiplies the softmax's coefficients."""
    if T.is_cuda:
        from gpu_baselines.kernels.attention import Attend  # where there is no GPU, there may be no Triton

        found: Tensor = Attend.apply(T, s, t, edges, slope, kept)
        return found
    alpha = coefficients(s, t, edges, slope)  # [m, K]
    alpha = alpha if kept is None else alpha * kept
    return T.new_zeros(len(t), *T.shape[1:]).index_add_(0, edges.target, T[edges.source] * alpha[:, :, None])


def coefficients(s: Tensor, t: Tensor, edges: AttentionEdges, slope: float) -> Tensor:
    """[m, K]: softmax over each target's in-edges."""
    score = functional.leaky_relu(s[edges.source] + t[edges.target], slope)
    index = edges.target[:, None].expand_as(score)
    top = torch.full_like(t, -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = torch.exp(score - top[edges.target])
    if edges.weight is not None:
        weight = weight * edges.weight[:, None]
    total = torch.zeros_like(t).index_add(0, edges.target, weight)
    return weight / total[edges.target]
