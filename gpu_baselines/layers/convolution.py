"""GCN and GraphSAGE: sum, transform, activate; the formulas are those of ``siafu.models.layered``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from gpu_baselines.bag import linear
from gpu_baselines.graph import Graph
from gpu_baselines.net import ACTIVATIONS, BatchNorm, Layer
from siafu.models import ModelSpec

#: Model -> the weights of the summed rows and of a vertex's own.
WEIGHTS: dict[str, tuple[str, str | None]] = {"gcn": ("weight", None), "sage": ("neighbour", "self")}


def layers(spec: ModelSpec, parameters: Mapping[str, Tensor], normalised: BatchNorm | None) -> list[Layer]:
    return [Convolution(spec, number, parameters, normalised) for number in range(spec.num_layers)]


class Convolution(Layer):
    """P = A drop(H) W + drop(H) W_own + b (+ residual);  H' = σ(norm(P)), which the next layer drops.

    A narrow layer multiplies before it sums. The features' sum is constant, and dropped after it was made. A layer with
    the weight "linear" sees no neighbours: P = drop(H) W + b.
    """

    def __init__(self, spec: ModelSpec, number: int, parameters: Mapping[str, Tensor], normalised: BatchNorm | None):
        super().__init__(number, parameters)
        fan_in, fan_out = spec.shape(number)
        self._spec, self._normalised = spec, normalised
        self._linear = "linear" in self.weights
        self._gathered, self._own = ("linear", None) if self._linear else WEIGHTS[spec.name]
        self._last = number == spec.num_layers - 1
        self.mean: Tensor
        self.variance: Tensor
        self._narrow = spec.narrow and number > 0 and fan_out < fan_in
        self._key = 1 + number  # of the mask that its inputs get; layer 0 has its own way
        normalises = normalised is not None and not self._last
        # Normalising takes a bias out again: Adam would move it by rounding errors, ahead of the running mean.
        self._biased = "bias" in self.weights and not normalises
        if normalises:
            gain = self.weights["gain"]
            self.register_buffer("mean", torch.zeros_like(gain, requires_grad=False))
            self.register_buffer("variance", torch.ones_like(gain, requires_grad=False))

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        P = self._combined(graph, H)
        if self._biased:
            P = P + self.weights["bias"]
        if self._last:
            return P
        if self._normalised is not None:
            norm = self._normalised if graph.training else self._normalised.evaluated
            P = norm(P, self.weights["gain"], self.weights["shift"], self.mean, self.variance)
        elif self._spec.norm == "layer":
            P = functional.layer_norm(P, P.shape[1:], self.weights["gain"], self.weights["shift"])
        return ACTIVATIONS[self._spec.activation](P)

    def _combined(self, graph: Graph, H: Any) -> Tensor:
        """P without bias."""
        first, weight = self.number == 0, self.weights[self._gathered]
        key = None if first else self._key
        X: Any = None
        if self._linear:
            X = graph.drop(H, key)
            P = linear(X, weight)
        elif self._narrow:
            X = graph.drop(H, key)
            P = graph.gather(self.number, X @ weight)
        else:
            Z = graph.gather(self.number, H, key)
            # Masks of layer 0's inputs: 0 and 1, in the order own rows, summed rows.
            P = linear(graph.drop(Z, 0 if self._own is None else 1) if first else Z, weight)
            if self._own is not None or self._spec.residual:
                X = graph.drop(H, self._own_key(key))
        if self._own is not None:
            P = P + linear(X, self.weights[self._own])
        if self._spec.residual:
            mapped = "residual" in self.weights
            P = P + (linear(X, self.weights["residual"]) if mapped else X if isinstance(X, Tensor) else X.dense())
        return P

    def _own_key(self, key: int | None) -> int | None:
        if self.number > 0:
            return key
        return 0 if self._own is not None else 1
