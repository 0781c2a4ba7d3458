"""Decides which connections a mailbox accepts, and whose messages it stops reading. Pure: time is an argument.

1. Whoever shows a public key of the list is let in, as the list's name for it (ZAP, RFC 27); all others are refused and
   counted. One without a key does not get as far as to ask: ZeroMQ itself ends it, and tells us.
2. A key opens at most so many connections in ``WINDOW_S``: a server needs one for each peer and again after a broken
   one; the workers of a graph server share a key, and open one each time that a function is invoked.
3. A worker of which ``MALFORMED`` messages were dropped in ``WINDOW_S`` is not listened
   to any more: its tasks go to others.
4. What is refused or dropped is said once a second at most: a log must not grow by what strangers do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from siafu.address import Address

WINDOW_S = 10.0
#: Connections that one key may open in that time.
SERVER_CONNECTIONS, WORKER_CONNECTIONS = 32, 8192
#: Malformed messages of one worker in that time.
MALFORMED = 100
_VERSION = b"1.0"


@dataclass(frozen=True)
class Verdict:
    """``reply``: the frames of ZAP's answer; ``refused``: why, in words; empty if the connection stands."""

    reply: list[bytes]
    refused: str


class Gate:
    def __init__(self, guests: Mapping[bytes, str]):
        """``guests``: public key, 32 bytes -> name of its holder."""
        self._guests = dict(guests)
        # All mutable state:
        self.num_refused = 0
        self._opened: dict[str, Rate] = {}

    def answer(self, request: Sequence[bytes], now: float) -> Verdict:
        """Rules 1 and 2. ``request``: version, request id, domain, address, identity, mechanism, credentials."""
        known = len(request) == 7 and request[0] == _VERSION and request[5] == b"CURVE"
        holder = self._guests.get(request[6], "") if known else ""
        address = request[3][:64].decode("ascii", "replace") if len(request) > 3 else "?"
        if not holder:
            return self._refuse(request, f"{address} showed a key that is nobody's in this run")
        limit = WORKER_CONNECTIONS if holder.startswith("worker/") else SERVER_CONNECTIONS
        if not self._opened.setdefault(holder, Rate(limit)).allows(now):
            return self._refuse(request, f"{address}, {holder}: more than {limit} connections in {WINDOW_S:g} s")
        return Verdict([_VERSION, request[1], b"200", b"", holder.encode(), b""], "")

    def keyless(self) -> str:
        """ZeroMQ has ended a connection before it showed a key."""
        self.num_refused += 1
        return "it showed no key"

    def _refuse(self, request: Sequence[bytes], why: str) -> Verdict:
        self.num_refused += 1
        request_id = request[1] if len(request) > 1 else b""
        return Verdict([_VERSION, request_id, b"400", b"refused", b"", b""], why)


class Rate:
    """At most ``limit`` in any ``WINDOW_S``."""

    def __init__(self, limit: int):
        self._limit = limit
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether one more is within the limit; it counts only then."""
        while self._times and now - self._times[0] >= WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


class Complaints:
    """Rule 3, and rule 4 for whoever logs."""

    #: Senders of which complaints are remembered; beyond, the oldest is forgotten.
    MOST = 4096

    def __init__(self) -> None:
        # All mutable state:
        self.ignored: set[Address] = set()
        self._of: dict[Address, Rate] = {}
        self._said_at = -WINDOW_S

    def of(self, sender: Address, now: float) -> bool:
        """One more; whether the sender is ignored from now on."""
        rate = self._of.pop(sender, None) or Rate(MALFORMED - 1)
        self._of[sender] = rate  # the newest last
        if len(self._of) > self.MOST:
            del self._of[next(iter(self._of))]
        if rate.allows(now) or len(self.ignored) >= self.MOST:
            return False
        self.ignored.add(sender)
        return True

    def is_worth_a_line(self, now: float) -> bool:
        if now - self._said_at < 1.0:
            return False
        self._said_at = now
        return True
