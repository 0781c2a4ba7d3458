"""Link prediction: its oracle against finite differences and torch; programs, weights, and what is refused.

tests/integration/test_fleet_edges.py holds servers and workers to the oracle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from graph_data.link_split import Shares, hold_out
from siafu import models
from siafu.errors import ConfigError
from siafu.graph import TRAIN_PAIR, Graph, tidy
from siafu.models import ModelSpec, Output, link_prediction
from siafu.models.link_prediction import SCORES, TRUE, Links
from siafu.sparse import Array, EdgeRows
from siafu.tasks import Kind, Lane, Step
from tests import reference, reference_links
from tests.contracts.test_models import check_gradients, check_slots, tidied, weights_of, written_out
from tests.toy_graphs import random_graph

EPOCH = 3
DECODERS = pytest.mark.parametrize("decoder", ["dot", "mlp"])


def case_of(name: str = "gcn", **options: object) -> tuple[Graph, ModelSpec]:
    graph = tidy(random_graph(5, 40, num_edges=90, directed=False))
    held = hold_out(graph, Shares(val=0.1, test=0.1, negatives=3, eval_negatives=4), seed=0)
    num_train = int((held.edge_type == TRAIN_PAIR).sum()) // 2
    spec = ModelSpec(
        name, graph.num_features, 5, num_train, widths=(6,), seed=3, dtype="float64", target="links", negatives=3
    )
    return held, replace(spec, **options)


def links_of(spec: ModelSpec) -> Links:
    model = models.build(spec)
    assert isinstance(model, Links)
    return model


# --- the oracle -------------------------------------------------------------------------------------------------------


@DECODERS
def test_gradients_of_the_reference_equal_finite_differences(decoder: str):
    graph, spec = case_of(decoder=decoder, dropout=0.2)
    weights, number = weights_of(spec), links_of(spec).number

    def learnt(moved: dict[str, Array]) -> tuple[float, dict[str, Array]]:
        return reference_links.loss_and_gradients(graph, spec, moved, number, epoch=EPOCH)

    check_gradients(learnt(weights)[1], weights, lambda moved: learnt(moved)[0])


@DECODERS
def test_the_reference_equals_torch_autograd(decoder: str):
    graph, spec = case_of(decoder=decoder)
    weights, number = weights_of(spec), links_of(spec).number
    loss, gradients = reference_links.loss_and_gradients(graph, spec, weights, number, epoch=EPOCH)
    W = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    A = torch.tensor(reference.propagation(reference_links.messages(graph), "gcn").toarray())
    H = torch.relu(A @ torch.tensor(reference.features(graph)) @ W["0.weight"] + W["0.bias"])
    H = A @ (H @ W["1.weight"]) + W["1.bias"]
    u, v, true = reference_links.drawn_pairs(graph, spec, number, EPOCH)
    if decoder == "dot":
        s = (H[u] * H[v]).sum(1)
    else:
        U = torch.relu(H[u] * H[v] @ W[f"{number}.decoder"] + W[f"{number}.decoder_bias"])
        s = (U @ W[f"{number}.decoder_second"] + W[f"{number}.decoder_second_bias"])[:, 0]
    total = torch.nn.functional.binary_cross_entropy_with_logits(s, torch.tensor(true), reduction="sum")
    (total / (2 * spec.num_train)).backward()
    assert float(total.detach()) / (2 * spec.num_train) == pytest.approx(loss, abs=1e-12)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(W[name].grad, gradient, rtol=0, atol=1e-12, err_msg=name)


# --- the task ---------------------------------------------------------------------------------------------------------


def scored(spec: ModelSpec, rows: slice) -> Output:
    """AE of three vertices, of which one has no pair, or of some of them."""
    rng = np.random.default_rng(2)
    model = links_of(spec)
    others = EdgeRows(np.array([0, 2, 2, 5]), rng.normal(size=(5, 5)).astype(spec.dtype))
    true = EdgeRows(others.indptr, np.array([[1], [0], [0], [1], [1]], np.uint8))
    whole = {"H2": rng.normal(size=(3, 5)).astype(spec.dtype), "EH2": others, TRUE: true}
    step = next(step for step in model.program(Lane.TRAIN).steps if step.kind is Kind.AE)
    cut = {slot: value[rows] for slot, value in whole.items()}
    weights = {name: W.astype(spec.dtype) for name, W in weights_of(spec).items()}
    return model.run(step, cut, weights, epoch=0, lane=Lane.TRAIN)


@DECODERS
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_pairs_may_be_cut_between_any_two_vertices(decoder: str, at: int):
    spec = case_of(decoder=decoder)[1]
    whole, head, tail = (scored(spec, rows) for rows in (slice(0, 3), slice(0, at), slice(at, 3)))
    assert whole.loss == pytest.approx(head.loss + tail.loss, abs=1e-12)
    np.testing.assert_allclose(np.concatenate([head.rows["dH2"], tail.rows["dH2"]]), whole.rows["dH2"], atol=1e-14)
    assert not whole.rows["dH2"][1].any()
    for name, gradient in whole.gradients.items():
        np.testing.assert_allclose(head.gradients[name] + tail.gradients[name], gradient, atol=1e-14)


@DECODERS
@pytest.mark.parametrize("nbytes", [1, 100, 1 << 20])
def test_pairs_are_scored_some_at_a_time(decoder: str, nbytes: int, monkeypatch: pytest.MonkeyPatch):
    spec = case_of(decoder=decoder)[1]
    whole = scored(spec, slice(0, 3))
    monkeypatch.setattr(link_prediction, "SCORED_BYTES", nbytes)
    some = scored(spec, slice(0, 3))
    assert some.loss == pytest.approx(whole.loss, abs=1e-12)
    assert some.rows["dH2"].tobytes() == whole.rows["dH2"].tobytes()
    assert some.gradients.keys() == whole.gradients.keys()
    for name, gradient in whole.gradients.items():
        np.testing.assert_allclose(some.gradients[name], gradient, atol=1e-14)


def test_rows_that_pairs_share_are_worth_as_much_as_rows_of_each():
    spec = case_of(decoder="mlp")[1]
    model, rng = links_of(spec), np.random.default_rng(2)
    index = np.array([1, 0, 1, 1, 0], np.int32)
    shared = EdgeRows(np.array([0, 2, 2, 5]), rng.normal(size=(2, 5)), index)
    step = model.program(Lane.EVAL).steps[-1]
    H, weights = rng.normal(size=(3, 5)), weights_of(spec)
    found = [
        model.run(step, {"H2": H, "EH2": rows}, weights, epoch=0, lane=Lane.EVAL).rows[SCORES].values
        for rows in (shared, EdgeRows(shared.indptr, shared.each()))
    ]
    assert found[0].tobytes() == found[1].tobytes()


@DECODERS
def test_float32_stays_float32(decoder: str):
    output = scored(case_of(decoder=decoder, dtype="float32")[1], slice(0, 3))
    arrays: list[Array] = [*output.rows.values(), *output.gradients.values()]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


# --- programs and weights ---------------------------------------------------------------------------------------------


def test_pairs_stand_between_forward_and_backward():
    table = """
        GA0                 -> Z0       gathers H0
        AV0   Z0            -> T1
        SC0   T1                        publishes T1
        GA1                 -> Z1       gathers T1
        AV1   Z1            -> H2
        SC2   H2                        publishes H2
        AE2   H2            -> dH2      gathers H2   fused
        AV'1  Z1 dH2        -> dZ1
        SC'1  dZ1                       publishes dZ1
        GA'1                -> dT1      gathers dZ1
        AV'0  Z0 dT1
        WU0
    """
    model = links_of(case_of()[1])
    assert written_out(model.program(Lane.TRAIN)) == tidied(table)
    last = model.program(Lane.EVAL).steps[-1]
    assert last == Step(Kind.AE, 2, ("H2",), (SCORES,), gathers="H2", operator="pairs", parameters=False)


@pytest.mark.parametrize("name", models.MODELS)
@pytest.mark.parametrize("fuse", [True, False])
def test_slots_and_stages_of_every_encoder_fit(name: str, fuse: bool):
    spec = case_of(name, decoder="mlp", fuse=fuse, rematerialise=fuse, heads=1 if name == "gat" else 8)[1]
    model = links_of(spec)
    for lane in Lane:
        check_slots(model.program(lane))
    with_gradient = [step for step in model.program(Lane.TRAIN).steps if step.has_gradient]
    assert with_gradient[0].kind is Kind.AE
    assert {step.layer for step in with_gradient if step.parameters} == {model.stage(name) for name in model.init()}


def test_the_decoder_has_weights_of_its_own():
    spec = case_of("gin", jump="cat")[1]  # whose last dense layer has a number that is no stage
    model = links_of(replace(spec, decoder="mlp"))
    names = set(model.init()) - set(links_of(spec).init())
    assert names == {f"{model.number}.decoder{what}" for what in ("", "_bias", "_second", "_second_bias")}
    assert {model.stage(name) for name in names} == {model.number}
    assert not any(model.rest(name) for name in names)


def test_a_decoder_without_edges_to_predict_is_refused():
    with pytest.raises(ConfigError, match=r"^model.decoder = mlp: is for data.task = link$"):
        models.build(replace(case_of()[1], target="classes", decoder="mlp"))
