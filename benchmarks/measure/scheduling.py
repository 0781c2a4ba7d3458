"""What it costs to decide which task runs next, alone: the pure scheduler, driven
through epochs that compute nothing."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np

from graph_server.scheduler import Crossing, Opened, Published, Scheduler, StepDone
from siafu.models import ModelSpec, build
from siafu.sparse import Array
from siafu.tasks import Lane, Program

#: Intervals that the rows of one reach: its neighbours in the order of vertices, and some anywhere.
NEAR, FAR = (-2, -1, 1, 2), 4
#: Enough tasks for a steady figure; at least so many epochs.
NUM_TASKS, MIN_EPOCHS = 40_000, 3
MODES = {"pipe": 1.0, "async": 0.9}  # mode -> freshness
#: Beyond, its matrix of intervals by intervals is larger than this machine's patience: K² edges between intervals.
MAX_ALL_TO_ALL = 1000


def ring(num_intervals: int, rng: np.random.Generator) -> Crossing:
    """Edges between intervals as good partitioners leave them: to those near, and to a few anywhere."""
    near = np.arange(num_intervals)[:, None] + np.array(NEAR)  # [K, near]
    far = rng.integers(0, num_intervals, (num_intervals, FAR))
    reached = np.concatenate([near % num_intervals, far], axis=1)
    return _crossing([np.setdiff1d(row, [j]) for j, row in enumerate(reached)], rng)


def all_to_all(num_intervals: int, rng: np.random.Generator) -> Crossing:
    """What random partitions leave: an update of each of the K² counts in every layer, whoever does the counting."""
    everyone = np.arange(num_intervals)
    return _crossing([np.delete(everyone, j) for j in everyone], rng)


def _crossing(reached: list[Array], rng: np.random.Generator) -> Crossing:
    counts = [rng.integers(1, 100, len(targets)) for targets in reached]
    totals = np.zeros(len(reached), np.int64)
    for targets, count in zip(reached, counts, strict=True):
        totals[targets] += count
    return Crossing(dict(enumerate(reached)), dict(enumerate(counts)), totals)


def seconds_per_task(crossing: Crossing, mode: str, *, program: Program | None = None, seed: int = 0) -> float:
    """Of a GCN's program of 9 steps, tasks finishing in random order. AssertionError if
    an interval does not get through."""
    program = program or build(ModelSpec("gcn", 3, 2, 1)).program(Lane.TRAIN)
    num_intervals = len(crossing.totals)
    epochs = max(MIN_EPOCHS, NUM_TASKS // (num_intervals * len(program)))
    scheduler = Scheduler(
        program,
        Lane.TRAIN,
        range(num_intervals),
        range(epochs),
        forward=crossing,
        backward=crossing,
        freshness=MODES[mode],
        warmup_epochs=1,
    )
    picks = random.Random(seed)
    done, start = 0, time.perf_counter()
    running = scheduler.handle(Opened(0, 0))
    while running:
        pick = int(picks.random() * len(running))
        running[pick], running[-1] = running[-1], running[pick]
        task = running.pop()
        done += 1
        if program[task.pc].publishes:
            running += scheduler.handle(Published(task.epoch, task.pc, task.interval))
        slowest = scheduler.slowest
        running += scheduler.handle(StepDone(task))
        if scheduler.slowest > slowest:
            running += scheduler.handle(Opened(scheduler.slowest, scheduler.slowest))
    seconds = time.perf_counter() - start
    assert scheduler.finished, f"{done} tasks of {epochs} epochs of {num_intervals} intervals"
    return seconds / done


def rows(intervals: list[int], rounds: int) -> list[dict[str, Any]]:
    """Lines of the table; the rounds go over all of them, so that they see the same machine."""
    cases: dict[str, tuple[Crossing, str, int]] = {}
    for k in intervals:
        for mode in MODES:
            cases[f"{k:,} intervals, {mode}"] = ring(k, np.random.default_rng(k)), mode, k
    for k in intervals:
        if k <= MAX_ALL_TO_ALL:
            cases[f"{k:,} intervals, async, all to all"] = all_to_all(k, np.random.default_rng(k)), "async", k
    seconds: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(rounds):
        for case, (crossing, mode, _) in cases.items():
            seconds[case].append(seconds_per_task(crossing, mode, seed=number))
    return [
        {
            "part": "schedule",
            "case": case,
            "value": 1e6 * float(np.median(seconds[case])),
            "unit": "µs/task",
            "intervals": k,
            "mode": mode,
        }
        for case, (_, mode, k) in cases.items()
    ]
