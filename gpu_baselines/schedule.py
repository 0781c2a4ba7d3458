"""Tells when each stage of a pipeline works on which chunk: GPipe's schedule, as a generator (Huang et al., 2019).

1. Chunks flow forward through the stages one behind the other, in the epoch's order; then backward
   through the stages in reverse, the last chunk first. So every gradient of a chunk that comes from a
   later one is there when it is its turn.
2. A stage has one task at a tick. A task needs what the stage before it (backward: after it) made of
   the same chunk at an earlier tick.
3. Of 2 (K + S - 1) ticks a stage is idle in 2 (S - 1).

Two stages, three chunks, ticks from left to right, ``drawn``:

    0> 1> 2> .  .  2< 1< 0<
    .  0> 1> 2> 2< 1< 0< .
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple

Way = Literal["forward", "backward"]


class Task(NamedTuple):
    tick: int
    stage: int
    place: int  # in the epoch's order of chunks
    way: Way


def timeline(num_stages: int, num_chunks: int) -> Iterator[Task]:
    """All tasks of an epoch, by tick and stage."""
    span = num_stages + num_chunks - 1
    for tick in range(2 * span):
        for stage in range(num_stages):
            way: Way = "forward" if tick < span else "backward"
            place = tick - stage if way == "forward" else 2 * span - 1 - tick - stage
            if 0 <= place < num_chunks:
                yield Task(tick, stage, place, way)


def tasks_of(stage: int, num_stages: int, num_chunks: int) -> list[Task]:
    """Tasks of one stage, in order."""
    return [task for task in timeline(num_stages, num_chunks) if task.stage == stage]


def bubble(num_stages: int, num_chunks: int) -> float:
    """The share of ticks in which a stage is idle."""
    return (num_stages - 1) / (num_chunks + num_stages - 1)


def split(num_layers: int, num_stages: int, ends: int = 0) -> list[range]:
    """Consecutive layers for every stage, as evenly as possible; later stages get the remainder.

    ends: extra layers of the first and of the last stage, before and after the evenly divided ones (the dense layers of
    GCNII). ``num_layers`` includes them.
    """
    shared = num_layers - 2 * ends
    cuts = [ends + shared * stage // num_stages for stage in range(num_stages + 1)]
    cuts[0], cuts[-1] = 0, num_layers
    return [range(first, stop) for first, stop in pairwise(cuts)]
