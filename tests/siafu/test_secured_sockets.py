"""Hubs with keys on loopback: who is let in, and who is believed to be whom."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import zmq

from siafu import wire
from siafu.address import COORDINATOR, Address, graph_server, param_server, worker
from siafu.errors import PeerLost
from siafu.gate import MALFORMED
from siafu.keys import Keys, Ring
from siafu.sockets import Hub, public_key
from siafu.wire import Bye, Heartbeat, Hello, Leave, Message
from tests.siafu.test_sockets import LISTENS

RUN_ID = bytes(8)
KEYS = Keys(bytes(32), 2, 1, public_key)
OTHERS = Keys(b"\x01" * 32, 2, 1, public_key)  # of another run
G0, G1, Q0 = graph_server(0), graph_server(1), param_server(0)
HELLO, BEAT = Hello("graph_server", 1, "digest", "tcp://127.0.0.1:1"), Heartbeat("graph_server", 1)
WORKERS = KEYS.ring(G0).for_workers(G0, 1, public_key)
PATIENCE_S, A_WHILE_S = 60.0, 0.4


@pytest.fixture(params=LISTENS)
def server(request: pytest.FixtureRequest) -> Iterator[Hub]:
    with Hub(G0, RUN_ID, listen=request.param, ring=KEYS.ring(G0)) as hub:
        yield hub


def heard(hub: Hub, limit_s: float = PATIENCE_S, least: int = 1) -> list[tuple[Address, Message]]:
    arrived: list[Any] = []
    deadline = time.monotonic() + limit_s
    while len(arrived) < least and time.monotonic() < deadline:
        arrived += hub.poll(0.05)
    return arrived


def heard_around(hub: Hub, event: Callable[[], object]) -> list[tuple[Address, Message]]:
    """What arrives before the event, and in a while after it."""
    arrived: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while not event():
        assert time.monotonic() < deadline, arrived
        arrived += hub.poll(0.05)
    return arrived + heard(hub, A_WHILE_S)


@contextmanager
def saying(server: Hub, me: Address, ring: Ring | None, message: Message = BEAT) -> Iterator[None]:
    """One who shows these keys says something."""
    with Hub(me, RUN_ID, ring=ring) as hub:
        hub.dial(server.me, server.endpoint)
        with suppress(PeerLost):  # who was refused already has no link to send over
            hub.send(server.me, message)
        yield


def test_members_talk_in_both_directions(server: Hub) -> None:
    with Hub(G1, RUN_ID, ring=KEYS.ring(G1)) as member, Hub(worker("w0-3"), RUN_ID, ring=WORKERS) as guest:
        for hub, message in ((member, HELLO), (guest, Bye("w0-3"))):
            hub.dial(G0, server.endpoint)
            hub.send(G0, message)
        senders = {sender for sender, _ in heard(server, least=2)}
        assert senders == {G1, worker("w0-3")}
        server.deliver(G1, BEAT)
        server.deliver(worker("w0-3"), Leave())
        assert [(sender, type(message)) for sender, message in heard(member)] == [(G0, Heartbeat)]
        assert [(sender, type(message)) for sender, message in heard(guest)] == [(G0, Leave)]


@pytest.mark.parametrize(
    ("me", "ring", "refused"),
    [
        (G1, None, None),  # ends inside ZeroMQ, and is tried again
        (G1, Ring(b"\x07" * 32, KEYS.public), 1),
        (G1, Ring(OTHERS.ring(G1).secret, KEYS.public), 1),
        (Q0, KEYS.ring(Q0), 1),  # answers over links that graph servers have dialled, and dials none
        (worker("w1-0"), KEYS.ring(G1).for_workers(G1, 1, public_key), 1),  # of the other graph server
    ],
    ids=[
        "without keys",
        "with an invented key",
        "with another run's key",
        "with a key of who does not dial",
        "a worker of another",
    ],
)
def test_strangers_are_refused(server: Hub, me: Address, ring: Ring | None, refused: int | None) -> None:
    if ring is not None and "graph_server/0" not in ring.public:
        ring = Ring(ring.secret, KEYS.public)
    with saying(server, me, ring):
        assert heard_around(server, lambda: server.counts["connections_refused"]) == []
    assert server.counts["connections_refused"] == refused if refused else server.counts["connections_refused"] > 0
    with Hub(G1, RUN_ID, ring=KEYS.ring(G1)) as member:  # and the run goes on
        member.dial(G0, server.endpoint)
        member.send(G0, BEAT)
        assert [sender for sender, _ in heard(server)] == [G1]


def test_a_server_with_another_key_is_not_spoken_to() -> None:
    with Hub(G0, RUN_ID, listen="127.0.0.1", ring=OTHERS.ring(G0)) as false_one, saying(false_one, G1, KEYS.ring(G1)):
        assert heard(false_one, A_WHILE_S) == []


@pytest.mark.parametrize("claimed", [G1, COORDINATOR, Q0, worker("w1-0")], ids=str)
def test_a_workers_key_is_a_workers_and_of_its_graph_server(server: Hub, claimed: Address) -> None:
    with Plain(server, claimed.identity, WORKERS) as link:
        _send(link, BEAT)
        assert heard_around(server, lambda: server.malformed) == []
    assert server.malformed == 1


def test_answers_go_to_the_key_and_not_to_who_took_the_name(server: Hub) -> None:
    """Whoever comes first with a server's identity would get all that is meant for that server."""
    with Plain(server, G1.identity, WORKERS) as thief:
        _send(thief, HELLO)
        assert heard(server, A_WHILE_S) == []
        assert not server.send(G1, BEAT), "the thief is not graph server 1"
        with Hub(G1, RUN_ID, ring=KEYS.ring(G1)) as member:
            member.dial(G0, server.endpoint)
            member.send(G0, HELLO)
            assert [sender for sender, _ in heard(server)] == [G1]
            server.deliver(G1, BEAT)
            assert [type(message) for _, message in heard(member)] == [Heartbeat]
        assert not thief.poll(0)


def test_a_worker_that_sends_nonsense_is_ignored_at_last(server: Hub) -> None:
    with Plain(server, b"worker/w0-0", WORKERS) as rogue:
        for _ in range(MALFORMED):
            rogue.send_multipart([b"nonsense", b"{}"])
        _send(rogue, Bye("w0-0"))
        deadline = time.monotonic() + PATIENCE_S
        while server.malformed < MALFORMED and time.monotonic() < deadline:
            assert server.poll(0.05) == []
        assert heard(server, A_WHILE_S) == []
    assert server.malformed == MALFORMED
    guest = worker("w0-1")
    with saying(server, guest, WORKERS, Bye("w0-1")):
        assert [sender for sender, _ in heard(server)] == [guest], "others are listened to"


def test_a_worker_sends_no_more_than_its_largest_result(server: Hub) -> None:
    server.worker_bytes = 1000
    with saying(server, worker("w0-0"), WORKERS, Bye("w" * 2000)):
        assert heard_around(server, lambda: server.malformed) == []
    assert server.malformed == 1


def test_connections_that_say_nothing_do_not_keep_others_out(server: Hub) -> None:
    kind, _, name = server.endpoint.partition("://")
    strangers = [socket.socket(socket.AF_UNIX if kind == "ipc" else socket.AF_INET) for _ in range(200)]
    for stranger in strangers:
        host, _, port = name.partition(":")
        stranger.connect((host, int(port)) if port else "\0" + name[1:])
    try:
        with saying(server, G1, KEYS.ring(G1)):
            assert [sender for sender, _ in heard(server)] == [G1]
    finally:
        for stranger in strangers:
            stranger.close()


# --- one who does not keep to the rules of a hub ----------------------------------------------------------------------


class Plain:
    """A link with any identity and any keys."""

    def __init__(self, to: Hub, identity: bytes, ring: Ring):
        self._context = zmq.Context()
        self._link = self._context.socket(zmq.DEALER)
        self._link.setsockopt(zmq.LINGER, 0)
        self._link.setsockopt(zmq.IDENTITY, identity)
        self._link.setsockopt(zmq.CURVE_SECRETKEY, ring.secret)
        self._link.setsockopt(zmq.CURVE_PUBLICKEY, public_key(ring.secret).encode())
        self._link.setsockopt(zmq.CURVE_SERVERKEY, KEYS.public["graph_server/0"].encode())
        self._link.connect(to.endpoint)

    def __enter__(self) -> zmq.Socket[bytes]:
        return self._link

    def __exit__(self, *_: object) -> None:
        self._link.close()
        self._context.term()


def _send(link: zmq.Socket[bytes], message: Message) -> None:
    link.send_multipart(wire.encode(message, RUN_ID, number=1))
