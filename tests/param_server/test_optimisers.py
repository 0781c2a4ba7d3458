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
