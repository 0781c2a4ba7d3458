"""GCNII, as in ``siafu.models.gcnii``: a dense layer, L propagations with the first representation mixed in, a dense
layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from gpu_baselines.bag import linear
from gpu_baselines.graph import Graph
from gpu_baselines.net import ACTIVATIONS, BatchNorm, Layer
from siafu.models import ModelSpec


def layers(spec: ModelSpec, parameters: Mapping[str, Tensor], normalised: BatchNorm | None) -> list[Layer]:
    count = spec.num_layers
    middle = [Propagation(spec, number, parameters) for number in range(1, count + 1)]
    return [First(spec, 0, parameters), *middle, Last(spec, count + 1, parameters)]


class First(Layer):
    """R = σ(drop(X) W_0 + b_0), which is H_1 before its dropout."""

    def __init__(self, spec: ModelSpec, number: int, parameters: Mapping[str, Tensor]):
        super().__init__(number, parameters)
        self._spec = spec

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        P = linear(graph.drop(H, 0), self.weights["weight"])
        R = ACTIVATIONS[self._spec.activation](P + self.weights["bias"] if "bias" in self.weights else P)
        state["R"] = R
        return R


class Propagation(Layer):
    """H' = σ((1 - β) S + β S W),  S = (1 - α) A drop(H) + α R."""

    def __init__(self, spec: ModelSpec, number: int, parameters: Mapping[str, Tensor]):
        super().__init__(number, parameters)
        self._spec, self._beta = spec, float(np.log(spec.theta / number + 1))

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        alpha, beta = self._spec.alpha, self._beta
        S = (1 - alpha) * graph.gather(self.number - 1, H, self.number) + alpha * state["R"]
        return ACTIVATIONS[self._spec.activation]((1 - beta) * S + beta * (S @ self.weights["weight"]))


class Last(Layer):
    """logits = drop(H) W + b."""

    def __init__(self, spec: ModelSpec, number: int, parameters: Mapping[str, Tensor]):
        super().__init__(number, parameters)

    def forward(self, graph: Graph, H: Any, state: dict[str, Tensor]) -> Tensor:
        Y = graph.drop(H, self.number) @ self.weights["weight"]
        return Y + self.weights["bias"] if "bias" in self.weights else Y
