"""A hub that loses, doubles, corrupts, cuts and misplaces messages, by a seeded generator: what TCP
does when it breaks, more often."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import zmq

from benchmarks.chaos.schedule import MessageFaults
from siafu import wire
from siafu.address import Address
from siafu.sockets import Hub
from siafu.wire import Hello, Message, Pull

#: How much more often messages to and from workers suffer: their recovery is a relaunch.
OF_WORKERS = 10
EARLIER_RUN = b"earlier!"


class FaultyHub(Hub):
    """``faults`` and ``proxy`` are set before any is made; what was done is written to ``log``, line by line."""

    faults = MessageFaults()
    began_at = 0.0  # of the run, by time.monotonic
    proxy = ""  # host:port that every link is dialled through
    log: Path | None = None

    def __init__(self, me: Address, run_id: bytes, **options: Any):
        super().__init__(me, run_id, **options)
        # Another attempt has other faults: what came before must not come again for ever.
        self._rng = random.Random(f"{self.faults.seed} {me} {int(10 * (time.monotonic() - self.began_at))}")
        self._held: tuple[Address, list[wire.Frame]] | None = None

    def dial(self, to: Address, endpoint: str, proxy: str = "") -> None:
        super().dial(to, endpoint, proxy or self.proxy)

    def send(self, to: Address, message: Message) -> bool:
        if self._strikes(to, self.faults.late, "message late"):
            super()._post(to, wire.encode(message, EARLIER_RUN, self.checksum, self.numbers.number(to)))
        return super().send(to, message)

    def _post(self, to: Address, frames: list[wire.Frame]) -> bool:
        if self._strikes(to, self.faults.lose, "message lost"):
            return True
        if self._strikes(to, self.faults.corrupt, "message corrupt"):
            frames = self._corrupt(frames)
        if self._strikes(to, self.faults.truncate, "message truncated"):
            frames = self._truncate(frames)
        if self._held is None and to.role != "worker" and self._strikes(to, self.faults.swap, "messages swapped"):
            self._held = to, frames
            return True
        posted = super()._post(to, frames)
        if posted and self._strikes(to, self.faults.twice, "message twice"):
            super()._post(to, frames)
        if self._held is not None and self._held[0] == to:
            (_, late), self._held = self._held, None
            super()._post(to, late)
        return posted

    def _receive(self, source: zmq.Socket[bytes], parts: list[zmq.Frame]) -> tuple[Address, Message] | None:
        item = super()._receive(source, parts)
        if item is None or item[0].role != "worker" or isinstance(item[1], Hello | Pull):
            # what servers say was lost or doubled when it was sent; one that was never seen is not a worker yet
            return item
        if self._strikes(item[0], self.faults.lose, "message lost"):
            return None
        if self._strikes(item[0], self.faults.twice, "message twice"):
            self.put_back([item])
        return item

    def _corrupt(self, frames: list[wire.Frame]) -> list[wire.Frame]:
        hit = self._rng.randrange(len(frames))
        frame = bytearray(bytes(frames[hit]))
        if frame:
            frame[self._rng.randrange(len(frame))] ^= 1 << self._rng.randrange(8)
        return [*frames[:hit], bytes(frame), *frames[hit + 1 :]]

    def _truncate(self, frames: list[wire.Frame]) -> list[wire.Frame]:
        """The end of its last frame is missing, or all of it."""
        last = bytes(frames[-1])
        return [*frames[:-1], last[: self._rng.randrange(len(last))] if last else b"?"]

    def _strikes(self, peer: Address, share: float, what: str) -> bool:
        share *= OF_WORKERS if peer.role == "worker" else 1
        if not share or self._rng.random() >= share or time.monotonic() - self.began_at > self.faults.until_s:
            return False
        if self.log is not None:
            with self.log.open("a") as log:  # one line at a time: many processes write to it
                log.write(f"{what}\n")
        return True


def tally(log: Path) -> Counter[str]:
    """How often each fault of messages happened."""
    return Counter(log.read_text().splitlines()) if log.exists() else Counter()
