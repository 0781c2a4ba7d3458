"""A replica that goes on from the state of another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from param_server import optimisers
from param_server.replica import Replica
from siafu import wire
from siafu.address import COORDINATOR, graph_server, worker
from siafu.config import Train
from siafu.errors import RemoteProtocolError
from tests.param_server.delivery import LAYERS, MODEL, gradient_of, layer_of, make_config, make_replica, same_bits

CONFIG = make_config(graph_servers=1, intervals=1)


def step(replica: Replica, epoch: int) -> None:
    """The only interval's epoch."""
    for layer in LAYERS:
        gradient = gradient_of(epoch, 0, layer, layer_of(MODEL.init(), layer))
        replica.handle(worker("w0-0"), wire.FetchWeights("train", epoch, 0, (layer,), 0, ()))
        replica.handle(worker("w0-0"), wire.Gradient(epoch, 0, layer, 0, gradient))
    replica.handle(graph_server(0), wire.IntervalDone(epoch, 0))
    replica.handle(graph_server(0), wire.EpochDone(0, epoch, 1))


def state_after(epochs: int, judged_best: int | None = None, **train: object) -> wire.ParamState:
    replica = make_replica(replace(CONFIG, train=replace(CONFIG.train, **train)))  # type: ignore[arg-type]
    for epoch in range(epochs):
        step(replica, epoch)
    if judged_best is not None:
        for epoch in range(judged_best + 1):
            replica.handle(COORDINATOR, wire.Judged(epoch, epoch == judged_best, False))
    (send,) = replica.handle(COORDINATOR, wire.GetState())
    assert isinstance(send.message, wire.ParamState)
    return send.message


def weights_of(replica: Replica, which: str) -> dict[str, np.ndarray]:
    (send,) = replica.handle(COORDINATOR, wire.GetModel(which))
    return dict(send.message.tensors)  # type: ignore[attr-defined]


@pytest.mark.parametrize("optimizer", optimisers.OPTIMISERS)
def test_it_goes_on_to_the_same_bits(optimizer: str):
    config = replace(CONFIG, train=replace(CONFIG.train, optimizer=optimizer))  # type: ignore[arg-type]
    whole, other = make_replica(config), make_replica(config)
    for epoch in range(4):
        step(whole, epoch)
    (ready,) = other.handle(COORDINATOR, state_after(2, optimizer=optimizer))
    assert ready.to == COORDINATOR
    assert isinstance(ready.message, wire.Ready)
    assert other.version == 2
    for epoch in (2, 3):
        step(other, epoch)
    assert same_bits(weights_of(other, "latest"), weights_of(whole, "latest"))


def test_what_is_still_to_be_evaluated_is_held_until_it_is_and_what_was_is_not():
    state = state_after(3, judged_best=0)
    assert wire.by_version(state.weights).keys() == {1, 2, 3}  # the best one, and two that nobody has judged
    replica = make_replica(CONFIG)
    replica.handle(COORDINATOR, wire.ParamState(0, 3, 1, 0, state.weights, state.optimiser))
    assert replica.versions_held == (1, 2, 3)
    replica.handle(COORDINATOR, wire.Judged(1, True, False))
    assert replica.versions_held == (2, 3)
    replica.handle(COORDINATOR, wire.Judged(2, False, False))
    step(replica, 3)
    assert replica.versions_held == (2, 4)


def test_what_was_judged_before_is_not_held_unless_it_is_the_best():
    state = state_after(3, judged_best=0)
    replica = make_replica(CONFIG)
    replica.handle(COORDINATOR, wire.ParamState(0, 3, 1, 1, state.weights, state.optimiser))
    step(replica, 3)
    assert replica.versions_held == (1, 3, 4)


def test_the_best_may_be_a_version_that_is_still_to_come():
    state = state_after(1)
    replica = make_replica(CONFIG)
    replica.handle(COORDINATOR, wire.ParamState(0, 1, 3, 2, state.weights, state.optimiser))
    for epoch in (1, 2, 3):
        step(replica, epoch)
    whole = make_replica(CONFIG)
    for epoch in range(3):
        step(whole, epoch)
    assert same_bits(weights_of(replica, "best"), weights_of(whole, "latest"))
    assert replica.versions_held == (3, 4)


@pytest.mark.parametrize(
    ("sender", "change", "reason"),
    [
        (graph_server(0), {}, "only the coordinator's"),
        (COORDINATOR, {"version": 3}, "there are weights of [2]"),
        (COORDINATOR, {"version": -1, "weights": {}}, "there are weights of []"),
        (COORDINATOR, {"weights": {"2/0.weight": np.ones(3)}}, "values for"),
        (COORDINATOR, {"weights": {"two/0.weight": np.ones(3)}}, "is not VERSION/NAME"),
        (COORDINATOR, {"optimiser": {"steps": np.array(2), "x/0.weight": np.ones(3)}}, "is not one of m, v"),
        (COORDINATOR, {"optimiser": {}}, "steps are missing"),
    ],
)
def test_a_state_that_is_none_is_refused(sender, change, reason):
    state = state_after(2, judged_best=1)
    fields = {"server": 0, "version": 2, "best": 2, "judged": 1, "weights": state.weights, "optimiser": state.optimiser}
    with pytest.raises(RemoteProtocolError) as caught:
        make_replica(CONFIG).handle(sender, wire.ParamState(**{**fields, **change}))
    assert reason in str(caught.value)


def test_a_state_after_the_first_epoch_is_refused():
    replica = make_replica(CONFIG)
    step(replica, 0)
    with pytest.raises(RemoteProtocolError, match="before the first epoch"):
        replica.handle(COORDINATOR, state_after(2))


def test_the_optimisers_state_is_not_changed_by_steps_to_come():
    for name in optimisers.OPTIMISERS:
        optimiser = optimisers.build(replace(Train(), optimizer=name))  # type: ignore[arg-type]
        weights = {"0.weight": np.ones((2, 2), np.float32)}
        for _ in range(2):
            weights = optimiser.step(weights, {"0.weight": np.full((2, 2), 0.5, np.float32)}, 0.1)
        state = optimiser.state()
        kept = {key: value.copy() for key, value in state.items()}
        optimiser.step(weights, {"0.weight": np.full((2, 2), 0.7, np.float32)}, 0.1)
        assert all(np.array_equal(state[key], kept[key]) for key in kept)
