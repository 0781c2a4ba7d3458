"""How much work the steps of a run are: edges, values, products and bytes, from the model's own program and the graph's counts.

1. An interval has its share of a partition's vertices and in-edges; partitions are taken to be alike.
2. Gather: so much for each edge, and for each value that it reads. Scatter: for each value that it copies, its own rows and
   those for peers. Every task: so much whatever its size.
3. Tensor task: 2 n in out operations for a product; a backward step computes its forward again and has two products more, a
   fused one two. What no product is part of is not counted.
4. Bytes of a tensor task are the rows that its step reads and writes, but for what never changes: that stays with the worker.
   Of a Scatter: the ghosts' share of the rows, to each peer.

Sparse features count as dense ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bench.plan.parts import LinkRate
from bench.plan.simulator import Environments, Plan, StepWork
from siafu import models
from siafu.config import Config
from siafu.models import Model, ModelSpec
from siafu.shards import Manifest
from siafu.tasks import TENSOR_KINDS, Kind, Lane, Step

#: Bytes of a vertex in the slots that are no rows of the model.
OTHERS = {"vertex": 8, "label": 8, "train": 1}
#: Slots that never change, beside a program's.
CONSTANTS = frozenset({"H0", *OTHERS})


@dataclass(frozen=True)
class Speeds:
    """Of one thread, on the machine that is meant. The defaults are of 2 cores of an AMD EPYC (Zen 5), memory shared by both."""

    edge_ns: float = 1.0  # gather: for an edge
    value_ns: float = 0.08  # gather: and for each column of it
    copy_ns: float = 0.5  # scatter: for a value that is copied
    task_s: float = 50e-6  # for every graph task
    flops: float = 60e9  # products on the server's threads
    lambda_flops: float = 60e9  # products on a whole core of an environment


@dataclass(frozen=True)
class Counts:
    """Of one partition, on average."""

    parts: int
    vertices: float
    edges: float  # in-edges: an undirected edge counts twice
    ghosts: float  # rows that come from others

    @classmethod
    def of(cls, manifest: Manifest) -> Counts:
        entries = manifest.partitions
        return cls(
            len(entries), manifest.num_vertices / len(entries),
            float(np.mean([entry.in_edges for entry in entries])), float(np.mean([entry.ghosts_in for entry in entries])),
        )  # fmt: skip


def work_of(config: Config, model: Model, counts: Counts, speeds: Speeds) -> list[StepWork]:
    """By step of the training program, for one interval."""
    program, intervals = model.program(Lane.TRAIN), config.train.intervals
    n, e = counts.vertices / intervals, counts.edges / intervals
    item = np.dtype(config.model.dtype).itemsize
    stored = 2 if config.model.rows == "bfloat16" else item
    fixed = CONSTANTS | program.constants if config.lambdas.keep_constants else frozenset()
    flops = speeds.lambda_flops if config.servers.backend == "lambda" else speeds.flops
    weights = _weights(model)
    to_peers = counts.ghosts / intervals  # rows of an interval that others gather, each peer's counted

    def nbytes(slots: Sequence[str]) -> float:
        return n * sum(OTHERS.get(slot) or item * model.width(slot) for slot in slots if slot not in fixed)

    def made(step: Step) -> StepWork:
        if step.kind in TENSOR_KINDS:
            products = 2 * n * weights[step.layer] * (3 if step.has_gradient else 1)
            return StepWork(products / flops, nbytes(step.reads), nbytes(step.writes))
        if step.publishes:
            columns = model.width(step.publishes)
            peers = to_peers * columns * stored / max(1, counts.parts - 1)
            return StepWork(speeds.task_s + (n + to_peers) * columns * speeds.copy_ns * 1e-9, peers=peers)
        if step.kind is Kind.WU or step.gathers not in program.publisher:
            return StepWork()
        columns = model.width(str(step.gathers))
        return StepWork(speeds.task_s + e * (speeds.edge_ns + columns * speeds.value_ns) * 1e-9)

    return [made(step) for step in program.steps]


def plan_of(
    config: Config, manifest: Manifest, speeds: Speeds, *, threads: int, link: LinkRate, environments: Environments | None = None
) -> Plan:  # fmt: skip
    """The run of a config on a graph. threads: of each server; environments: those of each server, if its backend is lambda."""
    model = models.build(ModelSpec.of(config, manifest))
    counts, train = Counts.of(manifest), config.train
    weights = float(sum(array.nbytes for array in model.init().values()))
    return Plan(
        model.program(Lane.TRAIN), work_of(config, model, counts, speeds), servers=counts.parts, threads=threads,
        intervals=train.intervals, mode=train.mode, staleness=train.staleness, freshness=train.freshness, ahead=train.ahead,
        warmup_epochs=train.warmup_epochs, link=link, weights=weights,
        environments=(environments or Environments()) if config.servers.backend == "lambda" else None,
    )  # fmt: skip


def _weights(model: Model) -> Counter[int]:
    """Stage -> how many weights its products have."""
    found: Counter[int] = Counter()
    for name, array in model.init().items():
        found[model.stage(name)] += array.size if array.ndim > 1 else 0
    return found
