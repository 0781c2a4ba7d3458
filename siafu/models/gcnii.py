"""GCNII (Chen et al., ICML 2020, eq. 5), which stays trainable with 64 layers:

    R = σ(drop(X) W_0 + b_0),   H_1 = drop(R)
    S_l = (1 - α) Â H_l + α R,   H_{l+1} = drop(σ((1 - β_l) S_l + β_l S_l W_l)),   β_l = ln(θ / l + 1),   l = 1..L
    logits = H_{L+1} W_{L+1} + b_{L+1}

    GA:   all of S_l: the server adds α R, of which it has the interval's own rows. Only the first task has R
    AV:   P = (1 - β) S + β S W,  H' = drop(σ(P))
    AV':  dP = drop'(dH') ⊙ σ'(P),  dW = β Sᵀ dP,  dS = (1 - β) dP + β dP Wᵀ
    GA':  dH = (1 - α) Âᵀ dS,  dR += α dS

Shapes: R, H_l and S_l [n, F], W_l [F, F] for l = 1..L. Dropout is at the authors' places. ``model.layers`` is L,
``model.hidden`` is F; the first dense layer is stage 0, the last one a part of stage L.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from siafu import ops as numpy_ops
from siafu.errors import ConfigError
from siafu.kernels.functions import log
from siafu.models import Arrays, ModelSpec, SlotRows, TensorOps
from siafu.models.dense import Activation, Dense, first_weight
from siafu.models.staged import FEATURES, Dropout, Gathered, Stage, Staged
from siafu.sparse import Array


class GCNII(Staged):
    aggregate = "gcn"
    takes = frozenset({"dropout", "activation", "alpha", "theta"})

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        if not spec.widths:
            raise ConfigError("model.layers = 1: gcnii needs at least 2")
        if len(set(spec.widths)) > 1:
            raise ConfigError(f"model.hidden = {list(spec.widths)}: layers of gcnii must have one width")
        self.num_layers, self.hidden = len(spec.widths) + 1, spec.widths[0]
        self.output = f"H{self.num_layers + 2}"
        self.initial = "R0" if spec.dropout else "H1"  # without dropout they are one
        self.activations = [
            Activation(spec, ops, layer, f"H{layer + 1}", f"P{layer}", key=1 + layer)
            for layer in range(1, self.num_layers + 1)
        ]
        self.activations.insert(0, Activation(spec, ops, 0, self.initial, "P0"))  # H1 is dropped, R is not
        self.first, self.out = Dense(spec, ops, 0), Dense(spec, ops, self.num_layers + 1)
        super().__init__(spec, ops)

    def beta(self, layer: int) -> Any:
        return self.dtype.type(log(np.array(self.spec.theta / layer + 1)))

    def rest(self, parameter: str) -> bool:
        """Whether the parameter is of a dense layer."""
        return int(parameter.partition(".")[0]) in (0, self.num_layers + 1)

    # --- graph ------------------------------------------------------------------------------------------------------

    def graph(self) -> list[Stage | Gathered]:
        made = dict.fromkeys(("H1", self.initial))
        nodes: list[Stage | Gathered] = [Stage(0, (FEATURES,), tuple(made), {FEATURES: 0}, self.activations[0].saves)]
        alpha = self.spec.alpha
        for layer in range(1, self.num_layers + 1):
            S, saves = f"Z{layer}", self.activations[layer].saves
            nodes.append(Gathered(S, f"H{layer}", own=(self.initial,), factor=1 - alpha, own_factor=alpha))
            last = layer == self.num_layers
            nodes.append(
                Stage(layer, (S,), (self.output if last else f"H{layer + 1}",), {}, saves + (self.output,) * last)
            )
        return nodes

    def widths_of(self) -> dict[str, int]:
        slots = [f"{letter}{layer}" for layer in range(self.num_layers + 2) for letter in "RHPZ"]
        return {**dict.fromkeys(slots, self.hidden), self.output: self.spec.num_classes}

    def stage(self, parameter: str) -> int:
        return min(super().stage(parameter), self.num_layers)

    def init(self) -> dict[str, Array]:
        weights = self.first.init(self.spec.in_features, self.hidden)
        for layer in range(1, self.num_layers + 1):
            weights[f"{layer}.weight"] = first_weight(self.spec, layer, 0, self.hidden, self.hidden)
        return weights | self.out.init(self.hidden, self.spec.num_classes)

    # --- stages -----------------------------------------------------------------------------------------------------

    def forward(
        self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        if stage == 0:
            saved = self.activations[0].forward(self.first.forward(rows[FEATURES], weights), weights, drop)
            R = saved[self.initial]  # [n, F]
            return {self.initial: R, "H1": np.asarray(drop(R, 1))}, saved
        S, beta = np.asarray(rows[f"Z{stage}"]), self.beta(stage)  # [n, F]
        P = self.ops.matmul(S, beta * weights[f"{stage}.weight"])
        P += (1 - beta) * S
        saved = self.activations[stage].forward(P, weights, drop)
        H = saved[f"H{stage + 1}"]
        if stage < self.last:
            return {f"H{stage + 1}": H}, saved
        logits = self.out.forward(H, weights)  # [n, C]
        return {self.output: logits}, saved | {self.output: logits}

    def backward(
        self, stage: int, saved: Any, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        gradients: dict[str, Array] = {}
        if stage == 0:
            dR = np.asarray(drop(d["H1"], 1))
            dR = dR if self.initial == "H1" else dR + d[self.initial]
            dP = self.activations[0].backward(dR, saved, weights, drop, gradients)
            self.first.learn(rows[FEATURES], dP, gradients)
            return {}, gradients
        if stage == self.last:
            dH = self.out.backward(saved[f"H{stage + 1}"], d[self.output], weights, gradients)
        else:
            dH = d[f"H{stage + 1}"]
        dP = self.activations[stage].backward(dH, saved, weights, drop, gradients)
        S, W, beta = np.asarray(rows[f"Z{stage}"]), weights[f"{stage}.weight"], self.beta(stage)
        gradients[f"{stage}.weight"] = beta * self.ops.matmul_transposed(S, dP)
        return {f"Z{stage}": self.ops.matmul(dP, beta * W.T, add=(1 - beta) * dP)}, gradients
