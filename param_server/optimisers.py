"""Optimisers: one step of all parameters from one gradient, elementwise, so that every replica gets equal bits.

To add one: write a class with the methods of ``Optimiser``, built from ``config.Train`` and ``Decay``, and its line in
``OPTIMISERS``. A step returns new arrays: the old ones are versions that the stash may still hold. State is created at
a parameter's first step and has its dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from siafu.config import Train
from siafu.errors import RemoteProtocolError
from siafu.schedules import power
from siafu.sparse import Array

Decay = Callable[[str], float]  # the L2 penalty λ of a parameter, by its name


class Optimiser(Protocol):
    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        """Returns the next weights. Both arguments have the same names and shapes at every call."""

    def state(self) -> dict[str, Array]:
        """Returns the whole mutable state, by name, for ``restore``. Later steps do not change these arrays."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Takes a state over: later steps give the same bits. Raises: RemoteProtocolError if it is not a state of this
        optimiser."""


class Adam:
    """Kingma & Ba (ICLR 2015), algorithm 1; with L2 weight decay λ and the placement of ε as in torch.optim.Adam.

    g ← g + λW,  m ← β1 m + (1-β1) g,  v ← β2 v + (1-β2) g²
    W ← W - lr / (1-β1^t) · m / (√v / √(1-β2^t) + ε)
    """

    def __init__(self, train: Train, decay: Decay):
        self.decay = decay
        self.beta1, self.beta2, self.epsilon = 0.9, 0.999, 1e-8  # the paper's
        # Everything that changes:
        self.num_steps = 0
        self._m: dict[str, Array] = {}
        self._v: dict[str, Array] = {}

    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        self.num_steps += 1
        return {name: self._step(name, W, gradients[name], lr) for name, W in weights.items()}

    def _step(self, name: str, W: Array, dW: Array, lr: float) -> Array:
        g = _decayed(dW, W, self.decay(name))
        m = self._m[name] = self.beta1 * self._m.get(name, np.zeros_like(W)) + (1 - self.beta1) * g
        v = self._v[name] = self.beta2 * self._v.get(name, np.zeros_like(W)) + (1 - self.beta2) * g * g
        correction1, correction2 = 1 - power(self.beta1, self.num_steps), 1 - power(self.beta2, self.num_steps)
        next_W: Array = W - lr / correction1 * (m / (np.sqrt(v) / math.sqrt(correction2) + self.epsilon))
        return next_W

    def state(self) -> dict[str, Array]:
        return {"steps": np.array(self.num_steps, np.int64)} | _named(m=self._m, v=self._v)

    def restore(self, state: Mapping[str, Array]) -> None:
        if "steps" not in state:
            raise RemoteProtocolError("state of an optimiser: Adam's steps are missing")
        found = _unnamed({name: value for name, value in state.items() if name != "steps"}, "m", "v")
        self.num_steps, self._m, self._v = int(state["steps"]), found["m"], found["v"]


class SGD:
    """Stochastic gradient descent with momentum μ as in torch.optim.SGD: the first step's momentum is its gradient.

    g ← g + λW,  b ← μ b + g,  W ← W - lr · b
    """

    def __init__(self, train: Train, decay: Decay):
        self.decay, self.momentum = decay, train.momentum
        # Everything that changes:
        self._b: dict[str, Array] = {}

    def step(self, weights: Mapping[str, Array], gradients: Mapping[str, Array], lr: float) -> dict[str, Array]:
        return {name: self._step(name, W, gradients[name], lr) for name, W in weights.items()}

    def _step(self, name: str, W: Array, dW: Array, lr: float) -> Array:
        g = _decayed(dW, W, self.decay(name))
        b = self._b[name] = self.momentum * self._b[name] + g if name in self._b else g
        next_W: Array = W - lr * b
        return next_W

    def state(self) -> dict[str, Array]:
        return _named(b=self._b)

    def restore(self, state: Mapping[str, Array]) -> None:
        self._b = _unnamed(state, "b")["b"]


OPTIMISERS: dict[str, Callable[[Train, Decay], Optimiser]] = {"adam": Adam, "sgd": SGD}


def build(train: Train, is_rest: Callable[[str], bool] = lambda parameter: False) -> Optimiser:
    """Makes the optimiser that the config names. ``is_rest``: whether a parameter takes ``weight_decay_rest``, if that
    is given."""
    apart = train.weight_decay_rest >= 0
    return OPTIMISERS[train.optimizer](
        train, lambda name: train.weight_decay_rest if apart and is_rest(name) else train.weight_decay
    )


def clipped(gradients: Mapping[str, Array], longest: float) -> dict[str, Array]:
    """Scales all gradients by one factor if their common L2 norm is above ``longest`` (> 0).

    As torch.nn.utils.clip_grad_norm_: the factor is longest / (norm + 1e-6), at most 1. The norm is in float64.
    """
    norm = math.sqrt(math.fsum(map(_sum_of_squares, gradients.values())))
    factor = longest / (norm + 1e-6)
    if factor >= 1:
        return dict(gradients)
    return {name: g * g.dtype.type(factor) for name, g in gradients.items()}


def _sum_of_squares(values: Array) -> float:
    """Returns the sum of squares, in float64, in a fixed order: halves are added elementwise. ``np.sum`` may add in
    another order on another processor, and replicas on unlike machines must clip by the same bits."""
    squares = np.square(values.ravel().astype(np.float64))
    while len(squares) > 1:
        half = len(squares) // 2
        folded = squares[:half] + squares[half : 2 * half]
        squares = np.append(folded, squares[-1]) if len(squares) % 2 else folded
    return float(squares.sum())


def _named(**moments: Mapping[str, Array]) -> dict[str, Array]:
    """Returns all moments in one dict, by "moment/parameter"."""
    return {f"{moment}/{name}": value for moment, values in moments.items() for name, value in values.items()}


def _unnamed(state: Mapping[str, Array], *moments: str) -> dict[str, dict[str, Array]]:
    found: dict[str, dict[str, Array]] = {moment: {} for moment in moments}
    for key, value in state.items():
        moment, _, name = key.partition("/")
        if moment not in found:
            raise RemoteProtocolError(f"state of an optimiser: {key!r} is not one of {', '.join(moments)}")
        found[moment][name] = value
    return found


def _decayed(dW: Array, W: Array, decay: float) -> Array:
    return dW + decay * W if decay else dW
