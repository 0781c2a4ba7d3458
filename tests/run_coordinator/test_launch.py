"""The coordinator's loop when a member is lost: the others, and their processes, are played by the test."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from run_coordinator.actions import Record
from run_coordinator.coordinator import Coordinator
from run_coordinator.hosts import Death
from run_coordinator.launch import _Attempt
from siafu.address import COORDINATOR, Address, graph_server, param_server
from siafu.config import Config
from siafu.errors import GnnError, PeerLost, WorkerError
from siafu.sockets import Hub
from siafu.wire import Failed

RUN_ID = bytes(8)
G0, Q0 = graph_server(0), param_server(0)
ECHO = PeerLost("param_server 0: graph_server 0: not connected")


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    config = Config()
    with Hub(COORDINATOR, RUN_ID, listen="127.0.0.1") as hub:
        nothing: Any = None
        made = _Attempt(
            *(config, nothing, Coordinator(config), tmp_path, tmp_path),
            *(lambda status: None, lambda: None, lambda record: None, nothing),
        )
        made.host = cast(Any, SimpleNamespace(dead=lambda: None, lag_s=0.0))
        made.hub, made.metrics = hub, cast(Any, io.BytesIO())
        yield made


def failed(member: Address, error: str) -> Failed:
    return Failed(member.role, member.index, error, "no bread", "")


def test_last_words_come_through_however_many_complain_before(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_coordinator.launch.LAST_WORDS_S", 30.0)
    with Hub(Q0, RUN_ID) as other, Hub(G0, RUN_ID) as member:
        for hub in (other, member):
            hub.dial(COORDINATOR, session.hub.endpoint)
        for _ in range(3):
            other.send(COORDINATOR, failed(Q0, "PeerLost"))
        member.send(COORDINATOR, failed(G0, "WorkerError"))
        cause = session._cause(PeerLost("graph_server 0 died: exit code 1"))
    assert (type(cause), str(cause)) == (WorkerError, "graph_server 0: no bread")


def test_a_member_that_was_killed_is_the_reason_that_others_miss_it(session: Any) -> None:
    session.host.dead = lambda: Death(G0, -9, "its log is empty")
    assert str(session._cause(ECHO)) == "graph_server 0 died: killed by SIGKILL; its log is empty"


def test_without_more_words_the_loss_itself_is_the_error(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("run_coordinator.launch.LAST_WORDS_S", 0.2)
    session.host.dead = lambda: Death(G0, 1, "")
    assert session._cause(ECHO) is ECHO


def test_an_error_leaves_the_rest_of_what_arrived_for_later(session: Any) -> None:
    session.hub.put_back([(G0, failed(G0, "WorkerError")), (Q0, failed(Q0, "PeerLost"))])
    for error in (WorkerError, PeerLost):
        with pytest.raises(error):
            session._turn()


def test_metrics_that_cannot_be_written_end_the_run_in_one_line(session: Any) -> None:
    with (
        open("/dev/full", "wb", buffering=0) as session.metrics,
        pytest.raises(GnnError, match=r"metrics\.jsonl: No space left"),
    ):
        session._do([Record({"event": "epoch", "epoch": 3})])
