"""The pipeline's schedule, drawn and checked; rules are those of ``gpu_baselines.schedule``."""

from __future__ import annotations

from collections import Counter

import pytest

from gpu_baselines.schedule import bubble, split, tasks_of, timeline

SHAPES = [(1, 1), (1, 5), (2, 1), (2, 8), (3, 4), (4, 3), (4, 16), (8, 32)]
every_shape = pytest.mark.parametrize(("stages", "chunks"), SHAPES)


def drawn(num_stages: int, num_chunks: int) -> str:
    """The timeline as text: a line for each stage, a column for each tick."""
    span = 2 * (num_stages + num_chunks - 1)
    cells = [["."] * span for _ in range(num_stages)]
    for tick, stage, place, way in timeline(num_stages, num_chunks):
        cells[stage][tick] = f"{place}{'>' if way == 'forward' else '<'}"
    width = max(len(cell) for line in cells for cell in line)
    return "\n".join(" ".join(cell.ljust(width) for cell in line).rstrip() for line in cells)


def test_the_timeline_of_three_stages_and_four_chunks() -> None:
    assert drawn(3, 4) == (
        "0> 1> 2> 3> .  .  .  .  3< 2< 1< 0<\n.  0> 1> 2> 3> .  .  3< 2< 1< 0< .\n.  .  0> 1> 2> 3> 3< 2< 1< 0< .  ."
    )


@every_shape
def test_a_task_comes_after_what_it_needs(stages: int, chunks: int) -> None:
    """Rules 1 and 2."""
    done: dict[tuple[int, int, str], int] = {}
    for tick, stage, place, way in timeline(stages, chunks):
        before = stage - 1 if way == "forward" else stage + 1
        needs = [(before, place, way)] if 0 <= before < stages else []
        needs += [(stage, place, "forward")] if way == "backward" else []
        later = place - 1 if way == "forward" else place + 1  # the chunk that goes before this one
        needs += [(stage, later, way)] if 0 <= later < chunks else []
        assert all(done[need] < tick for need in needs), (stage, place, way)
        done[stage, place, way] = tick
    assert len(done) == 2 * stages * chunks


@every_shape
def test_a_stage_has_one_task_at_a_tick_and_is_idle_for_the_bubble(stages: int, chunks: int) -> None:
    """Rules 2 and 3."""
    tasks = list(timeline(stages, chunks))
    assert max(Counter((task.tick, task.stage) for task in tasks).values()) == 1
    ticks = 1 + max(task.tick for task in tasks)
    for stage in range(stages):
        busy = tasks_of(stage, stages, chunks)
        assert [task.tick for task in busy] == sorted(task.tick for task in busy)
        assert 1 - len(busy) / ticks == pytest.approx(bubble(stages, chunks))


@pytest.mark.parametrize(
    ("layers", "stages", "ends", "sizes"),
    [
        (3, 1, 0, [3]),
        (3, 2, 0, [1, 2]),
        (4, 4, 0, [1, 1, 1, 1]),
        (34, 4, 1, [9, 8, 8, 9]),
        (6, 3, 1, [2, 1, 3]),
        (3, 1, 1, [3]),
    ],
)
def test_layers_are_shared_out_evenly(layers: int, stages: int, ends: int, sizes: list[int]) -> None:
    found = split(layers, stages, ends)
    assert [len(part) for part in found] == sizes
    assert [layer for part in found for layer in part] == list(range(layers))
