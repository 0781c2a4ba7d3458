"""Sums gradients to the same bits, in whatever order they arrive and whichever server adds them.

Floating-point addition is not associative: so that all replicas step to equal bits, and a run can be repeated, the
order of additions is fixed by a binary tree over the leaves 0..T-1 (the intervals of all graph servers).

    U1  Node (level, i) is node (level-1, 2i) + node (level-1, 2i+1), in this order. If the right one does not exist (T
        is no power of two), the node is the left one alone. Level 0 holds the leaves; the only node of the top level
        is the total.
    U2  Two siblings are merged as soon as both are there: leaves in order take memory for at most log2(T) + 1 values.
    U3  The first value of a leaf counts; a second one changes nothing.
    U4  A caller's array is neither kept nor written to. An array that was returned is never written to again.
    U5  Complete subtrees of several servers merge into the tree of all leaves; overlapping subtrees are an error.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from siafu.errors import RemoteProtocolError
from siafu.sparse import Array

Node = tuple[int, int]  # (level, index)
Value = Mapping[str, Array]  # arrays by parameter name


class OrderedSum:
    """The sum of one value per leaf."""

    def __init__(self, num_leaves: int):
        assert num_leaves >= 1
        self.num_leaves = num_leaves
        self._top = (num_leaves - 1).bit_length()
        # Everything that changes:
        self.num_added = 0  # leaves in the sum
        self._has = bytearray(num_leaves)  # by leaf: 1 if it is in the sum
        self._nodes: dict[Node, Value] = {}  # the maximal complete subtrees

    @property
    def complete(self) -> bool:
        return self.num_added == self.num_leaves

    def has(self, leaf: int) -> bool:
        return bool(self._has[leaf])

    def add(self, leaf: int, value: Value) -> bool:
        """Adds a leaf; returns False if it was there already (U3)."""
        assert 0 <= leaf < self.num_leaves
        if self.has(leaf):
            return False
        self._insert((0, leaf), value)
        return True

    def nodes(self) -> dict[Node, Value]:
        """Returns the maximal complete subtrees."""
        return dict(self._nodes)

    def merge(self, nodes: Mapping[Node, Value]) -> None:
        """Adds another server's subtrees. Raises: RemoteProtocolError for one that is not of this tree, or overlaps
        (U5)."""
        for node, value in nodes.items():
            self._check(node)
            self._insert(node, value)

    def total(self) -> Value:
        """Returns the sum of all leaves. Call it only once they are complete."""
        assert self.complete, f"{self.num_added} of {self.num_leaves} leaves"
        return self._nodes[self._top, 0]

    def _width(self, level: int) -> int:
        """Returns the number of nodes of a level."""
        return ((self.num_leaves - 1) >> level) + 1

    def _leaves(self, node: Node) -> slice:
        level, index = node
        return slice(index << level, min((index + 1) << level, self.num_leaves))

    def _check(self, node: Node) -> None:
        level, index = node
        if not (0 <= level <= self._top and 0 <= index < self._width(level)):
            raise RemoteProtocolError(f"node {level}:{index}: not in a tree over {self.num_leaves} leaves")
        if any(self._has[self._leaves(node)]):
            raise RemoteProtocolError(f"node {level}:{index}: a leaf below it was already summed by another server")

    def _insert(self, node: Node, value: Value) -> None:
        leaves = self._leaves(node)
        self._has[leaves] = b"\1" * (leaves.stop - leaves.start)
        self.num_added += leaves.stop - leaves.start
        level, index = node
        ours = False  # whether the arrays of ``value`` were made here
        while level < self._top:
            if index ^ 1 < self._width(level):
                sibling = self._nodes.pop((level, index ^ 1), None)
                if sibling is None:
                    break
                left, right = (sibling, value) if index & 1 else (value, sibling)
                value, ours = {name: left[name] + right[name] for name in left}, True
            level, index = level + 1, index >> 1
        self._nodes[level, index] = value if ours else {name: np.array(array) for name, array in value.items()}
