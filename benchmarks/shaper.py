"""A slow network on a fast machine: a SOCKS5 proxy on loopback that gives every
destination a link with a rate and a delay.

    python -m benchmarks.shaper --rate 25MB --delay 5ms        then: siafu train … --set lambda.proxy=127.0.0.1:PORT

It exists because what overlap is worth shows only where the network is the bottleneck. All connections to one
destination (host, port) share one link, each direction for itself, as all Lambdas share the network card of
their graph server; or, with ``per_connection``, each has a link of its own, as each Lambda has a network of its
own (200 Mbit/s in Dorylus' time).

1. Bytes enter a link one after the other at its rate, and come out ``delay_s`` after they are through. The clock of a
   link is computed, not slept: waking up late delays bytes, but loses no rate, up to ``READ_AHEAD_S``.
2. Connections take turns at a link, ``CHUNK_S`` worth of bytes at a time.
3. What is read and not delivered yet is bounded: per link by its read-ahead, per connection by what is under way at
   full rate, twice. Beyond that the sender's own buffers fill up and it waits: backpressure.

Headers of TCP and IP are not counted, and the SOCKS handshake is not delayed. One
thread, asleep until something is due.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import logging
import math
import re
import select
import selectors
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.socks import CONNECTED, REFUSED, Destination, Handshake
from siafu.errors import RemoteProtocolError

logger = logging.getLogger(__name__)

#: How much of its time a link takes in before that time has come: so late may the thread wake without loss of rate.
READ_AHEAD_S = 0.02
#: A turn of a connection at a link, in seconds of the link's time, and its bounds in bytes.
CHUNK_S = 0.001
MIN_CHUNK_NBYTES, MAX_CHUNK_NBYTES = 1 << 12, 1 << 16
#: The kernel's receive buffers are kept small: what waits in them is hidden from the sender.
RECEIVE_BUFFER_NBYTES = 1 << 18

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_UNITS = {"": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "s": 1.0, "ms": 1e-3, "us": 1e-6}


@dataclass(frozen=True)
class Traffic:
    """Bytes to and from a destination so far."""

    sent: int
    received: int


class Link:
    """One direction of one destination (rule 1). Pure: ``now`` is seconds of a monotonic clock."""

    def __init__(self, rate: float, delay_s: float):
        """``rate``: bytes per second."""
        self.rate, self.delay_s = rate, delay_s
        self.chunk_nbytes = int(min(max(rate * CHUNK_S, MIN_CHUNK_NBYTES), MAX_CHUNK_NBYTES))
        # All mutable state:
        self.nbytes = 0
        self.waiting: deque[_Pipe] = deque()  # connections that have something for it
        self._free_at = -math.inf  # when everything taken in so far is through

    def admit(self, nbytes: int, now: float) -> float:
        """Takes bytes in; returns when they come out."""
        self.nbytes += nbytes
        self._free_at = max(now, self._free_at) + nbytes / self.rate
        return self._free_at + self.delay_s

    @property
    def open_at(self) -> float:
        """When it takes in more."""
        return self._free_at - READ_AHEAD_S


class _Pipe:
    """One direction of one connection: from a socket through a link to another socket."""

    def __init__(self, source: socket.socket, sink: socket.socket, link: Link):
        self.source, self.sink, self.link = source, sink, link
        self._limit = 2 * int(link.rate * (link.delay_s + READ_AHEAD_S)) + link.chunk_nbytes
        # All mutable state:
        self.held = 0  # bytes read from the source that the sink has not taken
        self.due: deque[bytes] = deque()  # out of the link, for the sink; b"" is the end
        self.paused = False  # rule 3

    @property
    def full(self) -> bool:
        return self.held > self._limit


class Shaper:
    """Use in a ``with`` block; ``address`` is what ``lambda.proxy`` takes."""

    def __init__(self, *, rate: float, delay_s: float, port: int = 0, per_connection: bool = False):
        """``rate``: bytes per second of each direction of each destination, or of each connection."""
        self.rate, self.delay_s, self.per_connection = rate, delay_s, per_connection
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        # what it accepts inherits it
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_NBYTES)
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._bell, self._bell_rope = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="shaper")
        # All mutable state, the thread's own; others may read the first two:
        self.cpu_s = 0.0  # of the thread
        self._links: dict[Destination, list[tuple[Link, Link]]] = {}  # to it, from it
        self._selector = selectors.DefaultSelector()
        self._calls: dict[socket.socket, dict[int, Callable[[], None]]] = {}  # what to call on which event
        self._peer: dict[socket.socket, socket.socket] = {}  # the other end of a connection
        self._half_closed: set[socket.socket] = set()  # sinks that were told of the end
        self._timers: list[tuple[float, int, _Pipe, bytes]] = []  # what comes out of links, and when
        self._num_timers = 0
        self._closing = False

    @property
    def traffic(self) -> dict[Destination, Traffic]:
        """By destination, over all its links."""
        return {
            to: Traffic(sum(there.nbytes for there, _ in links), sum(back.nbytes for _, back in links))
            for to, links in self._links.copy().items()
        }

    def __enter__(self) -> Shaper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bell_rope.send(b"\0")
        self._thread.join()
        self._bell_rope.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._on(self._listener, _READ, self._accept)
        self._on(self._bell, _READ, self._close)
        try:
            while not self._closing:
                self._turn()
                self.cpu_s = time.thread_time()
        finally:
            for sock in list(self._calls) + list(self._peer):
                self._drop(sock)
            self._selector.close()

    def _turn(self) -> None:
        self._deliver(time.monotonic())
        self._admit(time.monotonic())
        self._sleep()
        for key, events in self._selector.select(0):
            for event in (_READ, _WRITE):
                # A call before this one may have closed the socket.
                if events & event and (call := key.data.get(event)) is not None and key.fileobj in self._calls:
                    call()

    def _sleep(self) -> None:
        """Until a socket is ready or something is due."""
        wake_at = self._timers[0][0] if self._timers else math.inf
        for link in self._each_link():
            wake_at = min(wake_at, link.open_at) if link.waiting else wake_at
        timeout_s = None if wake_at == math.inf else max(0.0, wake_at - time.monotonic())
        # Not by the selector itself: epoll's timeouts are whole milliseconds.
        select.select([self._selector.fileno()], [], [], timeout_s)

    def _close(self) -> None:
        """The bell has rung."""
        self._closing = True

    def _each_link(self) -> list[Link]:
        return [link for links in self._links.values() for pair in links for link in pair]

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the peer hung up between the event and the call
            return
        _prepare(client)
        handshake = Handshake()
        self._on(client, _READ, lambda: self._greet(client, handshake))

    def _greet(self, client: socket.socket, handshake: Handshake) -> None:
        try:
            data = client.recv(1024)
            reply, destination = handshake.feed(data)
            client.send(reply)
        except (RemoteProtocolError, OSError) as error:
            logger.warning("%s", error)
            return self._drop(client)
        if not data:
            self._drop(client)
        elif destination is not None:
            self._dial(client, destination)

    def _dial(self, client: socket.socket, destination: Destination) -> None:
        server = socket.socket()
        _prepare(server)
        self._peer[client], self._peer[server] = server, client
        with contextlib.suppress(OSError):  # how it went is asked when the socket is writable
            server.connect(destination)
        self._on(client, _READ, lambda: self._drop(client))  # it hangs up, or talks before it may
        self._on(server, _WRITE, lambda: self._dialled(client, server, destination))

    def _dialled(self, client: socket.socket, server: socket.socket, destination: Destination) -> None:
        self._off(client, _READ)
        self._off(server, _WRITE)
        try:
            server.getpeername()  # raises if there is none
            client.send(CONNECTED)
        except OSError:
            logger.warning("%s:%d does not answer", *destination)
            return self._refuse(client)
        links = self._links.setdefault(destination, [])
        if self.per_connection or not links:
            links.append((Link(self.rate, self.delay_s), Link(self.rate, self.delay_s)))
        there, back = links[-1]
        self._await(_Pipe(client, server, there))
        self._await(_Pipe(server, client, back))

    def _refuse(self, client: socket.socket) -> None:
        """Where it wants to go, nobody answers."""
        with contextlib.suppress(OSError):
            client.send(REFUSED)
        self._drop(client)

    def _drop(self, sock: socket.socket) -> None:
        """Closes a socket and the other end of its connection."""
        for end in (sock, self._peer.get(sock, sock)):
            self._peer.pop(end, None)
            self._half_closed.discard(end)
            if self._calls.pop(end, None):
                self._selector.unregister(end)
            end.close()

    # --- bytes --------------------------------------------------------------------------------------------------------

    def _await(self, pipe: _Pipe) -> None:
        """Puts the pipe into its link's queue once its source has something (rule 2)."""

        def ready() -> None:
            self._off(pipe.source, _READ)
            pipe.link.waiting.append(pipe)

        self._on(pipe.source, _READ, ready)

    def _admit(self, now: float) -> None:
        """Reads what the links have room for."""
        for link in self._each_link():
            while link.waiting and link.open_at <= now:
                self._read(link.waiting.popleft(), now)

    def _read(self, pipe: _Pipe, now: float) -> None:
        if pipe.source not in self._peer:  # dropped while it waited
            return
        link = pipe.link
        try:
            data = pipe.source.recv(link.chunk_nbytes)
        except BlockingIOError:
            return self._await(pipe)
        except OSError:
            return self._drop(pipe.source)
        data = self._changed(data)
        pipe.held += len(data)
        self._num_timers += 1
        heapq.heappush(self._timers, (link.admit(len(data), now), self._num_timers, pipe, data))
        if not data:
            return
        pipe.paused = pipe.full
        if len(data) < link.chunk_nbytes and not pipe.paused:
            self._await(pipe)
        elif not pipe.paused:  # who filled its turn probably has more, and need not be asked
            link.waiting.append(pipe)

    def _changed(self, data: bytes) -> bytes:
        """What becomes of bytes in a link: nothing. ``benchmarks.chaos.proxy`` is not so kind."""
        return data

    def _deliver(self, now: float) -> None:
        """Writes what has come out of the links."""
        while self._timers and self._timers[0][0] <= now:
            _, _, pipe, data = heapq.heappop(self._timers)
            pipe.due.append(data)
            if len(pipe.due) == 1 and pipe.sink in self._peer:  # else it waits for the sink already
                self._write(pipe)

    def _write(self, pipe: _Pipe) -> None:
        try:
            while pipe.due:
                if not pipe.due[0]:
                    return self._end(pipe)
                sent = pipe.sink.send(pipe.due[0])
                pipe.held -= sent
                pipe.due[0] = pipe.due[0][sent:]
                if not pipe.due[0]:
                    pipe.due.popleft()
        except BlockingIOError:
            self._on(pipe.sink, _WRITE, lambda: self._write(pipe))
        except OSError:
            return self._drop(pipe.sink)
        else:
            self._off(pipe.sink, _WRITE)
        if pipe.paused and not pipe.full:
            pipe.paused = False
            self._await(pipe)

    def _end(self, pipe: _Pipe) -> None:
        """All that the source said is delivered, and it says no more."""
        self._off(pipe.sink, _WRITE)
        with contextlib.suppress(OSError):
            pipe.sink.shutdown(socket.SHUT_WR)
        self._half_closed.add(pipe.sink)
        if pipe.source in self._half_closed:
            self._drop(pipe.sink)

    # --- the selector -------------------------------------------------------------------------------------------------

    def _on(self, sock: socket.socket, event: int, call: Callable[[], None]) -> None:
        self._watch(sock, {**self._calls.get(sock, {}), event: call})

    def _off(self, sock: socket.socket, event: int) -> None:
        if event in self._calls.get(sock, {}):
            self._watch(sock, {other: call for other, call in self._calls[sock].items() if other != event})

    def _watch(self, sock: socket.socket, calls: dict[int, Callable[[], None]]) -> None:
        known = sock in self._calls
        if not calls:
            self._selector.unregister(sock)
            del self._calls[sock]
            return
        (self._selector.modify if known else self._selector.register)(sock, sum(calls), calls)
        self._calls[sock] = calls


def _prepare(sock: socket.socket) -> None:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_NBYTES)


def quantity(text: str) -> float:
    """ "25MB" -> 25e6 (bytes), "5ms" -> 0.005 (seconds). ValueError for anything else."""
    match = re.fullmatch(r"([0-9.]+) ?([A-Za-z]*?)(?:/s)?", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"{text!r}: must be a number and one of {', '.join(filter(None, _UNITS))}")
    return float(match[1]) * _UNITS[match[2]]


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until Ctrl-C; then prints what went to and from each destination."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shaper", description="A SOCKS5 proxy with a rate and a delay."
    )
    parser.add_argument(
        "--rate", type=quantity, default=25e6, metavar="25MB", help="bytes per second of each direction"
    )
    parser.add_argument("--delay", type=quantity, default=0.005, metavar="5ms", help="one way")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--per-connection", action="store_true", help="a link for each connection, not destination")
    args = parser.parse_args(argv)
    shaper = Shaper(rate=args.rate, delay_s=args.delay, port=args.port, per_connection=args.per_connection)
    # also where a shell began us in the background, deaf to it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with shaper, contextlib.suppress(KeyboardInterrupt):
        print(shaper.address, flush=True)
        signal.pause()
    for (host, port), traffic in shaper.traffic.items():
        print(f"{host}:{port}  {traffic.sent} bytes to it, {traffic.received} from it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
