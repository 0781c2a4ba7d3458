"""Hubs on loopback."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from siafu import sockets, wire
from siafu.address import COORDINATOR, Address, graph_server, param_server, worker
from siafu.errors import PeerLost, RemoteProtocolError
from siafu.places import UNIX
from siafu.sockets import Hub
from siafu.wire import (
    MESSAGES,
    Bye,
    FetchWeights,
    GetModel,
    GetState,
    Gradient,
    Heartbeat,
    Hello,
    Judged,
    Leave,
    Message,
    Pull,
    Roster,
    RowsMissing,
    Start,
    Stop,
    TaskFailed,
    TaskResult,
)
from tests.siafu.wire_examples import example

RUN_ID = bytes(8)
LAST = Heartbeat("", 0)  # anybody may say it


#: What a hub of this machine can listen on.
LISTENS = ["127.0.0.1", *[UNIX] * (sys.platform == "linux")]


@pytest.fixture(params=LISTENS)
def server(request: pytest.FixtureRequest) -> Iterator[Hub]:
    with Hub(graph_server(0), RUN_ID, listen=request.param) as hub:
        yield hub


def heard(server: Hub, speaker: Address, *messages: Message, run_id: bytes = RUN_ID) -> list[Any]:
    """What of the messages the server gets to see."""
    with Hub(speaker, run_id) as hub:
        hub.dial(server.me, server.endpoint)
        for message in messages:
            hub.send(server.me, message)
        return until(server, lambda: server.malformed, len(messages))


def until(server: Hub, malformed: Any, number: int) -> list[Any]:
    """What arrives until so many messages did, or were dropped."""
    arrived: list[Any] = []
    deadline = time.monotonic() + 30
    while len(arrived) + malformed() < number:
        assert time.monotonic() < deadline, f"{len(arrived)} of {number}"
        arrived += server.poll(0.1)
    return arrived


#: All that a worker may say.
FROM_WORKERS = {Hello, Heartbeat, Pull, TaskResult, TaskFailed, RowsMissing, Bye, FetchWeights, Gradient}
#: What nobody but the coordinator may say.
FROM_COORDINATOR = {Roster, Start, Judged, GetModel, GetState, Stop}


@pytest.mark.parametrize(
    ("speaker", "allowed"),
    [
        (worker("w0-1"), FROM_WORKERS),
        (param_server(1), set(MESSAGES.values()) - FROM_COORDINATOR),
        (graph_server(1), set(MESSAGES.values()) - FROM_COORDINATOR),
        (COORDINATOR, set(MESSAGES.values())),
    ],
    ids=["worker", "param_server", "graph_server", "coordinator"],
)
def test_what_a_member_may_not_say_is_dropped_and_counted(server: Hub, speaker: Address, allowed: set[type]) -> None:
    seen = heard(server, speaker, *(example(cls, 1) for cls in MESSAGES.values()))
    assert {sender for sender, _ in seen} == {speaker}
    assert [type(message) for _, message in seen] == [cls for cls in MESSAGES.values() if cls in allowed]
    assert server.malformed == len(MESSAGES) - len(allowed)


def test_every_role_may_say_that_it_is_there() -> None:
    assert Heartbeat.by == {"coordinator", "graph_server", "param_server", "worker"}


def test_a_message_of_another_run_is_dropped(server: Hub) -> None:
    assert heard(server, param_server(0), LAST, run_id=b"another.") == []
    assert server.malformed == 1


def test_nonsense_of_a_worker_is_counted_and_that_of_a_server_raised(server: Hub) -> None:
    with server.forgiving(worker("w0-1")):
        raise RemoteProtocolError("no such epoch")
    assert server.malformed == 1
    with pytest.raises(RemoteProtocolError, match="no such epoch"), server.forgiving(param_server(0)):
        raise RemoteProtocolError("no such epoch")
    with pytest.raises(PeerLost), server.forgiving(worker("w0-1")):
        raise PeerLost("not the worker's fault")


def test_a_server_that_is_not_there_is_missed_and_a_worker_is_not(server: Hub) -> None:
    server.deliver(worker("w0-1"), Leave())
    with pytest.raises(PeerLost, match=r"^param_server 1: not connected$"):
        server.deliver(param_server(1), LAST)


def test_an_answer_comes_back_over_the_link_of_the_question(server: Hub) -> None:
    with Hub(worker("w0-1"), RUN_ID) as hub:
        hub.dial(server.me, server.endpoint)
        hub.send(server.me, Bye("w0-1"))
        until(server, lambda: server.malformed, 1)
        server.deliver(worker("w0-1"), Leave())
        ((sender, message),) = until(hub, lambda: hub.malformed, 1)
        assert (sender, type(message)) == (server.me, Leave)


def nonzero(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def frames(number: int, message: Message = LAST) -> list[Any]:
    return wire.encode(message, RUN_ID, number=number)


def test_a_message_that_comes_twice_is_read_once(server: Hub) -> None:
    with Hub(param_server(0), RUN_ID) as hub:
        hub.dial(server.me, server.endpoint)
        for number in (1, 1, 2):
            hub._post(server.me, frames(number))
        seen = until(server, lambda: server.numbers.num_repeated, 3)
    assert len(seen) == 2
    assert nonzero(server.counts) == {"messages_repeated": 1}


def test_a_message_that_cannot_be_read_is_missed_with_the_next_and_what_came_is_kept(server: Hub) -> None:
    with Hub(param_server(0), RUN_ID) as hub:
        hub.dial(server.me, server.endpoint)
        hub.send(server.me, LAST)
        flipped = bytearray(frames(2)[1])
        flipped[-2] ^= 1
        hub._post(server.me, [frames(2)[0], bytes(flipped)])
        hub._post(server.me, frames(3))
        arrived: list[Any] = []

        def read() -> None:
            for _ in range(300):
                arrived.extend(server.poll(0.1))

        with pytest.raises(PeerLost, match=r"^the link from param_server 0 to graph_server 0 lost a message$"):
            read()
        arrived += until(server, lambda: 0, 2 - len(arrived))
    assert len(arrived) == 2
    assert nonzero(server.counts) == {"messages_malformed": 1, "messages_lost": 1}


def test_a_message_to_nobody_uses_no_number(server: Hub) -> None:
    assert not server.send(param_server(0), LAST)
    assert server.numbers.number(param_server(0)) == 1


def test_what_is_put_back_comes_first(server: Hub) -> None:
    server.put_back([(param_server(0), LAST)])
    assert server.poll(10) == [(param_server(0), LAST)]
    assert server.poll(0) == []


def test_a_peer_that_takes_nothing_is_lost_by_name_and_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "_MOST_WAITING", 10)
    with Hub(param_server(0), RUN_ID) as hub:
        hub.dial(graph_server(0), "tcp://127.0.0.1:9")  # nobody listens there
        begun = time.monotonic()
        for _ in range(10):
            assert hub.send(graph_server(0), LAST)
        with pytest.raises(PeerLost, match=r"^graph_server 0: takes nothing any more"):
            hub.send(graph_server(0), LAST)
        assert time.monotonic() - begun < 20  # one that waits does so for ever
