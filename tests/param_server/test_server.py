"""The loop of a parameter server on a real hub; the coordinator is played by the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from graph_data.prepare import prepare
from param_server import server
from param_server.replica import Replica
from run_coordinator.reports import outlasts
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import PeerLost
from siafu.member import Joined, Presence
from siafu.sockets import Hub
from siafu.wire import Failed, GetState, Heartbeat, Message, ParamState, Ready, Roster, Stop, Stopped
from tests.toy_graphs import random_graph

RUN_ID = bytes(8)


class Played:
    """A coordinator, and parameter server 0 of its run on a thread."""

    def __init__(self, hub: Hub, shards: Path, silence_s: float):
        self.hub, self.shards = hub, shards
        self.config = Config().replace({"servers.heartbeat_s": 0.1, "servers.silence_s": silence_s})
        self.error: Exception | None = None  # that ended the server
        self.heard: list[Message] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with Hub(param_server(0), RUN_ID, listen="127.0.0.1") as hub:
            hub.dial(COORDINATOR, self.hub.endpoint)
            try:
                self.roster = Roster((), (hub.endpoint,))
                server.serve(Joined(hub, self.config, 0, self.roster, self.shards, self.shards))
            except Exception as error:
                self.error = error
            hub.flush_and_close()

    def until(self, enough: Callable[[], bool]) -> None:
        while not enough():
            self.heard += [message for _, message in self.hub.poll(0.1)]

    def says(self, kind: type[Message]) -> bool:
        return any(isinstance(message, kind) for message in self.heard)

    @property
    def gone(self) -> bool:
        return not self._thread.is_alive()


@pytest.fixture
def played(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    prepare(random_graph(1), tmp_path / "shards", directed=True)
    with Hub(COORDINATOR, RUN_ID, listen="127.0.0.1") as hub:
        found = Played(hub, tmp_path / "shards", request.param)
        found.until(lambda: found.says(Ready))
        yield found
        found.until(lambda: found.gone)


@pytest.mark.parametrize("played", [600.0], indirect=True)
def test_told_to_stop_it_says_that_it_has(played: Played) -> None:
    played.hub.send(param_server(0), Stop("done"))
    played.until(lambda: played.says(Stopped))
    played.until(lambda: played.gone)
    assert played.error is None


@pytest.mark.parametrize("played", [1.0], indirect=True)
def test_without_a_coordinator_it_ends(played: Played) -> None:
    played.until(lambda: played.gone)  # which has said nothing
    assert isinstance(played.error, PeerLost)
    assert not played.says(Failed)  # whoever ends the process tells, once


@pytest.mark.parametrize("played", [600.0], indirect=True)
def test_a_message_that_was_lost_costs_no_step(played: Played) -> None:
    """It tells, and its state can be had until it is told to stop."""
    (endpoint,) = played.roster.param_servers
    with Hub(graph_server(0), RUN_ID) as peer:
        peer.dial(param_server(0), endpoint)
        peer.send(param_server(0), Heartbeat("graph_server", 0))
        peer.numbers.sent(param_server(0))  # one more, which does not arrive
        peer.send(param_server(0), Heartbeat("graph_server", 0))
        played.until(lambda: played.says(Failed))
    (failed,) = [message for message in played.heard if isinstance(message, Failed)]
    assert outlasts(failed)
    assert failed.text == "the link from graph_server 0 to param_server 0 lost a message"
    played.hub.send(param_server(0), GetState())
    played.until(lambda: played.says(ParamState))
    played.hub.send(param_server(0), Stop("starting again"))
    played.until(lambda: played.gone)
    assert played.error is None


def test_who_outlasts_its_peers_listens_to_the_coordinator_alone() -> None:
    """A peer that stays silent must not keep it from hearing that it may go."""

    class Silent:
        """A presence of whose peers one is lost."""

        orphaned, forgot = False, False

        def forget_peers(self) -> None:
            self.forgot = True

        def poll(self, timeout_s: float) -> list[tuple[Address, Message]]:
            assert self.forgot, "the lost peer is reported again, for ever"
            return [(graph_server(0), Stop("not yours to say")), (COORDINATOR, Stop("the run is over"))]

    server._outlast(cast(Hub, None), Config(), cast(Replica, None), cast(Presence, Silent()))
