"""An environment by itself, without the pool's thread: what it does when it is called for nothing."""

from __future__ import annotations

import selectors
import time
from collections.abc import Iterator

import pytest

from lambda_funcs.environment import Environment
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
