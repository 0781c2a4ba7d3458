"""The door of a mailbox: rules 1 to 4 of ``siafu.gate``."""

from __future__ import annotations

import pytest

from siafu.address import worker
from siafu.gate import MALFORMED, SERVER_CONNECTIONS, WINDOW_S, WORKER_CONNECTIONS, Complaints, Gate, Rate

KEY, SHARED, FOREIGN = bytes(32), b"\x01" * 32, b"\x02" * 32


def request(key: bytes, mechanism: bytes = b"CURVE") -> list[bytes]:
    return [b"1.0", b"77", b"", b"10.0.0.9", b"", mechanism, key]


@pytest.fixture
def gate() -> Gate:
    return Gate({KEY: "graph_server/1", SHARED: "worker/1"})


def test_who_shows_a_key_of_the_list_is_let_in_by_its_name(gate: Gate) -> None:
    assert gate.answer(request(KEY), 0).reply == [b"1.0", b"77", b"200", b"", b"graph_server/1", b""]
    assert gate.num_refused == 0


@pytest.mark.parametrize(
    "asked",
    [
        request(FOREIGN),
        request(KEY, b"NULL"),
        request(KEY, b"PLAIN"),
        request(b""),
        request(KEY)[:6],
        [b"2.0", *request(KEY)[1:]],
        [],
        [b"1.0"],
    ],
)
def test_all_others_are_refused_and_counted(gate: Gate, asked: list[bytes]) -> None:
    verdict = gate.answer(asked, 0)
    assert verdict.reply[2] == b"400"
    assert "belongs to no member of this run" in verdict.refused
    assert gate.num_refused == 1


def test_connections_without_a_key_are_counted_too(gate: Gate) -> None:
    assert gate.keyless() == "it showed no key"
    assert gate.num_refused == 1


@pytest.mark.parametrize(("key", "limit"), [(KEY, SERVER_CONNECTIONS), (SHARED, WORKER_CONNECTIONS)])
def test_a_key_opens_so_many_connections_in_a_time(gate: Gate, key: bytes, limit: int) -> None:
    assert not any(gate.answer(request(key), 0).refused for _ in range(limit))
    assert "connections in 10 s" in gate.answer(request(key), WINDOW_S / 2).refused
    assert not gate.answer(request(key), WINDOW_S).refused


def test_a_rate_counts_what_it_allows_alone() -> None:
    rate = Rate(2)
    assert [rate.allows(now) for now in (0, 1, 2, WINDOW_S, WINDOW_S, WINDOW_S + 1)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


def test_a_worker_that_sends_too_much_nonsense_is_ignored_and_others_are_not() -> None:
    complaints = Complaints()
    ends = [complaints.of(worker("w0-1"), now=0.01 * i) for i in range(MALFORMED)]
    assert ends == [False] * (MALFORMED - 1) + [True]
    assert complaints.ignored == {worker("w0-1")}


def test_nonsense_now_and_then_is_forgiven() -> None:
    complaints = Complaints()
    assert not any(complaints.of(worker("w0-1"), now=0.2 * i) for i in range(10 * MALFORMED))


def test_complaints_about_ever_new_names_do_not_grow_without_end() -> None:
    complaints = Complaints()
    for i in range(Complaints.MOST + 100):
        complaints.of(worker(f"w0-{i}"), now=0)
    assert len(complaints._of) == Complaints.MOST


def test_a_log_has_one_line_in_a_second() -> None:
    complaints = Complaints()
    assert [complaints.is_worth_a_line(now) for now in (0.0, 0.5, 0.9, 1.0, 1.5)] == [True, False, False, True, False]
