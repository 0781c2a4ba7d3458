"""Products of tensor steps, against counts by hand and against what the kernels are asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cost_planner.plan.products import Products, products_of
from siafu import arithmetic, models
from siafu.models import ModelSpec
from siafu.sparse import Array
from siafu.tasks import Kind, Lane

FEATURES, HIDDEN, CLASSES = 32, 16, 5


def spec_of(name: str, **settings: Any) -> ModelSpec:
    widths = () if name == "sgc" else (HIDDEN,)
    return ModelSpec(name, FEATURES, CLASSES, 10, widths=widths, **settings)


def by_name(spec: ModelSpec) -> dict[str, Products]:
    model = models.kept(spec)
    steps = model.program(Lane.TRAIN).steps
    return {step.name: found for step, found in zip(steps, products_of(model, Lane.TRAIN), strict=True)}


def in_lanes(columns: int) -> int:
    """Of a result: vectors of 16."""
    return 16 * math.ceil(columns / 16)


def test_a_narrow_gcn_by_hand() -> None:
    """T1 = relu(Z0 W0) W1 and back: dW0, dW1 and dH1. Its forward is made again where nothing is kept: not T1."""
    shapes = (FEATURES, HIDDEN), (HIDDEN, CLASSES), (CLASSES, HIDDEN)
    W0, W1, W1_back = (2 * rows * in_lanes(made) for rows, made in shapes)
    kept = by_name(spec_of("gcn", rematerialise=False))
    assert kept["AV0"] == Products(W0 + W1, FEATURES + HIDDEN + HIDDEN + CLASSES, HIDDEN + CLASSES, 2)
    assert kept["AV1"] == Products()  # the loss
    assert kept["AV'0"].flops == W0 + W1 + W1_back
    again = by_name(spec_of("gcn", rematerialise=True))
    assert again["AV'0"].flops == 2 * W0 + W1 + W1_back
    assert again["AV'0"].calls == kept["AV'0"].calls + 1


@pytest.mark.parametrize("rematerialise", [True, False])
def test_sgc_computes_its_product_once_each_way(rematerialise: bool) -> None:
    found = by_name(spec_of("sgc", rematerialise=rematerialise))
    flops = 2 * FEATURES * in_lanes(CLASSES)
    assert found["AV0"] == Products(flops, FEATURES + CLASSES, CLASSES, 1)
    assert found["AV'0"] == Products(flops, FEATURES + CLASSES, 0, 1)  # its gradient has no rows


class Watched:
    """The arithmetic of a run, which adds up its products' operations, and the values of rows that they make."""

    def __init__(self) -> None:
        self.flops = self.made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(arithmetic, name)

    def matmul(self, X: Array, W: Array, add: Array | None = None) -> Array:
        self.flops += 2 * len(X) * X.shape[1] * in_lanes(W.shape[1])
        self.made += len(X) * W.shape[1]
        return arithmetic.matmul(X, W, add=add)

    def matmul_transposed(self, X: Array, D: Array) -> Array:
        self.flops += 2 * len(X) * X.shape[1] * in_lanes(D.shape[1])
        return arithmetic.matmul_transposed(X, D)


@pytest.mark.parametrize("rematerialise", [True, False])
@pytest.mark.parametrize("settings", [{}, {"dropout": 0.5, "norm": "layer"}, {"target": "labels", "multilabel": True}])
@pytest.mark.parametrize("name", list(models.MODELS))
def test_counts_are_those_of_a_real_task(name: str, settings: dict[str, Any], rematerialise: bool) -> None:
    if "norm" in settings and not {"norm"} <= models.named(name).takes:
        settings = {"dropout": 0.5}
    spec, rows = spec_of(name, rematerialise=rematerialise, **settings), 37
    watched, rng = Watched(), np.random.default_rng(0)
    model = models.build(spec, watched)
    weights = model.init()
    for step, found in zip(model.program(Lane.TRAIN).steps, products_of(model, Lane.TRAIN), strict=True):
        if step.kind not in (Kind.AV, Kind.AV_B):
            assert found == Products()
            continue
        given: dict[str, Any] = {
            slot: rng.standard_normal((rows, model.width(slot))).astype(np.float32)
            for slot in step.reads
            if slot not in ("vertex", "train", "label")
        }
        given |= {"vertex": np.arange(rows), "train": np.ones(rows, bool)}
        given["label"] = np.zeros((rows, CLASSES), np.float32) if spec.target == "labels" else np.zeros(rows, np.int64)
        watched.flops = watched.made = 0
        model.run(step, given, weights, epoch=0, lane=Lane.TRAIN)
        assert (watched.flops, watched.made) == (rows * found.flops, rows * found.made), step.name
