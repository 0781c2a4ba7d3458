"""A member's mailbox, its links to others, and one place to wait for all of them. No other file imports ZeroMQ.

Every member except workers binds one ROUTER, its mailbox. It dials the mailbox of each member that it wants to talk to
with a DEALER; an answer comes back over the same link. Identities are addresses. If members have keys
(``siafu.keys``), links are encrypted (CURVE), and a server is identified by its key instead. Tensors are sent and
received without a copy. Other threads may only call ``wake``.

No send waits: messages that a peer does not take are queued here, at most ``_MOST_WAITING``; then that peer is lost.
Their bytes are bounded by staleness between servers, by the tasks that a worker may hold, and at the start by the
ghosts' features, which go to every peer at once.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import zmq
from zmq.utils import z85

from siafu import keys, wire
from siafu.address import Address
from siafu.errors import GnnError, PeerLost, RemoteProtocolError
from siafu.gate import Complaints, Gate
from siafu.keys import Ring
from siafu.message_numbers import Links
from siafu.places import UNIX
from siafu.wire import Message

logger = logging.getLogger(__name__)

#: Messages taken from one socket before the others get their turn.
_BURST = 64
#: Frames from here on are sent without a copy; below, copying is faster.
_ZERO_COPY_BYTES = 1 << 14
#: The most messages that wait here for a peer to take them, and there for their reader. When the latter is full, TCP
#: stops the sender.
_MOST_WAITING, _MOST_UNREAD = 1 << 16, 1 << 12
#: Seconds of silence before TCP's first probe and between probes, and the number of probes: an environment of Lambda,
#: or a gateway on the way, may vanish silently. The same as in ``graph_server.lambdas.launchers.lines``.
_KEEPALIVE = {zmq.TCP_KEEPALIVE: 1, zmq.TCP_KEEPALIVE_IDLE: 60, zmq.TCP_KEEPALIVE_INTVL: 15, zmq.TCP_KEEPALIVE_CNT: 4}
#: A connection that has not shown its key in this time is closed; a member's tries again. Keys are checked in polls.
_HANDSHAKE_MS = 10_000
_LOOPBACK_S = 5.0
#: The time for sent messages to leave a hub that closes.
LINGER_S = 1.0


#: Events of connections that ended before they showed a key.
_KEYLESS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL


def public_key(secret: bytes) -> str:
    """Returns the public key of a CURVE secret key of 32 bytes, in Z85."""
    return zmq.curve_public(z85.encode(secret)).decode()


def check_loopback() -> None:
    """Raises: GnnError if processes of this machine cannot reach each other."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), _LOOPBACK_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise GnnError(
            f"127.0.0.1: {why}: servers on this machine need the loopback interface: ip link set lo up"
        ) from None


class Hub:
    """One member's sockets. Use in a ``with`` block."""

    def __init__(
        self,
        me: Address,
        run_id: bytes,
        *,
        listen: str | None = None,
        ports: tuple[int, int] | None = None,
        ring: Ring | None = None,
    ):
        """``listen``: address to bind, at a free port of ``ports`` (first, last) or at any, or UNIX; None: no mailbox
        (a worker). ``ring``: our keys; None: every connection is accepted. Raises: PeerLost if it cannot be bound."""
        self.me, self.run_id = me, run_id
        self.endpoint = ""
        self.checksum: wire.Checksum = zlib.crc32  # of tensors; a server puts a faster one here
        self.malformed = 0  # messages dropped because the protocol does not allow them
        self.worker_bytes = wire.MAX_TENSOR_BYTES  # of a worker's message; a server knows how large its tasks are
        self.numbers = Links(me)
        self.ring = ring
        self._gate: Gate | None = None
        self._complaints = Complaints()
        self._routes: dict[Address, bytes] = {}  # server with a key -> identity of its connection to our mailbox
        self._unread: list[tuple[Address, Message]] = []
        self._context = zmq.Context()
        self._context.setsockopt(zmq.LINGER, 0)
        self._poller = zmq.Poller()
        self._mailbox: zmq.Socket[bytes] | None = None
        self._links: dict[Address, zmq.Socket[bytes]] = {}
        self._address_of: dict[zmq.Socket[bytes], Address] = {}
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._poller.register(self._wake_reader, zmq.POLLIN)
        if listen is not None:
            self._mailbox = self._socket(zmq.ROUTER)
            self._mailbox.setsockopt(zmq.ROUTER_MANDATORY, 1)
            # Without handover, a connection that breaks and comes back would be ignored while the old one still exists.
            # With keys, servers' identities are new each time, and a worker must not take another worker's place.
            self._mailbox.setsockopt(zmq.ROUTER_HANDOVER, int(ring is None))
            self._mailbox.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
            try:
                if ring is not None:
                    self._guard(ring)
                self._bind(self._mailbox, listen, ports)
            except zmq.ZMQError as error:
                self.close()
                where = f"{listen}, ports {ports[0]} to {ports[1]}" if ports else listen
                raise PeerLost(f"{me}: cannot listen on {where}: {error}") from error
            self.endpoint = self._mailbox.getsockopt_string(zmq.LAST_ENDPOINT)

    def _guard(self, ring: Ring) -> None:
        """Restricts the mailbox to holders of keys that may dial us. ZeroMQ asks about each connection, at a fixed
        address."""
        assert self._mailbox is not None
        self._gate = Gate({z85.decode(key.encode()): name for key, name in ring.guests(self.me).items()})
        self._door = self._socket(zmq.REP)
        self._door.bind("inproc://zeromq.zap.01")
        self._knocks = self._mailbox.get_monitor_socket(_KEYLESS)
        self._poller.register(self._knocks, zmq.POLLIN)
        self._mailbox.setsockopt(zmq.CURVE_SERVER, 1)
        self._mailbox.setsockopt(zmq.CURVE_SECRETKEY, ring.secret)

    @staticmethod
    def _bind(mailbox: zmq.Socket[bytes], listen: str, ports: tuple[int, int] | None) -> None:
        if listen == UNIX:  # an abstract name: no file, and no other process can guess it
            mailbox.bind(f"ipc://@siafu-{secrets.token_hex(16)}")
            return
        if ports is None:
            mailbox.bind(f"tcp://{listen}:*")
            return
        for port in range(ports[0], ports[1] + 1):
            try:
                mailbox.bind(f"tcp://{listen}:{port}")
                return
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE or port == ports[1]:
                    raise

    def dial(self, to: Address, endpoint: str, proxy: str = "") -> None:
        """Opens a link; messages sent before it stands wait. ``proxy``: host:port of a SOCKS5 proxy."""
        link = self._socket(zmq.DEALER)
        if self.ring is None or self.me.role == "worker":  # else the key says who we are
            link.setsockopt(zmq.IDENTITY, self.me.identity)
        if self.ring is not None:
            link.setsockopt(zmq.CURVE_SECRETKEY, self.ring.secret)
            link.setsockopt(zmq.CURVE_PUBLICKEY, public_key(self.ring.secret).encode())
            link.setsockopt(zmq.CURVE_SERVERKEY, self.ring.public[keys.name_of(to)].encode())
        if proxy:
            link.setsockopt(zmq.SOCKS_PROXY, proxy.encode())
        try:
            link.connect(endpoint)
        except zmq.ZMQError as error:
            link.close(linger=0)  # else ``close`` would wait for it for ever
            raise PeerLost(f"{to}: cannot dial {endpoint!r}: {error}") from error
        self._links[to] = link
        self._address_of[link] = to

    def knows(self, to: Address) -> bool:
        return to in self._links

    @property
    def peers(self) -> frozenset[Address]:
        """The members with numbered links to or from us."""
        return self.numbers.speakers.union(self._links)

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of messages dropped or lost and of connections refused, by name."""
        return {
            "messages_malformed": self.malformed,
            "messages_repeated": self.numbers.num_repeated,
            "messages_lost": self.numbers.num_lost,
            "connections_refused": 0 if self._gate is None else self._gate.num_refused,
        }

    def send(self, to: Address, message: Message) -> bool:
        """Sends a message. Returns False if no member of that address is connected."""
        frames = wire.encode(message, self.run_id, self.checksum, self.numbers.number(to))
        if self._post(to, frames):
            self.numbers.sent(to)
            return True
        return False

    def _post(self, to: Address, frames: list[wire.Frame]) -> bool:
        link = self._links.get(to)
        try:
            if link is not None:
                link.send_multipart(frames, zmq.NOBLOCK, copy=False)
            elif self._mailbox is not None and (route := self._route(to)):
                self._mailbox.send_multipart([route, *frames], zmq.NOBLOCK, copy=False)
            else:
                return False
        except zmq.Again:
            if to.role == "worker":
                return False  # its tasks go to others
            # ZeroMQ reports the same for a link that the other end has refused.
            raise PeerLost(
                f"{to}: takes nothing any more: it has refused our connection, or {_MOST_WAITING} messages wait for it"
            ) from None
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return False
            raise PeerLost(f"{to}: {error}") from error
        return True

    def _route(self, to: Address) -> bytes:
        """Returns the mailbox's identity of a peer's connection. With keys, it is that of the connection that showed
        the server's key, because any connection can claim a server's address."""
        return to.identity if self._gate is None or to.role == "worker" else self._routes.get(to, b"")

    def deliver(self, to: Address, message: Message) -> None:
        """Sends a message that must not get lost. Raises: PeerLost if no member of that address is connected, unless it
        is a worker, which may come and go."""
        if not self.send(to, message) and to.role != "worker":
            raise PeerLost(f"{to}: not connected")

    def poll(self, timeout_s: float) -> list[tuple[Address, Message]]:
        """Returns the messages that have arrived; waits at most ``timeout_s`` for the first. Counts and drops malformed
        messages, those that their sender may not send, and repeated ones.

        Raises: PeerLost if messages of a server got lost; messages that have arrived are kept for the next call.
        """
        arrived, self._unread = self._unread, []
        if arrived:
            return arrived
        for source, _ in self._poller.poll(max(0, int(timeout_s * 1000))):
            if source == self._wake_reader.fileno():
                self._drain_wake()
                continue
            if self._gate is not None and source in (self._door, self._knocks):
                self._open_door(self._gate)
                continue
            for _ in range(_BURST):
                try:
                    parts = source.recv_multipart(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    break
                if (item := self._receive(source, parts)) is not None:
                    arrived.append(item)
        try:
            self.numbers.check()
        except PeerLost:
            self.put_back(arrived)
            raise
        return arrived

    def put_back(self, messages: Iterable[tuple[Address, Message]]) -> None:
        """Keeps messages for the next ``poll``, if they came before their reader was ready."""
        self._unread += messages

    @contextmanager
    def forgiving(self, sender: Address) -> Iterator[None]:
        """Wraps the handling of a message: a RemoteProtocolError by a worker's message is counted as malformed, because
        no worker may end a run."""
        try:
            yield
        except RemoteProtocolError as error:
            if sender.role != "worker":
                raise
            self._drop(error, sender)

    def wake(self) -> None:
        """Ends a ``poll`` that waits; any thread may call it."""
        try:
            self._wake_writer.send(b"\0")
        except (BlockingIOError, OSError):  # full: a wake is pending already; closed: no poll waits any more
            return

    def close(self) -> None:
        for link in (*self._links.values(), *([self._mailbox] if self._mailbox else [])):
            link.close(linger=0)
        if self._gate is not None:
            self._door.close(linger=0)
            self._knocks.close(linger=0)
        self._links.clear()
        self._mailbox = None
        self._wake_reader.close()
        self._wake_writer.close()
        self._context.term()

    def flush_and_close(self) -> None:
        """Closes once all sent messages have left, or after ``LINGER_S``."""
        for link in (*self._links.values(), *([self._mailbox] if self._mailbox else [])):
            link.close(linger=int(LINGER_S * 1000))
        self._links.clear()
        self._mailbox = None
        self.close()

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        made = self._context.socket(kind)
        made.setsockopt(zmq.SNDHWM, _MOST_WAITING)
        made.setsockopt(zmq.RCVHWM, _MOST_UNREAD)
        made.setsockopt(zmq.MAXMSGSIZE, wire.MAX_TENSOR_BYTES)
        for option, value in _KEEPALIVE.items():
            made.setsockopt(option, value)
        made.copy_threshold = _ZERO_COPY_BYTES
        self._poller.register(made, zmq.POLLIN)
        return made

    def _receive(self, source: zmq.Socket[bytes], parts: list[zmq.Frame]) -> tuple[Address, Message] | None:
        sender = self._address_of.get(source)
        try:
            if sender is None:
                sender, parts = self._speaker(parts[0]), parts[1:]
            if sender in self._complaints.ignored:
                return None
            frames = [part.buffer for part in parts]
            if sender.role == "worker" and (nbytes := sum(frame.nbytes for frame in frames)) > self.worker_bytes:
                raise RemoteProtocolError(
                    f"{sender}: {nbytes} bytes, a worker's message has {self.worker_bytes} at most"
                )
            message = wire.decode(frames, self.run_id, self.checksum)
            if not self.numbers.take(sender, wire.number_of(frames)):
                return None
            if sender.role not in message.by:
                raise RemoteProtocolError(f"{sender} may not send {type(message).__name__}")
        except RemoteProtocolError as error:
            self._drop(error, sender)
            return None
        return sender, message

    def _speaker(self, lead: zmq.Frame) -> Address:
        """Returns the sender of a message in the mailbox: by the key of its connection, if members have keys."""
        identity = lead.bytes
        if self._gate is None:
            return Address.from_identity(identity)
        sender = keys.speaker(str(lead.get("User-Id")), identity)
        if sender.role != "worker":
            self._routes[sender] = identity
        return sender

    def _open_door(self, gate: Gate) -> None:
        """Answers ZeroMQ's questions whether to accept a connection, and counts those that ZeroMQ has ended itself."""
        for _ in range(_BURST):
            now, why = time.monotonic(), ""
            if self._door.poll(0):
                verdict = gate.answer(self._door.recv_multipart(), now)
                self._door.send_multipart(verdict.reply)
                why = verdict.refused
            elif self._knocks.poll(0):
                self._knocks.recv_multipart()
                why = gate.keyless()
            else:
                return
            if why and self._complaints.is_worth_a_line(now):
                logger.warning("%s: refused a connection, %d so far: %s", self.me, gate.num_refused, why)

    def _drop(self, error: RemoteProtocolError, sender: Address | None) -> None:
        self.malformed += 1
        now = time.monotonic()
        if self._complaints.is_worth_a_line(now):
            logger.warning("%s: dropped a message, %d so far: %s", self.me, self.malformed, error)
        if sender is not None and sender.role == "worker" and self._complaints.of(sender, now):
            logger.warning("%s: %s is not listened to any more, it sent too much that cannot be read", self.me, sender)

    def _drain_wake(self) -> None:
        try:
            while len(self._wake_reader.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            return
