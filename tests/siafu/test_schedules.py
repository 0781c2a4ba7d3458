"""Learning rates by epoch; cosine and step against torch's schedulers."""

import numpy as np
import pytest
import torch

from siafu.config import Train
from siafu.schedules import SCHEDULES, learning_rate


def of_torch(make, num_epochs, lr):
    optimiser = torch.optim.SGD([torch.zeros(1, dtype=torch.float64, requires_grad=True)], lr)
    schedule, rates = make(optimiser), []
    for _ in range(num_epochs):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    return rates


def ours(train):
    return [learning_rate(epoch, train) for epoch in range(train.epochs)]


def test_constant_is_constant():
    assert ours(Train(epochs=4, lr=0.2)) == [0.2] * 4


def test_cosine_agrees_with_torch():
    theirs = of_torch(lambda optimiser: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=30), 30, 0.2)
    np.testing.assert_allclose(ours(Train(epochs=30, lr=0.2, schedule="cosine")), theirs, rtol=1e-12, atol=1e-12)


def test_cosine_would_be_0_after_the_last_epoch():
    train = Train(epochs=30, lr=0.2, schedule="cosine")
    assert learning_rate(30, train) == pytest.approx(0, abs=1e-15)


def test_step_agrees_with_torch():
    theirs = of_torch(lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 7, gamma=0.3), 30, 0.2)
    train = Train(epochs=30, lr=0.2, schedule="step", step_epochs=7, step_factor=0.3)
    np.testing.assert_allclose(ours(train), theirs, rtol=1e-12, atol=1e-12)


def test_every_schedule_of_the_config_is_in_the_table():
    for name in SCHEDULES:
        assert learning_rate(0, Train(schedule=name)) == Train().lr
    assert set(SCHEDULES) == {"constant", "cosine", "step"}
