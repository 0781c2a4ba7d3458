"""An environment by itself, without the pool's thread: what it does when it is called for nothing."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator

import pytest

from lambda_funcs import runtime_api
from lambda_funcs.environment import Environment, _Connection
from lambda_funcs.invocation import Function


@pytest.fixture
def environment() -> Iterator[Environment]:
    with selectors.DefaultSelector() as selector:
        found = Environment("e", Function("tests.lambda_funcs.handlers.echo", 192, 60, 60), selector, None)
        yield found
        found.kill()
        while not found.gone:
            for key, _ in selector.select(1.0):
                if selector.get_map().get(key.fd) is key:
                    key.data(time.monotonic())
            found.tick(time.monotonic())


def test_a_peer_that_has_hung_up_before_it_was_accepted_is_not_waited_for(environment: Environment) -> None:
    """Nobody has connected yet: the interpreter of the child has just been started."""
    assert environment._on_accept(time.monotonic()) is None
    assert not environment._connections


def test_a_runtime_that_cannot_start_while_nothing_is_invoked_ends_no_invocation(environment: Environment) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    connection = _Connection(ours)
    environment._connections.append(connection)
    environment._watch(ours.fileno(), lambda at: environment._on_connection(connection, at))
    with theirs:
        theirs.settimeout(10.0)
        call = runtime_api.InitError("Runtime.ImportModuleError", b"{}")
        assert environment._on_call(connection, call, time.monotonic()) is None
        assert theirs.recv(1000).startswith(b"HTTP/1.1 202")
