"""R-GCN on graphs whose edges have types, against ``tests.reference_rgcn``, finite
differences and torch; and its programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from siafu.errors import ConfigError
from siafu.graph import TRAIN, Graph
from siafu.models import ModelSpec, build
from siafu.sparse import Array
from siafu.tasks import Kind, Lane
from tests import reference
from tests.contracts.test_models import EPOCH, WHOLE, Epoch, check_gradients, same, tidied, weights_of, written_out
from tests.toy_graphs import random_graph, with_sparse_features

RELATIONS = 4
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "one layer": {"widths": ()},
    "bases": {"bases": 2, "widths": (6, 5)},
    "much narrower": {"widths": (9, 2), "bases": 3, "dropout": 0.2},
    "never narrow": {"widths": (9, 2), "narrow": False, "activation": "elu", "dropout": 0.2},
    "everything": {
        "widths": (6, 2),
        "bases": 1,
        "dropout": 0.3,
        "norm": "layer",
        "activation": "tanh",
        "multilabel": True,
        "bias": False,
    },
}


def typed_graph(*, multilabel: bool = False) -> Graph:
    """Relation 2 has no edge, and some pairs of vertices have an edge of each of two relations."""
    graph = random_graph(11, multilabel=multilabel)
    rng = np.random.default_rng(4)
    kind, twice = rng.choice(np.array([0, 0, 1], np.uint16), graph.num_edges), rng.permutation(graph.num_edges)[:9]
    assert graph.weight is not None
    return replace(
        graph,
        src=np.append(graph.src, graph.src[twice]),
        dst=np.append(graph.dst, graph.dst[twice]),
        weight=np.append(graph.weight, graph.weight[twice] * np.float32(3)),
        edge_type=np.append(kind, np.full(9, 3, np.uint16)),
        num_edge_types=RELATIONS,
    )


def case_of(**options: Any) -> tuple[Graph, ModelSpec]:
    graph = typed_graph(multilabel=bool(options.get("multilabel")))
    num_train = int((graph.split[:, 0] == TRAIN).sum())
    spec = ModelSpec("rgcn", 7, 4, num_train, widths=(6, 5), seed=3, dtype="float64", num_edge_types=RELATIONS)
    return graph, replace(spec, **options)


@pytest.fixture(params=VARIANTS)
def case(request: pytest.FixtureRequest) -> tuple[Graph, ModelSpec]:
    return case_of(**VARIANTS[request.param])


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_gradients_equal_the_reference(case):
    graph, spec = case
    weights = weights_of(spec)
    epoch = Epoch(graph, spec, weights)
    loss, gradients = reference.loss_and_gradients(graph, spec, weights, epoch=EPOCH)
    assert epoch.loss == pytest.approx(loss, abs=1e-12)
    assert epoch.gradients.keys() == gradients.keys() == weights.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(epoch.gradients[name], gradient, rtol=0, atol=1e-12, err_msg=name)


def test_gradients_equal_finite_differences(case):
    graph, spec = case
    weights = weights_of(spec)
    gradients = Epoch(graph, spec, weights).gradients
    check_gradients(gradients, weights, lambda moved: Epoch(graph, spec, moved, bounds=WHOLE).loss)


def test_evaluation_gives_the_logits_of_every_vertex(case):
    graph, spec = case
    weights = weights_of(spec)
    epoch = Epoch(graph, spec, weights, lane=Lane.EVAL)
    logits = np.concatenate([rows[epoch.program.steps[-1].writes[0]] for rows in epoch.rows])
    np.testing.assert_allclose(logits, reference.predict(graph, spec, weights), rtol=0, atol=1e-12)


def test_how_steps_are_cut_and_what_is_recomputed_changes_nothing(case):
    graph, spec = case
    weights = weights_of(spec)
    expected = Epoch(graph, spec, weights)
    same(Epoch(graph, replace(spec, fuse=False, rematerialise=False), weights, cut=0.4), expected)
    same(Epoch(with_sparse_features(graph), spec, weights, cut=0.1), expected)
    if spec.narrow:
        same(Epoch(graph, replace(spec, narrow=False), weights), expected)


def test_as_many_bases_as_relations_that_are_not_mixed_are_no_bases():
    graph, spec = case_of(widths=(9, 2))
    weights = weights_of(spec)
    based = replace(spec, bases=RELATIONS)
    mixed = weights | {name: np.eye(RELATIONS) for name in weights_of(based) if name.endswith("mix")}
    mine, theirs = Epoch(graph, spec, weights), Epoch(graph, based, mixed)
    assert mine.loss == pytest.approx(theirs.loss, abs=1e-12)
    for name, gradient in mine.gradients.items():
        np.testing.assert_allclose(theirs.gradients[name], gradient, rtol=0, atol=1e-12, err_msg=name)


def test_the_reference_equals_torch_autograd(case):
    graph, spec = case
    weights = weights_of(spec)
    W = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    loss, gradients = reference.loss_and_gradients(graph, spec, weights, epoch=EPOCH)
    assert of_torch(graph, spec, W) == pytest.approx(loss, abs=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(W[name].grad, gradient, rtol=0, atol=1e-12, err_msg=name)


def of_torch(graph: Graph, spec: ModelSpec, W: dict[str, torch.Tensor]) -> float:
    """The loss; leaves its gradients in W. Every edge by itself, as eq. 2 reads."""
    assert graph.edge_type is not None
    assert graph.weight is not None
    n, H = graph.num_vertices, dropped(torch.tensor(reference.features(graph)), spec, 0)
    total = np.zeros((n, RELATIONS))
    np.add.at(total, (graph.dst, graph.edge_type), graph.weight)
    share = torch.tensor(graph.weight / total[graph.dst, graph.edge_type])
    for layer in range(spec.num_layers):
        matrices = W[f"{layer}.weight"]
        if spec.bases:
            matrices = torch.einsum("rb,bij->rij", W[f"{layer}.mix"], matrices)
        messages = torch.einsum("ei,eij->ej", H[graph.src], matrices[graph.edge_type.astype(int)]) * share[:, None]
        P = (H @ W[f"{layer}.own"]).index_add(0, torch.tensor(graph.dst), messages)
        P = P + W[f"{layer}.bias"] if spec.bias else P
        if layer < spec.num_layers - 1:
            if spec.norm == "layer":
                P = torch.nn.functional.layer_norm(P, P.shape[1:], W[f"{layer}.gain"], W[f"{layer}.shift"])
            active = {"relu": torch.relu, "tanh": torch.tanh, "elu": torch.nn.functional.elu}[spec.activation]
            H = dropped(active(P), spec, 1 + layer)
    chosen = torch.tensor(graph.split[:, 0] == TRAIN)
    y = torch.tensor(graph.labels)[chosen]
    criterion = (
        torch.nn.functional.binary_cross_entropy_with_logits if spec.multilabel else torch.nn.functional.cross_entropy
    )
    loss = criterion(P[chosen], y.double() if spec.multilabel else y)
    loss.backward()
    return float(loss.detach())


def dropped(X: torch.Tensor, spec: ModelSpec, key: int) -> torch.Tensor:
    return X * torch.as_tensor(reference.dropout_scale(X.detach().numpy(), spec, EPOCH, key))


# --- weights and programs ---------------------------------------------------------------------------------------------


def test_more_bases_than_relations_are_refused():
    with pytest.raises(ConfigError, match=r"^model.bases = 5: the graph has 4 relation\(s\), must be <= that$"):
        build(case_of(bases=5)[1])


def test_first_weights_of_a_relation_have_the_variance_of_their_paper():
    spec = ModelSpec("rgcn", 300, 200, 1, widths=(200,), num_edge_types=3, dtype="float64")
    W: Array = build(spec).init()["0.weight"]
    assert W.shape == (3, 300, 200)
    assert W.var() == pytest.approx(2 / (300 + 200), rel=0.02)


def test_what_is_published_is_the_narrower():
    """Both ways 64 + 4 * 64 columns if rows are gathered first, 4 * F_out + F_out + 4 if they are transformed first."""
    for width, published in ((63, {"T0", "T1", "dZ0", "dZ1"}), (64, {"T0", "H1", "dZ0", "dZ1"})):
        spec = ModelSpec("rgcn", 7, width, 1, widths=(64,), num_edge_types=4)
        steps = build(spec).program(Lane.TRAIN).steps
        assert {step.publishes for step in steps if step.publishes} == published


def test_program_whose_layers_are_gathered_before_and_after():
    table = """
        AV0   H0                 -> T0 S0
        SC0   T0                              publishes T0
        GA0   S0                 -> Z0        gathers T0
        AV1   Z0                 -> H1
        SC1   H1                              publishes H1
        GA1                      -> Z1        gathers H1
        AV2   Z1 H1 label train  -> dZ1 dH1   fused
        SC'1  dZ1                             publishes dZ1
        GA'1                     -> dH1       gathers dZ1
        AV'1  Z0 dH1             -> dZ0
        SC'0  dZ0                -> dS0       publishes dZ0
        GA'0                     -> dT0       gathers dZ0
        AV'0  H0 dT0 dS0
        WU0
    """
    program = build(ModelSpec("rgcn", 7, 4, 9, num_edge_types=3, widths=(4,))).program(Lane.TRAIN)
    assert written_out(program) == tidied(table)
    assert [step.adds for step in program.steps if step.kind is Kind.GA_B] == [("dH1",), ()]
