"""Keys of a run: rules 1 to 4 of ``siafu.keys``."""

from __future__ import annotations

import json

import pytest

from siafu.address import COORDINATOR, graph_server, param_server, worker
from siafu.errors import ConfigError, RemoteProtocolError
from siafu.keys import Keys, Ring, derive, is_loopback, name_of, of_member, public_of, speaker, wanted, workers_secret
from siafu.sockets import public_key

SECRET = bytes(range(32))
KEYS = Keys(SECRET, 2, 1, public_key)


def test_derivation_is_that_of_rfc_5869() -> None:
    """Its test case 3: no salt; the first 32 bytes of the output, with empty info."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert derive(bytes.fromhex("0b" * 22), "").hex() == expected


def test_everybody_has_a_key_of_their_own_and_all_public_keys() -> None:
    members = [COORDINATOR, graph_server(0), graph_server(1), param_server(0)]
    rings = [KEYS.ring(member) for member in members]
    assert len({ring.secret for ring in rings}) == len(members)
    assert all(ring.public == KEYS.public for ring in rings)
    assert set(KEYS.public) == {name_of(member) for member in members} | {"worker/0", "worker/1"}
    for member, own in zip(members, rings, strict=True):
        assert KEYS.public[name_of(member)] == public_key(own.secret)


def test_another_attempt_has_other_keys() -> None:
    other = Keys(bytes(32), 2, 1, public_key)
    assert set(other.public.values()).isdisjoint(KEYS.public.values())


def test_a_machine_with_its_roles_secret_comes_to_the_same_key() -> None:
    secret, public = KEYS.role_secret("graph_server"), public_of(json.dumps(KEYS.public))
    assert of_member(secret, graph_server(1), public) == KEYS.ring(graph_server(1))


@pytest.mark.parametrize(
    "text", ["", "5", "[]", '{"graph_server/0": 5}', '{"graph_server/0": "short"}', "{", "[" * 100_000]
)
def test_what_are_no_public_keys_is_refused(text) -> None:
    with pytest.raises(RemoteProtocolError, match="not public keys"):
        public_of(text)


def test_workers_get_the_key_that_they_share_and_the_public_keys_of_whom_they_dial() -> None:
    own = KEYS.ring(graph_server(1))
    theirs = own.for_workers(graph_server(1), 1, public_key)
    assert theirs.secret == workers_secret(own.secret, graph_server(1))
    assert set(theirs.public) == {"graph_server/1", "param_server/0", "worker/1"}
    assert theirs.public["worker/1"] == KEYS.public["worker/1"] == public_key(theirs.secret)


@pytest.mark.parametrize(
    ("host", "guests"),
    [
        (COORDINATOR, ["graph_server/0", "graph_server/1", "param_server/0"]),
        (graph_server(1), ["graph_server/0", "worker/1"]),
        (param_server(0), ["graph_server/0", "graph_server/1", "worker/0", "worker/1"]),
        (worker("w0-0"), []),
    ],
    ids=str,
)
def test_nobody_is_let_in_but_who_dials(host, guests) -> None:
    assert set(KEYS.ring(host).guests(host).values()) == set(guests)


def test_a_ring_travels_as_json_and_its_secret_is_in_no_repr() -> None:
    own = KEYS.ring(graph_server(0))
    assert Ring.load(json.loads(json.dumps(own.dump()))) == own
    assert own.secret.hex() not in repr(own)
    assert str(own.secret) not in repr(own)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"secret": "00", "public": {}},
        {"secret": "zz" * 32, "public": {}},
        {"secret": "00" * 32},
        {"secret": "00" * 32, "public": {"graph_server/0": "short"}},
        {"secret": "00" * 32, "public": {"graph_server/0": 5}},
    ],
)
def test_what_is_no_ring_is_refused_without_a_word_of_what_is_in_it(value) -> None:
    with pytest.raises(ConfigError, match=r"^not the keys of a member$") as caught:
        Ring.load(value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("holder", "identity", "who"),
    [
        (
            "graph_server/1",
            b"\x00\x01\x02\x03\x04",
            graph_server(1),
        ),  # as ZeroMQ calls who does not call itself anything
        ("graph_server/1", b"graph_server/1", graph_server(1)),
        ("worker/1", b"worker/w1-7", worker("w1-7")),
        ("graph_server/1", b"graph_server/0", None),
        ("graph_server/1", b"coordinator/0", None),
        ("worker/1", b"graph_server/1", None),
        ("worker/1", b"worker/w0-7", None),
        ("worker/1", b"worker/w10-7", None),
        ("worker/1", b"\x00\x01\x02\x03\x04", None),
        ("worker/1", b"", None),
    ],
)
def test_who_calls_himself_what_his_key_does_not_say_is_found_out(holder, identity, who) -> None:
    if who is not None:
        assert speaker(holder, identity) == who
    else:
        with pytest.raises(RemoteProtocolError):
            speaker(holder, identity)


@pytest.mark.parametrize(
    ("security", "listen", "keys"),
    [
        ("auto", "127.0.0.1", False),
        ("auto", "127.8.0.1", False),
        ("auto", "::1", False),
        ("auto", "localhost", False),
        ("auto", "10.0.0.5", True),
        ("auto", "*", True),
        ("auto", "0.0.0.0", True),
        ("auto", "eth0", True),
        ("curve", "127.0.0.1", True),
        ("none", "10.0.0.5", False),
    ],
)
def test_keys_are_wanted_wherever_somebody_else_could_dial(security, listen, keys) -> None:
    assert wanted(security, listen) == keys


def test_brackets_of_an_address_do_not_count() -> None:
    assert is_loopback("[::1]")
