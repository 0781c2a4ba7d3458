"""What stands in stale rows, by closed form.

Two intervals: 0 has rows 0 and 2, 1 has row 1. Interval i publishes ``value(i, e)`` in epoch e.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
import pytest

from graph_server.buffers import PublishedSlot, StalePolicy, Store, TableStore
from graph_server.operators.attention import RecordStore
from siafu.kernels import Records, Table
from siafu.sparse import Array

PLACES: dict[int, slice | Array] = {0: np.array([2, 0]), 1: slice(1, 2)}


def slot(kind: Literal["use", "drop", "smooth", "freeze"] = "use", *, smoothing: float = 0.5, freeze_epochs: int = 3):
    return PublishedSlot(TableStore(3, 2, "float64"), dict(PLACES), StalePolicy(kind, smoothing, freeze_epochs))


def value(interval: int, epoch: int) -> float:
    return 10.0**interval * (1 + epoch) ** 2


def publish(into: PublishedSlot, interval: int, epoch: int) -> None:
    rows = (2, 1)[interval]
    into.write(interval, epoch, np.full((rows, 2), value(interval, epoch)))


def stale(into: PublishedSlot, interval: int, epoch: int) -> float:
    """What stands in the interval's rows at the beginning of an epoch in which it has not published yet."""
    into.turn(epoch)
    rows = into.rows[PLACES[interval]]
    assert (rows == rows[0, 0]).all()
    return float(rows[0, 0])


# --- every policy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["use", "drop", "smooth", "freeze"])
def test_rows_of_this_epoch_are_never_touched(kind: Literal["use", "drop", "smooth", "freeze"]):
    made = slot(kind)
    for epoch in range(9):
        made.turn(epoch)
        for interval in (0, 1):
            publish(made, interval, epoch)
            made.turn(epoch)
        assert made.rows[:, 0].tolist() == [value(0, epoch), value(1, epoch), value(0, epoch)]


@pytest.mark.parametrize("kind", ["use", "drop", "smooth", "freeze"])
def test_an_epoch_turns_once_whoever_comes_first(kind: Literal["use", "drop", "smooth", "freeze"]):
    #  a write turns it for one buffer, a read for the other: the same rows stand there in the end
    by_write, by_read = slot(kind), slot(kind)
    for epoch in range(8):
        by_read.turn(epoch)
        for made in (by_write, by_read):
            publish(made, epoch % 2, epoch)
        assert by_write.rows.tolist() == by_read.rows.tolist()
        by_read.turn(max(epoch - 1, 0))  # a reader of an earlier epoch turns nothing


def test_before_anything_is_published_rows_are_zero():
    made = slot()
    assert made.rows.tolist() == [[0, 0]] * 3
    assert made.oldest([0, 1], 0) == 1


def test_rows_are_written_in_the_order_of_their_places():
    made = slot()
    made.write(0, 0, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert made.rows.tolist() == [[3, 4], [0, 0], [1, 2]]


def test_age_is_that_of_the_oldest_interval_that_is_asked_for():
    made = slot()
    publish(made, 0, 4)
    publish(made, 1, 2)
    assert [made.oldest(which, 4) for which in ([0], [1], [0, 1], [])] == [0, 2, 2, 0]
    assert made.oldest([0], 3) == 0  # ahead of the reader


# --- each policy ------------------------------------------------------------------------------------------------------


def test_use_leaves_the_rows_of_the_epoch_before():
    made = slot("use")
    for epoch in range(6):
        assert stale(made, 0, epoch) == (value(0, epoch - 1) if epoch else 0)
        publish(made, 0, epoch)


def test_use_leaves_older_rows_where_there_are_no_newer():
    made = slot("use")
    publish(made, 1, 0)
    assert [stale(made, 1, epoch) for epoch in (1, 2, 3)] == [value(1, 0)] * 3


def test_drop_leaves_zeros_until_rows_of_this_epoch_come():
    made = slot("drop")
    for epoch in range(4):
        assert stale(made, 0, epoch) == 0
        publish(made, 0, epoch)
        assert made.rows[:, 0].tolist() == [value(0, epoch), 0, value(0, epoch)]


def test_drop_leaves_the_row_that_adds_nothing():
    nothing = np.array([0, np.inf])
    made = PublishedSlot(TableStore(3, 2, "float64"), dict(PLACES), StalePolicy("drop"), nothing=nothing)
    publish(made, 0, 0)
    made.turn(1)
    np.testing.assert_array_equal(made.rows, np.tile(nothing, (3, 1)))


@pytest.mark.parametrize("smoothing", [0.0, 0.5, 0.9])
def test_smooth_leaves_the_running_mean_of_all_epochs_before(smoothing: float):
    #  ŝ_e = Σ_{k=0..e} w_k s_k   with   w_0 = γ^e,  w_k = (1 - γ) γ^(e - k)
    made = slot("smooth", smoothing=smoothing)
    assert stale(made, 0, 0) == 0
    for epoch in range(6):
        publish(made, 0, epoch)
        weights = [smoothing ** (epoch - k) * (1 - smoothing if k else 1) for k in range(epoch + 1)]
        mean = sum(w * value(0, k) for k, w in enumerate(weights))
        assert stale(made, 0, epoch + 1) == pytest.approx(mean, rel=1e-12)


def test_smooth_starts_with_the_first_rows_whenever_they_come():
    made = slot("smooth", smoothing=0.9)
    for epoch in range(5):
        made.turn(epoch)
    publish(made, 1, 5)
    assert stale(made, 1, 6) == value(1, 5)


def test_freeze_leaves_the_rows_as_they_stood_at_the_last_snapshot():
    #  epoch     0  1  2  3  4  5  6  7  8  9
    #  snapshot           x        x        x     every third epoch, of the rows of the epoch before
    #  stale     -  0  1  2  2  2  5  5  5  8     whose rows they are
    made = slot("freeze", freeze_epochs=3)
    seen = []
    for epoch in range(10):
        seen.append(stale(made, 0, epoch))
        publish(made, 0, epoch)
    assert seen == [0.0, *(value(0, epoch) for epoch in (0, 1, 2, 2, 2, 5, 5, 5, 8))]


@pytest.mark.parametrize("first", [4, 7])
def test_freeze_in_a_run_that_goes_on_takes_its_first_snapshot_after_its_first_epoch(first: int):
    """It has none of the run before, and must not read zeros until the next one is due."""
    made = slot("freeze", freeze_epochs=3)
    seen = []
    for epoch in range(first, first + 2):
        seen.append(stale(made, 0, epoch))
        publish(made, 0, epoch)
    assert seen[1] == value(0, first)


def test_freeze_takes_its_snapshot_of_what_is_there_even_if_that_is_old():
    made = slot("freeze", freeze_epochs=2)
    publish(made, 1, 0)
    assert [stale(made, 1, epoch) for epoch in (1, 2, 3, 4, 5)] == [value(1, 0)] * 5


# --- rows that are read while they are replaced (docs/adr/0033) -------------------------------------------------------


@pytest.mark.parametrize("storage", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("kind", ["table", "records"])
def test_each_number_of_a_row_read_while_it_is_replaced_is_of_one_of_the_two_epochs(
    kind: str, storage: Literal["float32", "float64", "bfloat16"]
):
    rows, width = 64, 33
    store: Store = (
        TableStore(rows, width, storage)
        if kind == "table"
        else RecordStore(Records(rows, 3, 11, num_scores=3, dtype=storage))
    )
    old, new = -1.9921875, 3.0e38  # no byte of theirs is the same
    written = []
    columns = width if kind == "table" else width + 9
    for number in (old, new):
        store.write(slice(None), np.full((rows, columns), number, np.float64 if storage == "float64" else np.float32))
        written.append(store.cut(slice(None)))
    allowed = np.unique(np.concatenate([store.read(slice(None)), np.full((1, columns), old)]))
    over = threading.Event()

    def replace() -> None:
        while not over.is_set():
            for values in written:
                store.paste(slice(None), values)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(300):
            assert np.isin(store.read(slice(None)), allowed).all()
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("storage", ["float32", "float64", "bfloat16"])
def test_threads_that_share_a_write_change_no_bit(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, rng = np.float64 if storage == "float64" else np.float32, np.random.default_rng(1)
    values, scale = rng.standard_normal((40_000, 7)).astype(real), rng.standard_normal(40_000).astype(real)
    asked = []
    write = Table.write

    def counted(self: Table, *given: Any, threads: int = 1) -> None:
        asked.append(threads)
        write(self, *given, threads=threads)

    monkeypatch.setattr(Table, "write", counted)
    found = []
    for threads in (1, 4):
        store = TableStore(40_000, 7, storage, threads)
        store.write(slice(None), values, scale)
        store.paste(slice(5, 9), values[:4])
        found.append(store.read(slice(None)))
    assert asked == [1, 1, 4, 4]
    assert found[0].tobytes() == found[1].tobytes()
