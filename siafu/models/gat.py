"""Graph attention (Veličković et al., ICLR 2018, eq. 1-6), K heads of width D side by side.

    AV:  T = X W,  s = <T, a_source>,  t = <T, a_target> by head         X = drop(H)
    AE:  e_vu = LeakyReLU(t_v + s_u),  α_vu = softmax of e_vu over the in-edges of v and v itself
    GA:  Z_v = Σ_u m_vu α_vu T_u                                          m: dropout of coefficients
    AV:  P = Z + b (+ R),  H' = σ(LayerNorm(P));  the last layer: logits = mean of Z over its heads + b (+ R)
    R:   X itself where widths agree, else X times a learnt weight: with ``residual``

Backward, with l' the slope of LeakyReLU at an edge (``siafu.kernels.attention`` says how without a row per edge):

    AV': dX = dG Wᵀ (+ dR),  dW = Xᵀ dG,  dG = dT + ds a_source + dt a_target
    SC': δ_v = <dZ_v, Z_v>,  dt_v = Σ_u α l' (m <T_u, dZ_v> - δ_v)
    GA': dT_u = Σ_v m α dZ_v                                              along out-edges
    AE': ds_u = Σ_v α l' (m <T_u, dZ_v> - δ_v)

With ``apply_edge = "server"`` AE and AE' are part of GA and GA', which read each edge once. As tensor tasks they are
sent the scores of the edges' other ends, the start of each vertex's edges, and backwards the products <T_u, dZ_v>: K
numbers per edge and score, in slots that begin with E. ``graph_server.operators.attention`` computes the graph's part.

Shapes: T, Z [n, K D], s, t [n, K], a [K D], W [F_in, K D]; X, R [n, F]. ``hidden`` is K D.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from siafu import ops as numpy_ops
from siafu.errors import ConfigError
from siafu.models import Arrays, ModelSpec, Output, SlotRows, TensorOps
from siafu.models.dense import first_weight, uniform
from siafu.models.staged import FEATURES, Dropout, Gathered, Stage, Staged
from siafu.sparse import Array, EdgeRows, Rows, SparseRows
from siafu.tasks import Kind, Lane, Step


class Entered(NamedTuple):
    """The intermediate values of a stage, from its inputs to the input of its own layer."""

    P: Array  # [n, F] before LayerNorm and activation; the logits in the last stage; empty in the first
    N: Array  # after LayerNorm
    X: Rows  # the layer's input


NOTHING = np.empty((0, 0))


class GAT(Staged):
    aggregate = "gcn"  # every vertex gathers from itself too
    takes = frozenset({"activation", "dropout", "norm", "residual", "heads", "out_heads", "attn_dropout", "slope"})

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        for width in spec.widths:
            if width % spec.heads:
                raise ConfigError(f"model.hidden = {width}: must be a multiple of model.heads = {spec.heads} for gat")
        super().__init__(spec, ops)

    def heads(self, layer: int) -> int:
        return self.spec.out_heads if layer == self.spec.num_layers - 1 else self.spec.heads

    def columns(self, layer: int) -> int:
        """Returns K D of a layer. In the last one every head is as wide as the logits."""
        fan_out = self.spec.shape(layer)[1]
        return fan_out * self.heads(layer) if layer == self.spec.num_layers - 1 else fan_out

    # --- the program --------------------------------------------------------------------------------------------------

    def graph(self) -> list[Stage | Gathered]:
        nodes: list[Stage | Gathered] = []
        reads: tuple[str, ...] = (FEATURES,)
        residual = self.spec.residual
        for layer in range(self.spec.num_layers):
            own = (f"R{layer}",) * residual
            nodes.append(Stage(layer, reads, (f"T{layer}", f"s{layer}", f"t{layer}", *own)))
            nodes.append(Gathered(f"Z{layer}", of=f"T{layer}", own=(f"t{layer}",), operator="attention"))
            reads = (f"Z{layer}", *own)
        return [*nodes, Stage(self.spec.num_layers, reads, (f"H{self.spec.num_layers}",))]

    def widths_of(self) -> dict[str, int]:
        widths = {f"H{self.spec.num_layers}": self.spec.num_classes}
        for layer in range(self.spec.num_layers):
            heads, columns = self.heads(layer), self.columns(layer)
            widths |= {f"{slot}{layer}": columns for slot in ("T", "Z", "leaned")}
            widths |= {f"{slot}{layer}": heads for slot in ("s", "t", "log_total", "leaned_total", "Ea", "Eb", "Ep")}
            fan_in, fan_out = self.spec.shape(layer)
            widths |= {f"H{layer}": fan_in, f"R{layer}": fan_out, f"ET{layer}": heads, f"EdZ{layer}": 3 * heads}
        return widths

    def _extra(self, stage: Stage, lane: Lane) -> tuple[str, ...]:
        return super()._extra(stage, lane) if stage.number < self.last else ()

    def inside(self, stage: Stage) -> tuple[str, ...]:
        return (f"H{stage.number}",) if 0 < stage.number < self.last else ()

    def _scatter(self, node: Gathered) -> Step:
        layer = self._layer(node)
        return Step(Kind.SC, layer, (f"T{layer}", f"s{layer}"), publishes=node.of, operator=node.operator)

    def _gather(self, node: Gathered, lane: Lane) -> list[Step]:
        layer = self._layer(node)
        kept = (f"leaned{layer}", f"log_total{layer}", f"leaned_total{layer}") if lane is Lane.TRAIN else ()
        made = (f"Z{layer}", *kept)
        if self.spec.apply_edge == "server":
            return [self._edges(Kind.GA, node, (f"t{layer}",), made)]
        alpha = (f"Ea{layer}", f"log_total{layer}")
        return [
            self._edges(Kind.AE, node, (f"t{layer}",), alpha),
            self._edges(Kind.GA, node, alpha, tuple(slot for slot in made if slot not in alpha)),
        ]

    def _gather_backward(self, node: Gathered, adds: Any) -> list[Step]:
        layer = self._layer(node)
        kept = tuple(f"{slot}{layer}" for slot in ("dZ", "Z", "leaned", "log_total", "leaned_total", "t"))
        gradient = f"dZ{layer}"
        scatter = Step(Kind.SC_B, layer, kept, (f"dt{layer}",), publishes=gradient, operator=node.operator)
        if self.spec.apply_edge == "server":
            made = (f"dT{layer}", f"ds{layer}")
            return [scatter, self._edges(Kind.GA_B, node, (f"T{layer}", f"s{layer}"), made)]
        return [
            scatter,
            self._edges(Kind.GA_B, node, (f"T{layer}",), (f"Ep{layer}",)),
            self._edges(Kind.AE_B, node, (f"s{layer}", f"Ep{layer}"), (f"Eb{layer}", f"ds{layer}")),
            self._edges(Kind.GA_B, node, (f"Eb{layer}",), (f"dT{layer}",)),
        ]

    def _edges(self, kind: Kind, node: Gathered, reads: tuple[str, ...], writes: tuple[str, ...]) -> Step:
        gathers = f"d{node.slot}" if kind in (Kind.GA_B, Kind.AE_B) else node.of
        return Step(kind, self._layer(node), reads, writes, gathers=gathers, operator=node.operator, parameters=False)

    # --- weights ------------------------------------------------------------------------------------------------------

    def init(self) -> dict[str, Array]:
        """Draws the initial weights: W by ``first_weight``, a by Glorot's rule for a matrix [K, D], as in PyTorch
        Geometric; bias and shift 0, gain 1."""
        weights: dict[str, Array] = {}
        for layer in range(self.spec.num_layers):
            fan_in, fan_out = self.spec.shape(layer)
            heads, columns = self.heads(layer), self.columns(layer)
            weights[f"{layer}.weight"] = first_weight(self.spec, layer, 0, fan_in, columns)
            if self._maps_residual(layer):
                weights[f"{layer}.residual"] = first_weight(self.spec, layer, 1, fan_in, fan_out)
            bound = np.sqrt(6 / (heads + columns // heads))
            for i, name in enumerate(("source", "target")):
                a = uniform(np.random.default_rng([self.spec.seed, layer, 2 + i]), bound, columns)
                weights[f"{layer}.{name}"] = a.astype(self.dtype)
            if self.spec.bias:
                weights[f"{layer}.bias"] = np.zeros(fan_out, self.dtype)
            if self._normalises(layer):
                weights[f"{layer}.gain"] = np.ones(fan_out, self.dtype)
                weights[f"{layer}.shift"] = np.zeros(fan_out, self.dtype)
        return weights

    def stage(self, parameter: str) -> int:
        layer, _, what = parameter.partition(".")
        return int(layer) + (what in ("bias", "gain", "shift"))  # they are applied after the gather

    def _maps_residual(self, layer: int) -> bool:
        fan_in, fan_out = self.spec.shape(layer)
        return self.spec.residual and fan_in != fan_out

    def _normalises(self, layer: int) -> bool:
        return self.spec.norm == "layer" and layer < self.spec.num_layers - 1

    # --- ApplyVertex --------------------------------------------------------------------------------------------------

    def forward(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> tuple[dict[str, Array], Entered]:
        entered = self.recall(stage, rows, weights, drop)
        if stage == self.last:
            return {f"H{stage}": entered.P}, entered
        X, heads = entered.X, self.heads(stage)
        T = self.ops.matmul(X, weights[f"{stage}.weight"])  # [n, K D]
        scores = self.ops.matmul(T, self._attention(stage, weights))  # [n, 2 K]
        s, t = np.ascontiguousarray(scores[:, :heads]), np.ascontiguousarray(scores[:, heads:])
        made: dict[str, Any] = {f"H{stage}": X, f"T{stage}": T, f"s{stage}": s, f"t{stage}": t}
        if self.spec.residual:
            name = f"{stage}.residual"
            made[f"R{stage}"] = self.ops.matmul(X, weights[name]) if name in weights else self._dense(X)
        return made, entered

    def recall(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> Entered:
        """Computes the stage up to its products."""
        if stage == 0:
            return Entered(NOTHING, NOTHING, drop(rows[FEATURES], 0))
        layer = stage - 1
        P = np.asarray(rows[f"Z{layer}"])  # [n, K D]
        if stage == self.last:
            P = P.reshape(len(P), self.heads(layer), self.spec.num_classes).mean(1)  # [n, C]
        for name, other in ((f"{layer}.bias", weights), (f"R{layer}", rows)):
            if name in other:
                P = P + np.asarray(other[name])
        if stage == self.last:
            return Entered(P, P, P)
        N = P
        if self._normalises(layer):
            N = self.ops.layer_norm(P, weights[f"{layer}.gain"], weights[f"{layer}.shift"])
        return Entered(P, N, drop(self.ops.activate(N, self.spec.activation), stage))

    def backward(
        self, stage: int, saved: Entered, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        if stage == self.last:
            return self._left(stage, d[f"H{stage}"], {}, weights)
        dX, gradients = self._transformed_back(stage, saved.X, d, weights)
        if stage == 0:
            return {}, gradients
        layer = stage - 1
        dP = self.ops.activate_backward(drop(dX, stage), saved.N, self.spec.activation)
        if self._normalises(layer):
            dP, dgain, dshift = self.ops.layer_norm_backward(dP, saved.P, weights[f"{layer}.gain"])
            gradients |= {f"{layer}.gain": dgain, f"{layer}.shift": dshift}
        return self._left(stage, dP, gradients, weights)

    def _transformed_back(self, stage: int, X: Rows, d: Arrays, weights: Arrays) -> tuple[Array, dict[str, Array]]:
        """Returns dX, empty in the first stage, and the gradients of the layer's weights. They do not need T: da_source
        follows from Xᵀ ds."""
        W, heads = weights[f"{stage}.weight"], self.heads(stage)
        both = np.concatenate([d[f"s{stage}"], d[f"t{stage}"]], axis=1)  # [n, 2 K]
        dG = self.ops.matmul(both, self._attention(stage, weights).T, add=np.array(d[f"T{stage}"]))  # [n, K D]
        product = self.ops.matmul_transposed(X, np.concatenate([dG, both], axis=1))  # [F, K D + 2 K]
        columns = W.shape[1]
        gradients = {f"{stage}.weight": np.ascontiguousarray(product[:, :columns])}
        by_head = W.reshape(len(W), heads, -1)
        for i, name in enumerate(("source", "target")):
            of_scores = product[:, columns + i * heads : columns + (i + 1) * heads]
            gradients[f"{stage}.{name}"] = (of_scores[:, :, None] * by_head).sum(0).reshape(-1)
        dX = self.ops.matmul(dG, W.T) if stage else NOTHING
        if self.spec.residual:
            dR, name = d[f"R{stage}"], f"{stage}.residual"
            if name in weights:
                gradients[name] = self.ops.matmul_transposed(X, dR)
                dR = self.ops.matmul(dR, weights[name].T) if stage else NOTHING
            dX = dX + dR if stage else NOTHING
        return dX, gradients

    def _left(
        self, stage: int, dP: Array, gradients: dict[str, Array], weights: Arrays
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns the gradients of the stage's inputs, and those of its bias, from dP, the gradient of their sum."""
        layer = stage - 1
        if f"{layer}.bias" in weights:
            gradients[f"{layer}.bias"] = self.ops.column_sums(dP)
        dZ = dP
        if stage == self.last and (heads := self.heads(layer)) > 1:
            dZ = np.tile(dP / dP.dtype.type(heads), heads)
        return {f"Z{layer}": dZ, f"R{layer}": dP}, gradients

    def _dense(self, X: Rows) -> Array:
        return np.asarray(numpy_ops.real(X.dense() if isinstance(X, SparseRows) else X, self.dtype))

    def _attention(self, layer: int, weights: Arrays) -> Array:
        """Returns a_source and a_target as a matrix [K D, 2 K], so that one product serves all heads: T A = [s t]."""
        heads, columns = self.heads(layer), self.columns(layer)
        A = np.zeros((heads, columns // heads, 2 * heads), self.dtype)
        head = np.arange(heads)
        for i, name in enumerate(("source", "target")):
            A[head, :, i * heads + head] = weights[f"{layer}.{name}"].reshape(heads, -1)
        return A.reshape(columns, 2 * heads)

    # --- ApplyEdge ----------------------------------------------------------------------------------------------------

    def run(self, step: Step, rows: Mapping[str, Any], weights: Arrays, *, epoch: int, lane: Lane) -> Output:
        if step.kind is Kind.AE:
            return self._apply_edge(step.layer, rows)
        if step.kind is Kind.AE_B:
            return self._apply_edge_backward(step.layer, rows)
        return super().run(step, rows, weights, epoch=epoch, lane=lane)

    def _apply_edge(self, layer: int, rows: Mapping[str, Any]) -> Output:
        scores, heads = rows[f"ET{layer}"], self.heads(layer)
        s, weight = _cut(scores, heads)
        alpha, log_total = self.ops.segment_softmax(s, rows[f"t{layer}"], scores.indptr, self.spec.slope, weight)
        return Output({f"Ea{layer}": EdgeRows(scores.indptr, alpha), f"log_total{layer}": log_total})

    def _apply_edge_backward(self, layer: int, rows: Mapping[str, Any]) -> Output:
        scores, products, heads = rows[f"EdZ{layer}"], rows[f"Ep{layer}"].values, self.heads(layer)
        halves, weight = _cut(scores, 3 * heads)
        s = rows[f"s{layer}"]
        alpha, ds = self.ops.segment_softmax_backward(halves, s, products, scores.indptr, self.spec.slope, weight)
        return Output({f"Eb{layer}": EdgeRows(scores.indptr, alpha), f"ds{layer}": ds})


def _cut(edges: EdgeRows, columns: int) -> tuple[Array, Array | None]:
    """Returns the scores by edge, and the edges' weights if there are any."""
    values = edges.values
    return values[:, :columns], values[:, columns] if values.shape[1] > columns else None
