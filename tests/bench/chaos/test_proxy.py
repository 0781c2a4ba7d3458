"""The proxy between two hubs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from bench.chaos.proxy import ChaosProxy
from siafu.address import graph_server, param_server
from siafu.errors import PeerLost
from siafu.sockets import Hub
from siafu.wire import Heartbeat

Say = Callable[[], list[int]]


@pytest.fixture
def proxy() -> Iterator[ChaosProxy]:
    with ChaosProxy(0) as proxy:
        yield proxy


@pytest.fixture
def say(proxy: ChaosProxy) -> Iterator[Say]:
    """Says one more number through the proxy, and what the other end hears of it."""
    with Hub(graph_server(0), bytes(8), listen="127.0.0.1") as server, Hub(param_server(0), bytes(8)) as hub:
        hub.dial(server.me, server.endpoint, proxy.address)
        said = iter(range(100))

        def say() -> list[int]:
            hub.send(server.me, Heartbeat("param_server", next(said)))
            return [message.index for _, message in server.poll(0.5)]

        yield say


def test_it_lets_everything_through_unless_asked(say: Say) -> None:
    assert [say() for _ in range(3)] == [[0], [1], [2]]


def test_a_direction_that_is_blocked_lets_nothing_through(proxy: ChaosProxy, say: Say) -> None:
    assert say() == [0]
    proxy.block(0.0)
    assert [say(), say()] == [[], []]


def test_a_flipped_bit_is_never_read(proxy: ChaosProxy, say: Say) -> None:
    assert say() == [0]
    proxy.flip()
    time.sleep(0.1)
    heard: list[int] = []

    def go_on() -> None:
        for _ in range(20):
            heard.extend(say())

    with pytest.raises(PeerLost, match="the link from param_server 0 to graph_server 0 lost a message"):
        go_on()
    assert 1 not in heard


def test_who_wants_to_go_where_nobody_is_hears_nothing_and_may_leave(proxy: ChaosProxy) -> None:
    """ZeroMQ once aborted the process: it does so where a proxy has refused it."""
    with Hub(param_server(0), bytes(8)) as hub:
        hub.dial(graph_server(0), "tcp://127.0.0.1:1", proxy.address)
        hub.send(graph_server(0), Heartbeat("param_server", 0))
        assert hub.poll(0.3) == []


def test_after_a_cut_the_link_comes_back(proxy: ChaosProxy, say: Say) -> None:
    """Nothing was on its way, so nothing is missed: ZeroMQ once did not listen to a peer that came back so soon."""
    assert say() == [0]
    proxy.cut(0.0)
    time.sleep(0.3)
    heard: list[int] = []
    for _ in range(5):
        heard += say()
    assert heard == [1, 2, 3, 4, 5]
