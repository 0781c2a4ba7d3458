"""Graph attention (Veličković et al., ICLR 2018) as a layer of the single-process loop: no tensor has a row per edge.

    T = H W,  s_u = <T_u, a_source>,  t_v = <T_v, a_target>                    per head
    e_vu = LeakyReLU(t_v + s_u),  α_vu = softmax over u → v and v itself,  P_v = Σ_u α_vu T_u + b

Backward, from the two sums per vertex that the forward kernel leaves (``siafu.kernels.attention``):

    dT_u = Σ_v α_vu dP_v + ds_u a_source + dt_u a_target,  da = Tᵀ ds,  dW = Hᵀ dT,  dH = dT Wᵀ

Hidden layers concatenate their heads, the last layer has one. Shapes: T [n, heads * D], s and t [n, heads].
"""

from __future__ import annotations

import numpy as np

from benchmarks.single_process.layers import Layer, connect
from benchmarks.single_process.workspace import Aggregation, Memory, Weights, Worker
from siafu.errors import ConfigError
from siafu.kernels.attention import Attended, Records, attend, attend_backward, target_gradient
from siafu.kernels.dense import matmul_transposed
from siafu.kernels.passes import relu
from siafu.models import ModelSpec
from siafu.sparse import Array

SLOPE = 0.2  # of LeakyReLU below zero, as in the paper


def heads_of(spec: ModelSpec, heads: int, layer: int) -> int:
    """Raises: ConfigError if a hidden width is not a multiple of the heads."""
    if layer == spec.num_layers - 1:
        return 1
    if spec.widths[layer] % heads:
        raise ConfigError(f"gat: hidden width {spec.widths[layer]} must be a multiple of the {heads} heads")
    return heads


def first_weights(spec: ModelSpec, heads: int) -> Weights:
    """Glorot, uniform, as PyG's GATConv has it."""
    weights: Weights = {}
    for layer in range(spec.num_layers):
        fan_in, fan_out = spec.shape(layer)
        rng = np.random.default_rng([spec.seed, layer])
        shape = (heads_of(spec, heads, layer), fan_out // heads_of(spec, heads, layer))
        bound, bound_a = np.sqrt(6 / (fan_in + fan_out)), np.sqrt(6 / sum(shape))
        weights[f"{layer}.weight"] = rng.uniform(-bound, bound, (fan_in, fan_out)).astype(np.float32)
        for what in ("source", "target"):
            weights[f"{layer}.{what}"] = rng.uniform(-bound_a, bound_a, shape).astype(np.float32)
        weights[f"{layer}.bias"] = np.zeros(fan_out, np.float32)
    return weights


def made(spec: ModelSpec, memory: Memory, heads: int) -> list[Layer]:
    layers: list[Layer] = []
    for number in range(spec.num_layers):
        last = number == spec.num_layers - 1
        layer = Attention(number, *spec.shape(number), last, memory, Aggregation(None, None, True), None)
        layer.set_heads(heads_of(spec, heads, number))
        layers.append(layer)
    connect(layers, memory)
    return layers


class Attention(Layer):
    """One layer, all heads."""

    @property
    def gathers_back(self) -> bool:
        return True

    def set_heads(self, heads: int) -> None:
        memory, width = self.memory, self.fan_out
        n, dtype = memory.num_rows, memory.attention_dtype
        self.heads = heads
        self.T = np.zeros((n, width), np.float32)  # kept from forward to backward, as s, t and what was attended
        self.s, self.t = (np.zeros((n, heads), np.float32) for _ in range(2))
        self.attended = Attended(*(np.zeros((n, columns), np.float32) for columns in (width, heads, width, heads)))
        self.sources = Records(n, heads, width // heads, dtype=dtype)
        self.targets = Records(n, heads, width // heads, num_scores=3, dtype=dtype)
        self.dT, self.ds, self.dt = (
            memory.buffer(name, columns) for name, columns in (("dT", width), ("ds", heads), ("dt", heads))
        )

    # --- forward ------------------------------------------------------------------------------------------------------

    def start(self, b: slice, worker: Worker, weights: Weights, H: Array | None) -> None:
        T = self.memory.times(self._input(b, worker, H), weights[self.W], self.T[b])
        self.memory.times(T, self._diagonal(weights, "source"), out=self.s[b])
        self.memory.times(T, self._diagonal(weights, "target"), out=self.t[b])
        self.sources.write(b, T, self.s[b])

    def gather(self, weights: Weights) -> None:
        memory = self.memory
        attend(
            memory.edges,
            0,
            memory.num_rows,
            self.sources,
            self.t,
            slope=SLOPE,
            add_self=True,
            out=self.attended,
            threads=memory.threads,
        )

    def finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        P = np.add(self.attended.Z[b], weights[self.bias], out=self._room(b, worker))
        return P if self.last else self._keep(b, relu(P))

    # --- backward -----------------------------------------------------------------------------------------------------

    def back_start(self, b: slice, worker: Worker, weights: Weights, dP: Array) -> None:
        worker.add_sum(self.bias, dP)
        all_rows = self.attended
        attended = Attended(all_rows.Z[b], all_rows.log_total[b], all_rows.leaned[b], all_rows.leaned_total[b])
        self.dt[b], delta = target_gradient(attended, dP)
        self.targets.write(b, dP, self.t[b], attended.log_total, delta)

    def gather_back(self, weights: Weights) -> None:
        memory = self.memory
        attend_backward(
            memory.out_edges,
            0,
            memory.num_rows,
            self.targets,
            self.T,
            self.s,
            slope=SLOPE,
            add_self=True,
            out=(self.dT, self.ds),
            threads=memory.threads,
        )

    def back_finish(self, b: slice, worker: Worker, weights: Weights) -> Array:
        T, dT = self.T[b], self.dT[b]
        for what, d in (("source", self.ds[b]), ("target", self.dt[b])):
            name = f"{self.number}.{what}"
            self.memory.times(d, self._diagonal(weights, what).T, out=dT, add=True)
            worker.gradients[name] += self._of_diagonal(matmul_transposed(T, d, rounds=self.memory.rounds))
        worker.add_product(self.W, self._kept_input(b), dT)
        dH = worker.rows("dH", len(dT), self.fan_in)
        return self.memory.times(dT, weights[self.W].T, out=dH) if self.number else dH

    def _diagonal(self, weights: Weights, what: str) -> Array:
        """a as a matrix [heads * D, heads], so that all heads' products are one: T A = s."""
        a = weights[f"{self.number}.{what}"]  # [heads, D]
        heads, width = a.shape
        A = np.zeros((heads, width, heads), np.float32)
        A[np.arange(heads), :, np.arange(heads)] = a
        return A.reshape(heads * width, heads)

    def _of_diagonal(self, A: Array) -> Array:
        """The part of a [heads * D, heads] that ``_diagonal`` fills, as [heads, D]."""
        by_head = A.reshape(self.heads, -1, self.heads)
        return np.asarray(by_head[np.arange(self.heads), :, np.arange(self.heads)])
