"""``lambda.apply_edge = auto``: where a run's ApplyEdge costs less time, measured on a sample of the graph's own edges.

Both ways are timed as they would run (``siafu.kernels.attention`` inside the gather; ``siafu.kernels.coefficients``
around the edge tasks of ``siafu.ops``), one core, on this machine; ``run_coordinator.placement`` makes epochs of it.
Where the machines of a run are others than this one, it is the ratio that carries over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from run_coordinator import placement
from run_coordinator.placement import Estimate, Load, Seconds
from siafu import kernels, models, ops, views
from siafu.config import Config
from siafu.kernels import EdgeDropout, Records
from siafu.kernels.records import Dtype
from siafu.machine import LAMBDA_BYTES_PER_S, num_environments, num_threads
from siafu.models import ModelSpec
from siafu.models.gat import GAT
from siafu.run_files import OfPlacement
from siafu.shards import Edges, Shard, ShardSet
from siafu.sparse import Array
from siafu.tasks import Lane

#: Of the sample, and of the rows that it points at: enough to be out of the caches, and made in a moment.
SAMPLE_EDGES, SAMPLE_BYTES = 1 << 17, 64 << 20
COPIED_BYTES = 32 << 20
REPEATS = 2


def placed(config: Config, shards: ShardSet) -> tuple[Config, OfPlacement]:
    """The config with a place for ApplyEdge; and ``apply_edge`` for result.json, how that
    came about, if the model has one."""
    spec = replace(ModelSpec.of(config, shards.manifest), apply_edge="lambda")
    asked = config.lambdas.apply_edge
    model = models.build(spec)
    gat = getattr(model, "encoder", model)  # link prediction has a model inside
    if not isinstance(gat, GAT):
        return config, {}
    weighted, intervals = shards.manifest.weighted, config.train.intervals
    rows = [entry.vertices for entry in shards.manifest.partitions]
    edges = [count + n for count, n in zip(_gathered(shards), rows, strict=True)]
    nbytes = [
        placement.nbytes_of_epoch(model, m, n, intervals, weighted=weighted) for m, n in zip(edges, rows, strict=True)
    ]
    estimate, load = None, None
    chosen: placement.Placement = "lambda" if asked == "lambda" else "server"
    # run_coordinator.prepared.built refuses it there
    dropped = config.train.mode == "async" and config.train.stale_gradients == "drop"
    if asked == "auto" and config.servers.backend == "lambda" and not dropped:  # else there is nobody to send it to
        largest = int(np.argmax(edges))
        tasks = len(placement.edge_steps(model)) * intervals
        load = load_of(config, edges[largest], tasks, nbytes[largest])
        estimate = Estimate.of(measured(gat, config, _view(shards, largest).in_edges), load)
        chosen = estimate.best
    said = placement.explained(chosen, asked, sum(nbytes), estimate, load)
    return config.replace({"lambda.apply_edge": chosen}), {"apply_edge": said}


def _view(shards: ShardSet, part: int) -> Shard:
    return views.view(shards.partition(part), shards.manifest.edge_types, Lane.TRAIN)


def _gathered(shards: ShardSet) -> list[int]:
    """Edges that training gathers along, by partition."""
    if shards.manifest.edge_types in ("none", "relations"):
        return [entry.in_edges for entry in shards.manifest.partitions]
    return [len(_view(shards, part).in_edges.indices) for part in range(shards.manifest.num_partitions)]


def load_of(config: Config, edges: int, tasks: int, nbytes: int) -> Load:
    here = config.lambdas.place.same_machine and not config.lambdas.proxy
    core = config.lambdas.core
    link = copied_per_s() if here else LAMBDA_BYTES_PER_S
    return Load(edges, tasks, nbytes, num_threads(config), num_environments(config), core, link, here)


def measured(model: GAT, config: Config, edges: Edges) -> Seconds:
    """All layers; those of one shape are timed once."""
    shapes = [(model.heads(layer), model.columns(layer)) for layer in range(model.spec.num_layers)]
    found = {shape: _layer(model.spec, config, edges, *shape) for shape in set(shapes)}
    fused, given, task = (sum(found[shape][i] for shape in shapes) for i in range(3))
    return Seconds(fused, given, task)


def copied_per_s() -> float:
    """Bytes that one core copies."""
    room = np.zeros(COPIED_BYTES, np.uint8)
    return COPIED_BYTES / max(_best(room.copy), 1e-9)


def sample_of(edges: Edges, num_rows: int) -> Edges:
    """Rows in the middle of the order, as they lie; their columns folded into ``num_rows``."""
    indptr = np.asarray(edges.indptr)
    start = int(np.searchsorted(indptr, max(0, indptr[-1] - SAMPLE_EDGES) // 2))
    stop = max(start + 1, int(np.searchsorted(indptr, indptr[start] + SAMPLE_EDGES, side="right")) - 1)
    stop = min(stop, start + num_rows, len(indptr) - 1)
    first, last = int(indptr[start]), int(indptr[stop])
    weight = None if edges.weight is None else np.ascontiguousarray(edges.weight[first:last])
    columns = (np.asarray(edges.indices[first:last]) % num_rows).astype(np.int32)
    return Edges(np.ascontiguousarray(indptr[start : stop + 1] - first), columns, weight)


def _layer(spec: ModelSpec, config: Config, edges: Edges, heads: int, columns: int) -> tuple[float, float, float]:
    """Seconds of an edge in one layer: fused, given, task."""
    real = np.dtype(spec.dtype)
    storage: Dtype = "bfloat16" if config.model.rows == "bfloat16" else spec.dtype
    num_rows = max(1, min(len(edges.indptr) - 1, SAMPLE_BYTES // (columns * real.itemsize)))
    sample = sample_of(edges, num_rows)
    k = len(sample.indptr) - 1
    rng = np.random.default_rng(0)
    sources = Records(num_rows, heads, columns // heads, dtype=storage)
    targets = Records(num_rows, heads, columns // heads, num_scores=3, dtype=storage)
    drawn = [rng.normal(size=(num_rows, heads)).astype(real) for _ in range(4)]
    rows = rng.normal(size=(num_rows, columns)).astype(real)
    sources.write(slice(None), rows, drawn[0])
    targets.write(slice(None), rows, *drawn[1:])
    dropout = None
    if spec.attn_dropout:
        dropout = EdgeDropout(spec.attn_dropout, ops.edge_key(spec.seed, 0, 0), np.arange(num_rows, dtype=np.int64))
    how: dict[str, Any] = {"add_self": True, "dropout": dropout}
    t, s, T = drawn[1][:k], drawn[0][:k], rows[:k]
    fused_s = _best(lambda: kernels.attend(sample, 0, k, sources, t, slope=spec.slope, **how))
    fused_s += _best(lambda: kernels.attend_backward(sample, 0, k, targets, T, s, slope=spec.slope, **how))
    given_s, task_s = _given(sample, k, sources, targets, T, (s, t), spec.slope, how)
    num_edges = len(sample.indices) + k
    return fused_s / num_edges, given_s / num_edges, task_s / num_edges


def _given(
    sample: Edges,
    k: int,
    sources: Records,
    targets: Records,
    T: Array,
    scores: tuple[Array, Array],
    slope: float,
    how: dict[str, Any],
) -> tuple[float, float]:
    """Seconds of the whole sample: on the server, and in the edge tasks."""
    s, t = scores
    indptr, weight = kernels.segments(sample, 0, k, add_self=True), None
    if sample.weight is not None:
        weight = np.insert(sample.weight, sample.indptr[:-1], 1)
    ahead = kernels.edge_scores(sample, 0, k, sources, add_self=True)
    back = kernels.edge_scores(sample, 0, k, targets, add_self=True)
    products = kernels.edge_dot(sample, 0, k, T, targets, **how)
    alpha, log_total = ops.segment_softmax(ahead, t, indptr, slope, weight)
    server = (
        lambda: kernels.edge_scores(sample, 0, k, sources, add_self=True),
        lambda: kernels.attend_given(sample, 0, k, sources, alpha, log_total, slope=slope, **how),
        lambda: kernels.edge_dot(sample, 0, k, T, targets, **how),
        lambda: kernels.edge_scores(sample, 0, k, targets, add_self=True),
        lambda: kernels.rows_gradient(sample, 0, k, targets, alpha, **how),
    )
    task = (
        lambda: ops.segment_softmax(ahead, t, indptr, slope, weight),
        lambda: ops.segment_softmax_backward(back, s, products, indptr, slope, weight),
    )
    return sum(map(_best, server)), sum(map(_best, task))


def _best(work: Callable[[], Any]) -> float:
    best = math.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
