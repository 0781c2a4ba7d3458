"""GAT against ``tests.reference_gat``, finite differences and torch, in both placements
of ApplyEdge; and its programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from siafu import models
from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec
from siafu.sparse import Array, EdgeRows
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Program, is_of_edges
from tests import reference, reference_gat
from tests.contracts.test_models import check_gradients, tidied, weights_of, written_out
from tests.graph_server.graph_steps import GraphSteps
from tests.toy_graphs import random_graph, with_sparse_features

EPOCH = 3
WHOLE: tuple[int, ...] = (0, 23)
INTERVALS = (0, 5, 5, 6, 17, 23)  # one is empty, one has a single vertex
DROPS = {"dropout": 0.3, "attn_dropout": 0.4}

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"activation": "elu"},
    "one layer": {"widths": (), **DROPS},
    "one head": {"heads": 1, "out_heads": 1, "activation": "tanh"},
    "three layers": {"widths": (6, 4), "residual": True, **DROPS},
    "residual, as wide": {"widths": (4,), "residual": True, "activation": "elu"},
    "residual of features": {"widths": (7, 7), "heads": 7, "residual": True, "dropout": 0.3},
    "layer norm": {"norm": "layer", "activation": "tanh", **DROPS},
    "multi-label, no bias": {"multilabel": True, "bias": False, "attn_dropout": 0.5},
    "everything": {
        "widths": (6, 4),
        "norm": "layer",
        "activation": "elu",
        "residual": True,
        "multilabel": True,
        **DROPS,
    },
}
placements = pytest.mark.parametrize("apply_edge", ["server", "lambda"])


@pytest.fixture(params=VARIANTS)
def case(request: pytest.FixtureRequest) -> tuple[Graph, ModelSpec]:
    return case_of(**VARIANTS[request.param])


def case_of(**options: Any) -> tuple[Graph, ModelSpec]:
    graph = random_graph(11, multilabel=bool(options.get("multilabel")))
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    spec = ModelSpec("gat", 7, 4, num_train, widths=(6,), heads=2, out_heads=3, seed=3, dtype="float64")
    return graph, replace(spec, **options)


class Epoch:
    """Every interval through every step, each step by all before the next; real operators, one process."""

    def __init__(
        self,
        graph: Graph,
        spec: ModelSpec,
        weights: dict[str, Array],
        *,
        lane: Lane = Lane.TRAIN,
        bounds: Sequence[int] = INTERVALS,
        cut: float | None = None,
    ):
        self.model, self.weights, self.lane, self.cut = models.build(spec), weights, lane, cut
        graph_steps, self.loss, self.gradients = GraphSteps(graph, self.model, lane, bounds), 0.0, {}
        self.rows: list[dict[str, Any]] = []
        for interval in (slice(*pair) for pair in pairwise(bounds)):
            constants = {"H0": graph.features[interval], "vertex": np.arange(graph.num_vertices)[interval]}
            self.rows.append(
                constants | {"label": graph.labels[interval], "train": (graph.split[:, 0] == TRAIN)[interval]}
            )
        program = self.model.program(lane)
        for pc, step in enumerate(program.steps):
            for number, rows in enumerate(self.rows):
                if step.kind in TENSOR_KINDS:
                    sent = {slot: rows[slot] for slot in step.reads}
                    if step.gathers:
                        sent |= graph_steps.edge_rows(step, number, EPOCH, rows)
                    rows |= self._tensor(step, sent)
                elif step.kind is not Kind.WU:
                    rows |= graph_steps.run(step, number, EPOCH, rows)
                for slot in [slot for slot in rows if slot in program.last_reader and slot[0] != "H"]:
                    if program.last_reader[slot] <= pc and slot not in ("vertex", "label", "train"):
                        del rows[slot]  # a server frees them here: nobody may miss them

    def _tensor(self, step: Any, sent: dict[str, Any]) -> dict[str, Any]:
        halves = [sent]
        if self.cut is not None:
            at = round(self.cut * len(next(iter(sent.values()))))
            halves = [{slot: X[:at] for slot, X in sent.items()}, {slot: X[at:] for slot, X in sent.items()}]
        parts = [self.model.run(step, half, self.weights, epoch=EPOCH, lane=self.lane) for half in halves]
        for part in parts:
            assert set(part.rows) == set(step.writes)
            assert not part.gradients or part.gradients.keys() == {
                name for name in self.weights if self.model.stage(name) == step.layer
            }
            self.loss += part.loss
            for name, gradient in part.gradients.items():
                self.gradients[name] = self.gradients.get(name, 0) + gradient
        made = {slot: joined([part.rows[slot] for part in parts]) for slot in step.writes}
        for slot, values in made.items():
            assert values.shape[1] == self.model.width(slot), slot
            assert isinstance(values, EdgeRows) == is_of_edges(slot)
        return made


def joined(parts: list[Any]) -> Any:
    if not isinstance(parts[0], EdgeRows):
        return np.concatenate(parts)
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    return EdgeRows(np.concatenate([[0], np.cumsum(counts)]), np.concatenate([part.values for part in parts]))


def same(epoch: Epoch, loss: float, gradients: dict[str, Array]) -> None:
    assert epoch.loss == pytest.approx(loss, abs=1e-12)
    assert epoch.gradients.keys() == gradients.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(epoch.gradients[name], gradient, rtol=0, atol=1e-12, err_msg=name)


# --- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@placements
@pytest.mark.parametrize("cut", [None, 0.4])
def test_gradients_equal_the_reference(case, cut, apply_edge):
    graph, spec = case
    weights = weights_of(spec)
    epoch = Epoch(graph, replace(spec, apply_edge=apply_edge), weights, cut=cut)
    same(epoch, *reference_gat.loss_and_gradients(graph, spec, weights, epoch=EPOCH))


@placements
@pytest.mark.parametrize(
    "graph_options", [{"directed": False, "weighted": False}, {"num_edges": 0}, {"num_edges": 400}]
)
def test_gradients_equal_the_reference_on_other_graphs(graph_options, apply_edge):
    graph = random_graph(5, **graph_options)
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    spec = replace(case_of(**VARIANTS["three layers"])[1], num_train=num_train, apply_edge=apply_edge)
    weights = weights_of(spec)
    same(Epoch(graph, spec, weights), *reference_gat.loss_and_gradients(graph, spec, weights, epoch=EPOCH))


def test_sparse_features_give_what_dense_ones_do(case):
    graph, spec = case
    weights = weights_of(spec)
    same(
        Epoch(with_sparse_features(graph), spec, weights),
        *reference_gat.loss_and_gradients(graph, spec, weights, epoch=EPOCH),
    )


@pytest.mark.parametrize("name", ["one head", "everything"])
def test_gradients_equal_finite_differences(name):
    graph, spec = case_of(**VARIANTS[name])
    weights = weights_of(spec)
    gradients = Epoch(graph, spec, weights, bounds=WHOLE).gradients
    check_gradients(gradients, weights, lambda moved: Epoch(graph, spec, moved, bounds=WHOLE).loss)


@placements
def test_evaluation_ends_with_the_logits_of_every_vertex(case, apply_edge):
    graph, spec = case
    weights = weights_of(spec)
    epoch = Epoch(graph, replace(spec, apply_edge=apply_edge), weights, lane=Lane.EVAL)
    logits = np.concatenate([rows[f"H{spec.num_layers}"] for rows in epoch.rows])
    expected = reference_gat.forward(graph, spec, weights, epoch=None)[0]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-12)
    assert not epoch.gradients


@placements
@pytest.mark.parametrize("bounds", [WHOLE, tuple(range(24))])
def test_intervals_sum_to_the_whole(bounds, apply_edge):
    graph, spec = case_of(**VARIANTS["everything"], fuse=False, apply_edge=apply_edge)
    weights = weights_of(spec)
    expected = Epoch(graph, spec, weights)
    same(Epoch(graph, spec, weights, bounds=bounds), expected.loss, expected.gradients)


# --- torch's opinion of the reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("drops", [False, True])
def test_the_reference_has_the_gradients_of_torch(case, drops):
    graph, spec = case
    weights = weights_of(spec)
    if not drops:
        spec = replace(spec, dropout=0.0, attn_dropout=0.0)
    loss, gradients = reference_gat.loss_and_gradients(graph, spec, weights, epoch=EPOCH)
    tensors = {name: torch.tensor(W, requires_grad=True) for name, W in weights.items()}
    logits = torch_logits(graph, spec, tensors)
    train = np.flatnonzero(graph.split[:, 0] == TRAIN)
    labels = torch.from_numpy(np.ascontiguousarray(graph.labels[train]))
    functional = torch.nn.functional
    expected = (
        functional.binary_cross_entropy_with_logits(logits[train], labels.double())
        if spec.multilabel
        else functional.cross_entropy(logits[train], labels)
    )
    expected.backward()
    assert loss == pytest.approx(expected.item(), abs=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, tensors[name].grad.numpy(), rtol=0, atol=1e-12, err_msg=name)


def torch_logits(graph: Graph, spec: ModelSpec, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """With dense [N, N] matrices of coefficients: softmax over each row, in which only
    in-edges and the diagonal count."""
    n, edges = graph.num_vertices, reference_gat.EdgeList.of(graph)
    adjacency = torch.zeros(n, n, dtype=torch.float64)  # [target, source]
    adjacency[edges.dst, edges.src] = torch.from_numpy(edges.weight)
    H = torch.from_numpy(reference.features(graph))
    for layer in range(spec.num_layers):
        last = layer == spec.num_layers - 1
        heads = spec.out_heads if last else spec.heads
        X = H * torch.as_tensor(reference.dropout_scale(H.detach().numpy(), spec, EPOCH, layer))
        T = (X @ weights[f"{layer}.weight"]).reshape(n, heads, -1)
        s, t = ((T * weights[f"{layer}.{name}"].reshape(heads, -1)).sum(2) for name in ("source", "target"))
        mask = torch.zeros(n, n, heads, dtype=torch.float64)
        mask[edges.dst, edges.src] = torch.from_numpy(reference_gat.edge_mask(edges, spec, EPOCH, layer, heads))
        outputs = []
        for k in range(heads):
            e = torch.nn.functional.leaky_relu(t[:, None, k] + s[None, :, k], spec.slope)
            alpha = torch.softmax(e + torch.log(adjacency), dim=1)  # w exp(e) / sum: log of no edge is -inf
            outputs.append((mask[:, :, k] * alpha) @ T[:, k])
        P = torch.stack(outputs).mean(0) if last else torch.cat(outputs, dim=1)
        P = P + weights[f"{layer}.bias"] if spec.bias else P
        if spec.residual:
            P = P + (X @ weights[f"{layer}.residual"] if f"{layer}.residual" in weights else X)
        if not last:
            if spec.norm == "layer":
                P = (
                    torch.nn.functional.layer_norm(P, P.shape[1:]) * weights[f"{layer}.gain"]
                    + weights[f"{layer}.shift"]
                )
            H = {"relu": torch.relu, "tanh": torch.tanh, "elu": torch.nn.functional.elu}[spec.activation](P)
    return P


# --- programs ---------------------------------------------------------------------------------------------------------


def test_program_with_apply_edge_on_the_servers():
    table = """
        AV0   H0                                  -> T0 s0 t0
        SC0   T0 s0                                               publishes T0
        GA0   t0                                  -> Z0 leaned0 log_total0 leaned_total0  gathers T0
        AV1   Z0                                  -> T1 s1 t1
        SC1   T1 s1                                               publishes T1
        GA1   t1                                  -> Z1 leaned1 log_total1 leaned_total1  gathers T1
        AV2   Z1 label train                      -> dZ1          fused
        SC'1  dZ1 Z1 leaned1 log_total1 leaned_total1 t1 -> dt1   publishes dZ1
        GA'1  T1 s1                               -> dT1 ds1      gathers dZ1
        AV'1  Z0 dT1 ds1 dt1                      -> dZ0
        SC'0  dZ0 Z0 leaned0 log_total0 leaned_total0 t0 -> dt0   publishes dZ0
        GA'0  T0 s0                               -> dT0 ds0      gathers dZ0
        AV'0  H0 dT0 ds0 dt0
        WU0
    """
    assert written_out(program()) == tidied(table)


def test_program_with_apply_edge_as_tensor_tasks():
    table = """
        AV0   H0                                  -> T0 s0 t0
        SC0   T0 s0                                               publishes T0
        AE0   t0                                  -> Ea0 log_total0       gathers T0
        GA0   Ea0 log_total0                      -> Z0 leaned0 leaned_total0  gathers T0
        AV1   Z0 label train                      -> dZ0          fused
        SC'0  dZ0 Z0 leaned0 log_total0 leaned_total0 t0 -> dt0   publishes dZ0
        GA'0  T0                                  -> Ep0          gathers dZ0
        AE'0  s0 Ep0                              -> Eb0 ds0      gathers dZ0
        GA'0  Eb0                                 -> dT0          gathers dZ0
        AV'0  H0 dT0 ds0 dt0
        WU0
    """
    assert written_out(program(widths=(), apply_edge="lambda")) == tidied(table)
    edge_tasks = [step for step in program(apply_edge="lambda").steps if step.kind in (Kind.AE, Kind.AE_B)]
    assert not any(step.parameters for step in edge_tasks)


def test_program_of_evaluation_leaves_nothing_for_backward():
    table = """
        AV0   H0       -> T0 s0 t0
        SC0   T0 s0                  publishes T0
        GA0   t0       -> Z0         gathers T0
        AV1   Z0       -> H1
    """
    assert written_out(program(Lane.EVAL, widths=())) == tidied(table)


def test_vertex_ids_travel_where_something_is_dropped():
    reading = [step.name for step in program(dropout=0.5).steps if "vertex" in step.reads]
    assert reading == ["AV0", "AV1", "AV'1", "AV'0"]
    for lane, options in ((Lane.EVAL, {"dropout": 0.5}), (Lane.TRAIN, {"attn_dropout": 0.5})):
        assert not any("vertex" in step.reads for step in program(lane, **options).steps)


def program(lane: Lane = Lane.TRAIN, **options: Any) -> Program:
    return models.build(ModelSpec("gat", 7, 4, 9, **{"widths": (16,), **options})).program(lane)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"widths": (30,)}, "model.hidden = 30: must be a multiple of model.heads = 8 for gat"),
        ({"jump": "cat"}, "model.jump = cat: gat does not use it"),
    ],
)
def test_what_cannot_be_is_named(options, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        models.build(ModelSpec("gat", 7, 4, 9, **options))
