from __future__ import annotations

import os
import socket
import sys
from ipaddress import ip_address

import pytest

from infra.localstack.ports import Listening, listening

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.parametrize(
    ("host", "family"), [("127.0.0.1", socket.AF_INET), ("0.0.0.0", socket.AF_INET), ("::1", socket.AF_INET6)]
)
def test_listening_sockets_of_a_process_are_found(host, family):
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"no {host} here")
    with server:
        here = Listening(ip_address(host), server.getsockname()[1])
        assert here in listening(os.getpid())
        assert here.is_loopback == (host != "0.0.0.0")
    assert here not in listening(os.getpid())


@linux
def test_what_only_connects_is_not_listed_and_a_dead_process_has_none():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getsockname()[1] not in {found.port for found in listening(os.getpid())}
    assert listening(2**22 + 1) == []


def test_mapped_loopback_is_loopback():
    assert Listening(ip_address("::ffff:127.0.0.1"), 1).is_loopback
    assert not Listening(ip_address("::"), 1).is_loopback
