"""Models: each gives its program and computes its tensor steps, forward next to backward.

To add one: write ``siafu/models/<name>.py`` and its line in ``MODELS``. What a model must offer is ``Model`` below;
``tests/contracts/test_models.py`` holds every model in the table to it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from siafu import ops as numpy_ops
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.ops import Activation
from siafu.sparse import Array, Rows
from siafu.tasks import Lane, Program, Step

if TYPE_CHECKING:
    from siafu.shards import Manifest

MODELS = {
    "gcn": "siafu.models.gcn:GCN",
    "sage": "siafu.models.sage:GraphSAGE",
}


@dataclass(frozen=True)
class ModelSpec:
    """All that a model is built from; plain scalars, so that it travels to a worker as JSON."""

    name: str
    in_features: int
    num_classes: int
    num_train: int  # training vertices of the whole graph: the loss is a mean over them
    widths: tuple[int, ...] = (16,)  # outputs of the hidden layers; one more layer gives the classes
    multilabel: bool = False
    activation: Activation = "relu"
    bias: bool = True
    dropout: float = 0.0
    norm: Literal["none", "layer"] = "none"
    init: Literal["xavier", "he"] = "xavier"
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    fuse: bool = True  # last AV, loss and AV' in one task
    rematerialise: bool = True  # AV' recomputes P instead of fetching it
    narrow: bool = True  # layers whose output is narrower than their input are transformed before they are gathered

    @classmethod
    def of(cls, config: Config, graph: Manifest) -> ModelSpec:
        """The model that a config asks for on a graph."""
        model, train = config.model, config.train
        if not config.data.split < len(graph.splits):
            raise ConfigError(f"data.split = {config.data.split}: the graph has {len(graph.splits)} split(s)")
        num_train = graph.splits[config.data.split].train
        if not num_train:
            raise ConfigError(f"data.split = {config.data.split}: it has no training vertex")
        return cls(
            name=model.name, in_features=graph.num_features, num_classes=graph.num_classes, num_train=num_train,
            widths=model.widths, multilabel=graph.multilabel, activation=model.activation, bias=model.bias,
            dropout=model.dropout, norm=model.norm, init=model.init, seed=train.seed, dtype=model.dtype,
            fuse=config.lambdas.fuse, narrow=model.narrow, rematerialise=config.rematerialises,
        )  # fmt: skip

    @property
    def num_layers(self) -> int:
        return len(self.widths) + 1

    def shape(self, layer: int) -> tuple[int, int]:
        """(F_in, F_out) of a layer."""
        sizes = (self.in_features, *self.widths, self.num_classes)
        return sizes[layer], sizes[layer + 1]


@dataclass
class Output:
    """What one tensor step gives: rows by slot, gradients by parameter name (empty unless the step has them), loss."""

    rows: dict[str, Array]
    gradients: dict[str, Array] = field(default_factory=dict)
    loss: float = 0.0  # this interval's share of the mean loss: sum over its training rows / num_train


class TensorOps(Protocol):
    """The arithmetic that servers may do faster than ``siafu.ops``, which says what each function is."""

    def matmul(self, X: Rows, W: Array, add: Array | None = None) -> Array: ...

    def matmul_transposed(self, X: Rows, D: Array) -> Array: ...

    def activate(self, N: Array, kind: Activation, out: Array | None = None) -> Array: ...

    def activate_backward(self, dH: Array, N: Array, kind: Activation) -> Array: ...

    def layer_norm(self, P: Array, gain: Array, shift: Array) -> Array: ...

    def layer_norm_backward(self, dN: Array, P: Array, gain: Array) -> tuple[Array, Array, Array]: ...

    def cross_entropy(self, logits: Array, labels: Array) -> tuple[float, Array]: ...

    def binary_cross_entropy(self, logits: Array, labels: Array) -> tuple[float, Array]: ...


class Model(Protocol):
    """What the servers and workers need of a model. Implementations keep no state between calls."""

    spec: ModelSpec
    aggregate: Literal["gcn", "mean", "sum"]  # how Gather weighs an edge (graph_server.aggregate)

    def program(self, lane: Lane) -> Program:
        """The steps of one epoch; the evaluation's end with the logits in slot ``H<num_layers>``."""

    def width(self, slot: str) -> int:
        """Columns of a slot."""

    def init(self) -> dict[str, Array]:
        """The first weights, by name ``"<layer>.<what>"``: a function of the spec's seed alone."""

    def stage(self, parameter: str) -> int:
        """The ``step.layer`` of the tensor steps that read the parameter and give its gradient; the same for both."""

    def run(
        self, step: Step, rows: Mapping[str, Rows], weights: Mapping[str, Array], *, epoch: int, lane: Lane
    ) -> Output:
        """One tensor step on any rows. ``weights`` holds at least the parameters whose stage is ``step.layer``.

        Besides the step's slots, ``rows`` may hold ``vertex`` (int64 [n], global ids: needed with dropout), ``label``
        and ``train`` (bool [n]): constants of the interval, listed in ``step.reads`` where they are needed.
        """


def build(spec: ModelSpec, ops: TensorOps = numpy_ops) -> Model:
    """The model that the spec names, computing with ``ops``. Raises ConfigError if there is none."""
    if spec.name not in MODELS:
        raise ConfigError(f"model {spec.name!r}: unknown, must be one of {', '.join(MODELS)}")
    module, _, cls = MODELS[spec.name].partition(":")
    model: Model = getattr(importlib.import_module(module), cls)(spec, ops)
    return model
