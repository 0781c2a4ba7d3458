"""Optimisers: one step of all parameters from one gradient, elementwise, so that every replica gets equal bits.

To add one: a class that is built from ``config.Train`` and has ``step``, and its line in ``OPTIMISERS``.
A step returns new arrays: the old ones are versions that the stash may still hold. State is created at a parameter's
first step and has its dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from siafu.config import Train
from siafu.sparse import Array


class Optimiser(Protocol):
    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        """The next weights; both arguments hold the same names and shapes at every call."""


class Adam:
    """Kingma & Ba (ICLR 2015), algorithm 1; with L2 weight decay λ and the placement of ε as in torch.optim.Adam.

    g ← g + λW,  m ← β1 m + (1-β1) g,  v ← β2 v + (1-β2) g²
    W ← W - lr / (1-β1^t) · m / (√v / √(1-β2^t) + ε)
    """

    def __init__(self, train: Train):
        self.weight_decay = train.weight_decay
        self.beta1, self.beta2, self.epsilon = 0.9, 0.999, 1e-8  # the paper's
        # Everything that changes:
        self.num_steps = 0
        self._m: dict[str, Array] = {}
        self._v: dict[str, Array] = {}

    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        self.num_steps += 1
        return {name: self._step(name, W, gradients[name], lr) for name, W in weights.items()}

    def _step(self, name: str, W: Array, dW: Array, lr: float) -> Array:
        g = dW + self.weight_decay * W if self.weight_decay else dW
        m = self._m[name] = self.beta1 * self._m.get(name, np.zeros_like(W)) + (1 - self.beta1) * g
        v = self._v[name] = self.beta2 * self._v.get(name, np.zeros_like(W)) + (1 - self.beta2) * g * g
        correction1, correction2 = 1 - self.beta1**self.num_steps, 1 - self.beta2**self.num_steps
        next_W: Array = W - lr / correction1 * (m / (np.sqrt(v) / correction2**0.5 + self.epsilon))
        return next_W


class SGD:
    """Stochastic gradient descent with momentum μ as in torch.optim.SGD: the first step's momentum is its gradient.

    g ← g + λW,  b ← μ b + g,  W ← W - lr · b
    """

    def __init__(self, train: Train):
        self.weight_decay, self.momentum = train.weight_decay, train.momentum
        # Everything that changes:
        self._b: dict[str, Array] = {}

    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        return {name: self._step(name, W, gradients[name], lr) for name, W in weights.items()}

    def _step(self, name: str, W: Array, dW: Array, lr: float) -> Array:
        g = dW + self.weight_decay * W if self.weight_decay else dW
        b = self._b[name] = self.momentum * self._b[name] + g if name in self._b else g
        next_W: Array = W - lr * b
        return next_W


OPTIMISERS: dict[str, Callable[[Train], Optimiser]] = {"adam": Adam, "sgd": SGD}


def build(train: Train) -> Optimiser:
    """The optimiser that the config names."""
    return OPTIMISERS[train.optimizer](train)
