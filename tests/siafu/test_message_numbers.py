"""Numbers of messages, rule by rule."""

from __future__ import annotations

import pytest

from siafu.address import COORDINATOR, graph_server, param_server, worker
from siafu.errors import PeerLost
from siafu.message_numbers import UNNUMBERED, Links

ME, PEER = graph_server(0), param_server(1)


def test_messages_of_a_link_are_numbered_from_one_and_one_that_is_not_handed_over_uses_none() -> None:  # rule 1
    links = Links(ME)
    assert [links.number(PEER), links.number(PEER)] == [1, 1]
    links.sent(PEER)
    assert [links.number(PEER), links.number(COORDINATOR)] == [2, 1]


@pytest.mark.parametrize(
    ("numbers", "read", "repeated", "lost"),
    [
        ([1, 2, 3], [True, True, True], 0, 0),
        ([1, 1, 2, 2, 1], [True, False, True, False, False], 3, 0),  # rule 2
        ([1, 3, 4], [True, True, True], 0, 1),  # rule 3
        ([3, 1, 2, 3, 4], [True, False, False, False, True], 3, 2),  # late is lost: it is not read any more
        ([2**64 - 1], [True], 0, 2**64 - 2),
        ([0], [False], 1, 0),  # a server numbers
    ],
)
def test_what_is_read_dropped_and_missed(numbers: list[int], read: list[bool], repeated: int, lost: int) -> None:
    links = Links(ME)
    assert [links.take(PEER, number) for number in numbers] == read
    assert (links.num_repeated, links.num_lost) == (repeated, lost)
    if lost:
        what = "a message" if lost == 1 else f"{lost} messages"
        with pytest.raises(PeerLost, match=f"^the link from param_server 1 to graph_server 0 lost {what}$"):
            links.check()
    links.check()  # said once
    assert links.speakers == ({PEER} if any(read) else set())


def test_each_link_counts_for_itself() -> None:
    links = Links(ME)
    assert links.take(PEER, 1)
    assert links.take(graph_server(1), 1)
    links.check()


def test_links_of_workers_are_not_numbered() -> None:  # rule 4
    server, pulling = Links(ME), Links(worker("w0-1"))
    server.sent(worker("w0-1"))
    pulling.sent(ME)
    assert server.number(worker("w0-1")) == pulling.number(ME) == UNNUMBERED
    assert all(server.take(worker("w0-1"), number) for number in (0, 0, 7))
    assert all(pulling.take(ME, number) for number in (0, 0, 7))
    assert server.speakers == frozenset()
