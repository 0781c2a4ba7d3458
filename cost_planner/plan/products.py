"""Counts the products in a model's tensor steps: each step runs once on one row and once on two, with products that
are counted instead of computed. Pure.

So a step counts what its model really computes: a backward step has the gradients of its weights and of the needed
rows, and its forward again only if the model does not keep what it needs. Products of weights alone do not grow with
the rows, and are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from siafu import models, ops
from siafu.models import Model, ModelSpec
from siafu.sparse import Array
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Step

#: Of a vector register, float32 values.
LANES = 16


@dataclass(frozen=True)
class Products:
    """Products of a step, for each row (a vertex)."""

    flops: int = 0  # additions and multiplications; results are computed in whole vectors
    columns: int = 0  # of the rows that go into products and come out
    made: int = 0  # of the rows that come out
    calls: int = 0  # products, however many rows


class _Counting:
    """Stands in for ``siafu.ops``: counts products, and returns zeros."""

    def __init__(self) -> None:
        self.flops = self.columns = self.made = self.calls = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(ops, name)

    def matmul(self, X: Any, W: Array, add: Array | None = None, *, rounds: bool = False) -> Array:
        self._count(len(X), *W.shape)
        self.made += len(X) * W.shape[1]
        return np.zeros((len(X), W.shape[1]), W.dtype) if add is None else add

    def matmul_transposed(self, X: Any, D: Array, *, rounds: bool = False) -> Array:
        self._count(len(X), X.shape[1], D.shape[1])
        return np.zeros((X.shape[1], D.shape[1]), D.dtype)

    def _count(self, rows: int, columns: int, made: int) -> None:
        self.flops += 2 * rows * columns * _in_lanes(made)
        self.columns += rows * (columns + made)
        self.calls += 1


def _in_lanes(columns: int) -> int:
    """Columns of a result as computed, in whole vectors (``siafu.kernels.dense``)."""
    return LANES * -(-columns // LANES)


def products_of(model: Model, lane: Lane) -> tuple[Products, ...]:
    """Products by step of the lane's program; none for a step that is no tensor step."""
    return _products_of(model.spec, lane)


@lru_cache(maxsize=256)
def _products_of(spec: ModelSpec, lane: Lane) -> tuple[Products, ...]:
    counting = _Counting()
    model, weights = models.build(spec, counting), models.shapes(spec)
    found = []
    for step in model.program(lane).steps:
        if step.kind in (Kind.AV, Kind.AV_B):
            one, two = (_run(model, counting, step, weights, lane, rows) for rows in (1, 2))
            found.append(Products(two.flops - one.flops, two.columns - one.columns, two.made - one.made, one.calls))
        elif step.kind in TENSOR_KINDS:
            found.append(_of_edges(model, step, weights))
        else:
            found.append(Products())
    return tuple(found)


def _run(
    model: Model, counting: _Counting, step: Step, weights: Mapping[str, Array], lane: Lane, number: int
) -> Products:
    counting.flops = counting.columns = counting.made = counting.calls = 0
    rows = {slot: _rows(slot, model, number) for slot in step.reads}
    with np.errstate(all="ignore"):
        model.run(step, rows, weights, epoch=0, lane=lane)
    return Products(counting.flops, counting.columns, counting.made, counting.calls)


def _rows(slot: str, model: Model, number: int) -> Array:
    spec = model.spec
    if slot == "vertex":
        return np.arange(number)
    if slot == "train":
        return np.ones(number, bool)
    if slot == "label":
        shape = (number,) if spec.target in ("classes", "numbers") else (number, spec.num_classes)
        return np.zeros(shape, np.int64 if spec.target == "classes" else spec.dtype)
    return np.zeros((number, model.width(slot)), spec.dtype)


def _of_edges(model: Model, step: Step, weights: Mapping[str, Array]) -> Products:
    """Products of a step on edges, as if each row had one edge: a row does not tell their number."""
    shapes = [array.shape for name, array in weights.items() if array.ndim > 1 and model.stage(name) == step.layer]
    times = 1 + 2 * step.has_gradient
    return Products(
        times * sum(2 * int(np.prod(shape[:-1])) * _in_lanes(shape[-1]) for shape in shapes),
        times * sum(shape[-2] + shape[-1] for shape in shapes),
        times * sum(shape[-1] for shape in shapes),
        times * len(shapes),
    )
