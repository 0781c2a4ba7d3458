"""Optimisers against torch.optim, in float64."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from param_server import optimisers
from siafu.config import Train

SHAPES = {"0.weight": (4, 3), "0.bias": (3,)}
TORCH = {
    "adam": lambda parameters, train: torch.optim.Adam(parameters, train.lr, weight_decay=train.weight_decay),
    "sgd": lambda parameters, train: torch.optim.SGD(
        parameters, train.lr, momentum=train.momentum, weight_decay=train.weight_decay
    ),
}
VARIANTS = [
    Train(optimizer="adam", lr=0.03, weight_decay=0.05),
    Train(optimizer="adam", lr=0.03),
    Train(optimizer="sgd", lr=0.03, momentum=0.9, weight_decay=0.05),
    Train(optimizer="sgd", lr=0.03, momentum=0.9),
    Train(optimizer="sgd", lr=0.03, momentum=0.0, weight_decay=0.05),
]


def draw(rng, dtype=np.float64):
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in SHAPES.items()}


def test_every_optimiser_is_compared():
    assert set(optimisers.OPTIMISERS) == set(TORCH) == {train.optimizer for train in VARIANTS}


@pytest.mark.parametrize("train", VARIANTS, ids=lambda t: f"{t.optimizer}-m{t.momentum}-wd{t.weight_decay}")
def test_30_steps_agree_with_torch(train):
    rng = np.random.default_rng(0)
    weights, ours = draw(rng), optimisers.build(train)
    parameters = {name: torch.tensor(W, requires_grad=True) for name, W in weights.items()}
    theirs = TORCH[train.optimizer](list(parameters.values()), train)
    for step in range(30):
        lr = train.lr * 0.95**step
        gradients = draw(rng)
        weights = ours.step(weights, gradients, lr)
        theirs.param_groups[0]["lr"] = lr
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[name])
        theirs.step()
        for name, W in weights.items():
            np.testing.assert_allclose(W, parameters[name].detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", optimisers.OPTIMISERS)
def test_a_step_writes_to_neither_weights_nor_gradients_and_keeps_float32(name):
    rng = np.random.default_rng(1)
    train = replace(Train(weight_decay=0.1), optimizer=name)
    optimiser, weights = optimisers.build(train), draw(rng, np.float32)
    for _ in range(3):
        gradients = draw(rng, np.float32)
        for array in (*weights.values(), *gradients.values()):
            array.flags.writeable = False
        after = optimiser.step(weights, gradients, 0.01)
        assert {W.dtype for W in after.values()} == {np.dtype(np.float32)}
        assert not any(np.shares_memory(after[key], weights[key]) for key in weights)
        weights = after


@pytest.mark.parametrize("name", optimisers.OPTIMISERS)
def test_the_rest_of_the_parameters_has_a_decay_of_its_own(name):
    rng = np.random.default_rng(2)
    train = Train(optimizer=name, lr=0.03, weight_decay=0.05, weight_decay_rest=0.0)
    weights, ours = draw(rng), optimisers.build(train, lambda parameter: parameter == "0.bias")
    parameters = {key: torch.tensor(W, requires_grad=True) for key, W in weights.items()}
    groups = [{"params": [parameters["0.weight"]]}, {"params": [parameters["0.bias"]], "weight_decay": 0.0}]
    theirs = TORCH[name](groups, train)
    for _ in range(10):
        gradients = draw(rng)
        weights = ours.step(weights, gradients, train.lr)
        for key, parameter in parameters.items():
            parameter.grad = torch.tensor(gradients[key])
        theirs.step()
    for key, W in weights.items():
        np.testing.assert_allclose(W, parameters[key].detach().numpy(), rtol=1e-12, atol=1e-12)


def test_without_a_decay_of_their_own_all_parameters_have_the_same():
    weights, gradients = draw(np.random.default_rng(3)), draw(np.random.default_rng(4))
    train = Train(weight_decay=0.05)
    plain = optimisers.build(train).step(weights, gradients, 0.1)
    told = optimisers.build(train, lambda parameter: True).step(weights, gradients, 0.1)
    for key, W in plain.items():
        np.testing.assert_array_equal(told[key], W)


@pytest.mark.parametrize("longest", [0.1, 3.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clipping_is_that_of_torch(longest, dtype):
    gradients = draw(np.random.default_rng(5), dtype)
    theirs = {key: torch.zeros(g.shape, dtype=getattr(torch, g.dtype.name)) for key, g in gradients.items()}
    for key, tensor in theirs.items():
        tensor.grad = torch.tensor(gradients[key])
    torch.nn.utils.clip_grad_norm_(list(theirs.values()), longest)
    ours = optimisers.clipped(gradients, longest)
    for key, g in ours.items():
        assert g.dtype == dtype
        np.testing.assert_allclose(g, theirs[key].grad.numpy(), rtol=1e-6 if dtype == np.float32 else 1e-12)


def test_clipping_gives_one_result_whatever_the_order_of_the_parameters():
    rng = np.random.default_rng(6)
    gradients = {str(i): rng.normal(size=n).astype(np.float32) for i, n in enumerate((1, 2, 3, 1000, 1001))}
    backwards = dict(reversed(gradients.items()))
    for key, g in optimisers.clipped(gradients, 0.5).items():
        np.testing.assert_array_equal(g, optimisers.clipped(backwards, 0.5)[key])
