"""What every server does alike; its hub and its clock are played by the test."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Any

import pytest

from siafu import member
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.member import Presence, answer
from siafu.wire import GetState, Heartbeat, Hello, Message, Refused, Start, Welcome

CONFIG = Config().replace({"servers.heartbeat_s": 1, "servers.silence_s": 10})
BEAT = (COORDINATOR, Heartbeat("coordinator", 0))
CHATTER = (graph_server(1), Heartbeat("graph_server", 1))


class Played:
    """A hub on which the coordinator speaks once per second until ``hangs_up_at``, and a clock."""

    def __init__(self, hangs_up_at: float = float("inf")):
        self.hangs_up_at = hangs_up_at
        self.me = graph_server(0)
        self.peers: frozenset[Address] = frozenset({COORDINATOR})
        self.now = 0.0
        self.polled = 0.0
        self.says: list[tuple[Address, Message]] = []  # besides, once
        self.sent: list[tuple[float, Address]] = []
        self.presence = Presence(self, CONFIG, lambda: Heartbeat("graph_server", 0), lambda: self.now)  # type: ignore[arg-type]

    def send(self, to: Address, message: Message) -> bool:
        self.sent.append((self.now, to))
        return True

    def poll(self, timeout_s: float) -> list[tuple[Address, Message]]:
        """Somebody else always speaks; what the coordinator said since the last poll comes with it."""
        self.now += timeout_s
        spoke = int(min(self.now, self.hangs_up_at)) > int(self.polled)
        self.polled = self.now
        said, self.says = [*self.says, *([BEAT] if spoke else [])], []
        return [CHATTER, *said]

    def put_back(self, messages: Iterable[tuple[Address, Message]]) -> None:
        self.says += messages

    def live(self, until: float, polls_s: float = 0.25, computes_s: float = 0.0) -> None:
        """The loop of a server."""
        while self.now < until:
            self.presence.poll(polls_s)
            self.now += computes_s


def test_a_member_says_once_per_heartbeat_that_it_is_alive() -> None:
    hub = Played()
    hub.live(until=3)
    assert hub.sent == [(1.0, COORDINATOR), (2.0, COORDINATOR)]


def test_a_coordinator_that_falls_silent_is_missed() -> None:
    hub = Played(hangs_up_at=3.0)
    with pytest.raises(PeerLost, match=r"^coordinator: silent for 10 s, limit 10 s$"):
        hub.live(until=100)
    assert hub.now == 13.25


@pytest.mark.parametrize("computes_s", [0.5, 60.0])
def test_a_long_computation_is_no_silence_of_the_coordinator(computes_s: float) -> None:
    hub = Played()
    hub.live(until=1000, computes_s=computes_s)


def test_silence_goes_on_after_a_long_computation() -> None:
    #  heard at 3, polled until 8, computes until 68: five of ten seconds are over
    hub = Played(hangs_up_at=3.0)
    hub.live(until=8)
    hub.now += 60
    with pytest.raises(PeerLost):
        hub.live(until=100)
    assert hub.now == 73.25


def test_short_computations_in_between_hide_no_silence() -> None:
    hub = Played(hangs_up_at=3.0)
    with pytest.raises(PeerLost):
        hub.live(until=100, polls_s=0, computes_s=0.5)
    assert hub.now == 13.5


def test_once_training_has_started_a_server_that_falls_silent_is_missed_by_name() -> None:
    #  graph server 1 speaks all the time, parameter server 0 never; training starts at 50
    hub = Played()
    hub.peers = frozenset({COORDINATOR, graph_server(1), param_server(0)})
    hub.live(until=50)
    hub.says = [(COORDINATOR, Start())]
    with pytest.raises(PeerLost, match=r"^param_server 0: silent for 15 s, limit 15 s$"):
        hub.live(until=100)
    assert hub.now == 65.5


def test_everybody_with_a_link_hears_our_heartbeats() -> None:
    hub = Played()
    hub.peers = frozenset({COORDINATOR, graph_server(1), param_server(0)})
    hub.live(until=2)
    assert {to for _, to in hub.sent} == hub.peers
    assert hub.sent.count((1.0, graph_server(1))) == 1


@pytest.mark.parametrize("me", [COORDINATOR, graph_server(2), param_server(3)])
def test_a_hello_of_the_same_config_is_welcome_by_name(me: Address) -> None:
    welcome: Any = answer(me, Hello("worker", 0, CONFIG.digest, ""), CONFIG)
    assert isinstance(welcome, Welcome)
    assert (welcome.role, welcome.index) == (me.role, me.index)


def test_a_hello_of_another_config_is_refused() -> None:
    refused: Any = answer(param_server(3), Hello("worker", 7, "0123", ""), CONFIG)
    assert isinstance(refused, Refused)
    assert refused.reason == f"worker 7 has config 0123, the run has {CONFIG.digest}"


@pytest.mark.parametrize(
    ("now", "most", "set_to"),
    [
        (1024, 524_288, (65_536, 524_288)),
        (1024, 4096, (4096, 4096)),
        (1024, resource.RLIM_INFINITY, (65_536, resource.RLIM_INFINITY)),
        (100_000, 524_288, None),  # enough already
        (4096, 4096, None),
    ],
)
def test_a_member_may_open_as_many_files_as_the_system_lets_it_within_reason(
    monkeypatch: pytest.MonkeyPatch, now: int, most: int, set_to: tuple[int, int] | None
):
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (now, most))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: found.append(limits))
    member.allow_open_files()
    assert found == ([set_to] if set_to else [])


def test_what_came_with_the_end_of_somebodys_patience_is_heard_by_who_outlasts_it():
    played = Played()
    played.peers = frozenset({COORDINATOR, param_server(1)})
    played.says = [(COORDINATOR, Start())]
    played.live(14.0)
    played.says = [(COORDINATOR, GetState())]
    with pytest.raises(PeerLost, match="param_server 1"):
        played.live(30.0, polls_s=3.0)
    played.presence.forget_peers()
    assert any(isinstance(message, GetState) for _, message in played.presence.poll(0.25))
