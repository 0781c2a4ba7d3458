"""A proxy between members that cuts connections, lets nothing through in one
direction, slows links down and flips bits.

What is asked of it from another thread is done by its own between two turns.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from benchmarks.shaper import Link, Shaper

#: Bytes per second, and one way: as good as no network at all.
RATE, DELAY_S = 2e9, 0.0
#: Of a slow link.
SLOW_RATE = 50e3


class ChaosProxy(Shaper):
    """Use in a ``with`` block; ``address`` is what members dial through."""

    def __init__(self, seed: int):
        super().__init__(rate=RATE, delay_s=DELAY_S, per_connection=True)
        self._rng = random.Random(seed)
        self._asked: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._flips = 0  # chunks of bytes that are still to be spoilt

    def __enter__(self) -> ChaosProxy:
        super().__enter__()
        return self

    def cut(self, luck: float) -> None:
        """Hangs up on both ends of a third of the connections."""
        self._ask(lambda: self._cut(luck))

    def block(self, luck: float) -> None:
        """One direction of one connection lets nothing through, for ever. Both ends believe that it stands."""
        self._ask(lambda: self._hold(luck, float("inf")))

    def slow(self, luck: float, seconds: float) -> None:
        """One direction of one connection lets nothing through for so long, and is slow from then on."""

        def slow() -> None:
            if (link := self._hold(luck, seconds)) is not None:
                link.rate = SLOW_RATE

        self._ask(slow)

    def flip(self) -> None:
        """A bit of the next bytes that anybody sends changes."""

        def flip() -> None:
            self._flips += 1

        self._ask(flip)

    def _ask(self, what: Callable[[], object]) -> None:
        self._asked.put(what)
        self._bell_rope.send(b"!")

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """The bell has rung: for something that was asked, or for the end."""
        if self._bell.recv(4096).count(b"\0"):
            self._closing = True
        while True:
            try:
                self._asked.get_nowait()()
            except Empty:
                return

    def _cut(self, luck: float) -> None:
        clients = sorted(self._peer, key=lambda sock: sock.fileno())
        for client in clients[int(3 * luck) % 3 :: 3]:
            self._drop(client)

    def _hold(self, luck: float, seconds: float) -> Link | None:
        """The newest links are those of connections that stand."""
        links = self._each_link()[-20:]
        if not links:
            return None
        link = links[int(luck * len(links))]
        link._free_at = time.monotonic() + seconds
        return link

    def _refuse(self, client: socket.socket) -> None:
        """It hears nothing, as behind a firewall. ZeroMQ 4.3.5 aborts a process that closes a link while
        it waits to try a proxy again that has refused it: ``error`` of its socks_connecter leaves the
        handle of a descriptor that is gone."""
        self._on(client, selectors.EVENT_READ, lambda: self._drop(client))  # it has hung up

    def _changed(self, data: bytes) -> bytes:
        if not self._flips or not data:
            return data
        self._flips -= 1
        spoilt = bytearray(data)
        spoilt[self._rng.randrange(len(spoilt))] ^= 1 << self._rng.randrange(8)
        return bytes(spoilt)
