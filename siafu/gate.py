"""Decides which connections a mailbox accepts, and whose messages it stops reading. Pure: time is an argument.

1. A connection that shows a public key of the list is accepted, under the key's name in the list (ZAP, RFC 27). All
   others are refused and counted. ZeroMQ itself ends a connection without a key, and tells us.
2. A key opens at most ``SERVER_CONNECTIONS`` or ``WORKER_CONNECTIONS`` in ``WINDOW_S``. A server needs one for each
   peer, and again after a broken one. The workers of a graph server share a key, and open one per invocation.
3. Once ``MALFORMED`` messages of a worker were dropped in ``WINDOW_S``, its messages are no longer read: its tasks go
   to others.
4. Refusals and drops are logged at most once a second: strangers must not be able to fill a log.
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
    """The answer to a connection. ``reply``: the frames of ZAP's answer; ``refused``: the reason of a refusal, else
    empty."""

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
        """Answers a request by rules 1 and 2. ``request``: version, request id, domain, address, identity, mechanism,
        credentials."""
        known = len(request) == 7 and request[0] == _VERSION and request[5] == b"CURVE"
        holder = self._guests.get(request[6], "") if known else ""
        address = request[3][:64].decode("ascii", "replace") if len(request) > 3 else "?"
        if not holder:
            return self._refuse(request, f"{address} showed a key that belongs to no member of this run")
        limit = WORKER_CONNECTIONS if holder.startswith("worker/") else SERVER_CONNECTIONS
        if not self._opened.setdefault(holder, Rate(limit)).allows(now):
            return self._refuse(request, f"{address}, {holder}: more than {limit} connections in {WINDOW_S:g} s")
        return Verdict([_VERSION, request[1], b"200", b"", holder.encode(), b""], "")

    def keyless(self) -> str:
        """Counts a connection that ZeroMQ has ended before it showed a key; returns the reason for the log."""
        self.num_refused += 1
        return "it showed no key"

    def _refuse(self, request: Sequence[bytes], why: str) -> Verdict:
        self.num_refused += 1
        request_id = request[1] if len(request) > 1 else b""
        return Verdict([_VERSION, request_id, b"400", b"refused", b"", b""], why)


class Rate:
    """A limit of at most ``limit`` events in any ``WINDOW_S``."""

    def __init__(self, limit: int):
        self._limit = limit
        self._times: deque[float] = deque()

    def allows(self, now: float) -> bool:
        """Whether one more event is within the limit. Only then the event counts."""
        while self._times and now - self._times[0] >= WINDOW_S:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True


class Complaints:
    """The state of rule 3, and of rule 4 for the logger."""

    #: The most senders whose complaints are remembered; then the oldest is forgotten.
    MOST = 4096

    def __init__(self) -> None:
        # All mutable state:
        self.ignored: set[Address] = set()
        self._of: dict[Address, Rate] = {}
        self._said_at = -WINDOW_S

    def of(self, sender: Address, now: float) -> bool:
        """Counts one more complaint of a sender. Returns whether the sender is ignored from now on."""
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
