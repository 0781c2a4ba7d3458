"""Two ends of a link between processes, through siafu's Hub, the same with keys, and in
bare ZeroMQ: what Hub and CURVE cost.

The far end is a process (``python -m benchmarks.measure.echo hub|curve|raw ENDPOINT``). It sends back what it receives
while it is told to echo, swallows it while it is told to sink, answers a mark in either case, and leaves when it is
told to, or when nothing is said for ``SILENCE_S``. All near ends have the same three methods.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol

import zmq

from siafu import start, wire
from siafu.address import COORDINATOR, Address, graph_server
from siafu.errors import PeerLost
from siafu.kernels.checksum import crc32
from siafu.keys import SECRET_BYTES, Keys, Ring
from siafu.sockets import Hub, public_key
from siafu.wire import RUN_ID_BYTES, Heartbeat, Leave, Message, Start, Stop

RUN_ID = bytes(RUN_ID_BYTES)
SILENCE_S = 60.0
#: Frames from here on are sent without a copy, as pyzmq does by itself.
RAW_ZERO_COPY_BYTES = zmq.COPY_THRESHOLD
_ECHO, _SINK, _MARK, _LEAVE, _DATA = b"E", b"S", b"M", b"L", b"D"


class Link(Protocol):
    def echo(self, message: Message, count: int) -> float:
        """Seconds for one message there and back, ``count`` of them one after the other."""

    def flood(self, message: Message, count: int) -> float:
        """Seconds until ``count`` messages, sent without waiting, have all been received."""

    def close(self) -> None: ...


class HubLink:
    """Between two graph servers: encoded, checksummed, decoded and checked at both ends."""

    kind = "hub"

    def __init__(self) -> None:
        self._hub = Hub(COORDINATOR, RUN_ID, listen="127.0.0.1", ring=_ring(self.kind, COORDINATOR))
        self._hub.checksum = crc32
        self._peer = graph_server(0)
        self._process = _far_end(self.kind, self._hub.endpoint)
        self._answer()  # its first word

    def echo(self, message: Message, count: int) -> float:
        self._hub.send(self._peer, Start())
        return _seconds(lambda: self._there_and_back(message), count)

    def flood(self, message: Message, count: int) -> float:
        self._hub.send(self._peer, Stop("sink"))
        start = time.perf_counter()
        for _ in range(count):
            self._hub.send(self._peer, message)
        self._there_and_back(Heartbeat("coordinator", 0))
        return time.perf_counter() - start

    def _there_and_back(self, message: Message) -> None:
        self._hub.send(self._peer, message)
        self._answer()

    def _answer(self) -> None:
        deadline = time.monotonic() + SILENCE_S
        while not self._hub.poll(SILENCE_S):  # also when it has let somebody in
            if time.monotonic() >= deadline:
                raise PeerLost(f"the far end of the link said nothing for {SILENCE_S:g} s")

    def close(self) -> None:
        self._hub.send(self._peer, Leave())
        self._process.wait(SILENCE_S)
        self._hub.close()


class CurveLink(HubLink):
    """The same, encrypted."""

    kind = "curve"


class RawLink:
    """The same frames, encoded once, over a bare ROUTER and DEALER: nobody looks at what arrives."""

    def __init__(self) -> None:
        self._context = zmq.Context()
        self._socket = _socket(self._context, zmq.ROUTER)
        self._socket.bind("tcp://127.0.0.1:*")
        self._process = _far_end("raw", self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._identity = self._answer()

    def echo(self, message: Message, count: int) -> float:
        frames = wire.encode(message, RUN_ID)
        self._send(_ECHO)
        return _seconds(lambda: self._there_and_back(_DATA, frames), count)

    def flood(self, message: Message, count: int) -> float:
        frames = wire.encode(message, RUN_ID)
        self._send(_SINK)
        start = time.perf_counter()
        for _ in range(count):
            self._send(_DATA, frames)
        self._there_and_back(_MARK)
        return time.perf_counter() - start

    def _there_and_back(self, kind: bytes, frames: Sequence[wire.Frame] = ()) -> None:
        self._send(kind, frames)
        self._answer()

    def _send(self, kind: bytes, frames: Sequence[wire.Frame] = ()) -> None:
        self._socket.send_multipart([self._identity, kind, *frames], copy=False)

    def _answer(self) -> bytes:
        if not self._socket.poll(int(SILENCE_S * 1000)):
            raise PeerLost(f"the far end of the link said nothing for {SILENCE_S:g} s")
        return self._socket.recv_multipart(copy=False)[0].bytes

    def close(self) -> None:
        self._send(_LEAVE)
        self._process.wait(SILENCE_S)
        self._socket.close(linger=0)
        self._context.term()


class Links:
    """All of them, for a ``with`` block: no process is left behind."""

    def __enter__(self) -> dict[str, Link]:
        links: dict[str, Link] = {}
        with ExitStack() as stack:
            for name, kind in (("hub", HubLink), ("curve", CurveLink), ("raw", RawLink)):
                links[name] = kind()
                stack.callback(links[name].close)
            self._closing = stack.pop_all()
        return links

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _seconds(once: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        once()
    return (time.perf_counter() - start) / count


def _socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    made = context.socket(kind)
    made.setsockopt(zmq.SNDHWM, 0)
    made.setsockopt(zmq.RCVHWM, 0)
    return made


# --- the far end ------------------------------------------------------------------------------------------------------


def _far_end(kind: str, endpoint: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(start.command("benchmarks.measure.echo", kind, endpoint))


def _ring(kind: str, member: Address) -> Ring | None:
    """Keys that everybody knows: they are here to be computed with."""
    return Keys(bytes(SECRET_BYTES), 1, 0, public_key).ring(member) if kind == "curve" else None


def _serve_hub(endpoint: str, kind: str = "hub") -> None:
    with Hub(graph_server(0), RUN_ID, ring=_ring(kind, graph_server(0))) as hub:
        hub.checksum = crc32
        hub.dial(COORDINATOR, endpoint)
        hub.send(COORDINATOR, Heartbeat("graph_server", 0))
        echoes = False
        while messages := hub.poll(SILENCE_S):
            for _, message in messages:
                match message:
                    case Leave():
                        return
                    case Start() | Stop():
                        echoes = isinstance(message, Start)
                    case _ if echoes or isinstance(message, Heartbeat):
                        hub.send(COORDINATOR, message)


def _serve_raw(endpoint: str) -> None:
    context = zmq.Context()
    link = _socket(context, zmq.DEALER)
    link.connect(endpoint)
    link.send(_MARK)
    echoes = False
    while link.poll(int(SILENCE_S * 1000)):
        frames = link.recv_multipart(copy=False)
        kind = frames[0].bytes
        if kind == _LEAVE:
            break
        if kind in (_ECHO, _SINK):
            echoes = kind == _ECHO
        elif echoes or kind == _MARK:
            link.send_multipart(frames, copy=False)
    link.close(linger=0)
    context.term()


if __name__ == "__main__":
    _serve_raw(sys.argv[2]) if sys.argv[1] == "raw" else _serve_hub(sys.argv[2], sys.argv[1])
