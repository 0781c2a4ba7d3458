"""The contract of ``siafu.models.Model``, run by every model in ``MODELS``.

A toy graph is trained in one process by walking the model's program interval by interval, with dense matrices for
linear Gathers and the graph server's own operators for others. Whatever is optional (fusion, rematerialisation, sparse
inputs, where rows are cut) must not change a gradient.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from graph_data.cut import shards_of
from graph_server import operators
from graph_server.buffers import PublishedSlot
from graph_server.operators import Operator, Setting
from siafu import config as configs
from siafu import models, ops
from siafu.config import Config
from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph, tidy
from siafu.kernels import to_bfloat16
from siafu.models import MODELS, OPTIONS, Model, ModelSpec, Output, TensorOps, build
from siafu.models.staged import Dropout
from siafu.sparse import Array, EdgeRows, Rows, SparseRows
from siafu.tasks import GIVEN_SLOTS, TENSOR_KINDS, Kind, Lane, Program, Step
from tests import reference
from tests.toy_graphs import random_graph, sparse, with_sparse_features

EPOCH = 3
WHOLE: tuple[int, ...] = (0, 23)
INTERVALS = (0, 5, 5, 6, 17, 23)  # bounds; one of the intervals is empty, one has a single vertex

#: Of every model, as far as it has these options ...
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"widths": ()},
    "multi-label, no bias": {"multilabel": True, "bias": False, "dropout": 0.2},
    "wider and wider": {"widths": (9, 12), "dropout": 0.2},
    "everything": {"dropout": 0.3, "norm": "layer", "activation": "tanh", "multilabel": True},
}
#: ... and what it has beside them.
OF_ONE: dict[str, dict[str, dict[str, Any]]] = {
    "gcn": {
        "never narrow": {"narrow": False, "dropout": 0.2},
        "residual": {"residual": True, "dropout": 0.2, "widths": (7, 5)},
        "jump cat": {"jump": "cat", "dropout": 0.2},
        "jump max, residual": {"jump": "max", "widths": (6, 6), "residual": True, "norm": "layer"},
        "jump sum": {"jump": "sum", "widths": (6, 6), "bias": False},
        "jump over one layer": {"jump": "cat", "widths": (5,)},
        "residual, never narrow": {"residual": True, "narrow": False, "activation": "elu"},
    },
    "sage": {
        "never narrow": {"narrow": False, "dropout": 0.2},
        "jump cat": {"jump": "cat", "dropout": 0.2},
        "jump max, wide": {"jump": "max", "widths": (9, 9), "activation": "tanh"},
    },
    "gin": {
        "eps": {"eps": 0.3, "dropout": 0.2},
        "learnt eps": {"eps": -0.2, "train_eps": True},
        "learnt eps, residual, jump": {
            "train_eps": True,
            "residual": True,
            "jump": "cat",
            "widths": (7, 5),
            "dropout": 0.2,
            "norm": "layer",
        },
        "residual, jump": {"residual": True, "jump": "sum", "widths": (6, 6), "activation": "elu"},
    },
    "gcnii": {
        "deep": {"widths": (5,) * 5, "dropout": 0.1, "alpha": 0.2, "theta": 1.5},
        "elu": {"activation": "elu", "alpha": 0.0},
    },
    "appnp": {"hops": {"hops": 3, "alpha": 0.3, "dropout": 0.2}, "one hop": {"hops": 1}},
    "sgc": {"hops": {"hops": 3, "dropout": 0.2}, "one hop": {"hops": 1}},
    "gat": {"residual": {"residual": True, "heads": 3, "widths": (6, 9), "attn_dropout": 0.3, "out_heads": 2}},
}
CASES = [(name, variant) for name in MODELS for variant in (*VARIANTS, *OF_ONE.get(name, ()))]


def test_the_help_of_the_setting_names_each_model():
    assert set(re.findall(r"\w+", configs.settings()["model.name"].text)) - {"or"} == set(MODELS)


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture(params=CASES, ids="-".join)
def case(request):
    return variant_of(*request.param)


def variant_of(name: str, variant: str) -> tuple[Graph, ModelSpec]:
    return case_of(name, **(VARIANTS | OF_ONE.get(name, {}))[variant])


def case_of(name: str, **options: Any) -> tuple[Graph, ModelSpec]:
    """The model with those of the options that it has, and widths that it may have."""
    graph = random_graph(11, multilabel=bool(options.get("multilabel")))
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    spec = ModelSpec(name, graph.num_features, graph.num_classes, num_train, widths=(6, 5), seed=3, dtype="float64")
    spec = replace(spec, **{key: value for key, value in options.items() if key not in OPTIONS or has(name, key)})
    if name == "gat":
        spec = replace(spec, heads=options.get("heads", 1))
    return graph, next(filter(accepted, (replace(spec, widths=widths) for widths in near(spec.widths))))


def near(widths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Hidden widths: as asked for; as many, all alike and at least one (GCNII); one, for a model of two layers."""
    yield widths
    yield (widths or (6,))[:1] * max(1, len(widths))
    yield (6,)


def accepted(spec: ModelSpec) -> bool:
    try:
        build(spec)
    except ConfigError:
        return False
    return True


def has(name: str, option: str) -> bool:
    module, _, cls = MODELS[name].partition(":")
    return option in getattr(importlib.import_module(module), cls).takes


def weights_of(spec: ModelSpec) -> dict[str, Array]:
    """First weights moved a little, so that no bias is zero and no gain one."""
    rng = np.random.default_rng(8)
    return {name: W + 0.2 * rng.normal(size=W.shape) for name, W in build(spec).init().items()}


# --- one epoch in one process -----------------------------------------------------------------------------------------


class Epoch:
    """Every interval through every step; each step by all intervals before the next. Keeps what came of it."""

    def __init__(
        self,
        graph: Graph,
        spec: ModelSpec,
        weights: dict[str, Array],
        *,
        lane: Lane = Lane.TRAIN,
        bounds: Sequence[int] = INTERVALS,
        cut: float | None = None,
        arithmetic: TensorOps = ops,
    ):
        self.graph, self.model = graph, build(spec, arithmetic)
        self.weights, self.lane, self.cut = weights, lane, cut
        self.program = self.model.program(lane)
        self.intervals = [slice(*pair) for pair in pairwise(bounds)]
        self.A = reference.propagation(graph, self.model.aggregate).toarray()  # [N, N]
        self.operators = self._operators() if {step.operator for step in self.program.steps} != {"linear"} else {}
        # Everything that changes: each interval's rows by slot, published rows of all vertices, and the results.
        self.rows = [self._constants(interval) for interval in self.intervals]
        self.published: dict[str, Array] = {"H0": reference.features(graph)}
        self.slots = {step.publishes: self._slot(step) for step in self.program.steps if step.publishes}
        self.gradients: dict[str, Array] = {}
        self.loss = 0.0
        for pc, step in enumerate(self.program.steps):
            for number, (interval, rows) in enumerate(zip(self.intervals, self.rows, strict=True)):
                self._run(pc, step, number, interval, rows)

    def _operators(self) -> dict[str, Operator]:
        """Those that are no matrix, on a server that has the whole graph."""
        (shard,) = shards_of(tidy(self.graph, self.graph.directed, "none"), [np.arange(self.graph.num_vertices)])
        config = Config().replace({"model.dtype": self.model.spec.dtype})
        setting = Setting(config, self.model, shard, self.lane, threads=1)
        names = {step.operator for step in self.program.steps} - {"linear"}
        return {name: operators.build(name, setting) for name in names}

    def _slot(self, step: Step) -> PublishedSlot | None:
        if step.operator not in self.operators:
            return None
        operator = self.operators[step.operator]
        store, places = operator.store(step, self.graph.num_vertices), dict(enumerate(self.intervals))
        return PublishedSlot(store, places, scale=operator.scale(step))

    def _constants(self, interval: slice) -> dict[str, Rows]:
        return {
            "H0": self.graph.features[interval],
            "vertex": np.arange(self.graph.num_vertices)[interval],
            "label": self.graph.labels[interval],
            "train": (self.graph.split[:, 0] == TRAIN)[interval],
        }

    def _run(self, pc: int, step: Step, number: int, interval: slice, rows: dict[str, Rows]) -> None:
        reads = {slot: rows[slot] for slot in step.reads}
        made: dict[str, Any] = {}
        if step.operator in self.operators and step.kind not in (Kind.AV, Kind.AV_B):
            made = self._by_operator(step, number, interval, reads)
        elif step.kind in TENSOR_KINDS:
            made = self._tensor(step, reads)
        elif step.kind in (Kind.GA, Kind.GA_B):
            made = self._gather(step, interval, reads)
        elif step.kind in (Kind.SC, Kind.SC_B):
            made = self._scatter(step, interval, reads)
        assert set(made) == set(step.writes)
        for slot, value in made.items():
            rows[slot] = rows[slot] + value if slot in step.adds else value
        for slot in list(rows):  # a server frees them here: nobody may miss them
            if slot not in GIVEN_SLOTS and self.program.last_reader[slot] <= pc:
                del rows[slot]
        if self.lane is Lane.EVAL and pc == len(self.program) - 1:
            rows |= made

    def _by_operator(self, step: Step, number: int, interval: slice, reads: dict[str, Any]) -> dict[str, Any]:
        operator, slot = self.operators[step.operator], self.slots[step.publishes or step.gathers]
        place = interval.start, interval.stop, EPOCH
        if step.publishes:
            return operator.scatter(step, slot, number, EPOCH, reads)
        if step.kind in TENSOR_KINDS:
            return self._tensor(step, reads | operator.edge_rows(step, slot, *place, reads))
        return operator.gather(step, slot, *place, reads)

    def _gather(self, step: Step, interval: slice, reads: dict[str, Rows]) -> dict[str, Rows]:
        A = self.A if step.kind is Kind.GA else self.A.T
        total = step.factor * (A[interval] @ self.published[step.gathers])
        for own in reads.values():
            total = total + step.own * own
        total = total.astype(self.model.spec.dtype)
        (slot,) = step.writes
        # Layer 0's aggregate of sparse features may stay sparse: a tensor step takes both.
        return {slot: sparse(total) if step.gathers == "H0" and isinstance(self.graph.features, SparseRows) else total}

    def _scatter(self, step: Step, interval: slice, reads: dict[str, Rows]) -> dict[str, Rows]:
        (values,) = reads.values()
        shape = (self.graph.num_vertices, values.shape[1])
        self.published.setdefault(step.publishes, np.full(shape, np.nan))[interval] = values
        return {slot: (step.own * values).astype(values.dtype) for slot in step.writes}

    def _tensor(self, step: Step, reads: dict[str, Rows]) -> dict[str, Rows]:
        parts = [self.model.run(step, half, self.weights, epoch=EPOCH, lane=self.lane) for half in self._halves(reads)]
        assert {tuple(part.rows) for part in parts} == {step.writes}
        for part in parts:
            has_gradient = step.has_gradient and step.parameters
            mine = {name for name in self.weights if has_gradient and self.model.stage(name) == step.layer}
            assert part.gradients.keys() == mine
            self.loss += part.loss
            for name, gradient in part.gradients.items():
                self.gradients[name] = self.gradients.get(name, 0) + gradient
        rows = {slot: stacked([part.rows[slot] for part in parts]) for slot in step.writes}
        for slot, value in rows.items():
            assert value.shape[1] == self.model.width(slot)
        return rows

    def _halves(self, reads: dict[str, Rows]) -> list[dict[str, Rows]]:
        if self.cut is None:
            return [reads]
        at = round(self.cut * len(next(iter(reads.values()))))
        return [{slot: X[:at] for slot, X in reads.items()}, {slot: X[at:] for slot, X in reads.items()}]


def stacked(parts: list[Any]) -> Any:
    if not isinstance(parts[0], EdgeRows):
        return np.concatenate(parts)
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    return EdgeRows(np.concatenate([[0], counts.cumsum()]), np.concatenate([part.values for part in parts]))


def same(epoch: Epoch, expected: Epoch, tolerance: float = 1e-12) -> None:
    assert epoch.loss == pytest.approx(expected.loss, abs=tolerance)
    assert epoch.gradients.keys() == expected.gradients.keys()
    for name, gradient in expected.gradients.items():
        np.testing.assert_allclose(epoch.gradients[name], gradient, rtol=0, atol=tolerance, err_msg=name)


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_gradients_equal_the_reference(case):
    graph, spec = case
    weights = weights_of(spec)
    epoch = Epoch(graph, spec, weights)
    loss, gradients = reference.loss_and_gradients(graph, spec, weights, epoch=EPOCH)
    assert epoch.loss == pytest.approx(loss, abs=1e-12)
    assert epoch.gradients.keys() == gradients.keys()
    for parameter, gradient in gradients.items():
        np.testing.assert_allclose(epoch.gradients[parameter], gradient, rtol=0, atol=1e-12, err_msg=parameter)


def test_gradients_equal_finite_differences(case):
    graph, spec = case
    weights = weights_of(spec)
    gradients = Epoch(graph, spec, weights).gradients
    check_gradients(gradients, weights, lambda moved: Epoch(graph, spec, moved, bounds=WHOLE).loss)


def check_gradients(
    gradients: dict[str, Array], weights: dict[str, Array], loss: Callable[[dict[str, Array]], float]
) -> None:
    """Of each parameter, along a direction that is drawn: the quotient of central differences."""
    assert gradients.keys() == weights.keys()
    rng, step = np.random.default_rng(9), 1e-6
    for parameter, W in weights.items():
        direction = rng.normal(size=W.shape)
        above, below = (loss(weights | {parameter: W + sign * step * direction}) for sign in (1, -1))
        expected = (above - below) / (2 * step)
        assert (gradients[parameter] * direction).sum() == pytest.approx(expected, rel=1e-6, abs=1e-8), parameter


@pytest.mark.parametrize("words", [False, True], ids=["dense", "words"])
def test_evaluation_ends_with_the_logits_of_every_vertex(case, words):
    graph, spec = case
    weights = weights_of(spec)
    given = with_sparse_features(graph) if words else graph
    epoch = Epoch(given, replace(spec, words_first=words), weights, lane=Lane.EVAL)
    (slot,) = epoch.program.steps[-1].writes
    logits = np.concatenate([rows[slot] for rows in epoch.rows])
    np.testing.assert_allclose(logits, reference.predict(graph, spec, weights), rtol=0, atol=1e-12)
    assert not epoch.gradients


@pytest.mark.sampled(2)
def test_fusion_and_rematerialisation_change_nothing(case):
    graph, spec = case
    weights = weights_of(spec)
    plainest = replace(spec, fuse=False, rematerialise=False)
    same(Epoch(graph, plainest, weights), Epoch(graph, spec, weights))


@pytest.mark.parametrize(("fuse", "rematerialise"), [(True, False), (False, True)])
def test_fusion_and_rematerialisation_are_independent(name, fuse, rematerialise):
    graph, spec = case_of(name, **VARIANTS["everything"])
    weights = weights_of(spec)
    other = replace(spec, fuse=fuse, rematerialise=rematerialise)
    same(Epoch(graph, other, weights), Epoch(graph, spec, weights))


@pytest.mark.parametrize("bounds", [WHOLE, tuple(range(24))], ids=["one", "one each"])
def test_intervals_sum_to_the_whole(name, bounds):
    graph, spec = case_of(name, **VARIANTS["everything"])
    weights = weights_of(spec)
    same(Epoch(graph, spec, weights, bounds=bounds), Epoch(graph, spec, weights))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("alone", [True, False], ids=["fused", "in steps"])
def test_rows_may_be_cut_anywhere(name, alone):
    graph, spec = case_of(name, **VARIANTS["everything"], fuse=alone, rematerialise=alone)
    weights = weights_of(spec)
    expected = Epoch(graph, spec, weights)
    for cut in (0.0, 0.1, 0.5, 1.0):
        same(Epoch(graph, spec, weights, cut=cut), expected)


@pytest.mark.sampled(2)
def test_sparse_inputs_give_the_same_as_dense_ones(case):
    graph, spec = case
    weights = weights_of(spec)
    expected = Epoch(graph, spec, weights)
    same(Epoch(with_sparse_features(graph), spec, weights), expected)
    same(Epoch(with_sparse_features(graph), spec, weights, cut=0.3), expected)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_features_of_a_narrower_dtype_are_computed_in_that_of_the_weights(name, dtype, dropout):
    graph, spec = case_of(name, dropout=dropout)
    graph = replace(graph, features=np.abs(8 * graph.features).astype(dtype))
    weights = weights_of(spec)
    wide = replace(graph, features=graph.features.astype(np.float64))
    for narrow in (graph, with_sparse_features(graph)):
        same(Epoch(narrow, spec, weights), Epoch(wide, spec, weights))


class Multiplied:
    """The arithmetic of ``siafu.ops``; keeps whether each product was to round."""

    def __init__(self) -> None:
        self.rounds: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name)

    def matmul(self, X: Rows, W: Array, add: Array | None = None, *, rounds: bool = False) -> Array:
        self.rounds.append(rounds)
        return ops.matmul(X, W, add, rounds=rounds)

    def matmul_transposed(self, X: Rows, D: Array, *, rounds: bool = False) -> Array:
        self.rounds.append(rounds)
        return ops.matmul_transposed(X, D, rounds=rounds)


def test_with_rows_in_bfloat16_every_product_rounds(name):
    graph, spec = case_of(name, dropout=0.3)
    weights, epochs, counted = weights_of(spec), {}, {}
    for rows in ("exact", "bfloat16"):
        made = Multiplied()
        epochs[rows] = Epoch(graph, replace(spec, rows=rows), weights, arithmetic=made)
        assert set(made.rounds) == {rows == "bfloat16"}
        counted[rows] = len(made.rounds)
    assert counted["exact"] == counted["bfloat16"]
    for parameter, gradient in epochs["exact"].gradients.items():
        largest = np.abs(epochs["bfloat16"].gradients[parameter] - gradient).max()
        assert 0 < largest < 0.05 * np.abs(gradient).max(), parameter


def test_features_in_bfloat16_stay_so_until_products_that_round():
    X = to_bfloat16(np.arange(6, dtype=np.float32).reshape(3, 2))
    _, spec = case_of("gcn", dropout=0.5)
    spec = replace(spec, dtype="float32")
    for rows, dtype in (("exact", np.float32), ("bfloat16", X.dtype)):
        for lane in (Lane.TRAIN, Lane.EVAL):
            drop = Dropout(replace(spec, rows=rows), ops, EPOCH, lane, {"vertex": np.arange(3)})
            assert drop(X, 0).dtype == dtype


def test_shapes_are_those_of_the_parameters_and_take_no_memory(case):
    _, spec = case
    drawn, shapes = build(spec).init(), models.shapes(spec)
    told = {name: (array.shape, array.dtype, array.nbytes) for name, array in shapes.items()}
    assert told == {name: (W.shape, W.dtype, W.nbytes) for name, W in drawn.items()}
    assert not any(any(array.strides) for array in shapes.values())


@pytest.mark.sampled(2)
def test_float32_stays_float32(case):
    graph, spec = case
    spec = replace(spec, dtype="float32", fuse=False, rematerialise=False)
    weights = build(spec).init()
    epoch = Epoch(graph, spec, weights)
    assert {W.dtype for W in weights.values()} == {np.dtype(np.float32)}
    assert {g.dtype for g in epoch.gradients.values()} == {np.dtype(np.float32)}
    loss, gradients = reference.loss_and_gradients(graph, spec, reference.first_weights(spec), epoch=EPOCH)
    assert epoch.loss == pytest.approx(loss, rel=1e-5)
    for parameter, gradient in gradients.items():
        np.testing.assert_allclose(epoch.gradients[parameter], gradient, rtol=1e-3, atol=1e-5, err_msg=parameter)


def test_an_interval_without_training_vertices_has_zero_loss_and_gradients(name):
    graph, spec = case_of(name, dropout=0.2)
    nobody = replace(graph, split=np.zeros_like(graph.split))
    epoch = Epoch(nobody, spec, weights_of(spec))
    assert epoch.loss == 0.0
    assert all(not gradient.any() for gradient in epoch.gradients.values())


def test_dropout_acts_while_training_only_and_differs_between_epochs(name):
    _, spec = case_of(name, dropout=0.5)
    model, weights = build(spec), weights_of(spec)
    step = next(step for step in model.program(Lane.TRAIN).steps if step.kind is Kind.AV)
    rng = np.random.default_rng(1)
    rows = {slot: rng.normal(size=(4, model.width(slot))) for slot in step.reads if slot != "vertex"}
    rows["vertex"] = np.arange(4)

    def activations(epoch: int, lane: Lane) -> Array:
        return model.run(step, rows, weights, epoch=epoch, lane=lane).rows[step.writes[0]]

    np.testing.assert_array_equal(activations(0, Lane.TRAIN), activations(0, Lane.TRAIN))
    np.testing.assert_array_equal(activations(0, Lane.EVAL), activations(1, Lane.EVAL))
    assert (activations(0, Lane.TRAIN) != activations(1, Lane.TRAIN)).any()


def test_first_weights_are_a_function_of_the_seed_alone(name):
    _, spec = case_of(name, norm="layer")
    first, again, other = build(spec).init(), build(spec).init(), build(replace(spec, seed=4)).init()
    wide = build(replace(spec, dtype="float32")).init()
    for parameter, W in first.items():
        np.testing.assert_array_equal(W, again[parameter])
        np.testing.assert_array_equal(W.astype(np.float32), wide[parameter])
        if W.ndim == 2:
            assert (other[parameter] != W).all()


@pytest.mark.parametrize("init", ["xavier", "he"])
def test_first_weights_have_the_variance_of_their_paper(name, init):
    spec = ModelSpec(name, in_features=300, num_classes=200, num_train=1, widths=(200,), init=init, dtype="float64")
    for parameter, W in build(spec).init().items():
        if parameter.startswith("0.") and W.ndim == 2:
            fan_in, fan_out = W.shape
            assert W.var() == pytest.approx(2 / (fan_in + fan_out) if init == "xavier" else 2 / fan_in, rel=0.02)


@pytest.mark.sampled(2)
def test_inputs_are_left_as_they_were(case):
    graph, spec = case
    spec = replace(spec, fuse=False, rematerialise=False)
    weights = weights_of(spec)
    before = {parameter: W.copy() for parameter, W in weights.items()}

    class Watched(Epoch):
        def _tensor(self, step: Step, reads: dict[str, Rows]) -> dict[str, Rows]:
            for X in reads.values():
                X.flags.writeable = False
            return super()._tensor(step, reads)

    Watched(graph, spec, weights)
    for parameter, W in weights.items():
        np.testing.assert_array_equal(W, before[parameter])


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(case) -> list[Program]:
    """Evaluation's, that of training, and that with a step for everything."""
    _, spec = case
    plainest = build(replace(spec, fuse=False, rematerialise=False))
    return [build(spec).program(Lane.EVAL), build(spec).program(Lane.TRAIN), plainest.program(Lane.TRAIN)]


def test_every_slot_is_written_before_it_is_read(programs):
    for program in programs:
        check_slots(program)


def check_slots(program: Program) -> None:
    written, published = set(GIVEN_SLOTS), {"H0"}
    for step in program.steps:
        assert set(step.reads) <= written, step.name
        assert step.gathers is None or step.gathers in published, step.name
        assert len(set(step.writes)) == len(step.writes), step.name
        assert not set(step.writes) & written - {*step.reads, *step.adds}, f"{step.name} writes a slot twice"
        written |= set(step.writes)
        if step.publishes:
            assert step.publishes in step.reads, step.name
            published.add(step.publishes)


def test_every_published_slot_is_gathered_later(programs):
    for program in programs:
        for slot, pc in program.publisher.items():
            assert any(step.gathers == slot for step in program.steps[pc + 1 :]), slot


def test_steps_hold_to_their_kind(programs):
    for step in (step for program in programs for step in program.steps):
        assert (step.gathers is not None) == (step.kind in (Kind.GA, Kind.GA_B, Kind.AE, Kind.AE_B)), step.name
        assert (step.publishes is not None) == (step.kind in (Kind.SC, Kind.SC_B)), step.name
        assert not step.fused or step.kind is Kind.AV


def test_training_ends_with_one_weight_update_and_evaluation_has_none(programs):
    for program in programs:
        kinds = [step.kind for step in program.steps]
        training = any(step.has_gradient for step in program.steps)
        assert kinds.count(Kind.WU) == int(training)
        assert not training or kinds[-1] is Kind.WU


def test_each_stage_has_its_gradient_once(programs):
    for program in programs:
        layers = [step.layer for step in program.steps if step.has_gradient and step.parameters]
        assert layers == sorted(set(layers), reverse=True)


def test_vertex_ids_travel_only_with_dropout_in_training(name):
    for lane, dropout in ((Lane.EVAL, 0.5), (Lane.TRAIN, 0.0)):
        steps = build(ModelSpec(name, 7, 4, 9, dropout=dropout)).program(lane).steps
        assert not any("vertex" in step.reads for step in steps)


def test_gcn_program_of_a_layer_that_gets_narrower():
    table = """
        GA0                     -> Z0       gathers H0
        AV0   Z0                -> T1
        SC0   T1                            publishes T1
        GA1                     -> Z1       gathers T1
        AV1   Z1 label train    -> dZ1      fused
        SC'1  dZ1                           publishes dZ1
        GA'1                    -> dT1      gathers dZ1
        AV'0  Z0 dT1
        WU0
    """
    assert written_out(build(ModelSpec("gcn", 7, 4, 9)).program(Lane.TRAIN)) == tidied(table)


def test_gcn_program_of_a_layer_that_gets_wider():
    table = """
        GA0                     -> Z0       gathers H0
        AV0   Z0                -> H1
        SC0   H1                            publishes H1
        GA1                     -> Z1       gathers H1
        AV1   Z1 label train    -> dZ1      fused
        SC'1  dZ1                           publishes dZ1
        GA'1                    -> dH1      gathers dZ1
        AV'0  Z0 dH1
        WU0
    """
    assert written_out(build(ModelSpec("gcn", 7, 4, 9, widths=(3,))).program(Lane.TRAIN)) == tidied(table)


def test_sage_program_with_everything_spelled_out():
    table = """
        GA0                              -> Z0          gathers H0
        AV0   H0 Z0 vertex               -> H1 P0
        SC0   H1                                        publishes H1
        GA1                              -> Z1          gathers H1
        AV1   H1 Z1 vertex               -> T2 S2 H2 P1
        SC1   T2                                        publishes T2
        GA2   S2                         -> Z2          gathers T2
        AV2   Z2                         -> H3
        AV'2  Z2 H3 label train          -> dZ2
        SC'2  dZ2                        -> dS2         publishes dZ2
        GA'2                             -> dT2         gathers dZ2
        AV'1  H1 Z1 vertex H2 P1 dT2 dS2 -> dH1 dZ1
        SC'1  dZ1                                       publishes dZ1
        GA'1  dH1                        -> dH1         gathers dZ1
        AV'0  H0 Z0 vertex H1 P0 dH1
        WU0
    """
    spec = ModelSpec("sage", 7, 4, 9, widths=(8, 8), dropout=0.5, norm="layer", fuse=False, rematerialise=False)
    assert written_out(build(spec).program(Lane.TRAIN)) == tidied(table)


def test_evaluations_of_words_transform_them_before_they_gather():
    table = """
        AV0   H0                -> T0 S0
        SC0   T0                            publishes T0
        GA0   S0                -> Y0       gathers T0
        AV0   Y0                -> T1 S1
        SC0   T1                            publishes T1
        GA1   S1                -> Z1       gathers T1
        AV1   Z1                -> H2
    """
    spec = ModelSpec("sage", 70, 4, 9, words_first=True)
    model = build(spec)
    assert written_out(model.program(Lane.EVAL)) == tidied(table)
    marks = [(step.feeds_loss, step.judged) for step in model.program(Lane.EVAL).steps if step.kind is Kind.AV]
    assert marks == [(False, False), (True, False), (False, True)]
    assert model.program(Lane.TRAIN) == build(replace(spec, words_first=False)).program(Lane.TRAIN)


@pytest.mark.parametrize("options", [{"widths": ()}, {"widths": (70,)}, {"narrow": False}])
def test_others_of_words_gather_them_first(options):
    """Those of one layer, of features that are not transformed to fewer columns, and where nobody wants it."""
    spec = ModelSpec("gcn", 70, 4, 9, words_first=True, **options)
    assert build(spec).program(Lane.EVAL) == build(replace(spec, words_first=False)).program(Lane.EVAL)


def test_gcnii_program_in_which_what_every_layer_reads_travels_once():
    table = """
        AV0   H0 vertex       -> H1 R0
        SC0   H1                                publishes H1
        GA0   R0              -> Z1             gathers H1
        AV1   Z1 vertex       -> H2
        SC1   H2                                publishes H2
        GA1   R0              -> Z2             gathers H2
        AV2   Z2 vertex label train -> dZ2      fused
        SC'1  dZ2             -> dR0            publishes dZ2
        GA'1                  -> dH2            gathers dZ2
        AV'1  Z1 vertex dH2   -> dZ1
        SC'0  dZ1             -> dR0            publishes dZ1
        GA'0                  -> dH1            gathers dZ1
        AV'0  H0 vertex dH1 dR0
        WU0
    """
    program = build(ModelSpec("gcnii", 7, 4, 9, dropout=0.5)).program(Lane.TRAIN)
    assert written_out(program) == tidied(table)
    assert [step.adds for step in program.steps if step.kind is Kind.SC_B] == [(), ("dR0",)]


def test_appnp_program_has_no_tensor_task_between_hops():
    table = """
        AV0   H0                -> H1
        SC0   H1                         publishes H1
        GA0   H1                -> Z1    gathers H1
        SC1   Z1                         publishes Z1
        GA1   H1                -> Z2    gathers Z1
        AV1   Z2 label train    -> dZ2   fused
        SC'1  dZ2               -> dH1   publishes dZ2
        GA'1                    -> dZ1   gathers dZ2
        SC'0  dZ1               -> dH1   publishes dZ1
        GA'0  dH1               -> dH1   gathers dZ1
        AV'0  H0 dH1
        WU0
    """
    assert written_out(build(ModelSpec("appnp", 7, 4, 9, hops=2)).program(Lane.TRAIN)) == tidied(table)


def test_every_parameter_has_one_stage(case):
    model = build(case[1])
    weights = model.init()
    for steps in (
        [step for step in model.program(Lane.EVAL).steps if step.kind in TENSOR_KINDS],
        [step for step in model.program(Lane.TRAIN).steps if step.has_gradient],
    ):
        assert {step.layer for step in steps if step.parameters} == {model.stage(parameter) for parameter in weights}


def test_weights_that_papers_decay_otherwise():
    def rest(name: str) -> set[str]:
        model = build(ModelSpec(name, 7, 4, 9, widths=(6, 6)))
        return {parameter for parameter in model.init() if model.rest(parameter)}

    assert rest("gcn") == {"1.weight", "1.bias", "2.weight", "2.bias"}
    assert rest("gcnii") == {"0.weight", "0.bias", "4.weight", "4.bias"}
    assert rest("appnp") == {"1.weight", "1.bias", "2.weight", "2.bias"}
    assert rest("sage") == rest("gin") == rest("sgc") == set()


def written_out(program: Program) -> list[str]:
    lines = []
    for step in program.steps:
        line = [step.name, *step.reads]
        line += ["->", *step.writes] if step.writes else []
        line += ["gathers", step.gathers] if step.gathers else []
        line += ["publishes", step.publishes] if step.publishes else []
        lines.append(" ".join(line + ["fused"] * step.fused))
    return lines


def tidied(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.strip().splitlines()]


# --- the table --------------------------------------------------------------------------------------------------------


def test_an_unknown_model_is_named_with_those_that_exist():
    with pytest.raises(ConfigError, match=r"^model 'gnc': unknown, must be one of gcn, sage"):
        build(ModelSpec("gnc", 7, 4, 9))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sage", {"residual": True}, "model.residual = True: sage does not use it"),
        ("gcn", {"alpha": 0.5}, "model.alpha = 0.5: gcn does not use it"),
        ("gcn", {"train_eps": True}, "model.train_eps = True: gcn does not use it"),
        ("sgc", {"norm": "layer"}, "model.norm = layer: sgc does not use it"),
        ("appnp", {"jump": "cat"}, "model.jump = cat: appnp does not use it"),
        ("gin", {"attn_dropout": 0.1}, "model.attn_dropout = 0.1: gin does not use it"),
        ("gcnii", {"widths": ()}, "model.layers = 1: gcnii needs at least 2"),
        ("gcnii", {"widths": (4, 5)}, "model.hidden = [4, 5]: layers of gcnii must have one width"),
        (
            "gcn",
            {"jump": "max", "widths": (4, 5)},
            "model.jump = max: layers must have one width, model.hidden = [4, 5]",
        ),
    ],
)
def test_options_that_a_model_does_not_have_are_named(name, options, message):
    with pytest.raises(ConfigError) as caught:
        build(replace(ModelSpec(name, 7, 4, 9), **options))
    assert str(caught.value) == message


def test_with_jumping_knowledge_every_layer_is_a_hidden_one():
    assert Config().replace({"model.layers": 3, "model.jump": "cat", "model.hidden": "7 5 3"}).model.widths == (7, 5, 3)
    assert Config().replace({"model.layers": 3, "model.jump": "sum", "model.hidden": 8}).model.widths == (8, 8, 8)
    with pytest.raises(ConfigError, match=r"^model.hidden = \[7, 5\]: must be one width or model.layers = 3$"):
        Config().replace({"model.layers": 3, "model.jump": "cat", "model.hidden": "7 5"})


def test_models_keep_no_state(name):
    model: Model = build(case_of(name)[1])
    before = dict(vars(model))
    graph, spec = case_of(name)
    Epoch(graph, spec, weights_of(spec))
    assert vars(model) == before
    assert isinstance(model.program(Lane.TRAIN), Program)
    assert Output({}).gradients is not Output({}).gradients
