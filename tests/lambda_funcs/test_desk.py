"""The desk of a worker: several tasks at once, each waiting for something else, and what
comes too early, late or twice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lambda_funcs.desk import STRAY_PARTS, Desk
from siafu import models, wire
from siafu.address import Send, graph_server, param_server
from siafu.models import ModelSpec
from siafu.sparse import Rows
from siafu.tasks import Kind, Lane
from siafu.tensor_task import TensorWorker, split
from siafu.wire import Message, Tensors

HOME, SERVER = graph_server(0), param_server(1)
SPEC = ModelSpec("gcn", 3, 2, num_train=12, widths=(4,), dtype="float64", seed=1, narrow=False)
MODEL = models.build(SPEC)
PROGRAM = MODEL.program(Lane.TRAIN)
FIRST = next(pc for pc, step in enumerate(PROGRAM.steps) if step.kind is Kind.AV)  # reads Z0, which never changes
FUSED = next(pc for pc, step in enumerate(PROGRAM.steps) if step.fused)  # has gradients
ROWS = 6


def desk(keep_bytes: int = 1 << 20) -> Desk:
    return Desk(HOME, TensorWorker(SPEC, "w", lambda: 0.0, keep_bytes))


def inputs(interval: int, pc: int) -> Tensors:
    rng = np.random.default_rng([interval, pc])
    if pc == FIRST:
        return {"Z0": rng.normal(size=(ROWS, 3))}
    return {"Z1": rng.normal(size=(ROWS, 4)), "label": rng.integers(0, 2, ROWS), "train": rng.random(ROWS) < 0.7}


def task(
    interval: int, pc: int = FUSED, *, epoch: int = 0, attempt: int = 0, num_parts: int = 1, known: bool = False
) -> list[Message]:
    """The messages of one task, in order; ``known``: without the rows that never change."""
    constants = ("Z0",) if pc == FIRST else ("label", "train")
    parts: list[dict[str, Rows]] = [
        {slot: rows for slot, rows in part.items() if not (known and slot in constants)}
        for part in split(inputs(interval, pc), num_parts)
    ]
    first = wire.Task("train", epoch, interval, pc, attempt, SERVER.index, num_parts, constants, parts[0])
    following = [
        wire.TaskPart("train", epoch, interval, pc, attempt, number, rows)
        for number, rows in enumerate(parts[1:], start=1)
    ]
    return [first, *following]


def answer(asked: Message) -> Message:
    """What the parameter server says, or the graph server of rows that are missing."""
    match asked:
        case wire.FetchWeights():
            tensors: Tensors = {n: W for n, W in MODEL.init().items() if int(n.partition(".")[0]) in asked.layers}
            if 0 in asked.have:
                tensors = {}
            return wire.Weights(asked.lane, asked.epoch, asked.interval, asked.layers, asked.attempt, 0, tensors)
        case wire.Gradient():
            return wire.GradientAck(asked.epoch, asked.interval, asked.layer, asked.attempt)
        case wire.RowsMissing():
            task_ = task(asked.interval, asked.pc)[0]
            assert isinstance(task_, wire.Task)
            return wire.TaskPart("train", asked.epoch, asked.interval, asked.pc, asked.attempt, asked.part, task_.rows)
    raise AssertionError(asked)


def settle(it: Desk, sends: list[Send]) -> list[Message]:
    """Answers until nothing is asked any more; what the graph server is told, in order."""
    said: list[Message] = []
    while sends:
        send = sends.pop(0)
        if isinstance(send.message, wire.TaskResult | wire.TaskFailed):
            assert send.to == HOME
            said.append(send.message)
        else:
            assert send.to == (HOME if isinstance(send.message, wire.RowsMissing) else SERVER)
            sends += it.handle(answer(send.message))
    return said


def perform(it: Desk, messages: list[Message]) -> wire.TaskResult:
    """A task from beginning to end, with nothing else on the desk."""
    (result,) = settle(it, [send for message in messages for send in it.handle(message)])
    assert isinstance(result, wire.TaskResult)
    return result


def values(result: wire.TaskResult) -> tuple[Any, ...]:
    return result.loss, {slot: np.asarray(rows).tolist() for slot, rows in result.rows.items()}


# --- several tasks ----------------------------------------------------------------------------------------------------


def test_weights_of_the_second_task_are_asked_for_before_the_first_is_done():
    it = desk()
    (first,) = it.handle(task(0)[0])
    (second,) = it.handle(task(1)[0])
    assert isinstance(first.message, wire.FetchWeights)
    assert isinstance(second.message, wire.FetchWeights)
    assert (first.message.interval, second.message.interval, it.num_done) == (0, 1, 0)
    results = settle(it, [second, first])  # answered in the other order
    assert [result.interval for result in results if isinstance(result, wire.TaskResult)] == [1, 0]
    assert (it.num_done, it.idle) == (2, True)


def test_a_result_is_told_only_after_the_gradients_were_acknowledged():
    it = desk()
    (fetch,) = it.handle(task(0)[0])
    (gradient,) = it.handle(answer(fetch.message))
    assert isinstance(gradient.message, wire.Gradient)
    assert not it.idle
    assert it.waits_for() == "gradient of train epoch 0 interval 0 step 4"
    (result,) = it.handle(answer(gradient.message))
    assert isinstance(result.message, wire.TaskResult)


def test_tasks_at_once_give_what_they_give_one_after_the_other():
    together, alone = desk(), desk()
    sends = [send for interval in range(4) for send in together.handle(task(interval)[0])]
    results = {result.interval: result for result in settle(together, sends) if isinstance(result, wire.TaskResult)}
    for interval in range(4):
        assert values(results[interval]) == values(perform(alone, task(interval)))


# --- parts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_parts_may_come_in_any_order_even_before_their_task(order: tuple[int, ...]):
    it, messages = desk(), task(0, num_parts=3)
    whole, expected = perform(it, [messages[number] for number in order]), perform(desk(), task(0))
    assert whole.loss == pytest.approx(expected.loss, rel=1e-12)
    np.testing.assert_allclose(np.asarray(whole.rows["dZ1"]), np.asarray(expected.rows["dZ1"]), rtol=1e-12)
    assert it.idle


def test_a_part_may_come_after_it_is_asked_for():
    it, (first, part) = desk(), task(0, num_parts=2)
    (fetch,) = it.handle(first)
    assert it.handle(answer(fetch.message)) == []
    assert it.waits_for().startswith("part of train epoch 0 interval 0")
    assert len(settle(it, it.handle(part))) == 1


def test_late_parts_are_not_kept_for_ever():
    it = desk()
    for epoch in range(3 * STRAY_PARTS):
        messages = task(0, num_parts=2, epoch=epoch)
        perform(it, messages)
        assert it.handle(messages[1]) == []
    assert len(it._parts) == STRAY_PARTS


def test_late_parts_crowd_out_none_of_a_task_on_the_desk():
    it, (first, part) = desk(), task(0, num_parts=2)
    (fetch,) = it.handle(first)
    it.handle(part)
    for late in range(1, 3 * STRAY_PARTS):
        it.handle(task(late, num_parts=2)[1])
    assert len(settle(it, [fetch])) == 1


# --- twice ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [0, 1])
def test_a_task_that_comes_twice_has_the_same_result_and_disturbs_no_other(attempt: int):
    it = desk()
    sends = [send for message in (*task(0), *task(1), *task(0, attempt=attempt)) for send in it.handle(message)]
    results = [result for result in settle(it, sends) if isinstance(result, wire.TaskResult)]
    assert {(result.interval, result.attempt) for result in results} == {(0, 0), (0, attempt), (1, 0)}
    for result in results:
        assert values(result) == values(perform(desk(), task(result.interval)))
    assert it.idle


def test_an_answer_that_comes_twice_is_ignored():
    it = desk()
    (fetch,) = it.handle(task(0)[0])
    (gradient,) = it.handle(answer(fetch.message))
    assert it.handle(answer(fetch.message)) == []
    it.handle(answer(gradient.message))
    assert it.handle(answer(gradient.message)) == []


# --- failure ----------------------------------------------------------------------------------------------------------


def test_a_task_that_raises_is_told_with_its_traceback_and_the_next_one_goes_on():
    it, (first, *_) = desk(), task(0)
    assert isinstance(first, wire.Task)
    (failed,) = settle(it, it.handle(replace(first, rows={**first.rows, "Z1": np.zeros((ROWS, 5))})))
    assert isinstance(failed, wire.TaskFailed)
    assert (failed.id, failed.attempt, failed.worker) == (first.id, 0, "w")
    assert failed.trace.startswith("Traceback (most recent call last):")
    assert "ValueError" in failed.trace
    assert (it.idle, it.num_done) == (True, 0)
    perform(it, task(1))
    assert it.num_done == 1


def test_parts_of_a_task_that_raises_are_let_go():
    it, (first, part) = desk(), task(0, num_parts=2)
    assert isinstance(first, wire.Task)
    (fetch,) = it.handle(replace(first, rows={**first.rows, "Z1": np.zeros((ROWS // 2, 5))}))
    it.handle(part)
    assert isinstance(settle(it, [fetch])[0], wire.TaskFailed)
    assert not it._parts


# --- rows that never change -------------------------------------------------------------------------------------------


def test_rows_that_never_change_need_not_come_again():
    it = desk()
    before = perform(it, task(0, FIRST))
    after = perform(it, task(0, FIRST, epoch=1, known=True))
    assert values(after) == values(before)


def test_rows_that_were_let_go_are_asked_for_again():
    it = desk(keep_bytes=inputs(0, FIRST)["Z0"].nbytes)  # of one interval
    for interval in range(2):
        perform(it, task(interval, FIRST))
    (fetch,) = it.handle(task(0, FIRST, epoch=1, known=True)[0])
    (missing,) = it.handle(answer(fetch.message))
    assert missing.to == HOME
    assert vars(missing.message) == vars(wire.RowsMissing("train", 1, 0, FIRST, 0, "w", 0))
    assert len(settle(it, [missing])) == 1


def test_results_do_not_depend_on_how_much_is_kept():
    small = inputs(0, FIRST)["Z0"].nbytes
    found = []
    for keep_bytes in (0, small, 1 << 20):
        it = desk(keep_bytes)
        schedule = [(epoch, interval, pc) for epoch in range(3) for pc in (FIRST, FUSED) for interval in range(3)]
        found.append([values(perform(it, task(i, pc, epoch=epoch, known=epoch > 0))) for epoch, i, pc in schedule])
    assert found[0] == found[1] == found[2]
