"""What a SOCKS5 server says before bytes flow (RFC 1928): no authentication, CONNECT to
an IPv4 address or a name. Pure."""

from __future__ import annotations

import socket

from siafu.errors import RemoteProtocolError

VERSION = 5
NO_AUTHENTICATION = 0
CONNECT = 1
IPV4, NAME = 1, 3
#: The last two fields say which address the server speaks from; no client asks.
_REPLY_TAIL = bytes([0, IPV4, 0, 0, 0, 0, 0, 0])
CONNECTED = bytes([VERSION, 0]) + _REPLY_TAIL
REFUSED = bytes([VERSION, 5]) + _REPLY_TAIL

Destination = tuple[str, int]


class Handshake:
    """One client's. ``feed`` it what arrives until it names a destination; then say CONNECTED or REFUSED."""

    def __init__(self) -> None:
        # All mutable state:
        self._unread = b""
        self._greeted = False

    def feed(self, data: bytes) -> tuple[bytes, Destination | None]:
        """(what to answer, where the client wants to go once that is known).
        RemoteProtocolError for what we do not speak."""
        self._unread += data
        if not self._greeted:
            return self._greet(), None
        return b"", self._request()

    def _greet(self) -> bytes:
        """VERSION, number of methods, methods."""
        unread = self._unread
        if len(unread) < 2 or len(unread) < 2 + unread[1]:
            return b""
        methods, rest = unread[2 : 2 + unread[1]], unread[2 + unread[1] :]
        if unread[0] != VERSION or NO_AUTHENTICATION not in methods or rest:
            raise RemoteProtocolError(f"SOCKS: {unread!r} is no greeting of version 5 that offers 'no authentication'")
        self._greeted, self._unread = True, b""
        return bytes([VERSION, NO_AUTHENTICATION])

    def _request(self) -> Destination | None:
        """VERSION, command, 0, kind of address, address, port."""
        unread = self._unread
        if len(unread) < 5:
            return None
        version, command, _, kind, first = unread[:5]
        if version != VERSION or command != CONNECT or kind not in (IPV4, NAME):
            raise RemoteProtocolError(f"SOCKS: {unread!r} is no CONNECT to an IPv4 address or a name")
        start, length = (4, 4) if kind == IPV4 else (5, first)
        end = start + length
        if len(unread) < end + 2:
            return None
        address = unread[start:end]
        host = socket.inet_ntoa(address) if kind == IPV4 else address.decode("ascii", "replace")
        return host, int.from_bytes(unread[end : end + 2], "big")
