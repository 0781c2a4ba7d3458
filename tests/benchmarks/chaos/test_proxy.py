"""The proxy between two hubs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.chaos.proxy import ChaosProxy
from siafu.address import graph_server, param_server
from siafu.errors import PeerLost
from siafu.sockets import Hub
from siafu.wire import Heartbeat

Say = Callable[..., list[int]]
SOON_S = 30.0  # what does not come within this never does


@pytest.fixture
def proxy() -> Iterator[ChaosProxy]:
    with ChaosProxy(0) as proxy:
        yield proxy


@pytest.fixture
def say(proxy: ChaosProxy) -> Iterator[Say]:
    """Says one more number through the proxy, and what the other end hears of it: something, or for a while nothing."""
    with Hub(graph_server(0), bytes(8), listen="127.0.0.1") as server, Hub(param_server(0), bytes(8)) as hub:
        hub.dial(server.me, server.endpoint, proxy.address)
        said = iter(range(100))

        def say(within_s: float = SOON_S) -> list[int]:
            hub.send(server.me, Heartbeat("param_server", next(said)))
            heard: list[int] = []
            deadline = time.monotonic() + within_s
            while not heard and time.monotonic() < deadline:
                heard += [message.index for _, message in server.poll(0.1)]
            return heard

        yield say


def done(proxy: ChaosProxy) -> None:
    """Waits until it has done what was asked of it."""
    turn = threading.Event()
    proxy._ask(turn.set)
    assert turn.wait(SOON_S)


def test_it_lets_everything_through_unless_asked(say: Say) -> None:
    assert [say() for _ in range(3)] == [[0], [1], [2]]


def test_a_direction_that_is_blocked_lets_nothing_through(proxy: ChaosProxy, say: Say) -> None:
    assert say() == [0]
    proxy.block(0.0)
    done(proxy)
    assert [say(0.3), say(0.3)] == [[], []]


def test_a_flipped_bit_is_never_read(proxy: ChaosProxy, say: Say) -> None:
    assert say() == [0]
    proxy.flip()
    done(proxy)
    heard: list[int] = []

    def go_on() -> None:
        for _ in range(90):
            heard.extend(say(0.5))

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
    done(proxy)
    deadline = time.monotonic() + SOON_S
    while len(proxy._peer) < 2:  # once the hub dials again, it has noticed
        assert time.monotonic() < deadline
        time.sleep(0.01)
    heard: list[int] = []
    for _ in range(5):
        heard += say()
    assert heard == [1, 2, 3, 4, 5]
