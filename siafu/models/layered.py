"""What message-passing models of the form "aggregate, transform, activate" share: their program and their tensor steps.

    layer l:   P_l = Σ_t X_t W_t + b,   N = LayerNorm(P) (optional),   H_{l+1} = drop(σ(N))     (last layer: logits = P)
    backward:  dN = drop'(dH) ⊙ σ'(N),  dP = LayerNorm'(dN),  dW_t = X_tᵀ dP,  db = Σ dP,  dX_t = dP W_tᵀ

The terms X_t are what tells the models apart: GCN has one (Z, the gathered rows), GraphSAGE two (the vertex's own rows
H and Z). Dropout acts on activations where they are made, in AV, before they are scattered: as everywhere, and a mask never
travels. Layer 0 drops its inputs X_t instead, after Gather: so its aggregate of constant features stays constant
(docs/adr/0005).

Gather is linear, so a layer whose output is narrower than its input is transformed *before* its rows are gathered
("narrow"): what is scattered and gathered, forward and backward, is then F_out wide (docs/adr/0012).

    wide layer l      SC publishes H_l,   GA: Z_l = A H_l,   P_l = Z_l W + H_l W_own + b
    narrow layer l    SC publishes T_l,   GA: Z_l = A T_l,   P_l = Z_l + S_l + b,     T_l = H_l W,  S_l = H_l W_own
    backward          SC' publishes dZ_l, GA': dH_l = Aᵀ dZ_l + dS_l, or dT_l = Aᵀ dZ_l; dZ_l = dS_l = dP_l in a narrow layer

A *stage* is the tensor work between two Gathers, one AV and one AV'. The weights of a narrow layer belong to the stage
before its Gather, its bias to the one behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from siafu import ops as numpy_ops
from siafu.models import ModelSpec, Output, TensorOps
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
    terms: tuple[Term, ...]  # the gathered one, and at most one of own rows

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        self.spec, self.ops = spec, ops
        self.dtype = np.dtype(spec.dtype)
        self.last = spec.num_layers - 1
        self.gathered = next(term for term in self.terms if term.slot == "Z")
        self.own = next((term for term in self.terms if term.slot == "H"), None)

    def is_narrow(self, layer: int) -> bool:
        """Whether the layer's rows are transformed before they are gathered."""
        fan_in, fan_out = self.spec.shape(layer)
        return self.spec.narrow and layer > 0 and fan_out < fan_in

    # --- program --------------------------------------------------------------------------------------------------

    def program(self, lane: Lane) -> Program:
        forward = [step for layer in range(self.spec.num_layers) for step in self._forward(layer, lane)]
        if lane is Lane.EVAL:
            return Program(tuple(forward))
        backward = [step for layer in reversed(range(self.spec.num_layers)) for step in self._backward(layer)]
        return Program((*forward, *backward, Step(Kind.WU, 0)))

    def _forward(self, layer: int, lane: Lane) -> list[Step]:
        gather = Step(Kind.GA, layer, writes=(f"Z{layer}",), gathers=self._published(layer))
        reads = (*self._inputs_of(layer), *self._vertex(layer, lane))
        if layer == self.last:
            if lane is Lane.TRAIN and self.spec.fuse:
                return [
                    gather,
                    Step(Kind.AV, layer, (*reads, "label", "train"), self._made_backward(layer), fused=True),
                ]
            return [gather, Step(Kind.AV, layer, reads, (f"H{layer + 1}",))]
        publishes = self._published(layer + 1)
        own = (f"S{layer + 1}",) if self.own and self.is_narrow(layer + 1) else ()
        kept = tuple(s for s in self._kept(layer) if s != publishes) if lane is Lane.TRAIN else ()
        apply = Step(Kind.AV, layer, reads, (publishes, *own, *kept))
        return [gather, apply, Step(Kind.SC, layer, (publishes,), publishes=publishes)]

    def _backward(self, layer: int) -> list[Step]:
        steps = []
        if not (layer == self.last and self.spec.fuse):
            reads = [*self._inputs_of(layer), *self._vertex(layer, Lane.TRAIN), *self._kept(layer)]
            if layer == self.last:
                reads += ["label", "train"]
            elif self.is_narrow(layer + 1):
                reads += [f"dT{layer + 1}", *((f"dZ{layer + 1}",) if self.own else ())]
            else:
                reads += [f"dH{layer + 1}"]
            steps.append(Step(Kind.AV_B, layer, tuple(reads), self._made_backward(layer)))
        if layer > 0:
            own = (f"{self.own.gradient}{layer}",) if self.own and not self.is_narrow(layer) else ()
            made = f"dT{layer}" if self.is_narrow(layer) else f"dH{layer}"
            steps += [
                Step(Kind.SC_B, layer, (f"dZ{layer}",), publishes=f"dZ{layer}"),
                Step(Kind.GA_B, layer, own, (made,), gathers=f"dZ{layer}"),
            ]
        return steps

    def _published(self, layer: int) -> str:
        """The slot that the layer gathers."""
        return f"T{layer}" if self.is_narrow(layer) else f"H{layer}"

    def _inputs_of(self, layer: int) -> tuple[str, ...]:
        """Slots that the stage reads of its own interval."""
        if not self.is_narrow(layer):
            return tuple(f"{term.slot}{layer}" for term in self.terms)
        return (f"Z{layer}", f"S{layer}") if self.own else (f"Z{layer}",)

    def _kept(self, layer: int) -> tuple[str, ...]:
        """What forward leaves for backward; nothing if backward computes it again. H says where relu was 0."""
        if self.spec.rematerialise:
            return ()
        if layer == self.last:
            return (f"H{layer + 1}",)
        relu_alone = self.spec.activation == "relu" and not self._normalises(layer)
        return (f"H{layer + 1}",) if relu_alone else (f"H{layer + 1}", f"P{layer}")

    def _made_backward(self, layer: int) -> tuple[str, ...]:
        """Slots of the gradients of the stage's inputs."""
        if layer == 0:
            return ()
        return (f"dZ{layer}",) if self.is_narrow(layer) else tuple(f"{t.gradient}{layer}" for t in self.terms)

    def _vertex(self, layer: int, lane: Lane) -> tuple[str, ...]:
        drops = self.spec.dropout and lane is Lane.TRAIN and (layer == 0 or layer < self.last)
        return ("vertex",) if drops else ()

    def width(self, slot: str) -> int:
        letters = slot.rstrip("0123456789")
        layer = int(slot[len(letters) :])
        sizes = (self.spec.in_features, *self.spec.widths, self.spec.num_classes)
        wide = letters in ("H", "dH", "dS") or (letters in ("Z", "dZ") and not self.is_narrow(layer))
        return sizes[layer] if wide else sizes[layer + 1]

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

    def stage(self, parameter: str) -> int:
        layer, _, what = parameter.partition(".")
        transforms = what in {term.weight for term in self.terms}
        return int(layer) - (transforms and self.is_narrow(int(layer)))

    def _normalises(self, layer: int) -> bool:
        return self.spec.norm == "layer" and layer < self.last

    # --- tensor steps ---------------------------------------------------------------------------------------------

    def run(
        self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], *, epoch: int, lane: Lane
    ) -> Output:
        if step.fused or (step.has_gradient and step.layer == self.last):
            return self._loss(step, rows, weights, epoch)
        if step.kind is Kind.AV:
            return self._apply(step, rows, weights, epoch, lane)
        return self._apply_backward(step, rows, weights, epoch)

    def _apply(
        self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int, lane: Lane
    ) -> Output:
        """AV: P, then H; T and S of a narrow layer that follows. The last layer gives logits, H = P."""
        layer = step.layer
        P = self._pre_activation(layer, self._inputs(layer, rows, epoch, lane), weights)  # [n, F_out]
        if layer == self.last:
            return Output({f"H{layer + 1}": P})
        made = {f"P{layer}": P} if f"P{layer}" in step.writes else {}
        H = made[f"H{layer + 1}"] = self._activation(layer, P, rows, weights, epoch, lane, keep=bool(made))
        if self.is_narrow(layer + 1):
            made[f"T{layer + 1}"] = self.ops.matmul(H, weights[f"{layer + 1}.{self.gathered.weight}"])
            if self.own:
                made[f"S{layer + 1}"] = self.ops.matmul(H, weights[f"{layer + 1}.{self.own.weight}"])
        return Output({slot: made[slot] for slot in step.writes})

    def _apply_backward(self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int) -> Output:
        """AV': dH from what was gathered back, dP from dH through σ and LayerNorm, then gradients of weights and inputs."""
        layer = step.layer
        inputs = self._inputs(layer, rows, epoch, Lane.TRAIN)
        H, P = rows.get(f"H{layer + 1}"), rows.get(f"P{layer}")
        if H is None:
            P = self._pre_activation(layer, inputs, weights)
            H = self._activation(layer, P, rows, weights, epoch, Lane.TRAIN, keep=True)
        assert isinstance(H, np.ndarray)
        gradients: dict[str, Array] = {}
        dH = self._next_gradient(layer, H, rows, weights, gradients)  # [n, F_out]
        dN = np.asarray(self._drop(dH, _activation_key(layer + 1), rows, epoch, Lane.TRAIN))
        if self.spec.activation == "relu" and not self._normalises(layer):
            dP = self.ops.activate_backward(dN, H, "relu")  # H > 0 where N > 0 and was not dropped, where dN is 0
        else:
            assert isinstance(P, np.ndarray)
            dP = self.ops.activate_backward(dN, self._norm(layer, P, weights), self.spec.activation)
        if self._normalises(layer):
            assert isinstance(P, np.ndarray)
            dP, dgain, dshift = self.ops.layer_norm_backward(dP, P, weights[f"{layer}.gain"])
            gradients |= {f"{layer}.gain": dgain, f"{layer}.shift": dshift}
        return self._gradients(step, dP, inputs, weights, gradients)

    def _next_gradient(
        self,
        layer: int,
        H: Array,
        rows: Mapping[str, Rows],
        weights: Mapping[str, Array],
        gradients: dict[str, Array],
    ) -> Array:
        """dH_{l+1}: as it was gathered, or through the weights of a narrow layer, whose gradients are taken here."""
        following = layer + 1
        if not self.is_narrow(following):
            return np.asarray(rows[f"dH{following}"])
        dH = None
        for term, slot in ((self.gathered, "dT"), (self.own, "dZ")):
            if term is not None:
                dX, W = np.asarray(rows[f"{slot}{following}"]), weights[f"{following}.{term.weight}"]
                gradients[f"{following}.{term.weight}"] = self.ops.matmul_transposed(H, dX)
                dH = self.ops.matmul(dX, W.T, add=dH)
        assert dH is not None
        return dH

    def _loss(self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], epoch: int) -> Output:
        """The last layer's AV, the loss and AV', on the training rows alone: all other rows have gradient zero."""
        train = np.asarray(rows["train"])  # [n]
        chosen = np.flatnonzero(train)
        mine = {slot: numpy_ops.take(value, chosen) for slot, value in rows.items()}
        inputs = self._inputs(step.layer, mine, epoch, Lane.TRAIN)
        cached = mine.get(f"H{step.layer + 1}")
        logits = cached if isinstance(cached, np.ndarray) else self._pre_activation(step.layer, inputs, weights)
        loss = self.ops.binary_cross_entropy if self.spec.multilabel else self.ops.cross_entropy
        total, dP = loss(logits, np.asarray(mine["label"]))
        dP /= self.dtype.type(self.spec.num_train)
        output = self._gradients(step, dP, inputs, weights, {})
        for slot, value in output.rows.items():
            output.rows[slot] = np.zeros((len(train), value.shape[1]), self.dtype)
            output.rows[slot][chosen] = value
        output.loss = total / self.spec.num_train
        return output

    def _inputs(self, layer: int, rows: Mapping[str, Rows], epoch: int, lane: Lane) -> list[Rows]:
        """What the stage reads, in the order of ``_inputs_of``; that of layer 0 after dropout."""
        values: list[Rows] = [rows[slot] for slot in self._inputs_of(layer)]
        if layer > 0:
            return values
        return [self._drop(X, key, rows, epoch, lane) for key, X in enumerate(values)]

    def _drop(self, X: Rows, key: int, rows: Mapping[str, Rows], epoch: int, lane: Lane) -> Rows:
        """X, or its gradient, after dropout; ``key`` tells apart what is dropped."""
        if not self.spec.dropout or lane is Lane.EVAL:
            return X
        mask = numpy_ops.dropout_mask(
            X, self.spec.dropout, seed=self.spec.seed, epoch=epoch, layer=key, vertices=np.asarray(rows["vertex"])
        )
        return numpy_ops.dropout(numpy_ops.real(X, self.dtype), mask, self.spec.dropout)

    def _pre_activation(self, layer: int, inputs: list[Rows], weights: Mapping[str, Array]) -> Array:
        """P_l, a fresh array."""
        P: Array | None = None
        if self.is_narrow(layer):
            P = np.array(inputs[0])
            for S in inputs[1:]:
                P += S
        else:
            for X, term in zip(inputs, self.terms, strict=True):
                P = self.ops.matmul(X, weights[f"{layer}.{term.weight}"], add=P)
        assert P is not None
        if self.spec.bias:
            P += weights[f"{layer}.bias"]
        return P

    def _activation(
        self,
        layer: int,
        P: Array,
        rows: Mapping[str, Rows],
        weights: Mapping[str, Array],
        epoch: int,
        lane: Lane,
        *,
        keep: bool,
    ) -> Array:
        """H_{l+1} = drop(σ(N)), in the place of P unless that is kept."""
        N = self._norm(layer, P, weights)
        H = self.ops.activate(N, self.spec.activation, out=None if keep and N is P else N)
        return np.asarray(self._drop(H, _activation_key(layer + 1), rows, epoch, lane))

    def _norm(self, layer: int, P: Array, weights: Mapping[str, Array]) -> Array:
        if not self._normalises(layer):
            return P
        return self.ops.layer_norm(P, weights[f"{layer}.gain"], weights[f"{layer}.shift"])

    def _gradients(
        self, step: Step, dP: Array, inputs: list[Rows], weights: Mapping[str, Array], gradients: dict[str, Array]
    ) -> Output:
        """dW_t = X_tᵀ dP, db = Σ_rows dP, and dX_t = dP W_tᵀ where the step writes it; in a narrow layer dZ = dP."""
        layer, rows = step.layer, {}
        if self.spec.bias:
            gradients[f"{layer}.bias"] = dP.sum(0)
        if self.is_narrow(layer):
            return Output({f"dZ{layer}": dP}, gradients)
        for X, term in zip(inputs, self.terms, strict=True):
            W = weights[f"{layer}.{term.weight}"]
            gradients[f"{layer}.{term.weight}"] = self.ops.matmul_transposed(X, dP)
            if f"{term.gradient}{layer}" in step.writes:
                rows[f"{term.gradient}{layer}"] = self.ops.matmul(dP, W.T)
        return Output(rows, gradients)


def _activation_key(layer: int) -> int:
    """Of the mask of H_layer; 0 and 1 are those of layer 0's terms."""
    return 1 + layer
