"""Dense pieces of layers, forward next to backward; their arithmetic is in ``siafu.ops``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from siafu.models import Arrays, ModelSpec, TensorOps
from siafu.sparse import Array, Rows


class Drop(Protocol):
    """``siafu.models.staged.Dropout``."""

    def __call__(self, X: Any, key: int) -> Any: ...


def first_weight(spec: ModelSpec, layer: int, number: int, fan_in: int, fan_out: int) -> Array:
    """Draws a weight matrix [fan_in, fan_out], uniform by Glorot & Bengio 2010 or He et al. 2015, in float64, and casts
    it to the model's dtype.

    ``layer`` and ``number`` distinguish the matrices of a model.
    """
    bound = np.sqrt(6 / (fan_in + fan_out)) if spec.init == "xavier" else np.sqrt(6 / fan_in)
    rng = np.random.default_rng([spec.seed, layer, number])
    return uniform(rng, bound, (fan_in, fan_out)).astype(spec.dtype)


def uniform(rng: np.random.Generator, bound: Any, shape: Any) -> Array:
    """Draws float64 numbers in [-bound, bound). ``rng.uniform`` would give other bits on processors where the compiler
    fuses multiplication and addition."""
    return np.asarray(rng.random(shape) * (2 * bound) - bound)


@dataclass(frozen=True)
class Dense:
    """Y = X W + b, W [F_in, F_out] and, with ``spec.bias``, b [F_out]; X may be sparse."""

    spec: ModelSpec
    ops: TensorOps
    layer: int  # of its parameters
    weight: str = "weight"
    bias: str = "bias"
    number: int = 0  # of the matrix in its layer

    def init(self, fan_in: int, fan_out: int) -> dict[str, Array]:
        weights = {f"{self.layer}.{self.weight}": first_weight(self.spec, self.layer, self.number, fan_in, fan_out)}
        return weights | ({f"{self.layer}.{self.bias}": np.zeros(fan_out, self.spec.dtype)} if self.spec.bias else {})

    def forward(self, X: Rows, weights: Arrays) -> Array:
        """Returns Y, a fresh array."""
        Y = self.ops.matmul(X, weights[f"{self.layer}.{self.weight}"])
        if self.spec.bias:
            Y += weights[f"{self.layer}.{self.bias}"]
        return Y

    def learn(self, X: Rows, dY: Array, gradients: dict[str, Array]) -> None:
        """Puts dW = Xᵀ dY and db = Σ dY into ``gradients``."""
        gradients[f"{self.layer}.{self.weight}"] = self.ops.matmul_transposed(X, dY)
        if self.spec.bias:
            gradients[f"{self.layer}.{self.bias}"] = self.ops.column_sums(dY)

    def backward(self, X: Rows, dY: Array, weights: Arrays, gradients: dict[str, Array]) -> Array:
        """Returns dX = dY Wᵀ; puts dW and db into ``gradients``."""
        self.learn(X, dY, gradients)
        return self.ops.matmul(dY, weights[f"{self.layer}.{self.weight}"].T)


@dataclass(frozen=True)
class Activation:
    """The end of a hidden layer: H = drop(σ(N)), N = LayerNorm(P) or P.

    Backward: dN = drop'(dH) ⊙ σ'(N), dP = LayerNorm'(dN). With relu and without LayerNorm it needs only H: H > 0 where
    N > 0 and the entry was kept, and dN is 0 at dropped entries. Else it needs P too.
    """

    spec: ModelSpec
    ops: TensorOps
    layer: int  # of its parameters
    slot: str  # H's name
    before: str  # P's name
    key: int | None = None  # of the mask; None: nothing is dropped
    norm: bool = False

    @property
    def saves(self) -> tuple[str, ...]:
        """The slots that backward needs."""
        return (self.slot,) if self._by_itself else (self.slot, self.before)

    @property
    def _by_itself(self) -> bool:
        return self.spec.activation == "relu" and not self.norm

    def init(self, width: int) -> dict[str, Array]:
        if not self.norm:
            return {}
        ones = np.ones(width, self.spec.dtype)
        return {f"{self.layer}.gain": ones, f"{self.layer}.shift": np.zeros_like(ones)}

    def forward(self, P: Array, weights: Arrays, drop: Drop) -> dict[str, Array]:
        """Returns the slots in ``saves``. P must be a fresh array: H may overwrite it."""
        N = self._norm(P, weights)
        H = self.ops.activate(N, self.spec.activation, out=N if self._by_itself or self.norm else None)
        H = H if self.key is None else np.asarray(drop(H, self.key))
        return {self.slot: H} if self._by_itself else {self.slot: H, self.before: P}

    def backward(self, dH: Array, saved: Arrays, weights: Arrays, drop: Drop, gradients: dict[str, Array]) -> Array:
        """Returns dP; puts the gradients of its parameters into ``gradients``."""
        dN = dH if self.key is None else np.asarray(drop(dH, self.key))
        if self._by_itself:
            return self.ops.activate_backward(dN, saved[self.slot], "relu")
        P = saved[self.before]
        dP = self.ops.activate_backward(dN, self._norm(P, weights), self.spec.activation)
        if self.norm:
            dP, dgain, dshift = self.ops.layer_norm_backward(dP, P, weights[f"{self.layer}.gain"])
            gradients |= {f"{self.layer}.gain": dgain, f"{self.layer}.shift": dshift}
        return dP

    def _norm(self, P: Array, weights: Arrays) -> Array:
        return self.ops.layer_norm(P, *(weights[f"{self.layer}.{w}"] for w in ("gain", "shift"))) if self.norm else P
