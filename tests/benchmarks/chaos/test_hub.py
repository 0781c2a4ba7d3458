"""A faulty hub on loopback, and what a sound one makes of what it sends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.chaos.hub import FaultyHub, tally
from benchmarks.chaos.schedule import MessageFaults
from siafu.address import graph_server, param_server
from siafu.errors import PeerLost
from siafu.sockets import Hub
from siafu.wire import Heartbeat

RUN_ID = bytes(8)
NUMBER = 200
END = b"the end"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(FaultyHub, "log", tmp_path / "log")
    monkeypatch.setattr(FaultyHub, "began_at", 0.0)
    # its tenths are in the seed
    monkeypatch.setattr("benchmarks.chaos.hub.time", SimpleNamespace(monotonic=lambda: 0.0))
    return tmp_path / "log"  # type: ignore[return-value]


def hear(faults: MessageFaults, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], int, dict[str, int]]:
    """(numbers that were read, times that a link was found broken, counts of the receiver) of ``NUMBER`` messages."""
    monkeypatch.setattr(FaultyHub, "faults", faults)
    read: list[int] = []
    ended: list[Any] = []
    broken = 0
    with Hub(graph_server(0), RUN_ID, listen="127.0.0.1") as server, FaultyHub(param_server(0), RUN_ID) as hub:
        hub.dial(server.me, server.endpoint)
        for index in range(NUMBER):
            hub.send(server.me, Heartbeat("param_server", index))
        Hub._post(hub, server.me, [END])
        receive = server._receive

        def watched(source: Any, parts: list[Any]) -> Any:
            ended.extend(part for part in parts if part.bytes == END)
            return receive(source, parts)

        monkeypatch.setattr(server, "_receive", watched)
        while True:
            was_the_end = bool(ended)
            try:
                arrived = server.poll(0 if was_the_end else 1)
            except PeerLost:
                broken += 1
                continue
            read += [message.index for _, message in arrived]
            if was_the_end and not arrived:  # a link keeps its order
                break
    return read, broken, server.counts


def test_what_comes_twice_or_from_an_earlier_attempt_changes_nothing(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, broken, counts = hear(MessageFaults(twice=0.2, late=0.2, until_s=60, seed=1), monkeypatch)
    found = tally(log)
    assert read == list(range(NUMBER))
    assert broken == 0
    assert found["message twice"] == counts["messages_repeated"] > 10
    assert found["message late"] == counts["messages_malformed"] - 1 > 10  # and the end


@pytest.mark.parametrize(
    ("faults", "what"),
    [
        (MessageFaults(lose=0.05, until_s=60, seed=1), "message lost"),
        (MessageFaults(corrupt=0.05, until_s=60, seed=1), "message corrupt"),
        (MessageFaults(truncate=0.05, until_s=60, seed=1), "message truncated"),
        (MessageFaults(swap=0.05, until_s=60, seed=1), "messages swapped"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_lost_corrupt_or_late_is_missed_and_nothing_wrong_is_read(
    log: Path, monkeypatch: pytest.MonkeyPatch, faults: MessageFaults, what: str
) -> None:
    read, broken, counts = hear(faults, monkeypatch)
    assert tally(log)[what] > 1
    assert broken > 0
    assert read == sorted(set(read))
    assert counts["messages_lost"] == read[-1] + 1 - len(read) > 0


def test_after_its_time_a_faulty_hub_is_sound(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, broken, _ = hear(MessageFaults(lose=0.5, twice=0.5, until_s=-1), monkeypatch)
    assert (read, broken) == (list(range(NUMBER)), 0)
