"""Models that transform each vertex and then only propagate: between hops there is no tensor task.

    APPNP   Z_0 = MLP(X),   Z_k = (1 - α) Â Z_{k-1} + α Z_0,   logits = Z_K         (Gasteiger et al., ICLR 2019, eq. 4)
    SGC     Z_0 = X W,      Z_k = Â Z_{k-1},                   logits = Z_K + b     (Wu et al., ICML 2019, eq. 8)

    AV0:   the MLP: H_k = drop(σ(H_{k-1} W + b)), H_0 = drop(X); its last layer gives Z_0 [n, C]
    SC, GA of every hop: C columns are sent; α Z_0 is the interval's own
    AV1:   logits, loss and dZ_K
    GA':   dZ_{k-1} = (1 - α) Âᵀ dZ_k, dZ_0 += α dZ_k;   AV0': the MLP's gradients

APPNP's MLP has ``model.layers`` layers. SGC has one product, without hidden layers or an activation.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from siafu import ops as numpy_ops
from siafu.models import Arrays, ModelSpec, SlotRows, TensorOps
from siafu.models.dense import Activation, Dense
from siafu.models.staged import FEATURES, Dropout, Gathered, Stage, Staged
from siafu.sparse import Array

FIRST = "H1"  # Z_0's slot
LOGITS = "H2"


class APPNP(Staged):
    aggregate = "gcn"
    takes = frozenset({"dropout", "norm", "activation", "hops", "alpha"})
    hidden_slots = False

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        sizes = (spec.in_features, *self.hidden(spec), spec.num_classes)
        self.shapes = list(pairwise(sizes))
        self.dense = self.layers(spec, ops)
        self.activations = [
            Activation(spec, ops, layer, f"U{layer}", f"P{layer}", key=1 + layer, norm=spec.norm == "layer")
            for layer in range(len(self.shapes) - 1)
        ]
        super().__init__(spec, ops)

    def hidden(self, spec: ModelSpec) -> tuple[int, ...]:
        return spec.widths

    def layers(self, spec: ModelSpec, ops: TensorOps) -> list[Dense]:
        return [Dense(spec, ops, layer) for layer in range(len(self.shapes))]

    def hop(self, number: int, of: str) -> Gathered:
        alpha = self.spec.alpha
        return Gathered(f"Z{number}", of, own=(FIRST,), factor=1 - alpha, own_factor=alpha)

    def rest(self, parameter: str) -> bool:
        """Whether the parameter is not of the first layer: the authors decay only that layer."""
        return not parameter.startswith("0.")

    # --- graph ------------------------------------------------------------------------------------------------------

    def graph(self) -> list[Stage | Gathered]:
        saves = tuple(slot for activation in self.activations for slot in activation.saves)
        nodes: list[Stage | Gathered] = [Stage(0, (FEATURES,), (FIRST,), {FEATURES: 0}, saves)]
        for number in range(1, self.spec.hops + 1):
            nodes.append(self.hop(number, FIRST if number == 1 else f"Z{number - 1}"))
        return [*nodes, Stage(1, (f"Z{self.spec.hops}",), (LOGITS,), {}, (LOGITS,))]

    def widths_of(self) -> dict[str, int]:
        classes = dict.fromkeys(
            (FIRST, LOGITS, *(f"Z{k}" for k in range(1, self.spec.hops + 1))), self.spec.num_classes
        )
        hidden = {f"{slot}{layer}": width for layer, (_, width) in enumerate(self.shapes) for slot in "UP"}
        return classes | hidden

    def stage(self, parameter: str) -> int:
        return 0

    def init(self) -> dict[str, Array]:
        weights: dict[str, Array] = {}
        for layer, shape in enumerate(self.shapes):
            weights |= self.dense[layer].init(*shape)
            if layer < len(self.activations):
                weights |= self.activations[layer].init(shape[1])
        return weights

    # --- stages -----------------------------------------------------------------------------------------------------

    def forward(
        self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        if stage == self.last:
            logits = self.logits(np.asarray(rows[f"Z{self.spec.hops}"]), weights)
            return {LOGITS: logits}, {LOGITS: logits}
        saved = self._hidden(rows, weights, drop)
        X = saved[self.activations[-1].slot] if self.activations else rows[FEATURES]
        return {FIRST: self.dense[-1].forward(X, weights)}, saved

    def again(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> Any:
        """Recomputes the stage without the last product, which backward does not read."""
        return {} if stage == self.last else self._hidden(rows, weights, drop)

    def _hidden(self, rows: SlotRows, weights: Arrays, drop: Dropout) -> dict[str, Array]:
        """Computes the hidden layers; returns their slots."""
        X, saved = rows[FEATURES], dict[str, Array]()
        for dense, activation in zip(self.dense, self.activations, strict=False):
            saved |= activation.forward(dense.forward(X, weights), weights, drop)
            X = saved[activation.slot]
        return saved

    def backward(
        self, stage: int, saved: Any, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        if stage == self.last:
            return {f"Z{self.spec.hops}": d[LOGITS]}, self.logits_gradients(d[LOGITS])
        dY, gradients = d[FIRST], dict[str, Array]()
        for dense, activation in zip(self.dense[:0:-1], self.activations[::-1], strict=True):
            dX = dense.backward(saved[activation.slot], dY, weights, gradients)
            dY = activation.backward(dX, saved, weights, drop, gradients)
        self.dense[0].learn(rows[FEATURES], dY, gradients)
        return {}, gradients

    def logits(self, Z: Array, weights: Arrays) -> Array:
        return Z

    def logits_gradients(self, dlogits: Array) -> dict[str, Array]:
        return {}


class SGC(APPNP):
    takes = frozenset({"dropout", "hops"})
    unused_settings = ("layers", "hidden")

    def hidden(self, spec: ModelSpec) -> tuple[int, ...]:
        return ()

    def layers(self, spec: ModelSpec, ops: TensorOps) -> list[Dense]:
        return [Dense(replace(spec, bias=False), ops, 0)]

    def hop(self, number: int, of: str) -> Gathered:
        return Gathered(f"Z{number}", of)

    def rest(self, parameter: str) -> bool:
        return False

    def stage(self, parameter: str) -> int:
        return int(parameter == "1.bias")

    def init(self) -> dict[str, Array]:
        bias = {"1.bias": np.zeros(self.spec.num_classes, self.dtype)} if self.spec.bias else {}
        return super().init() | bias

    def logits(self, Z: Array, weights: Arrays) -> Array:
        return Z + weights["1.bias"] if self.spec.bias else Z

    def logits_gradients(self, dlogits: Array) -> dict[str, Array]:
        return {"1.bias": self.ops.column_sums(dlogits)} if self.spec.bias else {}
