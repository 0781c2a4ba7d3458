"""Models: each gives its program and computes its tensor steps, forward next to backward.

To add one: write ``siafu/models/<name>.py`` and its line in ``MODELS``. ``Model`` below is the contract;
``tests/contracts/test_models.py`` holds every model in the table to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from siafu import ops as numpy_ops
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.ops import Activation
from siafu.sparse import Array, EdgeRows, Rows
from siafu.table import loaded
from siafu.table import named as named_in
from siafu.tasks import Lane, Operator, Program, Step

if TYPE_CHECKING:
    from siafu.shards import Manifest

MODELS = {
    "gcn": "siafu.models.gcn:GCN",
    "sage": "siafu.models.sage:GraphSAGE",
    "gat": "siafu.models.gat:GAT",
    "gin": "siafu.models.gin:GIN",
    "gcnii": "siafu.models.gcnii:GCNII",
    "appnp": "siafu.models.propagation:APPNP",
    "sgc": "siafu.models.propagation:SGC",
    "rgcn": "siafu.models.rgcn:RGCN",
}

Arrays = Mapping[str, Array]  # by the names of slots, or of weights
SlotRows = Mapping[str, Rows]  # by the names of slots

#: Wraps a model so that it predicts edges.
LINKS = "siafu.models.link_prediction:Links"

#: The least gathered words for which evaluations transform features first: with fewer, the two additional steps of an
#: epoch cost more than they save (ADR 0044: dblp 9.3 and 10.7 ms an epoch; coauthor_cs 28 and 16).
LEAST_WORDS = 1 << 20

#: Fields of ModelSpec that only some models use; the others refuse values that are not the default.
OPTIONS = (
    "activation",
    "dropout",
    "norm",
    "residual",
    "jump",
    "heads",
    "out_heads",
    "attn_dropout",
    "slope",
    "alpha",
    "theta",
    "hops",
    "eps",
    "train_eps",
    "bases",
    "narrow",
)


@dataclass(frozen=True)
class ModelSpec:
    """The complete description of a model, in plain scalars, so that it can be sent to a worker as JSON."""

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
    rows: Literal["exact", "bfloat16"] = "exact"  # bfloat16: what is gathered, and operands of dense products
    fuse: bool = True  # last AV, loss and AV' in one task
    rematerialise: bool = True  # AV' recomputes P instead of fetching it
    narrow: bool = True  # layers whose output is narrower than their input are transformed before they are gathered
    target: Literal["classes", "labels", "numbers", "links"] = "classes"  # kind of target; labels: as ``multilabel``
    label_smoothing: float = 0.0
    heads: int = 8
    out_heads: int = 1
    attn_dropout: float = 0.0
    slope: float = 0.2
    residual: bool = False
    jump: Literal["none", "cat", "max", "sum"] = "none"
    alpha: float = 0.1
    theta: float = 0.5
    hops: int = 10
    eps: float = 0.0
    train_eps: bool = False
    bases: int = 0
    decoder: Literal["dot", "mlp"] = "dot"
    num_edge_types: int = 1
    negatives: int = 1  # links: false training edges to draw from, per training edge
    apply_edge: Literal["server", "lambda"] = "server"  # the place where coefficients of edges are computed
    words_first: bool = False  # evaluations transform features, which are bags of words, before they gather (ADR 0044)
    write: str = ""  # another slot for evaluations to write, if a stage computes it on its way (siafu predict)

    @classmethod
    def of(cls, config: Config, graph: Manifest) -> ModelSpec:
        """Makes the spec of the model that a config asks for on a graph."""
        model, train = config.model, config.train
        if not config.data.split < len(graph.splits):
            raise ConfigError(f"data.split = {config.data.split}: the graph has {len(graph.splits)} split(s)")
        links = graph.edge_types == "links"
        target = "links" if links else graph.target
        num_train, negatives = graph.training_pairs if links else (graph.splits[config.data.split].train, 1)
        num_outputs = model.hidden[-1] if links else graph.num_classes
        if not num_train and train.epochs:
            raise ConfigError(f"data.split = {config.data.split}: it has no training vertex with a label")
        _check_outputs(model.outputs, graph, config.data.split)
        if train.label_smoothing and target != "classes":
            raise ConfigError(
                f"train.label_smoothing = {train.label_smoothing:g}: is for classes, the graph has {target}"
            )
        return cls(
            name=model.name,
            in_features=graph.num_features,
            num_classes=model.outputs or num_outputs,
            num_train=num_train,
            widths=model.widths,
            multilabel=target == "labels",
            activation=model.activation,
            bias=model.bias,
            dropout=model.dropout,
            norm=model.norm,
            init=model.init,
            seed=train.seed,
            dtype=model.dtype,
            rows=model.rows,
            fuse=config.lambdas.fuse,
            narrow=model.narrow,
            rematerialise=config.rematerialises,
            target=target,
            label_smoothing=train.label_smoothing,
            heads=model.heads,
            out_heads=model.out_heads,
            attn_dropout=model.attn_dropout,
            slope=model.slope,
            residual=model.residual,
            jump=model.jump,
            alpha=model.alpha,
            theta=model.theta,
            hops=model.hops,
            eps=model.eps,
            train_eps=model.train_eps,
            bases=model.bases,
            decoder=model.decoder,
            negatives=negatives,
            num_edge_types=graph.num_edge_types if graph.edge_types == "relations" else 1,
            apply_edge="lambda" if config.lambdas.apply_edge == "lambda" else "server",
            words_first=graph.sparse_features and _gathered_words(graph) >= LEAST_WORDS,
            write=config.run.write,
        )

    @property
    def num_layers(self) -> int:
        return len(self.widths) + 1

    def loss(self, ops: TensorOps, logits: Array, labels: Array) -> tuple[float, Array]:
        """Returns the loss summed over rows, and its gradient [n, C]."""
        if self.target == "numbers":
            return ops.squared_error(logits, labels)
        if self.multilabel:
            return ops.binary_cross_entropy(logits, labels)
        return ops.cross_entropy(logits, labels, self.label_smoothing)

    def shape(self, layer: int) -> tuple[int, int]:
        """Returns (F_in, F_out) of a layer."""
        sizes = (self.in_features, *self.widths, self.num_classes)
        return sizes[layer], sizes[layer + 1]


def _gathered_words(graph: Manifest) -> float:
    """Returns an upper bound of the stored values in layer 0's aggregate of bags of words."""
    degree = graph.num_edges / max(1, graph.num_vertices)
    words = sum(entry.words for entry in graph.partitions)
    return min(words * (1 + degree), float(graph.num_vertices) * graph.num_features)


def _check_outputs(outputs: int, graph: Manifest, split: int) -> None:
    """Raises: ConfigError if the number of outputs does not fit the graph's labels."""
    sizes, classes = graph.splits[split], graph.num_classes
    if not outputs or graph.edge_types == "links" or not (sizes.train or sizes.val or sizes.test):
        return
    if outputs < classes or (outputs > classes and graph.target != "classes"):
        bound = "must be >= that" if graph.target == "classes" else "must be that"
        raise ConfigError(f"model.outputs = {outputs}: the graph has {classes} {graph.target}, {bound}")


@dataclass
class Output:
    """The output of a tensor step: rows by slot, gradients by parameter name (empty unless the step has them), loss."""

    rows: dict[str, Any]  # Array, or EdgeRows where the slot is one of edges
    gradients: dict[str, Array] = field(default_factory=dict)
    loss: float = 0.0  # this interval's share of the mean loss: sum over its training rows / num_train


class TensorOps(Protocol):
    """The arithmetic of tensor tasks. ``siafu.ops`` defines each function, ``siafu.arithmetic`` computes it."""

    def matmul(self, X: Rows, W: Array, add: Array | None = None, *, rounds: bool = False) -> Array: ...

    def matmul_transposed(self, X: Rows, D: Array, *, rounds: bool = False) -> Array: ...

    def column_sums(self, D: Array) -> Array: ...

    def dots(self, A: Array, B: Array) -> Array: ...

    def pair_dots(self, H: Array, others: EdgeRows) -> Array: ...

    def pair_products(self, H: Array, others: EdgeRows) -> Array: ...

    def pair_sums(self, D: Array, others: EdgeRows) -> Array: ...

    def dropped(self, X: Rows, p: float, *, seed: int, epoch: int, layer: int, vertices: Array) -> Rows: ...

    def activate(self, N: Array, kind: Activation, out: Array | None = None) -> Array: ...

    def activate_backward(self, dH: Array, N: Array, kind: Activation) -> Array: ...

    def layer_norm(self, P: Array, gain: Array, shift: Array) -> Array: ...

    def layer_norm_backward(self, dN: Array, P: Array, gain: Array) -> tuple[Array, Array, Array]: ...

    def cross_entropy(self, logits: Array, labels: Array, smoothing: float = 0.0) -> tuple[float, Array]: ...

    def squared_error(self, outputs: Array, labels: Array) -> tuple[float, Array]: ...

    def binary_cross_entropy(self, logits: Array, labels: Array) -> tuple[float, Array]: ...

    def segment_softmax(
        self, source: Array, target: Array, indptr: Array, slope: float, weight: Array | None = None
    ) -> tuple[Array, Array]: ...

    def segment_softmax_backward(
        self, halves: Array, source: Array, products: Array, indptr: Array, slope: float, weight: Array | None = None
    ) -> tuple[Array, Array]: ...


class Rounded:
    """The arithmetic ``ops`` with rows in bfloat16: both operands of a dense product are rounded to it."""

    def __init__(self, ops: TensorOps):
        self._ops = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def matmul(self, X: Rows, W: Array, add: Array | None = None) -> Array:
        return self._ops.matmul(X, W, add, rounds=True)

    def matmul_transposed(self, X: Rows, D: Array) -> Array:
        return self._ops.matmul_transposed(X, D, rounds=True)


class Model(Protocol):
    """The contract of models, as servers and workers use them. Implementations keep no state between calls."""

    spec: ModelSpec
    aggregate: Literal["gcn", "mean", "sum"]  # the weights of Gather (graph_server.aggregate)
    takes: frozenset[str]  # OPTIONS that it uses
    unused_settings: tuple[str, ...]  # fields of [model] that every config has and this model does not use
    # Whether slot ``H<l>`` holds the input of layer l, which a prediction may ask for. False: the model transforms each
    # vertex once and gathers logits (APPNP, SGC).
    hidden_slots: bool

    def program(self, lane: Lane) -> Program:
        """Returns the steps of one epoch. The last step of an evaluation writes only the logits."""

    def width(self, slot: str) -> int:
        """Returns the number of columns of a slot."""

    def init(self) -> dict[str, Array]:
        """Returns the initial weights, by name ``"<layer>.<what>"``. They depend only on the spec with its seed."""

    def stage(self, parameter: str) -> int:
        """Returns the ``step.layer`` of the tensor steps that read the parameter and compute its gradient, which is the
        same for both."""

    def rest(self, parameter: str) -> bool:
        """Whether ``train.weight_decay_rest`` is the parameter's weight decay: some papers decay only a part of the
        weights, or a part less."""

    def run(self, step: Step, rows: Mapping[str, Any], weights: Arrays, *, epoch: int, lane: Lane) -> Output:
        """Computes one tensor step on any rows. ``weights``: at least the parameters whose stage is ``step.layer``.

        Besides the step's slots, ``rows`` may hold ``vertex`` (int64 [n], global ids: needed with dropout), ``label``
        and ``train`` (bool [n]): constants of the interval, listed in ``step.reads`` where they are needed.
        """


def build(spec: ModelSpec, ops: TensorOps = numpy_ops) -> Model:
    """Makes the model that the spec names, with the arithmetic ``ops``. Raises: ConfigError if there is no such model,
    or it does not use one of the given options."""
    made = named(spec.name)
    for option in OPTIONS:
        value = getattr(spec, option)
        if option not in made.takes and value != ModelSpec.__dataclass_fields__[option].default:
            raise ConfigError(f"model.{option} = {value}: {spec.name} does not use it")
    if spec.decoder != "dot" and spec.target != "links":
        raise ConfigError(f"model.decoder = {spec.decoder}: is for data.task = link")
    model: Model = made(spec, ops if spec.rows == "exact" else Rounded(ops))
    if spec.target == "links":
        model = loaded(LINKS)(model)
    return model


@lru_cache(maxsize=16)
def kept(spec: ModelSpec) -> Model:
    """Returns ``build(spec)``, cached for repeated calls."""
    return build(spec)


@lru_cache(maxsize=16)
def shapes(spec: ModelSpec) -> dict[str, Array]:
    """Returns the shapes and dtypes of the model's parameters, as arrays of zeros that take no memory."""
    drawn = build(spec).init()
    return {name: np.broadcast_to(np.zeros((), array.dtype), array.shape) for name, array in drawn.items()}


def named(name: str) -> Any:
    """Returns the class of the model of this name, which has the class attributes of ``Model``. Raises: ConfigError if
    there is none."""
    return named_in(MODELS, name, "model")


def operators(name: str) -> set[Operator]:
    """Returns the operators by which the model of this name combines rows."""
    smallest = ModelSpec(name, in_features=1, num_classes=2, num_train=1)
    return {step.operator for step in build(smallest).program(Lane.TRAIN).steps}
