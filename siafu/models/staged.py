"""Base of all models: *stages* of tensor work, and *gathers* between them; program and backward order follow.

A model lists its graph, in the order of a forward pass, as ``Stage`` and ``Gathered``, and computes each stage forward
and backward. All else is derived here: Scatters, the backward program with sums of each slot's gradients,
recomputation, the fused last task, the loss on training rows alone, dropout.

    Gathered("Z1", of="H1", own=("H0",), factor=0.9, own_factor=0.1)   Z1 = 0.9 A H1 + 0.1 H0
    Stage(1, reads=("Z1",), writes=("H2",))                            H2 = σ(Z1 W + b), say
    backward                                                           dZ1 = ...;  dH1 = 0.9 Aᵀ dZ1,  dH0 += 0.1 dZ1

Slots: "H0" are the features, which have no gradient; the last stage writes the logits. ``d`` before a slot's name is
its gradient. Any number of stages and gathers, of the slot's own interval or of others, may read a slot.
docs/adding-a-model.md writes a model with this module, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from siafu import ops as numpy_ops
from siafu.models import Arrays, ModelSpec, Output, SlotRows, TensorOps
from siafu.sparse import Array
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Operator, Program, Step, is_of_edges

FEATURES = "H0"
#: Operators whose last gather may leave out rows that the loss does not read.
OF_LOSS = ("linear", "attention")


@dataclass(frozen=True)
class Stage:
    """Tensor work on rows of one interval: ``forward`` and ``backward`` of stage ``number``; its weights have the same
    number.

    ``drops``: slots of ``reads`` that are dropped as they are read -> the key of their mask. ``keeps``: slots that
    ``forward`` can save, so that ``backward`` need not recompute them (``spec.rematerialise``).
    """

    number: int
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    drops: Mapping[str, int] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gathered:
    """A gather: slot = factor · A of + own_factor · (own slots); another operator has its own formula.

    A gather of the features ("H0") is a constant, computed once: such a node has no own slots, factor or operator.
    """

    slot: str
    of: str
    own: tuple[str, ...] = ()
    factor: float = 1.0
    own_factor: float = 1.0
    operator: Operator = "linear"


class Staged:
    """Base class of models. A subclass defines ``aggregate``, ``graph``, ``widths_of``, ``init``, ``forward`` and
    ``backward``."""

    aggregate: Literal["gcn", "mean", "sum"] = "gcn"
    takes: frozenset[str] = frozenset()  # siafu.models.OPTIONS that the model uses
    unused_settings: tuple[str, ...] = ()
    hidden_slots: bool = True

    def __init__(self, spec: ModelSpec, ops: TensorOps = numpy_ops):
        self.spec, self.ops = spec, ops
        self.dtype = np.dtype(spec.dtype)
        self.nodes = self.graph()
        self.evaluated = self.evaluation_graph()
        self.stages = {node.number: node for node in self.nodes if isinstance(node, Stage)}
        self.last = max(self.stages)
        # In link prediction the loss comes after the last stage (siafu.models.link_prediction).
        self.ends_in_loss = spec.target != "links"
        gathers = [node for node in self.nodes if isinstance(node, Gathered)]
        for node in gathers:  # else the constant would not be what the model asks for
            plain = not node.own and node.factor == 1.0 and node.operator == "linear"
            assert node.of != FEATURES or plain, f"{node.slot}: of the features the plain sum alone is gathered"
        self._layers = {
            node.slot: number
            for nodes in (self.nodes, self.evaluated)
            for number, node in enumerate(node for node in nodes if isinstance(node, Gathered))
        }
        # slots without a gradient
        self._constants = {FEATURES, *(node.slot for node in gathers if node.of == FEATURES)}
        self._widths = {**self.widths_of(), FEATURES: spec.in_features}
        self._programs: dict[Lane, Program] = {}  # a plan asks for them thousands of times

    # --- what a model says -----------------------------------------------------------------------------------------

    def graph(self) -> list[Stage | Gathered]:
        """Returns the model's stages and gathers, in the order of a forward pass."""
        raise NotImplementedError

    def evaluation_graph(self) -> list[Stage | Gathered]:
        """Returns the stages and gathers of an evaluation. Their order may differ, because there is no gradient and no
        dropout."""
        return self.nodes

    def widths_of(self) -> dict[str, int]:
        """Returns the number of columns of every slot that a Stage or a Gathered writes."""
        raise NotImplementedError

    def init(self) -> dict[str, Array]:
        """Returns the initial weights, by name ``"<stage>.<what>"``."""
        raise NotImplementedError

    def forward(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> tuple[dict[str, Array], Any]:
        """Returns the slots that the stage writes, and the values that ``backward`` needs: by slot, if the stage keeps
        some."""
        raise NotImplementedError

    def recall(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> Any:
        """Returns the values of a forward pass that ``backward`` needs: kept ones, or recomputed ones."""
        if kept := self._kept(self.stages[stage]):
            return {slot: rows[slot] for slot in kept}
        return self.again(stage, rows, weights, drop)

    def again(self, stage: int, rows: SlotRows, weights: Arrays, drop: Dropout) -> Any:
        """Recomputes these values with ``forward``; a model may leave out values that ``backward`` does not read."""
        return self.forward(stage, rows, weights, drop)[1]

    def backward(
        self, stage: int, saved: Any, d: Arrays, rows: SlotRows, weights: Arrays, drop: Dropout
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Returns the gradients of the slots that the stage reads, by slot (those of features may be left out), and of
        its weights, by name.

        ``d``: gradients of the slots that it writes, by slot.
        """
        raise NotImplementedError

    # --- the contract of models ------------------------------------------------------------------------------------

    def stage(self, parameter: str) -> int:
        return int(parameter.partition(".")[0])

    def rest(self, parameter: str) -> bool:
        """Whether the weight decay of ``parameter`` is ``train.weight_decay_rest`` instead of ``train.weight_decay``.
        Some papers decay part of the weights less, or not at all."""
        return False

    def inside(self, stage: Stage) -> tuple[str, ...]:
        """Returns slots of activations that ``forward`` computes and no step needs: a prediction may ask for them."""
        return ()

    def width(self, slot: str) -> int:
        return self._widths[slot[1:] if slot.startswith("d") else slot]

    def program(self, lane: Lane) -> Program:
        if lane not in self._programs:
            self._programs[lane] = self._program(lane)
        return self._programs[lane]

    def _program(self, lane: Lane) -> Program:
        with_weights = {self.stage(name) for name in self.parameters()}
        forward, published = [], {FEATURES}
        for node in self.nodes if lane is Lane.TRAIN else self.evaluated:
            if isinstance(node, Stage):
                forward.append(self._apply(node, lane, node.number in with_weights))
                continue
            if node.of not in published:
                published.add(node.of)
                forward.append(self._scatter(node))
            forward += self._gather(node, lane)
        if lane is Lane.EVAL:
            evaluated = forward if self.spec.write else self._judged(forward)
            return Program(tuple(evaluated), self._is_of_loss(evaluated))
        steps = self._feeding(self._of_loss([*forward, *self._backward_steps(with_weights)]))
        return Program((*steps, Step(Kind.WU, 0)), self._is_of_loss(steps))

    def parameters(self) -> list[str]:
        """Returns the names of all parameters. Cached, so that programs need no weights."""
        if not hasattr(self, "_parameters"):
            self._parameters = list(self.init())
        return self._parameters

    def run(self, step: Step, rows: Mapping[str, Any], weights: Arrays, *, epoch: int, lane: Lane) -> Output:
        stage = self.stages[step.layer]
        if step.fused or (step.has_gradient and self._has_loss(step.layer)):
            return self._loss(step, stage, rows, weights, epoch)
        drop = Dropout(self.spec, self.ops, epoch, lane, rows)
        read = self._dropped(stage, rows, drop)
        if step.kind is Kind.AV:
            made, saved = self.forward(stage.number, read, weights, drop)
            return Output({slot: made[slot] if slot in made else saved[slot] for slot in step.writes})
        saved = self.recall(stage.number, read, weights, drop)
        d = {slot: np.asarray(rows[f"d{slot}"]) for slot in stage.writes}
        return self._descended(step, stage, drop, *self.backward(stage.number, saved, d, read, weights, drop))

    # --- programs --------------------------------------------------------------------------------------------------

    def _layer(self, node: Gathered) -> int:
        """Returns the number of a gather, in the order of the graph."""
        return self._layers[node.slot]

    def _extra(self, stage: Stage, lane: Lane) -> tuple[str, ...]:
        """Returns the constants that a stage reads besides its slots."""
        return ("vertex",) if self.spec.dropout and lane is Lane.TRAIN else ()

    def _apply(self, stage: Stage, lane: Lane, parameters: bool) -> Step:
        reads = (*stage.reads, *self._extra(stage, lane))
        if self._has_loss(stage.number) and lane is Lane.TRAIN and self.spec.fuse:
            made = self._gradients_of(stage)
            return Step(Kind.AV, stage.number, (*reads, "label", "train"), made, fused=True, parameters=parameters)
        besides = self._kept(stage) if lane is Lane.TRAIN else {*self.inside(stage)} & {self.spec.write}
        kept = tuple(slot for slot in besides if slot not in stage.writes)
        return Step(Kind.AV, stage.number, reads, (*stage.writes, *kept), parameters=parameters)

    def _has_loss(self, number: int) -> bool:
        return number == self.last and self.ends_in_loss

    def _kept(self, stage: Stage) -> tuple[str, ...]:
        """Returns the slots that forward saves for backward."""
        return () if self.spec.rematerialise else stage.keeps

    def _scatter(self, node: Gathered) -> Step:
        # The number of the stage before, as in Dorylus; an evaluation may have a first stage that training has not.
        layer = max(0, self._layer(node) - (len(self._constants) > 1))
        return Step(Kind.SC, layer, (node.of,), publishes=node.of, operator=node.operator)

    def _gather(self, node: Gathered, lane: Lane) -> list[Step]:
        return [
            Step(
                Kind.GA,
                self._layer(node),
                node.own,
                (node.slot,),
                gathers=node.of,
                operator=node.operator,
                factor=node.factor,
                own=node.own_factor,
            )
        ]

    def _of_loss(self, steps: list[Step]) -> list[Step]:
        """Marks gathers whose sums only the loss reads, and their backwards: they work for training rows alone."""
        if not self.ends_in_loss:
            return steps
        readers = {slot: [step for step in steps if slot in step.reads] for step in steps for slot in step.writes}

        def reads_nothing_else(reader: Step, slot: str) -> bool:
            """Whether the reader is the loss, or attention's Scatter, which multiplies the slot with its gradient: 0
            for vertices that do not train."""
            return self._is_last(reader) or reader.publishes == f"d{slot}"

        marked = {
            step.writes[0]
            for step in steps
            if step.kind is Kind.GA and step.operator in OF_LOSS and step.gathers not in self._constants
            if not any(is_of_edges(slot) for slot in step.reads)  # an edge task computes them for all edges
            if all(reads_nothing_else(reader, step.writes[0]) for reader in readers[step.writes[0]])
        }
        gradients = {f"d{slot}" for slot in marked}
        others = {step.gathers for step in steps if step.kind in (Kind.GA, Kind.AE) and step.writes[0] not in marked}

        def is_of_loss(step: Step) -> bool:
            if step.kind is Kind.GA:
                return step.writes[0] in marked
            if step.kind is Kind.SC:
                return step.publishes not in others
            return not gradients.isdisjoint((step.gathers, step.publishes))

        return [replace(step, of_loss=True) if is_of_loss(step) else step for step in steps]

    def _feeding(self, steps: list[Step]) -> list[Step]:
        """Marks stages whose rows only the loss's gather and the loss read, and their backwards."""
        readers = {slot: [step for step in steps if slot in step.reads] for step in steps for slot in step.writes}

        def feeds(step: Step) -> bool:
            backward = Kind.AV_B, step.layer
            return (
                step.kind is Kind.AV
                and not self._is_last(step)
                and any(reader.of_loss for slot in step.writes for reader in readers[slot])
                and all(
                    reader.of_loss or self._is_last(reader) or (reader.kind, reader.layer) == backward
                    for slot in step.writes
                    for reader in readers[slot]
                )
            )

        stages = {step.layer for step in steps if feeds(step)}

        def marked(step: Step) -> bool:
            return step.layer in stages if step.kind is Kind.AV_B else feeds(step)

        return [replace(step, feeds_loss=True) if marked(step) else step for step in steps]

    def _judged(self, steps: list[Step]) -> list[Step]:
        """Marks the steps of an evaluation that only need judged vertices, if rows of all vertices are not wanted."""
        if not self.ends_in_loss:
            return steps
        marked = self._feeding(self._of_loss(steps))
        return [replace(step, judged=True) if step.kind is Kind.AV and self._is_last(step) else step for step in marked]

    def _is_of_loss(self, steps: list[Step]) -> bool:
        """Whether only marked rows of a program are ever read: every step is marked, or of the last stage, or gathers
        constants, whose result is a constant itself."""
        marked = any(step.of_loss for step in steps)
        return marked and all(
            step.of_loss or step.feeds_loss or self._is_last(step) or step.gathers in self._constants for step in steps
        )

    def _is_last(self, step: Step) -> bool:
        return step.kind in TENSOR_KINDS and step.layer == self.last

    def _gradients_of(self, stage: Stage) -> tuple[str, ...]:
        return tuple(f"d{slot}" for slot in stage.reads if slot not in self._constants)

    def _backward_steps(self, with_weights: set[int]) -> list[Step]:
        """Returns the steps of every node in reverse. The first gradient of a slot is written, later ones are added to
        it."""
        steps: list[Step] = []
        begun: set[str] = set()  # gradient slots that hold something

        def adds(slots: tuple[str, ...]) -> tuple[str, ...]:
            known = tuple(slot for slot in slots if slot in begun)
            begun.update(slots)
            return known

        for node in reversed(self.nodes):
            if isinstance(node, Stage):
                made = self._gradients_of(node)
                if self._has_loss(node.number) and self.spec.fuse:
                    begun.update(made)  # written by the fused task
                    continue
                reads = (*node.reads, *self._extra(node, Lane.TRAIN), *self._kept(node))
                ends = self._has_loss(node.number)
                reads += ("label", "train") if ends else tuple(f"d{slot}" for slot in node.writes)
                parameters = node.number in with_weights
                steps.append(Step(Kind.AV_B, node.number, reads, made, adds=adds(made), parameters=parameters))
            elif node.of != FEATURES:
                steps += self._gather_backward(node, adds)
        return steps

    def _gather_backward(self, node: Gathered, adds: Any) -> list[Step]:
        """Returns the steps that compute dof = factor Aᵀ dslot, and down = own_factor dslot for the own slots."""
        layer, gradient = self._layer(node), f"d{node.slot}"
        own, of = tuple(f"d{slot}" for slot in node.own), (f"d{node.of}",)
        scatter = Step(
            Kind.SC_B,
            layer,
            (gradient,),
            own,
            publishes=gradient,
            operator=node.operator,
            own=node.own_factor,
            adds=adds(own),
        )
        known = adds(of)
        if node.operator == "linear":  # its gather adds the slots it reads
            return [scatter, Step(Kind.GA_B, layer, known, of, gathers=gradient, factor=node.factor)]
        return [scatter, Step(Kind.GA_B, layer, (), of, gathers=gradient, operator=node.operator, adds=known)]

    # --- tensor steps ----------------------------------------------------------------------------------------------

    def _dropped(self, stage: Stage, rows: Mapping[str, Any], drop: Dropout) -> Mapping[str, Any]:
        """Returns the rows with dropout, as the stage reads them. Without dropout, rows of 8 or 16 bits stay as they
        are."""
        if not drop.active:
            return rows
        return {**rows, **{slot: drop(rows[slot], key) for slot, key in stage.drops.items()}}

    def _descended(self, step: Step, stage: Stage, drop: Dropout, d_in: Arrays, gradients: dict[str, Array]) -> Output:
        d = {slot: d_in[slot[1:]] for slot in step.writes}
        return Output(d | {f"d{s}": drop(d[f"d{s}"], key) for s, key in stage.drops.items() if f"d{s}" in d}, gradients)

    def _loss(self, step: Step, stage: Stage, rows: Mapping[str, Any], weights: Arrays, epoch: int) -> Output:
        """Computes the last stage, the loss and its backward, on the training rows alone: all other rows have gradient
        zero."""
        train = np.asarray(rows["train"])  # [n]
        is_whole = bool(train.all())  # then the rows were chosen before
        mine = rows if is_whole else of_training(rows)
        drop = Dropout(self.spec, self.ops, epoch, Lane.TRAIN, mine)
        read = self._dropped(stage, mine, drop)
        (slot,) = stage.writes
        if slot in mine:  # forward was a task of its own, and kept the logits
            logits, saved = np.asarray(mine[slot]), self.recall(stage.number, read, weights, drop)
        else:
            made, saved = self.forward(stage.number, read, weights, drop)
            logits = made[slot]
        total, dP = self.spec.loss(self.ops, logits, np.asarray(mine["label"]))
        dP /= self.dtype.type(self.spec.num_train)
        output = self._descended(
            step, stage, drop, *self.backward(stage.number, saved, {slot: dP}, read, weights, drop)
        )
        if not is_whole:
            output.rows = among_all(output.rows, train)
        output.loss = total / self.spec.num_train
        return output


def of_training(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Returns only the rows of training vertices. A task with the loss, which reads "train", needs no others."""
    return chosen(np.asarray(rows["train"]), rows)


def chosen(which: Array, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the rows where ``which``, bool ``[n]``, is true."""
    index = np.flatnonzero(which)
    return {slot: numpy_ops.take(value, index) for slot, value in rows.items()}


def among_all(rows: Mapping[str, Any], which: Array) -> dict[str, Array]:
    """Puts the results of a task on chosen rows, ``[which.sum(), F]``, into rows of all vertices, ``[n, F]``; the other
    rows are zero."""
    index, found = np.flatnonzero(which), {}
    for slot, made in rows.items():
        found[slot] = np.zeros((len(which), *made.shape[1:]), made.dtype)
        found[slot][index] = made
    return found


class Dropout:
    """Dropout in one task: ``drop(X, key)``; the same call drops the gradient. ``key`` distinguishes the slots that are
    dropped."""

    def __init__(self, spec: ModelSpec, ops: TensorOps, epoch: int, lane: Lane, rows: Mapping[str, Any]):
        self._spec, self._ops, self._epoch = spec, ops, epoch
        self.active = bool(spec.dropout) and lane is Lane.TRAIN
        self._rows = rows  # for "vertex", which a stage without dropout does not have

    def __call__(self, X: Any, key: int) -> Any:
        """Returns X, dense or sparse, in the model's dtype, with dropout in training. bfloat16 stays as it is where
        products round to it."""
        if self._spec.rows == "exact" or X.dtype != numpy_ops.BFLOAT16:
            X = numpy_ops.real(X, np.dtype(self._spec.dtype))
        if not self.active:
            return X
        spec, vertices = self._spec, np.asarray(self._rows["vertex"])
        return self._ops.dropped(X, spec.dropout, seed=spec.seed, epoch=self._epoch, layer=key, vertices=vertices)
