"""Graph isomorphism network (Xu et al., ICLR 2019, eq. 4.1):  H' = σ(MLP((1 + ε) H + Σ_{u→v} w_uv H_u)).

    GA:   Z = A H + (1 + ε) H           the server adds the own row if ε is fixed and H are not the features
    AV:   P = Z W_1 + b_1  (+ (1 + ε) H W_1 where Gather has not added it),  U = σ(LayerNorm(P))
          Q = U W_2 + b_2 (+ residual),  H' = drop(σ(Q))              (last layer: logits = Q)
    AV':  dQ from dH', dW_2 = Uᵀ dQ, db_2 = Σ dQ, dU = dQ W_2ᵀ, dP from dU, then as in every layer; a learnt ε (one per
          layer): dε = <Hᵀ dP, W_1>, dH = (1 + ε) dP W_1ᵀ
    GA':  dH = Aᵀ dZ + (1 + ε) dZ

The MLP's inner width is that of its output. LayerNorm replaces the authors' BatchNorm, which would need sums over all
vertices in the middle of a step. Rows are gathered before they are transformed: otherwise the vertex's own row would
have to be transformed too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from siafu import ops as numpy_ops
from siafu.models import Arrays, ModelSpec, SlotRows, TensorOps
from siafu.models.dense import Activation, Dense
from siafu.models.layered import Layered, Term
from siafu.models.staged import Dropout, Gathered
from siafu.sparse import Array


class GIN(Layered):
    aggregate = "sum"
    takes = (Layered.takes | {"residual", "eps", "train_eps"}) - {"narrow"}
    terms = (Term("Z", "weight"),)

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        self.inner = [
            Activation(spec, ops, layer, f"U{layer}", f"P{layer}", norm=spec.norm == "layer")
            for layer in range(len(spec.widths) + 1)
        ]
        self.second = [Dense(spec, ops, inner.layer, "second", "second_bias", number=2) for inner in self.inner]
        unbiased = replace(spec, bias=False)
        self.residuals = [Dense(unbiased, ops, inner.layer, "residual", number=1) for inner in self.inner]
        super().__init__(spec, ops)

    def terms_of(self, layer: int) -> tuple[Term, ...]:
        """Returns the terms without the residual, which bypasses the MLP."""
        return self.terms

    def is_narrow(self, layer: int) -> bool:
        return False

    # --- the vertex's own rows --------------------------------------------------------------------------------------

    def _adds_own(self, layer: int) -> bool:
        """Whether the stage, not Gather, adds (1 + ε) H."""
        return layer == 0 or self.spec.train_eps

    def gathered(self, layer: int) -> Gathered:
        node = super().gathered(layer)
        return node if self._adds_own(layer) else replace(node, own=(node.of,), own_factor=1 + self.spec.eps)

    def reads(self, layer: int) -> tuple[str, ...]:
        slots, own = super().reads(layer), f"H{layer}"
        return (*slots, own) if self._adds_own(layer) or self.spec.residual else slots

    def _own(self, layer: int, weights: Arrays) -> Array | float:
        return 1 + (weights[f"{layer}.eps"] if self.spec.train_eps else self.spec.eps)

    def combine(self, layer: int, rows: SlotRows, weights: Arrays) -> Array:
        P = super().combine(layer, rows, weights)
        if self._adds_own(layer):
            W = (self._own(layer, weights) * weights[f"{layer}.weight"]).astype(self.dtype, copy=False)
            P = self.ops.matmul(rows[f"H{layer}"], W, add=P)
        return P

    def combine_backward(
        self, layer: int, dP: Array, rows: SlotRows, weights: Arrays, gradients: dict[str, Array]
    ) -> dict[str, Array]:
        d = super().combine_backward(layer, dP, rows, weights, gradients)
        if not self._adds_own(layer):
            return d
        own, weight = self._own(layer, weights), f"{layer}.weight"
        G = self.ops.matmul_transposed(rows[f"H{layer}"], dP)  # Hᵀ dP, [F_in, F_out]
        gradients[weight] = (gradients[weight] + own * G).astype(self.dtype, copy=False)
        if self.spec.train_eps:
            gradients[f"{layer}.eps"] = self.ops.dots(G.reshape(1, -1), weights[weight].reshape(1, -1))
        if layer > 0:
            dH = (own * d[f"Z{layer}"]).astype(self.dtype, copy=False)
            d[f"H{layer}"] = d[f"H{layer}"] + dH if f"H{layer}" in d else dH
        return d

    # --- the rest of the MLP ----------------------------------------------------------------------------------------

    def activation(self, layer: int) -> Activation:
        return replace(super().activation(layer), before=f"Q{layer}", norm=False)

    def init_layer(self, layer: int) -> dict[str, Array]:
        fan_in, width = self.shape(layer)
        weights = super().init_layer(layer) | self.inner[layer].init(width)
        weights |= self.second[layer].init(width, width)
        if self.spec.residual and (mapped := self._mapped(layer)) is not None:
            weights |= mapped.init(fan_in, width)
        return weights | ({f"{layer}.eps": np.array([self.spec.eps], self.dtype)} if self.spec.train_eps else {})

    def saves(self, layer: int) -> tuple[str, ...]:
        return (*self.inner[layer].saves, *super().saves(layer))

    def update(self, layer: int, P: Array, rows: SlotRows, weights: Arrays, drop: Dropout) -> dict[str, Array]:
        saved = self.inner[layer].forward(P, weights, drop)
        Q = self.second[layer].forward(saved[f"U{layer}"], weights)
        if self.spec.residual:
            self._add_residual(layer, Q, rows, weights)
        return saved | super().update(layer, Q, rows, weights, drop)

    def update_backward(
        self,
        layer: int,
        dH: Array,
        saved: Arrays,
        rows: SlotRows,
        weights: Arrays,
        drop: Dropout,
        gradients: dict[str, Array],
    ) -> tuple[Array, dict[str, Array]]:
        dQ, passed = super().update_backward(layer, dH, saved, rows, weights, drop, gradients)
        if self.spec.residual:
            passed |= self._residual_backward(layer, dQ, rows, weights, gradients)
        dU = self.second[layer].backward(saved[f"U{layer}"], dQ, weights, gradients)
        return self.inner[layer].backward(dU, saved, weights, drop, gradients), passed

    # --- past the MLP -----------------------------------------------------------------------------------------------

    def _mapped(self, layer: int) -> Dense | None:
        """Returns the residual's weight; None if both widths are equal."""
        fan_in, fan_out = self.shape(layer)
        return self.residuals[layer] if fan_in != fan_out else None

    def _add_residual(self, layer: int, Q: Array, rows: SlotRows, weights: Arrays) -> None:
        H, mapped = rows[f"H{layer}"], self._mapped(layer)
        if mapped is not None:
            Q += mapped.forward(H, weights)
        else:
            Q += numpy_ops.real(H if isinstance(H, np.ndarray) else H.dense(), self.dtype)

    def _residual_backward(
        self, layer: int, dQ: Array, rows: SlotRows, weights: Arrays, gradients: dict[str, Array]
    ) -> dict[str, Array]:
        """Returns dH by slot; nothing for features."""
        mapped = self._mapped(layer)
        if layer == 0:
            if mapped is not None:
                mapped.learn(rows["H0"], dQ, gradients)
            return {}
        return {f"H{layer}": dQ if mapped is None else mapped.backward(rows[f"H{layer}"], dQ, weights, gradients)}
