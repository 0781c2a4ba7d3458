"""Layers of the single-process loop (``benchmarks.single_process.loop``): forward next to
backward, a block of rows at a time.

    start, gather, finish               forward:  H -> P -> relu(P), the next layer's H
    back_start, gather_back, back_finish          dP -> dW, db, dH

``start`` and ``finish`` work on the rows of one block, in any thread; ``gather`` on all rows, between them. A is the
aggregation (``graph_server.aggregate`` has the formulas); both of GCN's and the mean of GraphSAGE are A = D_target A'
D_source with 0/1 or weighted A', so that no value per edge is needed.

Shapes: H [n, F_in], P [n, F_out]; b a slice of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from benchmarks.single_process.workspace import (
    Aggregation,
    Memory,
    Weights,
    Worker,
    as_float,
    store,
    store_blocks,
)
from siafu.errors import ConfigError
from siafu.kernels.passes import relu_backward
from siafu.models import ModelSpec
from siafu.sparse import Array


@dataclass(eq=False)
class Layer:
    """What the forms share. ``gathers`` and ``gathers_back``: whether an epoch aggregates here."""

    number: int
    fan_in: int
    fan_out: int
    last: bool
    memory: Memory
    aggregation: Aggregation
    self_weight: str | None  # GraphSAGE's second product
    gathers = True
    H_out: Array | None = field(default=None, init=False)  # activations [n, F_out], kept for backward

    def __post_init__(self) -> None:
        prefix = f"{self.number}."
        self.W, self.bias = prefix + ("neighbour" if self.self_weight else "weight"), prefix + "bias"
        self.W_self = prefix + self.self_weight if self.self_weight else ""
        self.H_in: Array | None = None  # the layer below's H_out, or the features
        if not self.last:
            self.H_out = self.memory.kept(self.fan_out)
        self.allocate()

    @property
    def gathers_back(self) -> bool:
        return self.number > 0

    def allocate(self) -> None:
        pass

    def start(self, b: slice, worker: Worker, weights: Weights, H: Array | None) -> None:
        """H float32 rows of the block, None for the features."""
        raise NotImplementedError

    def gather(self, weights: Weights) -> None:
        raise NotImplementedError

    def finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        """Activations (of the last layer: logits) of the block, float32; kept for backward on the way."""
        raise NotImplementedError

    def back_start(self, b: slice, worker: Worker, weights: Weights, dP: Array) -> None:
        raise NotImplementedError

    def gather_back(self, weights: Weights) -> None:
        raise NotImplementedError

    def back_finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        """dH of the block, in scratch rows."""
        raise NotImplementedError

    def through_activation(self, b: slice, dH: Array) -> Array:
        """dP = dH ⊙ (H > 0), in place."""
        assert self.H_out is not None
        return relu_backward(dH, self.H_out[b], out=dH)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _input(self, b: slice, worker: Worker, H: Array | None) -> Array:
        """Rows to multiply: those just made, or the features'."""
        return self._kept_input(b) if H is None else H

    def _kept_input(self, b: slice) -> Array:
        assert self.H_in is not None
        return self.H_in[b]

    def _room(self, b: slice, worker: Worker) -> Array:
        """Where the block's activations are computed: where they are kept, unless that is in 16 bits."""
        if self.H_out is not None and self.H_out.dtype == np.float32:
            return self.H_out[b]
        return worker.rows("P", b.stop - b.start, self.fan_out)

    def _keep(self, b: slice, H: Array) -> Array:
        """The same rows, stored if they are activations in 16 bits."""
        if self.H_out is not None and self.H_out.dtype == np.uint16:
            store(H, self.H_out[b])
        return H

    def _transform(self, b: slice, worker: Worker, weights: Weights, X: Array, X_self: Array | None) -> Array:
        """X W (+ X_self W_self) + bias, through relu and kept unless this is the last layer."""
        end = {"bias": weights[self.bias], "relu": not self.last}
        if X_self is None:
            P = self.memory.times(X, weights[self.W], self._room(b, worker), **end)
        else:
            P = self.memory.times(X, weights[self.W], self._room(b, worker))
            self.memory.times(X_self, weights[self.W_self], P, add=True, **end)
        return self._keep(b, P)


class Cached(Layer):
    """P = Z W (+ X W_self) + b with Z = A X made once. Only layer 0 has constant inputs."""

    gathers = False

    def allocate(self) -> None:
        memory = self.memory
        self.inputs = {self.W: self.aggregation.of_constant(memory, memory.features)}
        if self.W_self:
            self.inputs[self.W_self] = memory.kept(self.fan_in)
            store_blocks(memory.features, self.inputs[self.W_self])

    def finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        X_self = self.inputs[self.W_self][b] if self.W_self else None
        return self._transform(b, worker, weights, self.inputs[self.W][b], X_self)

    def back_start(self, b: slice, worker: Worker, weights: Weights, dP: Array) -> None:
        worker.add_sum(self.bias, dP)
        for name, X in self.inputs.items():
            worker.add_product(name, X[b], dP)


class TransformFirst(Layer):
    """P = A (H W) (+ H W_self) + b;  dT = Aᵀ dP, dW = Hᵀ dT, dH = dT Wᵀ (+ dP W_selfᵀ)."""

    @property
    def gathers_back(self) -> bool:
        return True

    def allocate(self) -> None:
        memory, width = self.memory, self.fan_out
        self.table = memory.table(width)
        fits = self.H_out is not None and self.H_out.dtype == np.float32
        self.P = self.H_out if fits else memory.buffer("P", width)  # [n, F_out], with bias and relu
        self.dT = memory.buffer("dT", width)
        if self.W_self:
            self.S = memory.buffer("S", width)  # H W_self, and in backward dP

    def start(self, b: slice, worker: Worker, weights: Weights, H: Array | None) -> None:
        X = self._input(b, worker, H)
        T = self.memory.times(X, weights[self.W], worker.rows("T", len(X), self.fan_out))
        self.aggregation.write(self.table, b, T)
        if self.W_self:
            self.memory.times(X, weights[self.W_self], self.S[b])

    def gather(self, weights: Weights) -> None:
        assert self.P is not None
        add = self.S if self.W_self else None
        bias = weights[self.bias]
        self.aggregation.gather(self.memory, self.table, self.P, add=add, bias=bias, relu=not self.last)

    def finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        assert self.P is not None
        return self._keep(b, self.P[b])

    def back_start(self, b: slice, worker: Worker, weights: Weights, dP: Array) -> None:
        worker.add_sum(self.bias, dP)
        self.aggregation.write(self.table, b, dP, back=True)
        if self.W_self:
            self.S[b] = dP

    def gather_back(self, weights: Weights) -> None:
        self.aggregation.gather(self.memory, self.table, self.dT, back=True)

    def back_finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        H, dT = self._kept_input(b), self.dT[b]
        worker.add_product(self.W, H, dT)
        if self.W_self:
            worker.add_product(self.W_self, H, self.S[b])
        dH = worker.rows("dH", len(H), self.fan_in)
        if self.number == 0:
            return dH  # nobody asks for the gradient of features
        self.memory.times(dT, weights[self.W].T, out=dH)
        if self.W_self:
            self.memory.times(self.S[b], weights[self.W_self].T, out=dH, add=True)
        return dH


class AggregateFirst(Layer):
    """P = (A H) W (+ H W_self) + b;  dW = Zᵀ dP, dH = Aᵀ (dP Wᵀ) (+ dP W_selfᵀ)."""

    def allocate(self) -> None:
        memory, width = self.memory, self.fan_in
        self.table = memory.table(width)
        self.Z = memory.buffer(f"Z{self.number}", width)  # A H [n, F_in], float32 as it is gathered
        if self.number > 0:
            self.dH = memory.buffer("dH", width)
            if self.W_self:
                self.dS = memory.buffer("dS", width)

    def start(self, b: slice, worker: Worker, weights: Weights, H: Array | None) -> None:
        X = self._input(b, worker, H)
        self.aggregation.write(self.table, b, as_float(X))

    def gather(self, weights: Weights) -> None:
        self.aggregation.gather(self.memory, self.table, self.Z)

    def finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        return self._transform(b, worker, weights, self.Z[b], self._kept_input(b) if self.W_self else None)

    def back_start(self, b: slice, worker: Worker, weights: Weights, dP: Array) -> None:
        worker.add_sum(self.bias, dP)
        worker.add_product(self.W, self.Z[b], dP)
        if self.W_self:
            worker.add_product(self.W_self, self._kept_input(b), dP)
        if self.number > 0:
            dZ = self.memory.times(dP, weights[self.W].T, out=worker.rows("dZ", len(dP), self.fan_in))
            self.aggregation.write(self.table, b, dZ, back=True)
            if self.W_self:
                self.memory.times(dP, weights[self.W_self].T, out=self.dS[b])

    def gather_back(self, weights: Weights) -> None:
        add = self.dS if self.W_self else None
        self.aggregation.gather(self.memory, self.table, self.dH, back=True, add=add)

    def back_finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        return self.dH[b]


# --- which form -------------------------------------------------------------------------------------------------------


def made(spec: ModelSpec, memory: Memory, *, cache: bool) -> list[Layer]:
    """The layers of GCN or GraphSAGE, each in the form that gathers least."""
    if spec.name not in ("gcn", "sage"):
        raise ConfigError(f"model {spec.name!r}: the single-process loop has gcn, sage and gat")
    aggregation = Aggregation.of(spec.name, memory.degree)
    layers: list[Layer] = []
    for number in range(spec.num_layers):
        fan_in, fan_out = spec.shape(number)
        form = Cached if cache and not number else TransformFirst if fan_out <= fan_in else AggregateFirst
        last, self_weight = number == spec.num_layers - 1, "self" if spec.name == "sage" else None
        layers.append(form(number, fan_in, fan_out, last, memory, aggregation, self_weight))
    connect(layers, memory)
    return layers


def connect(layers: list[Layer], memory: Memory) -> None:
    """Each layer reads what the one below keeps; the first one the features, in the dtype of activations."""
    for below, layer in pairwise(layers):
        layer.H_in = below.H_out
    if layers[0].gathers:
        layers[0].H_in = memory.kept(layers[0].fan_in)
        store_blocks(memory.features, layers[0].H_in)
