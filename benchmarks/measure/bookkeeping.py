"""What a graph server's own thread costs per task: a whole ``Partition`` whose
computations and Lambdas are not counted.

The scheduler is the least of it: jobs are queued, slots handed on, staleness noted, messages made. Gathers and scatters
really run, on a graph so small that they are nothing, and are taken off; tensor tasks are answered at once with zeros.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from graph_data.prepare import prepare
from graph_server.backends import Action, Completed, Compute, TensorTask
from graph_server.partition import Partition
from siafu import models
from siafu.address import COORDINATOR, Address, Send, param_server
from siafu.config import Config
from siafu.graph import TRAIN, Graph
from siafu.models import Model, ModelSpec
from siafu.shards import Shard, ShardSet
from siafu.tasks import Lane, TaskId
from siafu.wire import EpochDone, Message, Ready, Start, TaskResult, WeightsReady

ROWS_PER_INTERVAL, WIDTH, DEGREE = 4, 4, 8
NUM_TASKS, MIN_EPOCHS = 20_000, 3


class Idle:
    """A backend that answers every task at once, with zeros."""

    in_flight = 0

    def __init__(self, model: Model):
        self._model = model

    def expect(self, task: TaskId, now: float) -> list[Action]:
        return []

    def watch(self, graph_tasks: int, now: float) -> None: ...

    def submit(self, task: TensorTask, now: float) -> list[Action]:
        num_rows = min(len(rows) for rows in task.rows.values())
        rows: dict[str, Any] = {
            slot: np.zeros((num_rows, self._model.width(slot)), np.float32) for slot in task.step.writes
        }
        lane, epoch, interval, pc = task.id.lane.value, task.id.epoch, task.id.interval, task.id.pc
        return [Completed(TaskResult(lane, epoch, interval, pc, 0, "", 0.0, 0.0, rows))]

    def handle(self, sender: Address, message: Message, now: float) -> list[Action]:
        return []

    def tick(self, now: float) -> list[Action]:
        return []

    def stop(self) -> None: ...

    @property
    def usage(self) -> dict[str, float]:
        return {}


def seconds_per_task(num_intervals: int, mode: str) -> float:
    """Of a GCN on a graph of a few vertices per interval. AssertionError if an interval does not get through."""
    with tempfile.TemporaryDirectory(prefix="siafu-bookkeeping-") as folder:
        shards = prepare(_graph(num_intervals), Path(folder) / "shards", order="given")
        spec = ModelSpec("gcn", WIDTH, 2, 1, widths=(WIDTH,))
        steps = len(models.build(spec).program(Lane.TRAIN))
        epochs = max(MIN_EPOCHS, NUM_TASKS // (num_intervals * steps))
        config = Config().replace(
            {"train.intervals": num_intervals, "train.mode": mode, "train.epochs": epochs, "train.eval_every": 0}
        )
        return _drive(config, ShardSet.open(shards.path).partition(0), models.build(spec)) / (
            num_intervals * steps * epochs
        )


def _drive(config: Config, shard: Shard, model: Model) -> float:
    """Seconds on the server's thread from the start to the last epoch's end, less what its computations took."""
    partition = Partition(config, shard, model, Idle(model), num_threads=2)  # type: ignore[arg-type]  # it is never made
    waiting: deque[Action] = deque(partition.greet(time.monotonic()))
    begun = elsewhere = 0.0
    while waiting and not (partition.schedulers and partition.schedulers[Lane.TRAIN].finished):
        match waiting.popleft():
            case Compute() as compute:
                start = time.perf_counter()
                value = compute.work()
                elsewhere += time.perf_counter() - start
                waiting += partition.computed(compute, value, 0.0)
            case Send(message=Ready()):
                begun, elsewhere = time.perf_counter(), 0.0
                waiting += partition.handle(COORDINATOR, Start(), 0.0)
            case Send(message=EpochDone(epoch=epoch)):
                waiting += partition.handle(param_server(0), WeightsReady(0, epoch + 1, 0), 0.0)
    assert partition.schedulers[Lane.TRAIN].finished
    return time.perf_counter() - begun - elsewhere


def _graph(num_intervals: int) -> Graph:
    """Vertices in a ring, each with neighbours near it and one anywhere."""
    rng = np.random.default_rng(num_intervals)
    n = ROWS_PER_INTERVAL * num_intervals
    src = np.repeat(np.arange(n), DEGREE)
    dst = (src + rng.integers(1, 2 * ROWS_PER_INTERVAL, len(src))) % n
    dst[::DEGREE] = rng.integers(0, n, n)
    return Graph(
        name="ring",
        num_vertices=n,
        src=src,
        dst=dst,
        weight=None,
        features=rng.random((n, WIDTH), dtype=np.float32),
        labels=np.zeros(n, np.int64),
        num_classes=2,
        split=np.full((n, 1), TRAIN, np.uint8),
        directed=True,
    )


def rows(intervals: list[int], rounds: int) -> list[dict[str, Any]]:
    """Lines of the table, their rounds interleaved."""
    seconds: dict[int, list[float]] = {k: [] for k in intervals}
    for _ in range(rounds):
        for k in intervals:
            seconds[k].append(seconds_per_task(k, "async"))
    return [
        {
            "part": "bookkeeping",
            "case": f"{k:,} intervals, whole server, async",
            "value": 1e6 * float(np.median(seconds[k])),
            "unit": "µs/task",
            "intervals": k,
        }
        for k in intervals
    ]
