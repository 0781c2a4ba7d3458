"""The shaper, with bounds that a busy machine keeps too."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.shaper import READ_AHEAD_S, Link, Shaper, Traffic, quantity
from benchmarks.socks import CONNECTED, REFUSED, Handshake
from siafu.address import Address, graph_server, worker
from siafu.errors import RemoteProtocolError
from siafu.sockets import Hub
from siafu.wire import RUN_ID_BYTES, Heartbeat

RATE, DELAY_S = 8e6, 0.02
PATIENCE_S = 120.0  # what does not come within this never does
#: Below those that Linux gives to whoever asks for any port: nobody takes one while its owner is away.
PORTS = (20_000, 29_999)
RUN_ID = bytes(RUN_ID_BYTES)


# --- rule 1, without a clock ------------------------------------------------------------------------------------------


def test_link_passes_bytes_one_after_the_other_at_its_rate_and_delays_them() -> None:
    link = Link(rate=1000, delay_s=0.5)
    #      bytes  taken in at  ->  out at
    for nbytes, now, out in [
        (100, 10.00, 10.6),
        (200, 10.00, 10.8),  # behind the first
        (100, 10.35, 10.95),  # the link was idle for 0.05 s
    ]:
        assert link.admit(nbytes, now) == pytest.approx(out)
    assert link.nbytes == 400


def test_link_takes_in_no_more_than_its_read_ahead() -> None:
    link = Link(rate=1000, delay_s=0.5)
    link.admit(300, 7.0)
    assert link.open_at == pytest.approx(7.3 - READ_AHEAD_S)


# --- SOCKS ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize(
    ("address", "destination"),
    [
        (b"\x01" + socket.inet_aton("10.0.0.7") + b"\x1f\x90", ("10.0.0.7", 8080)),
        (b"\x03\x09localhost\x00\x50", ("localhost", 80)),
    ],
)
def test_handshake_finds_the_destination_however_the_bytes_arrive(
    step: int, address: bytes, destination: tuple[str, int]
) -> None:
    handshake = Handshake()
    greeting, request = b"\x05\x02\x02\x00", b"\x05\x01\x00" + address
    answers = [handshake.feed(greeting[i : i + step]) for i in range(0, len(greeting), step)]
    assert answers[-1] == (b"\x05\x00", None)
    answers = [handshake.feed(request[i : i + step]) for i in range(0, len(request), step)]
    assert answers[-1] == (b"", destination)
    assert set(answers[:-1]) <= {(b"", None)}


@pytest.mark.parametrize(
    "sent",
    [
        [b"GET / HTTP/1.1\r\n" + bytes(80)],
        [b"\x04\x01\x00"],  # version 4
        [b"\x05\x01\x02"],  # only with a password
        [b"\x05\x01\x00", b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50"],  # BIND
        [b"\x05\x01\x00", b"\x05\x01\x00\x04" + bytes(18)],  # IPv6
    ],
)
def test_handshake_refuses_what_it_does_not_speak(sent: list[bytes]) -> None:
    handshake = Handshake()
    for data in sent[:-1]:
        handshake.feed(data)
    with pytest.raises(RemoteProtocolError, match="SOCKS"):
        handshake.feed(sent[-1])


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shaper() -> Iterator[Shaper]:
    with Shaper(rate=RATE, delay_s=DELAY_S) as shaper:
        yield shaper


class Echo:
    """A server that sends back what it gets until the end, any number of connections."""

    def __init__(self) -> None:
        self._listening = True
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            if not self._listening:
                connection.close()
                return
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(1 << 16):
                connection.sendall(data)

    def __enter__(self) -> Echo:
        return self

    def __exit__(self, *_: object) -> None:
        self._listening = False
        socket.create_connection(self.address).close()
        for thread in self._threads:
            thread.join()
        self._listener.close()


def dial(shaper: Shaper, to: tuple[str, int], answer: bytes = CONNECTED) -> socket.socket:
    host, _, port = shaper.address.partition(":")
    sock = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    sock.sendall(b"\x05\x01\x00")
    assert sock.recv(2) == b"\x05\x00"
    sock.sendall(b"\x05\x01\x00\x01" + socket.inet_aton(to[0]) + to[1].to_bytes(2, "big"))
    assert sock.recv(len(answer)) == answer
    return sock


def receive_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def exchange(sock: socket.socket, data: bytes) -> bytes:
    """Sends everything and the end; returns what comes back until the end."""

    def send() -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    received = receive_all(sock)
    sender.join()
    sock.close()
    return received


@pytest.mark.long
def test_bytes_arrive_unchanged_and_at_the_rate(shaper: Shaper) -> None:
    data = os.urandom(1_500_000)
    with Echo() as echo:
        begun = time.monotonic()
        assert exchange(dial(shaper, echo.address), data) == data
        took = time.monotonic() - begun
        assert shaper.traffic == {echo.address: Traffic(len(data), len(data))}
    assert 0.95 * len(data) / RATE + 2 * DELAY_S <= took <= 100 * len(data) / RATE


@pytest.mark.long
def test_connections_to_one_destination_share_its_rate(shaper: Shaper) -> None:
    data = os.urandom(400_000)
    with Echo() as echo:
        socks = [dial(shaper, echo.address) for _ in range(4)]
        begun = time.monotonic()
        threads = [threading.Thread(target=exchange, args=(sock, data)) for sock in socks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert time.monotonic() - begun >= 0.95 * 4 * len(data) / RATE


def test_destinations_have_links_of_their_own(shaper: Shaper) -> None:
    with Echo() as one, Echo() as other:
        assert exchange(dial(shaper, one.address), b"12345") == b"12345"
        assert exchange(dial(shaper, other.address), b"123") == b"123"
        assert shaper.traffic == {one.address: Traffic(5, 5), other.address: Traffic(3, 3)}


@pytest.mark.long
def test_every_answer_waits_for_the_delay_twice(shaper: Shaper) -> None:
    with Echo() as echo, dial(shaper, echo.address) as sock:
        trips = []
        for _ in range(50):
            begun = time.monotonic()
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            trips.append(time.monotonic() - begun)
    assert min(trips) >= 2 * DELAY_S
    assert min(trips) <= 4 * DELAY_S  # of fifty: only a machine that never has a moment fails it


def test_sender_waits_when_the_receiver_does_not_read(shaper: Shaper) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, dial(shaper, listener.getsockname()) as sock:
        deaf, _ = listener.accept()
        sock.settimeout(0.5)
        with deaf, pytest.raises(TimeoutError):
            sock.sendall(bytes(100_000_000))
        (traffic,) = shaper.traffic.values()
        assert traffic.sent < 20_000_000


def test_connection_that_breaks_off_ends_at_the_other_side(shaper: Shaper) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sock = dial(shaper, listener.getsockname())
        server, _ = listener.accept()
        sock.sendall(b"last words")
        sock.close()
        with server:
            server.settimeout(PATIENCE_S)
            assert receive_all(server) == b"last words"


def test_client_hears_that_nobody_listens(shaper: Shaper) -> None:
    with socket.socket() as nobody:  # bound, it does not listen: the port is nobody else's, either
        nobody.bind(("127.0.0.1", 0))
        with dial(shaper, nobody.getsockname(), answer=REFUSED) as sock:
            assert receive_all(sock) == b""


def test_closing_ends_connections_and_leaves_no_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with Shaper(rate=RATE, delay_s=DELAY_S) as shaper:
            sock = dial(shaper, listener.getsockname())
            server, _ = listener.accept()
        with sock, server:
            assert receive_all(sock) == receive_all(server) == b""
    assert not [thread for thread in threading.enumerate() if thread.name == "shaper"]


@pytest.mark.long
def test_idle_shaper_sleeps(shaper: Shaper) -> None:
    with Echo() as echo, dial(shaper, echo.address) as sock:
        sock.sendall(b"x")
        assert sock.recv(1) == b"x"
        threading.Event().wait(0.3)  # what the last byte costs is behind it
        before = shaper.cpu_s
        threading.Event().wait(1.0)
        assert shaper.cpu_s - before < 0.3  # one that turns all the time takes a whole second


def test_hub_dials_through_it_and_comes_back_after_the_peer_did(shaper: Shaper) -> None:
    """libzmq's own SOCKS client, identities, and a reconnect after the mailbox was away."""
    ports = (PORTS[0] + os.getpid() % (PORTS[1] - PORTS[0]), PORTS[1])  # tests beside this one begin elsewhere
    with Hub(worker("w"), RUN_ID) as guest:
        for life in range(2):
            with Hub(graph_server(0), RUN_ID, listen="127.0.0.1", ports=ports) as host:
                if life == 0:
                    guest.dial(graph_server(0), host.endpoint, shaper.address)
                ports = (int(host.endpoint.rpartition(":")[2]),) * 2
                assert say(guest, graph_server(0), life, host) == worker("w")
                assert say(host, worker("w"), life, guest) == graph_server(0)


def say(speaker: Hub, to: Address, number: int, listener: Hub) -> Address | None:
    """Says the number until it is heard (what is under way when a connection breaks is lost); returns who said it."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        speaker.send(to, Heartbeat("worker", number))
        for sender, message in listener.poll(0.2):
            if isinstance(message, Heartbeat) and message.index == number:
                return sender
    return None


# --- the command line -------------------------------------------------------------------------------------------------


def test_quantities() -> None:
    assert [quantity(text) for text in ("25MB", "1.5 KB/s", "7", "5ms", "2s")] == [25e6, 1500, 7, 0.005, 2]
    with pytest.raises(ValueError, match="must be a number and one of"):
        quantity("25 parsecs")


def test_command_prints_its_address_and_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "benchmarks.shaper", "--rate", "1MB", "--delay", "1ms"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output, errors) == (0, "", "")
