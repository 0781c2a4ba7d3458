"""Link prediction on top of any model made of stages: the model's output is an embedding H [N, F], and pairs of
vertices are scored.

    SC:  publishes H
    AE:  s_uv = <H_u, H_v>  (decoder dot), or MLP(H_u ⊙ H_v) = relu((H_u ⊙ H_v) W + b) w + c  (mlp): symmetric
         loss: sigmoid cross-entropy, mean over the pairs of an epoch; dH_v = Σ_u dloss/ds_uv ds_uv/dH_v
    then the model's own backward, from dH

Every training pair is computed at both of its ends, from its own row and the other's. So each end computes the gradient
of its own row alone, and none is sent. The loss of the pair and the decoder's gradients count half at each end.

An epoch's pairs are the training edges and about as many false ones, drawn anew from the pool
(``graph_server.operators.pairs``). AE is sent the rows of the other ends, each once however many pairs it is in, and
five bytes per pair: the number of its row and the pair's type. Its evaluation gives the scores of held-out pairs, which
``siafu.ranking`` ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from siafu import ops as numpy_ops
from siafu.errors import ConfigError
from siafu.models import Arrays, Model, Output
from siafu.models.dense import Dense
from siafu.models.staged import Staged
from siafu.sparse import Array, EdgeRows, blocks
from siafu.tasks import Kind, Lane, Program, Step

#: Slots of pairs: whether a training pair is an edge (1) or a false one (0), [m, 1]; the scores of held-out pairs,
#: [m, 1].
TRUE, SCORES = "Etrue", "Escores"
#: Size of an array of pairs' values, of which about ten exist for the pairs scored together. Arrays of all pairs of a
#: task would take more memory than all else on a server, and would not fit a cache.
SCORED_BYTES = 1 << 22


class Links:
    def __init__(self, encoder: Model):
        """Raises: ConfigError unless the model is ``Staged``, whose backward can start from an embedding's gradient."""
        if not isinstance(encoder, Staged):
            raise ConfigError(f"data.task = link: {encoder.spec.name} cannot predict edges")
        self.encoder, self.spec, self.ops = encoder, encoder.spec, encoder.ops
        self.aggregate, self.takes, self.hidden_slots = encoder.aggregate, encoder.takes, encoder.hidden_slots
        # The last of ``hidden`` is the embedding's width, whatever the encoder does with the others.
        self.unused_settings = tuple(key for key in encoder.unused_settings if key != "hidden")
        (self.slot,) = encoder.stages[encoder.last].writes
        self.number = encoder.last + 1  # of AE, and so of the decoder's weights
        self.inner = Dense(self.spec, self.ops, self.number, "decoder", "decoder_bias")
        self.outer = Dense(self.spec, self.ops, self.number, "decoder_second", "decoder_second_bias", number=2)

    # --- the contract of models -------------------------------------------------------------------------------------

    def program(self, lane: Lane) -> Program:
        steps = self.encoder.program(lane).steps
        forward = [step for step in steps if not step.backward and step.kind is not Kind.WU]
        reads, made = (self.slot,), (f"d{self.slot}",) if lane is Lane.TRAIN else (SCORES,)
        score = Step(
            Kind.AE,
            self.number,
            reads,
            made,
            gathers=self.slot,
            operator="pairs",
            fused=lane is Lane.TRAIN,
            parameters=self.spec.decoder == "mlp",
        )
        scatter = Step(Kind.SC, self.number, reads, publishes=self.slot, operator="pairs")
        return Program((*forward, scatter, score, *steps[len(forward) :]))

    def width(self, slot: str) -> int:
        if slot in (TRUE, SCORES):
            return 1
        return self.encoder.width(self.slot if slot == f"E{self.slot}" else slot)

    def init(self) -> dict[str, Array]:
        return self.encoder.init() | self._decoder()

    def _decoder(self) -> dict[str, Array]:
        if self.spec.decoder == "dot":
            return {}
        width = self.encoder.width(self.slot)
        return self.inner.init(width, width) | self.outer.init(width, 1)

    def stage(self, parameter: str) -> int:
        of_decoder = parameter.startswith(f"{self.number}.decoder")
        return self.number if of_decoder else self.encoder.stage(parameter)

    def rest(self, parameter: str) -> bool:
        return not parameter.startswith(f"{self.number}.decoder") and self.encoder.rest(parameter)

    def run(self, step: Step, rows: Mapping[str, Any], weights: Arrays, *, epoch: int, lane: Lane) -> Output:
        if step.kind is not Kind.AE or step.layer != self.number:
            return self.encoder.run(step, rows, weights, epoch=epoch, lane=lane)
        others = rows[f"E{self.slot}"]
        assert isinstance(others, EdgeRows)
        H = numpy_ops.real(np.asarray(rows[self.slot]), self.encoder.dtype)
        others = others.astype(self.encoder.dtype)
        cuts = blocks(others.indptr, max(1, SCORED_BYTES // (H.itemsize * self._values_of_a_pair)))
        if lane is Lane.EVAL:
            scores = [self._scored(H[a:b], others[a:b], weights)[0] for a, b in cuts]
            return Output({SCORES: EdgeRows(others.indptr, np.concatenate(scores))})
        loss, dH, gradients = 0.0, np.empty_like(H), dict[str, Array]()
        for a, b in cuts:
            part, dH[a:b], more = self._learnt(H[a:b], others[a:b], rows[TRUE][a:b].values, weights)
            loss += part
            gradients = {name: value + gradients[name] if gradients else value for name, value in more.items()}
        return Output({f"d{self.slot}": dH}, gradients, loss)

    # --- pairs ------------------------------------------------------------------------------------------------------

    @property
    def _values_of_a_pair(self) -> int:
        """The number of values of a pair in an array of pairs: one, or the MLP's width."""
        return 1 if self.spec.decoder == "dot" else self.encoder.width(self.slot)

    def _scored(self, H: Array, others: EdgeRows, weights: Arrays) -> tuple[Array, Array, Array]:
        """Returns scores [m, 1], and the inputs of the MLP's second and first layer, [m, F] each; empty with decoder
        dot."""
        if self.spec.decoder == "dot":
            return self.ops.pair_dots(H, others)[:, None], H[:0], H[:0]
        X = self.ops.pair_products(H, others)
        U = self.inner.forward(X, weights)
        U = self.ops.activate(U, "relu", out=U)
        return self.outer.forward(U, weights), U, X

    def _learnt(
        self, H: Array, others: EdgeRows, true: Array, weights: Arrays
    ) -> tuple[float, Array, dict[str, Array]]:
        """Returns half of the loss, all of dH [n, F], and half of the decoder's gradients."""
        terms = 2 * self.spec.num_train  # for each training edge, about one false one
        scores, U, X = self._scored(H, others, weights)
        total, dX = self.ops.binary_cross_entropy(scores, true)
        dX /= self.encoder.dtype.type(2 * terms)  # [m, 1], a half
        gradients: dict[str, Array] = {}
        if self.spec.decoder == "mlp":
            dU = self.outer.backward(U, dX, weights, gradients)
            dX = self.inner.backward(X, self.ops.activate_backward(dU, U, "relu"), weights, gradients)
        dX *= 2
        return total / (2 * terms), self.ops.pair_sums(dX, others), gradients
