from __future__ import annotations

import numpy as np

from graph_server.backends import TensorTask
from graph_server.lambdas.dispatch import Assign
from graph_server.lambdas.shipping import Shipping
from siafu.tasks import Kind, Lane, Step, TaskId
from siafu.tensor_task import MIN_ROWS_PER_PART
from siafu.wire import RowsMissing, Task, TaskPart

STEP = Step(Kind.AV, 0, reads=("Z0", "H0"), writes=("H1",))
ROWS = 4 * MIN_ROWS_PER_PART


def task(epoch: int, num_rows: int = ROWS, interval: int = 0) -> TensorTask:
    rows = {"Z0": np.ones((num_rows, 2), np.float32), "H0": np.zeros((num_rows, 1), np.float32)}
    return TensorTask(TaskId(Lane.TRAIN, epoch, interval, 1), STEP, (0,), 0, rows, ("Z0",))


def shapes(shipping: Shipping, of: TensorTask, worker: str = "x", attempt: int = 0) -> list[dict[str, int]]:
    """Slots and lengths of what is sent, by message."""
    sends = shipping.ship(of, Assign(worker, of.id, attempt))
    first = sends[0].message
    assert isinstance(first, Task)
    assert first.num_parts == len(sends)
    assert {send.to.name for send in sends} == {worker}
    messages = [send.message for send in sends]
    assert [message.part for message in messages if isinstance(message, TaskPart)] == list(range(1, len(sends)))
    return [{slot: len(rows) for slot, rows in message.rows.items()} for message in messages]  # type: ignore[union-attr]


def test_what_never_changes_is_sent_once_to_each_worker():
    shipping = Shipping(keep_bytes=1 << 30, num_parts=1)
    assert shapes(shipping, task(0)) == [{"Z0": ROWS, "H0": ROWS}]
    assert shapes(shipping, task(1)) == [{"H0": ROWS}]
    assert shapes(shipping, task(1), "y", 1) == [{"Z0": ROWS, "H0": ROWS}]
    shipping.gone("x")
    assert shapes(shipping, task(2)) == [{"Z0": ROWS, "H0": ROWS}]
    assert shipping.nbytes == (3 * 12 + 4) * ROWS


def test_a_worker_without_room_for_all_keeps_what_came_first():
    shipping = Shipping(keep_bytes=20 * ROWS, num_parts=1)  # room for two intervals
    every, little = [{"Z0": ROWS, "H0": ROWS}], [{"H0": ROWS}]
    assert [shapes(shipping, task(0, interval=i)) for i in range(3)] == [every] * 3
    assert [shapes(shipping, task(1, interval=i)) for i in range(3)] == [little, little, every]
    sends = shipping.ship(task(2, interval=2), Assign("x", task(2, interval=2).id, 0))
    assert sends[0].message.constants == ()  # type: ignore[union-attr]


def test_what_another_worker_has_now_makes_room():
    shipping = Shipping(keep_bytes=20 * ROWS, num_parts=1)
    for interval in range(3):
        shapes(shipping, task(0, interval=interval))
    shapes(shipping, task(1, interval=0), "y")
    assert shapes(shipping, task(1, interval=2)) == [{"Z0": ROWS, "H0": ROWS}]
    assert [shapes(shipping, task(2, interval=i)) for i in (1, 2)] == [[{"H0": ROWS}]] * 2


def test_what_was_kept_in_other_parts_is_sent_again():
    #  a worker keeps rows as they came: halves are of no use to a task in one piece
    shipping = Shipping(keep_bytes=1 << 30, num_parts=2)
    half = ROWS // 2
    assert shapes(shipping, task(0)) == [{"Z0": half, "H0": half}] * 2
    shipping.num_parts = 1
    assert shapes(shipping, task(1)) == [{"Z0": ROWS, "H0": ROWS}]
    shipping.num_parts = 2
    assert shapes(shipping, task(2)) == [{"H0": half}] * 2


def test_every_attempt_of_a_task_is_cut_as_the_first_was():
    shipping = Shipping(keep_bytes=0, num_parts=4)
    one = task(0)
    assert len(shapes(shipping, one)) == 4
    shipping.num_parts = 1
    assert len(shapes(shipping, one, "y", 1)) == 4
    again = shipping.again(one, RowsMissing("train", 0, 0, 1, 0, "x", 3))
    assert again is not None
    assert isinstance(again.message, TaskPart)
    assert shipping.again(one, RowsMissing("train", 0, 0, 1, 0, "x", 4)) is None
    again = shipping.again(one, RowsMissing("train", 0, 0, 1, 1, "y", 3))
    assert again is not None
    # of the latest attempt, with what it had to be sent again
    assert shipping.done(one.id) == 12 * ROWS + 12 * ROWS // 4
    assert shipping.again(one, RowsMissing("train", 0, 0, 1, 1, "y", 3)) is None  # asked for too late: the task is done
    assert len(shapes(shipping, one)) == 1


def test_only_parts_that_were_cut_for_want_of_memory_say_how_often_a_task_was_split():
    """Parts that travel one behind the other are all in the worker's memory: one that ran out of it had them whole."""
    shipping = Shipping(keep_bytes=0, num_parts=4)
    one = task(0)
    shipping.ship(one, Assign("x", one.id, 0))
    assert shipping.parts_of(one.id, 0) == 1
    shipping.split_in = 3
    shipping.ship(one, Assign("x", one.id, 1))
    assert (shipping.parts_of(one.id, 0), shipping.parts_of(one.id, 1)) == (1, 3)
    assert shipping.parts_of(one.id, 2) == 1  # never sent


def test_no_part_is_too_short_to_be_worth_a_message():
    shipping = Shipping(keep_bytes=0, num_parts=4)
    lengths = [
        len(shapes(shipping, task(epoch, rows))) for epoch, rows in enumerate([1, 63, 64, 127, 128, 191, 192, 999])
    ]
    assert lengths == [1, 1, 1, 1, 2, 2, 3, 4]


def test_who_misses_what_it_was_sent_is_sent_it_whole_and_once_more_later():
    shipping = Shipping(keep_bytes=1 << 30, num_parts=1)
    shapes(shipping, task(0))
    one = task(1)
    assert shapes(shipping, one) == [{"H0": ROWS}]
    again = shipping.again(one, RowsMissing("train", 1, 0, 1, 0, "x", 0))
    assert again is not None
    assert isinstance(again.message, TaskPart)
    assert set(again.message.rows) == {"Z0", "H0"}
    assert shapes(shipping, task(2)) == [{"Z0": ROWS, "H0": ROWS}]


def loss(epoch: int, train: np.ndarray) -> TensorTask:
    one = task(epoch, len(train))
    return one._replace(rows={**one.rows, "train": train}, constants=("Z0", "train"))


def test_of_a_task_with_the_loss_training_vertices_travel_as_the_whole_was_cut():
    train = np.zeros(ROWS, bool)
    train[: ROWS // 2 : 2] = train[-1] = True  # a quarter of the rows, and one
    shipping, first = Shipping(keep_bytes=1 << 30, num_parts=2), ROWS // 4
    assert shapes(shipping, task(0)) == [{"Z0": ROWS // 2, "H0": ROWS // 2}] * 2
    # constants of all vertices are none of its own
    assert shapes(shipping, loss(0, train)) == [dict.fromkeys(("Z0", "H0", "train"), n) for n in (first, 1)]
    assert shapes(shipping, loss(1, train)) == [{"H0": first}, {"H0": 1}]
    assert shapes(shipping, task(1)) == [{"H0": ROWS // 2}] * 2
    again = shipping.again(loss(1, train), RowsMissing("train", 1, 0, 1, 0, "x", 1))
    assert again is not None
    assert [len(rows) for rows in again.message.rows.values()] == [1, 1, 1]  # type: ignore[union-attr]


def test_where_most_vertices_train_all_rows_travel():
    train = np.ones(ROWS, bool)
    train[: ROWS // 5] = False
    shipping = Shipping(keep_bytes=0, num_parts=1)
    assert shapes(shipping, loss(0, train)) == [dict.fromkeys(("Z0", "H0", "train"), ROWS)]
    assert shapes(shipping, loss(1, np.zeros(ROWS, bool))) == [dict.fromkeys(("Z0", "H0", "train"), 0)]
