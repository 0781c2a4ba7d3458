"""Relational graph convolution (Schlichtkrull et al., ESWC 2018, eq. 2 and 3):

    H'_v = σ(H_v W_0 + Σ_r Σ_{u→v of r} w_uv H_u W_r / c_vr + b),  c_vr: weights of v's in-edges of relation r, summed
    W_r = Σ_b a_rb V_b  with ``bases``, else a matrix of its own

A sum over edges and a product commute, so rows may be gathered before they are transformed, or after:

    gathered first      GA: Z = [mean_1 | ... | mean_R] of H,    AV: P = H W_0 + Σ_r Z_r W_r + b
    transformed first   AV: T_r = H W_r, S = H W_0;              GA: Z = S + Σ_r mean_r of T_r,    AV: P = Z + b
    backward            dW_r = Z_rᵀ dP = Hᵀ dT_r,  dV_b = Σ_r a_rb dW_r,  da_rb = <V_b, dW_r>

Forwards and backwards, gathering first publishes rows of F_in and R F_in columns, transforming first of R F_out and
F_out + R: the order with fewer columns is taken (``narrow``). Layer 0 always transforms first, since features may be
wide and sparse. ``graph_server.operators.typed`` computes the graph's part; only tensor tasks use parameters. Stage l
computes the rows of layer l from the gathered rows of layer l - 1.

Shapes: H [n, F_in], W_r, V_b [F_in, F_out], a [R, B], Z [n, R F_in] or [n, F_out], T [n, R F_out], P [n, F_out].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from siafu import ops as numpy_ops
from siafu.errors import ConfigError
from siafu.models import Arrays, ModelSpec, SlotRows, TensorOps
from siafu.models.dense import Activation, uniform
from siafu.models.staged import FEATURES, Dropout, Gathered, Stage, Staged
from siafu.sparse import Array
from siafu.tasks import Lane


class RGCN(Staged):
    aggregate = "sum"
    takes = frozenset({"dropout", "norm", "activation", "narrow", "bases"})

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        self.num_relations = spec.num_edge_types
        if spec.bases > self.num_relations:
            raise ConfigError(
                f"model.bases = {spec.bases}: the graph has {self.num_relations} relation(s), must be <= that"
            )
        norm = spec.norm == "layer"
        self.activations = [
            Activation(spec, ops, layer, f"H{layer + 1}", f"P{layer}", key=1 + layer, norm=norm)
            for layer in range(len(spec.widths))
        ]
        super().__init__(spec, ops)

    # --- graph ----------------------------------------------------------------------------------------------------

    def transforms_first(self, layer: int) -> bool:
        fan_in, fan_out = self.spec.shape(layer)
        both_ways = self.num_relations + 1
        return layer == 0 or (self.spec.narrow and both_ways * fan_out + self.num_relations < both_ways * fan_in)

    def graph(self) -> list[Stage | Gathered]:
        nodes: list[Stage | Gathered] = [Stage(0, (FEATURES,), self._handed_on(0), {FEATURES: 0})]
        for layer in range(self.spec.num_layers):
            first = self.transforms_first(layer)
            of, own = (f"T{layer}", (f"S{layer}",)) if first else (f"H{layer}", ())
            nodes.append(Gathered(f"Z{layer}", of=of, own=own, operator="typed"))
            reads = (f"Z{layer}",) if first else (f"Z{layer}", f"H{layer}")
            if layer == self.spec.num_layers - 1:
                nodes.append(Stage(layer + 1, reads, (f"H{layer + 1}",), keeps=(f"H{layer + 1}",)))
            else:
                nodes.append(Stage(layer + 1, reads, self._handed_on(layer + 1), keeps=self.activations[layer].saves))
        return nodes

    def _handed_on(self, layer: int) -> tuple[str, ...]:
        return (f"T{layer}", f"S{layer}") if self.transforms_first(layer) else (f"H{layer}",)

    def _extra(self, stage: Stage, lane: Lane) -> tuple[str, ...]:
        return super()._extra(stage, lane) if stage.number < self.last else ()

    def inside(self, stage: Stage) -> tuple[str, ...]:
        return (f"H{stage.number}",) if 0 < stage.number < self.last else ()

    def widths_of(self) -> dict[str, int]:
        widths = {f"H{self.spec.num_layers}": self.spec.num_classes}
        for layer in range(self.spec.num_layers):
            fan_in, fan_out = self.spec.shape(layer)
            gathered = fan_out if self.transforms_first(layer) else self.num_relations * fan_in
            widths |= {f"H{layer}": fan_in, f"Z{layer}": gathered, f"T{layer}": self.num_relations * fan_out}
            widths |= dict.fromkeys((f"S{layer}", f"P{layer}"), fan_out)
        return widths

    # --- weights --------------------------------------------------------------------------------------------------

    def init(self) -> dict[str, Array]:
        """Draws the initial weights: W_0, W_r, V_b and a, uniform by Glorot & Bengio 2010 or He et al. 2015, in
        float64, then cast; bias and shift 0, gain 1."""
        weights = {}
        for layer in range(self.spec.num_layers):
            fan_in, fan_out = self.spec.shape(layer)
            bases, relations = self.spec.bases, self.num_relations
            weights[f"{layer}.own"] = self._drawn(layer, 0, (fan_in, fan_out))
            weights[f"{layer}.weight"] = self._drawn(layer, 1, (bases or relations, fan_in, fan_out))
            if bases:
                weights[f"{layer}.mix"] = self._drawn(layer, 2, (relations, bases))
            if self.spec.bias:
                weights[f"{layer}.bias"] = np.zeros(fan_out, self.dtype)
            if layer < self.spec.num_layers - 1:
                weights |= self.activations[layer].init(fan_out)
        return weights

    def _drawn(self, layer: int, number: int, shape: tuple[int, ...]) -> Array:
        fan_in, fan_out = shape[-2:]
        bound = np.sqrt(6 / (fan_in + fan_out)) if self.spec.init == "xavier" else np.sqrt(6 / fan_in)
        rng = np.random.default_rng([self.spec.seed, layer, number])
        return uniform(rng, bound, shape).astype(self.dtype)

    def stage(self, parameter: str) -> int:
        layer, _, what = parameter.partition(".")
        before = what in ("own", "weight", "mix") and self.transforms_first(int(layer))
        return int(layer) + (not before)

    def _relations(self, layer: int, weights: Arrays) -> Array:
        """Returns W_r of every relation, [R, F_in, F_out]."""
        W = weights[f"{layer}.weight"]
        return self._combined(weights[f"{layer}.mix"], W) if self.spec.bases else W

    def _combined(self, mix: Array, W: Array) -> Array:
        """Returns weighted sums of matrices: mix [a, b] and W [b, F_in, F_out] to [a, F_in, F_out]."""
        return self.ops.matmul(mix, W.reshape(len(W), -1)).reshape(len(mix), *W.shape[1:])

    def _learnt(self, layer: int, dW: Array, weights: Arrays, gradients: dict[str, Array]) -> None:
        """Puts the gradients of a layer's parameters into ``gradients``, from those of every W_r, [R, F_in, F_out]."""
        if self.spec.bases:
            V, mix = weights[f"{layer}.weight"], weights[f"{layer}.mix"]
            gradients[f"{layer}.mix"] = self.ops.matmul(dW.reshape(len(dW), -1), V.reshape(len(V), -1).T)
            dW = self._combined(np.ascontiguousarray(mix.T), dW)
        gradients[f"{layer}.weight"] = np.ascontiguousarray(dW)

    # --- stages ---------------------------------------------------------------------------------------------------

    def forward(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> tuple[dict[str, Array], Any]:
        saved = self.again(stage, rows, weights, drop)
        if stage == self.last:
            return saved, saved
        if not self.transforms_first(stage):
            return {f"H{stage}": saved[f"H{stage}"]}, saved
        H = rows[FEATURES] if stage == 0 else saved[f"H{stage}"]
        W = _in_columns(self._relations(stage, weights))
        return {
            f"T{stage}": self.ops.matmul(H, W),
            f"S{stage}": self.ops.matmul(H, weights[f"{stage}.own"]),
        }, saved

    def again(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> dict[str, Array]:
        """Computes the slots of the layer before; nothing in the first stage, which has no layer before it."""
        if stage == 0:
            return {}
        layer = stage - 1
        Z = np.asarray(rows[f"Z{layer}"])
        if self.transforms_first(layer):
            P = np.array(Z)  # [n, F_out]
        else:
            W = self._relations(layer, weights)
            P = self.ops.matmul(Z, W.reshape(-1, W.shape[2]))
            P = self.ops.matmul(rows[f"H{layer}"], weights[f"{layer}.own"], add=P)
        if self.spec.bias:
            P += weights[f"{layer}.bias"]
        return {f"H{stage}": P} if stage == self.last else self.activations[layer].forward(P, weights, drop)

    def backward(
        self, stage: int, saved: Any, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        gradients: dict[str, Array] = {}
        if stage == self.last or not self.transforms_first(stage):
            dH = d[f"H{stage}"]
        else:
            H = rows[FEATURES] if stage == 0 else saved[f"H{stage}"]
            dT, dS = d[f"T{stage}"], d[f"S{stage}"]
            dW = _by_relation(self.ops.matmul_transposed(H, dT), self.num_relations)
            self._learnt(stage, dW, weights, gradients)
            gradients[f"{stage}.own"] = self.ops.matmul_transposed(H, dS)
            if stage == 0:
                return {}, gradients
            dH = self.ops.matmul(dS, weights[f"{stage}.own"].T)
            dH = self.ops.matmul(dT, _in_columns(self._relations(stage, weights)).T, add=dH)
        layer, dP = stage - 1, dH
        if stage < self.last:
            dP = self.activations[layer].backward(dH, saved, weights, drop, gradients)
        return self._combined_back(layer, dP, rows, weights, gradients), gradients

    def _combined_back(
        self, layer: int, dP: Array, rows: SlotRows, weights: Arrays, gradients: dict[str, Array]
    ) -> dict[str, Array]:
        """Returns dZ, and dH if the layer reads H; puts the gradients of parameters used after the gather into
        ``gradients``."""
        if self.spec.bias:
            gradients[f"{layer}.bias"] = self.ops.column_sums(dP)
        if self.transforms_first(layer):
            return {f"Z{layer}": dP}
        W, H = self._relations(layer, weights), rows[f"H{layer}"]
        dW = self.ops.matmul_transposed(rows[f"Z{layer}"], dP)  # [R F_in, F_out]
        self._learnt(layer, dW.reshape(W.shape), weights, gradients)
        gradients[f"{layer}.own"] = self.ops.matmul_transposed(H, dP)
        dZ = self.ops.matmul(dP, W.reshape(-1, W.shape[2]).T)
        return {f"Z{layer}": dZ, f"H{layer}": self.ops.matmul(dP, weights[f"{layer}.own"].T)}


def _in_columns(W: Array) -> Array:
    """Reshapes [R, F_in, F_out] to [F_in, R F_out]: a block of columns for each relation."""
    return np.ascontiguousarray(W.transpose(1, 0, 2)).reshape(W.shape[1], -1)


def _by_relation(W: Array, num_relations: int) -> Array:
    """Reshapes [F_in, R F_out] to [R, F_in, F_out]."""
    return W.reshape(len(W), num_relations, -1).transpose(1, 0, 2)
