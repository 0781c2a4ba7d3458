"""Reverse-mode differentiation in float64 numpy, so that the oracle's models are their formulas and nothing else.

A ``Node`` is a value that remembers what it was made from, and how its gradient becomes theirs. ``gradients`` walks a
tape backwards. ``tests/test_reference.py`` holds it to torch's autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from siafu.sparse import Array

Pull = Callable[[Array], Array]


class Node:
    def __init__(self, value: Array, *sources: tuple[Node, Pull]):
        self.value, self.sources = value, sources
        self.gradient: Any = 0.0

    def __matmul__(self, W: Node) -> Node:
        X, Y = self.value, W.value
        return Node(X @ Y, (self, lambda d: d @ Y.T), (W, lambda d: X.T @ d))

    def __add__(self, other: Node) -> Node:
        """``other`` may be a row, added to every row."""
        rows = self.value.ndim > other.value.ndim
        return Node(self.value + other.value, (self, lambda d: d), (other, lambda d: d.sum(0) if rows else d))

    def __mul__(self, other: Node | Array | float) -> Node:
        """Elementwise with a constant, or with a node of one number."""
        if not isinstance(other, Node):
            return Node(self.value * other, (self, lambda d: d * other))
        X, c = self.value, other.value
        return Node(X * c, (self, lambda d: d * c), (other, lambda d: np.array([(d * X).sum()])))


def through(matrix: Any, X: Node) -> Node:
    """A constant matrix, times X."""
    return Node(matrix @ X.value, (X, lambda d: matrix.T @ d))


def activated(N: Node, kind: str) -> Node:
    x = N.value
    if kind == "tanh":
        return Node(np.tanh(x), (N, lambda d: d * (1 - np.tanh(x) ** 2)))
    if kind == "elu":
        curve = np.exp(np.minimum(x, 0))
        return Node(np.where(x > 0, x, curve - 1), (N, lambda d: d * np.where(x > 0, 1, curve)))
    return Node(np.where(x > 0, x, 0), (N, lambda d: d * (x > 0)))


def normalised(P: Node, gain: Node, shift: Node, eps: float) -> Node:
    """LayerNorm of every row."""
    deviation = np.sqrt(P.value.var(1, keepdims=True) + eps)
    X = (P.value - P.value.mean(1, keepdims=True)) / deviation

    def pull(d: Array) -> Array:
        dX = d * gain.value
        return (dX - dX.mean(1, keepdims=True) - X * (dX * X).mean(1, keepdims=True)) / deviation

    return Node(X * gain.value + shift.value, (P, pull), (gain, lambda d: (d * X).sum(0)), (shift, lambda d: d.sum(0)))


def side_by_side(nodes: Sequence[Node]) -> Node:
    ends = np.cumsum([node.value.shape[1] for node in nodes])
    starts = [0, *ends[:-1]]
    sources = [
        (node, lambda d, start=start, end=end: d[:, start:end])
        for node, start, end in zip(nodes, starts, ends, strict=True)
    ]
    return Node(np.concatenate([node.value for node in nodes], axis=1), *sources)


def largest(nodes: Sequence[Node]) -> Node:
    """Elementwise; of equal ones the first has the gradient."""
    stacked = np.stack([node.value for node in nodes])
    winner = stacked.argmax(0)
    sources = [(node, lambda d, i=i: d * (winner == i)) for i, node in enumerate(nodes)]
    return Node(stacked.max(0), *sources)


def gradients(end: Node, d: Array, of: Mapping[str, Node]) -> dict[str, Array]:
    """Of the value whose gradient with respect to ``end`` is ``d``."""
    order: list[Node] = []
    seen: set[int] = set()

    def visit(node: Node) -> None:
        if id(node) not in seen:
            seen.add(id(node))
            for source, _ in node.sources:
                visit(source)
            order.append(node)

    visit(end)
    end.gradient = d
    for node in reversed(order):
        for source, pull in node.sources:
            source.gradient = source.gradient + pull(node.gradient)
    return {name: np.broadcast_to(node.gradient, node.value.shape).copy() for name, node in of.items()}
