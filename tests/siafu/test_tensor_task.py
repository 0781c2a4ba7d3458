"""One tensor task: what it asks for, in which order, and what a worker remembers from task to task."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from siafu import arithmetic, models, wire
from siafu.models import ModelSpec
from siafu.models.staged import among_all, of_training
from siafu.sparse import SparseRows
from siafu.tasks import Kind, Lane
from siafu.tensor_task import (
    KEPT_VERSIONS,
    NextPart,
    TensorWorker,
    aligned,
    conversation,
    split,
)

SPEC = ModelSpec("gcn", 3, 2, num_train=8, widths=(4,), dtype="float64", seed=1, narrow=False)
MODEL = models.build(SPEC, arithmetic)
PROGRAM = MODEL.program(Lane.TRAIN)
FIRST = next(pc for pc, step in enumerate(PROGRAM.steps) if step.kind is Kind.AV)
FUSED = next(pc for pc, step in enumerate(PROGRAM.steps) if step.fused)
ROWS = 5


def worker(keep_bytes: int = 0) -> TensorWorker:
    ticks = iter(range(10**6))
    return TensorWorker(SPEC, "w", lambda: float(next(ticks)), keep_bytes)


def task(
    pc: int, *, epoch: int = 0, interval: int = 0, num_parts: int = 1, rows: dict[str, Any] | None = None
) -> wire.Task:
    rng = np.random.default_rng(pc)
    every: dict[str, Any] = {
        "Z0": rng.normal(size=(ROWS, 3)),
        "Z1": rng.normal(size=(ROWS, 4)),
        "label": rng.integers(0, 2, ROWS),
        "train": rng.random(ROWS) < 0.7,
    }
    wanted = {slot: every[slot] for slot in PROGRAM[pc].reads} if rows is None else rows
    return wire.Task("train", epoch, interval, pc, 0, 0, num_parts, ("Z0",) if pc == FIRST else (), wanted)


def weights(layer: int, version: int, *, held: bool = False) -> wire.Weights:
    tensors: dict[str, Any] = {} if held else {n: W for n, W in MODEL.init().items() if MODEL.stage(n) == layer}
    return wire.Weights("train", 0, 0, (layer,), 0, version, tensors)


def finish(run: Any, reply: Any) -> wire.TaskResult:
    with pytest.raises(StopIteration) as stop:
        run.send(reply)
    result: wire.TaskResult = stop.value.value
    return result


def test_a_task_asks_for_weights_pushes_its_gradients_and_then_returns():
    run = worker().perform(task(FUSED))
    assert vars(next(run)) == vars(wire.FetchWeights("train", 0, 0, (1,), 0, ()))
    gradient = run.send(weights(1, 0))
    assert isinstance(gradient, wire.Gradient)
    expected = MODEL.run(PROGRAM[FUSED], task(FUSED).rows, MODEL.init(), epoch=0, lane=Lane.TRAIN)
    assert set(gradient.tensors) == set(expected.gradients)
    result = finish(run, wire.GradientAck(0, 0, 1, 0))
    assert (result.loss, result.compute_s, result.worker) == (expected.loss, 1.0, "w")
    np.testing.assert_array_equal(np.asarray(result.rows["dZ1"]), expected.rows["dZ1"])


def test_a_step_without_gradients_pushes_none():
    run = worker().perform(task(FIRST))
    next(run)
    assert set(finish(run, weights(0, 0)).rows) == {"H1"}


def test_weights_are_fetched_once_per_version():
    it = worker()
    run = it.perform(task(FIRST))
    next(run)
    once = finish(run, weights(0, 7))
    run = it.perform(task(FIRST, interval=1))
    assert vars(next(run)) == vars(wire.FetchWeights("train", 0, 1, (0,), 0, (7,)))
    again = finish(run, weights(0, 7, held=True))
    np.testing.assert_array_equal(np.asarray(again.rows["H1"]), np.asarray(once.rows["H1"]))


def test_an_intervals_version_is_asked_for_once_an_epoch():
    it = worker()
    run = it.perform(task(FIRST))
    next(run)
    once = finish(run, weights(0, 3))
    again = finish(it.perform(task(FIRST)), None)  # the first request has fixed it for all tasks of the epoch
    np.testing.assert_array_equal(np.asarray(again.rows["H1"]), np.asarray(once.rows["H1"]))
    assert isinstance(next(it.perform(task(FIRST, epoch=1))), wire.FetchWeights)
    assert isinstance(next(it.perform(task(FUSED))), wire.FetchWeights)  # another layer's are not here
    evaluation = dataclasses.replace(task(FIRST), lane="eval")
    assert isinstance(next(it.perform(evaluation)), wire.FetchWeights)


def test_a_version_that_is_not_held_any_more_is_asked_for_again():
    it = worker()
    for interval in range(KEPT_VERSIONS + 1):
        run = it.perform(task(FIRST, interval=interval))
        next(run)
        finish(run, weights(0, interval))
    assert isinstance(next(it.perform(task(FIRST))), wire.FetchWeights)
    finish(it.perform(task(FIRST, interval=1)), None)


def test_a_servers_thread_asks_for_the_weights_of_all_layers_at_once():
    it = TensorWorker(SPEC, "cpu", lambda: 0.0, all_layers=True)
    run = it.perform(task(FIRST))
    assert vars(next(run)) == vars(wire.FetchWeights("train", 0, 0, (0, 1), 0, ()))
    finish(run, wire.Weights("train", 0, 0, (0, 1), 0, 5, dict(MODEL.init())))
    gradient = next(it.perform(task(FUSED)))
    assert isinstance(gradient, wire.Gradient)
    expected = MODEL.run(PROGRAM[FUSED], task(FUSED).rows, MODEL.init(), epoch=0, lane=Lane.TRAIN)
    for name, value in expected.gradients.items():
        np.testing.assert_array_equal(np.asarray(gradient.tensors[name]), value)
    assert vars(next(it.perform(task(FIRST, epoch=1)))) == vars(wire.FetchWeights("train", 1, 0, (0, 1), 0, (5,)))


def test_a_worker_keeps_the_newest_versions_only():
    it = worker()
    for version in range(KEPT_VERSIONS + 2):
        run = it.perform(task(FIRST, epoch=version))
        asked = next(run)
        finish(run, weights(0, version))
    assert isinstance(asked, wire.FetchWeights)
    assert asked.have == tuple(range(1, KEPT_VERSIONS + 1))


def test_a_version_that_is_let_go_meanwhile_serves_the_task_that_asked_for_it():
    #  the task says that it holds version 0; before the answer comes, newer ones push it out
    it = worker()
    run = it.perform(task(FIRST))
    next(run)
    expected = finish(run, weights(0, 0))
    slow = it.perform(task(FIRST, interval=1))
    next(slow)
    for version in range(1, KEPT_VERSIONS + 2):
        run = it.perform(task(FIRST, epoch=version))
        next(run)
        finish(run, weights(0, version))
    result = finish(slow, weights(0, 0, held=True))
    np.testing.assert_array_equal(np.asarray(result.rows["H1"]), np.asarray(expected.rows["H1"]))


def test_the_next_part_is_asked_for_after_the_first_is_computed():
    first, second = split(task(FUSED).rows, 2)
    run = worker().perform(task(FUSED, num_parts=2, rows=first))
    next(run)
    assert run.send(weights(1, 0)) == NextPart(1)
    gradient = run.send(wire.TaskPart("train", 0, 0, FUSED, 0, 1, second))
    assert isinstance(gradient, wire.Gradient)
    result = finish(run, None)
    expected = MODEL.run(PROGRAM[FUSED], task(FUSED).rows, MODEL.init(), epoch=0, lane=Lane.TRAIN)
    assert result.loss == pytest.approx(expected.loss, rel=1e-12)
    assert result.compute_s == 2.0  # one second each
    for name, value in expected.gradients.items():
        np.testing.assert_allclose(np.asarray(gradient.tensors[name]), value, rtol=1e-12, atol=1e-15)


def test_a_part_that_comes_on_request_is_asked_for():
    first, _ = split(task(FUSED).rows, 2)
    run = worker().perform(dataclasses.replace(task(FUSED, num_parts=2, rows=first), on_request=True))
    next(run)
    assert run.send(weights(1, 0)) == NextPart(1, lost=True)


@pytest.mark.parametrize(("keep_bytes", "lost"), [(0, True), (ROWS * 3 * 8 - 1, True), (ROWS * 3 * 8, False)])
def test_constants_are_kept_as_far_as_there_is_room(keep_bytes: int, lost: bool):
    it = worker(keep_bytes)
    run = it.perform(task(FIRST))
    next(run)
    expected = finish(run, weights(0, 0))
    run = it.perform(task(FIRST, epoch=1, rows={}))
    next(run)
    reply: Any = weights(0, 0, held=True)
    if lost:
        assert run.send(reply) == NextPart(0, lost=True)
        reply = wire.TaskPart("train", 0, 0, FIRST, 0, 0, task(FIRST).rows)
    np.testing.assert_array_equal(np.asarray(finish(run, reply).rows["H1"]), np.asarray(expected.rows["H1"]))


@pytest.mark.parametrize("num_parts", range(1, 7))
def test_split_loses_no_row_and_is_even(num_parts: int):
    dense = np.arange(15.0).reshape(ROWS, 3)
    sparse = SparseRows(np.arange(ROWS + 1), np.zeros(ROWS, np.int32), np.arange(1.0, ROWS + 1), 3)
    parts = split({"Z0": dense, "Z1": sparse}, num_parts)
    lengths = [len(part["Z0"]) for part in parts]
    assert len(parts) == num_parts
    assert max(lengths) - min(lengths) <= 1
    np.testing.assert_array_equal(np.concatenate([np.asarray(part["Z0"]) for part in parts]), dense)
    pieces = [rows.dense() for part in parts if isinstance(rows := part["Z1"], SparseRows)]
    np.testing.assert_array_equal(np.concatenate(pieces), sparse.dense())


def test_a_question_and_its_answer_are_one_conversation_and_other_attempts_are_not():
    ask = wire.FetchWeights("train", 3, 1, 0, 2, ())
    assert conversation(ask) == conversation(wire.Weights("train", 3, 1, 0, 2, 9, {}))
    assert conversation(ask) != conversation(wire.Weights("train", 3, 1, 0, 1, 9, {}))
    assert conversation(wire.Gradient(3, 1, 0, 2, {})) == conversation(wire.GradientAck(3, 1, 0, 2))
    assert conversation(wire.Gradient(3, 1, 0, 2, {})) != conversation(ask)


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 17])
def test_rows_that_lie_crooked_in_a_message_are_straightened(offset):
    X = np.arange(12, dtype=np.float32).reshape(3, 4)
    room = bytearray(X.nbytes + 64)
    room[offset : offset + X.nbytes] = X.tobytes()
    crooked = np.frombuffer(memoryview(room)[offset : offset + X.nbytes], np.float32).reshape(3, 4)
    straight = aligned(crooked)
    assert straight.flags.aligned
    np.testing.assert_array_equal(np.asarray(straight), X)
    bag = SparseRows(np.array([0, 4]), np.arange(4, dtype=np.int32), crooked[0], 4)
    assert aligned(bag).data.flags.aligned


def test_training_rows_alone_give_the_loss_and_gradients_of_all_to_the_last_bit():
    whole = task(FUSED).rows
    train = np.asarray(whole["train"])
    assert 0 < train.sum() < ROWS
    found, expected = (
        MODEL.run(PROGRAM[FUSED], rows, MODEL.init(), epoch=0, lane=Lane.TRAIN) for rows in (of_training(whole), whole)
    )
    assert found.loss == expected.loss
    for name, gradient in expected.gradients.items():
        np.testing.assert_array_equal(found.gradients[name], gradient)
    made = among_all(found.rows, train)
    assert set(made) == set(expected.rows) == {"dZ1"}
    np.testing.assert_array_equal(np.asarray(made["dZ1"]), np.asarray(expected.rows["dZ1"]))


@pytest.mark.parametrize("chosen", [False, True])
def test_rows_kept_of_all_vertices_are_not_those_of_training_vertices(chosen: bool):
    """A task that was sent none of its constants asks for them, unless it was sent the same rows before."""
    one = worker(keep_bytes=10**6)
    run = one.perform(task(FIRST))
    next(run)
    finish(run, weights(0, 0))
    bare = dataclasses.replace(task(FIRST, epoch=1, rows={}), subset="training" if chosen else "")
    run = one.perform(bare)
    next(run)
    if chosen:
        assert run.send(weights(0, 0, held=True)) == NextPart(0, lost=True)
    else:
        finish(run, weights(0, 0, held=True))
