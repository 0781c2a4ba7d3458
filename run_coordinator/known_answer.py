"""A known-answer test of siafu's arithmetic: one digest that every machine must make, whatever
its processor, BLAS and C library.

It covers what decides a run's bits: Gather, attention, and the tensor steps of every model, forward and backward.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, Final

import numpy as np

from siafu import arithmetic, kernels
from siafu.kernels import Records, Table
from siafu.models import ModelSpec, build
from siafu.sparse import Array, Edges
from siafu.tasks import TENSOR_KINDS, Kind, Lane

#: What ``digest`` must give with compiled kernels.
KNOWN: Final = "3c4042e741efbd4a"
_ROWS, _HEADS, _WIDTH, _CLASSES = 200, 4, 24, 7
#: Not ``MODELS``: a user may add a model, and the answer must stay the same. Options differ, so that every elementary
#: function has a part.
_MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"label_smoothing": 0.1},
    "sage": {"activation": "tanh", "norm": "layer"},
    "gat": {"activation": "elu", "heads": _HEADS},
    "gin": {"multilabel": True, "target": "labels", "train_eps": True},
    "gcnii": {},
    "appnp": {"dtype": "float64"},
    "sgc": {},
    "rgcn": {"bases": 2, "num_edge_types": 3},
}


def numbers(*shape: int, seed: int, scale: float = 1.0) -> Array:
    """Float32 in (-scale, scale), from integer arithmetic alone: independent of any generator or C library."""
    state = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    state = (state ^ state >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9)
    whole = (state >> np.uint64(40)).astype(np.int64) - (1 << 23)
    return np.asarray((whole.astype(np.float32) * np.float32(scale * 2.0**-23)).reshape(shape))


def digest() -> str:
    """16 hex digits over the bits of all answers. Takes about half a second."""
    made = hashlib.sha256()
    for answers in (_graph_work(), *map(_tensor_work, _MODELS)):
        for array in answers:
            made.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return made.hexdigest()[:16]


def _graph_work() -> Iterator[Array]:
    degree = (np.abs(numbers(_ROWS, seed=1)) * 40).astype(np.int64)
    indptr = np.append(0, np.cumsum(degree))
    columns = (np.abs(numbers(int(indptr[-1]), seed=2)) * _ROWS).astype(np.int32)
    edges = Edges(indptr, columns, np.abs(numbers(len(columns), seed=3)))
    for dtype in ("float32", "float64"):
        table = Table(_ROWS, _WIDTH, dtype)
        table.write(slice(None), numbers(_ROWS, _WIDTH, seed=4).astype(dtype))
        yield kernels.gather(edges, 0, _ROWS, table, add_self=True)
    T, dZ = (numbers(_ROWS, _WIDTH, seed=seed) for seed in (5, 6))
    s, t = (numbers(_ROWS, _HEADS, seed=seed, scale=3) for seed in (7, 8))
    sources, targets = (Records(_ROWS, _HEADS, _WIDTH // _HEADS, num_scores=count) for count in (1, 3))
    sources.write(slice(None), T, s)
    attended = kernels.attend(edges, 0, _ROWS, sources, t)
    yield from (getattr(attended, field.name) for field in fields(attended))
    dt, delta = kernels.target_gradient(attended, dZ)
    targets.write(slice(None), dZ, t, np.where(np.isfinite(attended.log_total), attended.log_total, 0), delta)
    yield from (dt, delta, *kernels.attend_backward(edges, 0, _ROWS, targets, T, s))


def _tensor_work(name: str) -> Iterator[Array]:
    spec = ModelSpec(name, 50, _CLASSES, _ROWS, widths=(_WIDTH, _WIDTH), dropout=0.3, **_MODELS[name])
    model = build(spec, arithmetic)
    weights = model.init()
    for step in model.program(Lane.TRAIN).steps:
        if step.kind not in TENSOR_KINDS or step.kind is Kind.WU:
            continue
        rows = {slot: _rows(slot, seed, spec, model.width) for seed, slot in enumerate(sorted(step.reads))}
        output = model.run(step, rows, weights, epoch=1, lane=Lane.TRAIN)
        for of in (output.rows, output.gradients):
            yield from (of[key] for key in sorted(of))
        yield np.array(output.loss)


def _rows(slot: str, seed: int, spec: ModelSpec, width: Any) -> Array:
    if slot == "vertex":
        return np.arange(_ROWS, dtype=np.int64) * 7919
    if slot == "train":
        return np.asarray(numbers(_ROWS, seed=seed) > -0.5)
    if slot == "label":
        drawn = np.abs(numbers(_ROWS, _CLASSES, seed=seed))
        return np.asarray(
            (drawn > 0.5).astype(np.uint8) if spec.multilabel else (drawn[:, 0] * _CLASSES).astype(np.int64)
        )
    return numbers(_ROWS, width(slot), seed=seed, scale=2).astype(spec.dtype)
