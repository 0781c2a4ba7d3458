"""Link prediction, around any model that is made of stages: what it ends with is an
embedding H [N, F], and pairs are scored.

    SC:  publishes H
    AE:  s_uv = <H_u, H_v>  (decoder dot), or MLP(H_u ⊙ H_v) = relu((H_u ⊙ H_v) W + b) w + c  (mlp): symmetric
         loss: sigmoid cross-entropy, mean over the pairs of an epoch; dH_v = Σ_u dloss/ds_uv ds_uv/dH_v
    then the model's own backward, from dH

Every training pair is computed where either end lies, from its own row and the other's: so each takes
the gradient of its own row alone, and none travels. What belongs to the pair, its loss and the
decoder's gradients, each counts by half.

An epoch's pairs are the training edges and, drawn anew from the pool (``graph_server.operators.pairs``), about as many
false ones. AE is sent the rows of the other ends, each once however many pairs it is in, and edge by edge which of them
is a pair's and what the pair is: five bytes.
Its evaluation gives the scores of held-out pairs, which ``siafu.ranking`` ranks.
"""

from __future__ import annotations

import itertools
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

#: Slots of pairs: whether a training pair is an edge (1) or a false one (0), [m, 1]; the
#: scores of held-out ones, [m, 1].
TRUE, SCORES = "Etrue", "Escores"
#: Of pairs that are added up at a time: they fit a core's own cache.
SUMMED_BYTES = 1 << 17
#: Of an array of pairs' rows, and of these some ten are made for the pairs that are scored together: all pairs of a
#: task would take more than all else that a server holds.
SCORED_BYTES = 1 << 20


class Links:
    def __init__(self, encoder: Model):
        """Raises ConfigError unless the model can be trained from behind."""
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
        cuts = blocks(others.indptr, max(1, SCORED_BYTES // max(1, H.shape[1] * H.itemsize)))
        if lane is Lane.EVAL:
            scores = [self._scored(*_ends(H[a:b], others[a:b]), weights)[0] for a, b in cuts]
            return Output({SCORES: EdgeRows(others.indptr, np.concatenate(scores))})
        loss, dH, gradients = 0.0, np.empty_like(H), dict[str, Array]()
        for a, b in cuts:
            part, dH[a:b], more = self._learnt(H[a:b], others[a:b], rows[TRUE][a:b].values, weights)
            loss += part
            gradients = {name: value + gradients[name] if gradients else value for name, value in more.items()}
        return Output({f"d{self.slot}": dH}, gradients, loss)

    # --- pairs ------------------------------------------------------------------------------------------------------

    def _scored(self, own: Array, other: Array, weights: Arrays) -> tuple[Array, Array]:
        """Scores [m, 1], and what the MLP's last layer reads, [m, F]; empty with decoder dot."""
        if self.spec.decoder == "dot":
            return self.ops.dots(own, other)[:, None], own[:0]
        U = self.ops.activate(self.inner.forward(own * other, weights), "relu")
        return self.outer.forward(U, weights), U

    def _learnt(
        self, H: Array, others: EdgeRows, true: Array, weights: Arrays
    ) -> tuple[float, Array, dict[str, Array]]:
        """Half of the loss, all of dH [n, F], half of the decoder's gradients."""
        own, other = _ends(H, others)
        terms = 2 * self.spec.num_train  # an edge, and about one false one for each
        scores, U = self._scored(own, other, weights)
        total, ds = self.ops.binary_cross_entropy(scores, true)
        ds /= self.encoder.dtype.type(2 * terms)  # [m, 1], a half
        gradients: dict[str, Array] = {}
        if self.spec.decoder == "dot":
            dX = ds
        else:
            dU = self.outer.backward(U, ds, weights, gradients)
            dX = self.inner.backward(own * other, self.ops.activate_backward(dU, U, "relu"), weights, gradients)
        return total / (2 * terms), _summed(2 * dX * other, others.indptr), gradients


def _ends(H: Array, others: EdgeRows) -> tuple[Array, Array]:
    """Rows of the pairs' own ends, and of the other ones: [m, F] each."""
    return np.repeat(H, np.diff(others.indptr), axis=0), others.each()


def _summed(values: Array, indptr: Array) -> Array:
    """Rows of pairs [m, F] added up by vertex, [n, F]."""
    out = np.zeros((len(indptr) - 1, values.shape[1]), values.dtype)
    filled = np.flatnonzero(np.diff(indptr))
    starts, ends = indptr[filled], np.append(indptr[filled[1:]], len(values))
    # NumPy adds up one column after the other: of more values than a cache holds, each column reads all lines again.
    block = max(1, SUMMED_BYTES // max(1, values.shape[1] * values.itemsize))
    cuts = np.unique(np.append(np.searchsorted(starts, np.arange(0, len(values), block)), len(filled)))
    for first, last in itertools.pairwise(cuts.tolist()):
        pairs = values[starts[first] : ends[last - 1]]
        out[filled[first:last]] = np.add.reduceat(pairs, starts[first:last] - starts[first], axis=0)
    return out
