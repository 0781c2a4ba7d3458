"""What message-passing models of the form "aggregate, transform, activate" share: their program and their tensor steps.

    layer l:   P = Σ_t X_t W_t + b,   N = LayerNorm(P) (optional),   H_{l+1} = drop(σ(N))     (last layer: logits = P)
    backward:  dN = drop'(dH) ⊙ σ'(N),  dP = LayerNorm'(dN),  dW_t = X_tᵀ dP,  db = Σ dP,  dX_t = dP W_tᵀ

The terms X_t are what tells the models apart: GCN has one (Z, the gathered rows), GraphSAGE two (the vertex's own rows
H and Z). Dropout acts on activations where they are made, in AV, before they are scattered: as everywhere, and a mask never
travels. Layer 0 drops its inputs X_t instead, after Gather: so its aggregate of constant features stays constant
(docs/adr/0005).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from siafu import ops
from siafu.models import ModelSpec, Output
from siafu.sparse import Array, Rows
from siafu.tasks import Kind, Lane, Program, Step


class Term(NamedTuple):
    """One input of a layer: the letter of its slot ("Z" gathered, "H" own rows), of its gradient, and its weight."""

    slot: str
    weight: str
    gradient: str


class Layered:
    """Base of the models with this form; a subclass names its terms and its aggregation."""

    aggregate: Literal["gcn", "mean", "sum"]
    terms: tuple[Term, ...]

    def __init__(self, spec: ModelSpec):
        self.spec = spec
        self.dtype = np.dtype(spec.dtype)

    # --- program --------------------------------------------------------------------------------------------------

    def program(self, lane: Lane) -> Program:
        forward = [step for layer in range(self.spec.num_layers) for step in self._forward(layer, lane)]
        if lane is Lane.EVAL:
            return Program(tuple(forward))
        backward = [step for layer in reversed(range(self.spec.num_layers)) for step in self._backward(layer)]
        return Program((*forward, *backward, Step(Kind.WU, 0)))

    def _forward(self, layer: int, lane: Lane) -> list[Step]:
        last = layer == self.spec.num_layers - 1
        gather = Step(Kind.GA, layer, writes=(f"Z{layer}",), gathers=f"H{layer}")
        reads = (*(f"{t.slot}{layer}" for t in self.terms), *self._vertex(lane))
        if last and lane is Lane.TRAIN and self.spec.fuse:
            return [gather, Step(Kind.AV, layer, (*reads, "label", "train"), self._input_gradients(layer), fused=True)]
        writes = [f"H{layer + 1}"]
        if lane is Lane.TRAIN and not self.spec.rematerialise and not last:
            writes.append(f"P{layer}")
        steps = [gather, Step(Kind.AV, layer, reads, tuple(writes))]
        if not last:
            steps.append(Step(Kind.SC, layer, (f"H{layer + 1}",), publishes=f"H{layer + 1}"))
        return steps

    def _backward(self, layer: int) -> list[Step]:
        last = layer == self.spec.num_layers - 1
        steps = []
        if not (last and self.spec.fuse):
            reads = [*(f"{t.slot}{layer}" for t in self.terms), *self._vertex(Lane.TRAIN)]
            if last:
                reads += ["label", "train"] + ([] if self.spec.rematerialise else [f"H{layer + 1}"])
            else:
                reads += [f"dH{layer + 1}"] + ([] if self.spec.rematerialise else [f"P{layer}"])
            steps.append(Step(Kind.AV_B, layer, tuple(reads), self._input_gradients(layer)))
        if layer > 0:
            own = tuple(f"{t.gradient}{layer}" for t in self.terms if t.slot == "H")
            steps += [
                Step(Kind.SC_B, layer, (f"dZ{layer}",), publishes=f"dZ{layer}"),
                Step(Kind.GA_B, layer, own, (f"dH{layer}",), gathers=f"dZ{layer}"),
            ]
        return steps

    def _vertex(self, lane: Lane) -> tuple[str, ...]:
        return ("vertex",) if self.spec.dropout and lane is Lane.TRAIN else ()

    def _input_gradients(self, layer: int) -> tuple[str, ...]:
        return tuple(f"{t.gradient}{layer}" for t in self.terms) if layer > 0 else ()

    def width(self, slot: str) -> int:
        letters = slot.rstrip("0123456789")
        layer = int(slot[len(letters) :])
        sizes = (self.spec.in_features, *self.spec.widths, self.spec.num_classes)
        return sizes[layer + 1] if letters == "P" else sizes[layer]

    # --- weights --------------------------------------------------------------------------------------------------

    def init(self) -> dict[str, Array]:
        """Glorot & Bengio 2010 or He et al. 2015, uniform, drawn in float64, then cast; bias, shift 0, gain 1."""
        weights = {}
        for layer in range(self.spec.num_layers):
            fan_in, fan_out = self.spec.shape(layer)
            bound = np.sqrt(6 / (fan_in + fan_out)) if self.spec.init == "xavier" else np.sqrt(6 / fan_in)
            for i, term in enumerate(self.terms):
                rng = np.random.default_rng([self.spec.seed, layer, i])
                weights[f"{layer}.{term.weight}"] = rng.uniform(-bound, bound, (fan_in, fan_out)).astype(self.dtype)
            if self.spec.bias:
                weights[f"{layer}.bias"] = np.zeros(fan_out, self.dtype)
            if self._normalises(layer):
                weights[f"{layer}.gain"] = np.ones(fan_out, self.dtype)
                weights[f"{layer}.shift"] = np.zeros(fan_out, self.dtype)
        return weights

    def _normalises(self, layer: int) -> bool:
        return self.spec.norm == "layer" and layer < self.spec.num_layers - 1

    # --- tensor steps ---------------------------------------------------------------------------------------------

    def run(
        self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], *, epoch: int, lane: Lane
    ) -> Output:
        if step.fused or (step.has_gradient and step.layer == self.spec.num_layers - 1):
            return self._loss(step, rows, weights, epoch)
        if step.kind is Kind.AV:
            return self._apply(step, rows, weights, epoch, lane)
        return self._apply_backward(step, rows, weights, epoch)

    def _apply(
        self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int, lane: Lane
    ) -> Output:
        """AV: P = Σ_t X_t W_t + b; H = drop(σ(LayerNorm(P))). The last layer gives logits, H = P."""
        layer = step.layer
        H = P = self._transform(layer, self._inputs(layer, rows, epoch, lane), weights)  # [n, F_out]
        if layer < self.spec.num_layers - 1:
            H = ops.activate(self._norm(layer, P, weights), self.spec.activation)
            H = np.asarray(self._drop(H, _activation_key(layer + 1), rows, epoch, lane))
        return Output({slot: P if slot.startswith("P") else H for slot in step.writes})

    def _apply_backward(self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int) -> Output:
        """AV': dP from dH through σ and LayerNorm, then the gradients of weights and inputs."""
        layer = step.layer
        inputs = self._inputs(layer, rows, epoch, Lane.TRAIN)
        cached = rows.get(f"P{layer}")
        P = cached if isinstance(cached, np.ndarray) else self._transform(layer, inputs, weights)
        dH = rows[f"dH{layer + 1}"]  # [n, F_out]
        dH = np.asarray(self._drop(dH, _activation_key(layer + 1), rows, epoch, Lane.TRAIN))
        dN = ops.activate_backward(dH, self._norm(layer, P, weights), self.spec.activation)
        gradients: dict[str, Array] = {}
        dP = dN
        if self._normalises(layer):
            dP, dgain, dshift = ops.layer_norm_backward(dN, P, weights[f"{layer}.gain"])
            gradients = {f"{layer}.gain": dgain, f"{layer}.shift": dshift}
        return self._gradients(step, dP, inputs, weights, gradients)

    def _loss(self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int) -> Output:
        """The last layer's AV, the loss and AV', on the training rows alone: all other rows have gradient zero."""
        train = np.asarray(rows["train"])  # [n]
        chosen = np.flatnonzero(train)
        mine = {slot: ops.take(value, chosen) for slot, value in rows.items()}
        inputs = self._inputs(step.layer, mine, epoch, Lane.TRAIN)
        cached = mine.get(f"H{step.layer + 1}")
        logits = cached if isinstance(cached, np.ndarray) else self._transform(step.layer, inputs, weights)
        loss = ops.binary_cross_entropy if self.spec.multilabel else ops.cross_entropy
        total, dP = loss(logits, np.asarray(mine["label"]))
        output = self._gradients(step, dP / self.dtype.type(self.spec.num_train), inputs, weights, {})
        for slot, value in output.rows.items():
            output.rows[slot] = np.zeros((len(train), value.shape[1]), self.dtype)
            output.rows[slot][chosen] = value
        output.loss = total / self.spec.num_train
        return output

    def _inputs(self, layer: int, rows: Mapping[str, Rows], epoch: int, lane: Lane) -> list[Rows]:
        """The terms; those of layer 0 after dropout."""
        values: list[Rows] = [rows[f"{t.slot}{layer}"] for t in self.terms]
        if layer > 0:
            return values
        return [self._drop(X, key, rows, epoch, lane) for key, X in enumerate(values)]

    def _drop(self, X: Rows, key: int, rows: Mapping[str, Rows], epoch: int, lane: Lane) -> Rows:
        """X, or its gradient, after dropout; ``key`` tells apart what is dropped."""
        if not self.spec.dropout or lane is Lane.EVAL:
            return X
        mask = ops.dropout_mask(
            X, self.spec.dropout, seed=self.spec.seed, epoch=epoch, layer=key, vertices=np.asarray(rows["vertex"])
        )
        return ops.dropout(X.astype(self.dtype), mask, self.spec.dropout)

    def _transform(self, layer: int, inputs: list[Rows], weights: Mapping[str, Array]) -> Array:
        P = ops.matmul(inputs[0], weights[f"{layer}.{self.terms[0].weight}"])
        for X, term in zip(inputs[1:], self.terms[1:], strict=True):
            P += ops.matmul(X, weights[f"{layer}.{term.weight}"])
        if self.spec.bias:
            P += weights[f"{layer}.bias"]
        return P

    def _norm(self, layer: int, P: Array, weights: Mapping[str, Array]) -> Array:
        if not self._normalises(layer):
            return P
        return ops.layer_norm(P, weights[f"{layer}.gain"], weights[f"{layer}.shift"])

    def _gradients(
        self,
        step: Step,
        dP: Array,
        inputs: list[Rows],
        weights: Mapping[str, Array],
        gradients: dict[str, Array],
    ) -> Output:
        """dW_t = X_tᵀ dP, db = Σ_rows dP, and dX_t = dP W_tᵀ where the step writes it."""
        layer, rows = step.layer, {}
        if self.spec.bias:
            gradients[f"{layer}.bias"] = dP.sum(0)
        for X, term in zip(inputs, self.terms, strict=True):
            W = weights[f"{layer}.{term.weight}"]
            gradients[f"{layer}.{term.weight}"] = ops.matmul_transposed(X, dP)
            if f"{term.gradient}{layer}" in step.writes:
                rows[f"{term.gradient}{layer}"] = dP @ W.T
        return Output(rows, gradients)


def _activation_key(layer: int) -> int:
    """Of the mask of H_layer; 0 and 1 are those of layer 0's terms."""
    return 1 + layer
