"""Base of models of the form "aggregate, transform, activate": their graph and their stages.

    layer l:   P_l = Σ_t X_t W_t + b (+ residual),   H_{l+1} = drop(σ(LayerNorm(P)))     (last layer: logits = P)
    backward:  dP = LayerNorm'(σ'(drop'(dH))),  dW_t = X_tᵀ dP,  db = Σ dP,  dX_t = dP W_tᵀ

Models differ in their terms X_t: GCN has one (Z, the gathered rows), GraphSAGE two (the vertex's own rows H, and Z).
The residual is one more: H itself, or H W_residual if widths differ (GIN adds it after its MLP). Dropout acts on
activations in the AV that makes them, before they are scattered; no mask is sent. Layer 0 drops its inputs X_t instead,
after Gather: so its aggregate of constant features stays constant (docs/adr/0005).

Gather is linear, so a layer whose output is narrower than its input is transformed *before* its rows are gathered
("narrow"): rows scattered and gathered, forward and backward, are then F_out wide (docs/adr/0012).

    wide layer l      SC publishes H_l,   GA: Z_l = A H_l,         P_l = Z_l W + H_l W_own + b
    narrow layer l    SC publishes T_l,   GA: Z_l = A T_l + S_l,   P_l = Z_l + b,     T_l = H_l W,  S_l = H_l W_own
    backward          SC' publishes dZ_l, GA': dH_l = Aᵀ dZ_l + dP_l W_ownᵀ; narrow: dT_l = Aᵀ dZ_l, dS_l = dZ_l = dP_l

With bags of words, A H_0 has many times as many values as H_0. Evaluations, which need no dropout and no gradient,
therefore transform features before they gather:

    evaluation       SC publishes T_0,   GA: Y_0 = A T_0 + S_0,   P_0 = Y_0 + b,     T_0 = H_0 W,  S_0 = H_0 W_own

A stage is the tensor work of a layer, after its Gather. The weights of a narrow layer belong to the stage before, its
bias to its own. With jumping knowledge all layers are hidden, and the last stage ends with a dense layer:
logits = J W + b.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from siafu import ops as numpy_ops
from siafu.models import Arrays, ModelSpec, Output, SlotRows, TensorOps, jump
from siafu.models.dense import Activation, Dense, first_weight
from siafu.models.staged import Dropout, Gathered, Stage, Staged
from siafu.sparse import Array
from siafu.tasks import Lane, Step


class Term(NamedTuple):
    """One input of a layer: the letter of its slot ("Z" gathered, "H" own rows), and its weight; None: none."""

    slot: str
    weight: str | None


class Layered(Staged):
    """Base of the models with this form; a subclass names its terms and its aggregation."""

    takes = frozenset({"dropout", "norm", "activation", "narrow", "jump"})
    terms: tuple[Term, ...]  # the gathered one, and at most one of own rows

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        self.jumps = spec.jump != "none"
        self.sizes = (spec.in_features, *spec.widths, *(() if self.jumps else (spec.num_classes,)))
        self.num_layers = len(self.sizes) - 1
        self.logits = f"H{self.num_layers + self.jumps}"
        self.num_joined = jump.width(spec.jump, self.sizes[1:]) if self.jumps else 0
        self.spec, self.ops = spec, ops
        self.joined = Dense(spec, ops, self.num_layers)
        self.activations = [self.activation(layer) for layer in range(self.num_layers)]
        super().__init__(spec, ops)

    def activation(self, layer: int) -> Activation:
        """Makes the activation of a hidden layer. Its dropout keys start at 2: 0 and 1 are those of layer 0's
        inputs."""
        norm = self.spec.norm == "layer"
        return Activation(self.spec, self.ops, layer, f"H{layer + 1}", f"P{layer}", key=2 + layer, norm=norm)

    # --- graph ----------------------------------------------------------------------------------------------------

    def terms_of(self, layer: int) -> tuple[Term, ...]:
        if not self.spec.residual:
            return self.terms
        fan_in, fan_out = self.shape(layer)
        return (*self.terms, Term("H", None if fan_in == fan_out else "residual"))

    def shape(self, layer: int) -> tuple[int, int]:
        """Returns (F_in, F_out) of a layer."""
        return self.sizes[layer], self.sizes[layer + 1]

    def is_narrow(self, layer: int) -> bool:
        """Whether the layer's rows are transformed before they are gathered."""
        fan_in, fan_out = self.sizes[layer : layer + 2] if layer < self.num_layers else (0, 0)
        return self.spec.narrow and layer > 0 and fan_out < fan_in

    def graph(self) -> list[Stage | Gathered]:
        return [node for layer in range(self.num_layers) for node in (self.gathered(layer), self._stage(layer))]

    def evaluation_graph(self) -> list[Stage | Gathered]:
        if not self.words_first:
            return self.nodes
        _, first, *following = self.nodes
        assert isinstance(first, Stage)
        own = tuple(slot for slot, _ in self._products(0)[1:])
        return [
            Stage(0, ("H0",), ("T0", *own)),
            Gathered("Y0", of="T0", own=own),
            replace(first, reads=("Y0", *(slot for slot in first.reads if slot not in self.reads(0))), drops={}),
            *following,
        ]

    @property
    def words_first(self) -> bool:
        """Whether evaluations transform features before they gather."""
        fan_in, fan_out = self.shape(0)
        narrow = "narrow" in self.takes and self.spec.narrow and fan_out < fan_in
        return self.spec.words_first and narrow and self.num_layers > 1 and all(t.weight for t in self.terms_of(0))

    def gathered(self, layer: int) -> Gathered:
        if not self.is_narrow(layer):
            return Gathered(f"Z{layer}", of=f"H{layer}")
        return Gathered(f"Z{layer}", of=f"T{layer}", own=(f"S{layer}",) if self._own_weight(layer) else ())

    def reads(self, layer: int) -> tuple[str, ...]:
        """Returns the slots from which the layer is computed."""
        if self.is_narrow(layer):
            return (f"Z{layer}",)
        return tuple(f"{term.slot}{layer}" for term in self.terms_of(layer))

    def _stage(self, layer: int) -> Stage:
        reads = self.reads(layer)
        drops = {slot: key for key, slot in enumerate(reads)} if layer == 0 else {}
        last, ends = layer == self.num_layers - 1, (self.logits,) if self.jumps else ()
        if not last:
            return Stage(layer, reads, self._handed_on(layer + 1), drops, self.saves(layer))
        hidden = tuple(f"H{l}" for l in range(1, self.num_layers)) if self.jumps else ()
        reads = (*reads, *(slot for slot in hidden if slot not in reads))
        return Stage(layer, reads, (self.logits,), drops, (*self.saves(layer), *ends))

    def _handed_on(self, layer: int) -> tuple[str, ...]:
        """Returns the slots written for a layer: rows to gather, and rows that it or the last stage reads of its own
        interval."""
        if not self.is_narrow(layer):
            return (f"H{layer}",)
        own = (f"S{layer}",) if self._own_weight(layer) else ()
        return (f"T{layer}", *own, *((f"H{layer}",) if self.jumps else ()))

    def _own_weight(self, layer: int) -> str | None:
        """Returns the name of the weight of a layer's own rows, None if it has none."""
        return next((term.weight for term in self.terms_of(layer) if term.slot == "H"), None)

    def _transforms(self, layer: int) -> list[tuple[str, str]]:
        """Returns (slot, weight) of the products that a narrow layer needs before its gather; none for other layers."""
        return self._products(layer) if self.is_narrow(layer) else []

    def _products(self, layer: int) -> list[tuple[str, str]]:
        """Returns (slot, weight) of these products for any layer: of gathered rows first, then of own rows."""
        gathered = next(term.weight for term in self.terms if term.slot == "Z")
        own = self._own_weight(layer)
        return [(f"T{layer}", f"{layer}.{gathered}"), *([(f"S{layer}", f"{layer}.{own}")] if own else [])]

    def _extra(self, stage: Stage, lane: Lane) -> tuple[str, ...]:
        drops = stage.number == 0 or stage.number < self.num_layers - (not self.jumps)
        return super()._extra(stage, lane) if drops else ()

    def inside(self, stage: Stage) -> tuple[str, ...]:
        return () if "T0" in stage.writes else (f"H{stage.number + 1}",)

    def widths_of(self) -> dict[str, int]:
        widths = {self.logits: self.spec.num_classes}
        for layer in range(self.num_layers):
            fan_in, fan_out = self.shape(layer)
            widths |= {f"Z{layer}": fan_out if self.is_narrow(layer) else fan_in, f"H{layer}": fan_in}
            widths |= dict.fromkeys((f"T{layer}", f"S{layer}", *self.saves(layer)), fan_out)
        return {**widths, "Y0": widths["T0"]}

    # --- weights --------------------------------------------------------------------------------------------------

    def init(self) -> dict[str, Array]:
        """Draws the initial weights: matrices by ``first_weight``; bias and shift 0, gain 1."""
        weights: dict[str, Array] = {}
        for layer in range(self.num_layers):
            weights |= self.init_layer(layer)
        if self.jumps:
            weights |= self.joined.init(self.num_joined, self.spec.num_classes)
        return weights

    def init_layer(self, layer: int) -> dict[str, Array]:
        fan_in, fan_out = self.shape(layer)
        weights = {}
        for number, term in enumerate(self.terms_of(layer)):
            if term.weight:
                weights[f"{layer}.{term.weight}"] = first_weight(self.spec, layer, number, fan_in, fan_out)
        if self.spec.bias:
            weights[f"{layer}.bias"] = np.zeros(fan_out, self.dtype)
        return weights if self._is_output(layer) else weights | self.activations[layer].init(fan_out)

    def stage(self, parameter: str) -> int:
        layer = super().stage(parameter)
        before = parameter in dict(self._transforms(layer)).values()
        return min(layer - before, self.num_layers - 1)

    def _is_output(self, layer: int) -> bool:
        """Whether the layer gives the logits."""
        return layer == self.num_layers - 1 and not self.jumps

    # --- stages ---------------------------------------------------------------------------------------------------

    def run(self, step: Step, rows: Mapping[str, Any], weights: Arrays, *, epoch: int, lane: Lane) -> Output:
        if "T0" in step.writes:
            return Output({slot: self.ops.matmul(rows["H0"], weights[weight]) for slot, weight in self._products(0)})
        return super().run(step, rows, weights, epoch=epoch, lane=lane)

    def forward(
        self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        saved = self.update(stage, self.combine(stage, rows, weights), rows, weights, drop)
        H = saved[f"H{stage + 1}"]  # [n, F_out]
        made = {f"H{stage + 1}": H}
        for slot, weight in self._transforms(stage + 1):
            made[slot] = self.ops.matmul(H, weights[weight])
        if stage == self.last and self.jumps:
            J = jump.joined(self.spec.jump, self._hidden(rows, H))
            made[self.logits] = saved[self.logits] = self.joined.forward(J, weights)
        return made, saved

    def again(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> Any:
        """Recomputes the stage without the products for the next layer, which backward does not read."""
        return self.update(stage, self.combine(stage, rows, weights), rows, weights, drop)

    def backward(
        self, stage: int, saved: Any, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        H, gradients, inputs = saved[f"H{stage + 1}"], dict[str, Array](), dict[str, Array]()
        if stage == self.last and self.jumps:
            hidden = self._hidden(rows, H)
            J = jump.joined(self.spec.jump, hidden)
            dJ = self.joined.backward(J, d[self.logits], weights, gradients)
            *others, dH = jump.joined_backward(self.spec.jump, dJ, hidden)
            inputs = {f"H{layer + 1}": dX for layer, dX in enumerate(others)}
        else:
            dH = self._next_gradient(stage + 1, H, d, weights, gradients)
        dP, passed = self.update_backward(stage, dH, saved, rows, weights, drop, gradients)
        for slot, dX in (*passed.items(), *self.combine_backward(stage, dP, rows, weights, gradients).items()):
            inputs[slot] = inputs[slot] + dX if slot in inputs else dX
        return inputs, gradients

    def _next_gradient(self, layer: int, H: Array, d: Arrays, weights: Arrays, gradients: dict[str, Array]) -> Array:
        """Returns dH_l: as gathered, or through the weights of a narrow layer, whose gradients are computed here."""
        dH: Array | None = None
        for slot, weight in self._transforms(layer):
            gradients[weight] = self.ops.matmul_transposed(H, d[slot])
            dH = self.ops.matmul(d[slot], weights[weight].T, add=dH)
        if dH is None:
            return d[f"H{layer}"]
        return dH + d[f"H{layer}"] if self.jumps else dH

    def combine(self, layer: int, rows: SlotRows, weights: Arrays) -> Array:
        """Returns P_l, a fresh array."""
        P: Array | None = None
        if "Y0" in rows or self.is_narrow(layer):
            P = np.array(rows["Y0" if "Y0" in rows else f"Z{layer}"])
        else:
            for slot, weight in self.terms_of(layer):
                X = rows[f"{slot}{layer}"]
                if weight is None:
                    assert P is not None
                    P += numpy_ops.real(X if isinstance(X, np.ndarray) else X.dense(), self.dtype)
                else:
                    P = self.ops.matmul(X, weights[f"{layer}.{weight}"], add=P)
        assert P is not None
        if self.spec.bias:
            P += weights[f"{layer}.bias"]
        return P

    def combine_backward(
        self, layer: int, dP: Array, rows: SlotRows, weights: Arrays, gradients: dict[str, Array]
    ) -> dict[str, Array]:
        """Returns dX_t by slot, except of features; puts dW_t and db into ``gradients``."""
        if self.spec.bias:
            gradients[f"{layer}.bias"] = self.ops.column_sums(dP)
        if self.is_narrow(layer):
            return {f"Z{layer}": dP}
        d: dict[str, Array] = {}
        for slot, weight in ((f"{term.slot}{layer}", term.weight) for term in self.terms_of(layer)):
            if weight is not None:
                gradients[f"{layer}.{weight}"] = self.ops.matmul_transposed(rows[slot], dP)
            if layer > 0:
                d[slot] = dP if weight is None else self.ops.matmul(dP, weights[f"{layer}.{weight}"].T)
        return d

    def saves(self, layer: int) -> tuple[str, ...]:
        """Returns the slots that ``update`` saves for backward."""
        return (self.logits,) if self._is_output(layer) else self.activations[layer].saves

    def update(self, layer: int, P: Array, rows: SlotRows, weights: Arrays, drop: Dropout) -> dict[str, Array]:
        """Returns H_{l+1}, and the slots that backward needs, from P_l, which may be overwritten."""
        return {self.logits: P} if self._is_output(layer) else self.activations[layer].forward(P, weights, drop)

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
        """Returns dP_l, and dX by slot of the rows that ``update`` itself has read."""
        if self._is_output(layer):
            return dH, {}
        return self.activations[layer].backward(dH, saved, weights, drop, gradients), {}

    def _hidden(self, rows: SlotRows, H: Array) -> list[Array]:
        return [*(np.asarray(rows[f"H{layer}"]) for layer in range(1, self.num_layers)), H]
