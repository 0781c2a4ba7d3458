"""What stands in published rows.

Two intervals: 0 has rows 0 and 2, 1 has row 1. Interval i publishes ``value(i, e)`` in epoch e.
"""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
import pytest

from graph_server.buffers import PublishedSlot, Store, TableStore
from graph_server.operators.attention import RecordStore
from siafu.kernels import Records, Table
from siafu.sparse import Array

PLACES: dict[int, slice | Array] = {0: np.array([2, 0]), 1: slice(1, 2)}


def slot() -> PublishedSlot:
    return PublishedSlot(TableStore(3, 2, "float64"), dict(PLACES))


def value(interval: int, epoch: int) -> float:
    return 10.0**interval * (1 + epoch) ** 2


def publish(into: PublishedSlot, interval: int, epoch: int) -> None:
    rows = (2, 1)[interval]
    into.write(interval, epoch, np.full((rows, 2), value(interval, epoch)))


def test_rows_stay_until_newer_ones_come():
    made = slot()
    for epoch in range(3):
        publish(made, 0, epoch)
        assert made.rows[:, 0].tolist() == [value(0, epoch), 0, value(0, epoch)]
    publish(made, 1, 0)
    assert made.rows[:, 0].tolist() == [value(0, 2), value(1, 0), value(0, 2)]


def test_before_anything_is_published_rows_are_zero():
    made = slot()
    assert made.rows.tolist() == [[0, 0]] * 3
    assert made.oldest([0, 1], 0, 0) == 1
    assert made.oldest([0, 1], 7, 7) == 1  # in a run that goes on


def test_rows_are_written_in_the_order_of_their_places():
    made = slot()
    made.write(0, 0, np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert made.rows.tolist() == [[3, 4], [0, 0], [1, 2]]


def test_age_is_that_of_the_oldest_interval_that_is_asked_for():
    made = slot()
    publish(made, 0, 4)
    publish(made, 1, 2)
    assert [made.oldest(which, 4, 0) for which in ([0], [1], [0, 1], [])] == [0, 2, 2, 0]
    assert made.oldest([0], 3, 0) == 0  # ahead of the reader


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
    widths = (width,) if kind == "table" else (width, 3, 3, 3)
    for number in (old, new):
        real = np.float64 if storage == "float64" else np.float32
        store.write(slice(None), *(np.full((rows, columns), number, real) for columns in widths))
        written.append(store.cut(slice(None)))
    allowed = np.unique(np.concatenate([store.read(slice(None)), np.full((1, sum(widths)), old)]))
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
        store.write(slice(None), values, scale=scale)
        store.paste(slice(5, 9), values[:4])
        found.append(store.read(slice(None)))
    assert asked == [1, 1, 4, 4]
    assert found[0].tobytes() == found[1].tobytes()
