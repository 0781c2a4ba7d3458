"""Jumping knowledge (Xu et al., ICML 2018): the last stage reads the rows of every hidden layer, not of the last alone.

cat   J = [H_1 | ... | H_L]          max   J = elementwise maximum          sum   J = H_1 + ... + H_L
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from siafu.errors import ConfigError
from siafu.sparse import Array

Jump = Literal["none", "cat", "max", "sum"]


def width(kind: Jump, widths: tuple[int, ...]) -> int:
    """Returns the number of columns of J. Raises: ConfigError if layers of these widths cannot be joined."""
    if kind != "cat" and len(set(widths)) > 1:
        raise ConfigError(f"model.jump = {kind}: layers must have one width, model.hidden = {list(widths)}")
    return sum(widths) if kind == "cat" else widths[0]


def joined(kind: Jump, layers: list[Array]) -> Array:
    if kind == "cat":
        return np.concatenate(layers, axis=1)
    return np.asarray((np.maximum if kind == "max" else np.add).reduce(layers))


def joined_backward(kind: Jump, dJ: Array, layers: list[Array]) -> list[Array]:
    """Returns dH of each layer. Of equal maxima the first layer gets the gradient."""
    if kind == "cat":
        cuts = np.cumsum([H.shape[1] for H in layers])[:-1]
        return [np.ascontiguousarray(dH) for dH in np.split(dJ, cuts, axis=1)]
    if kind == "sum":
        return [dJ for _ in layers]
    first = np.argmax(np.stack(layers), axis=0)  # [n, F]
    return [dJ * (first == number) for number in range(len(layers))]
