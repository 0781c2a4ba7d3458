"""Connections for invocations: one each, kept alive while the function works, closed on demand.

botocore signs and reads; that it does not carry has two reasons. An invocation lasts for as long as its worker
pulls tasks, and nothing is said meanwhile: what stands between (a NAT, a load balancer, a VPC endpoint)
forgets a flow that is silent for 350 s, and botocore's ``tcp_keepalive`` first asks after the kernel's two
hours. And a run that ends must not wait 900 s for threads that read. There is no HTTP proxy here: what invokes
must be where functions can dial back to.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError, ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError
from botocore.exceptions import SSLError as UntrustedError
from botocore.httpsession import get_cert_path

CONNECT_S = 5.0
#: Silence before the first probe, between two, and how many may go unanswered: far below 350 s.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Lines:
    """Register ``carry`` for a client's ``before-send`` event. Any thread may call any of it."""

    def __init__(self, read_timeout_s: float):
        """``read_timeout_s``: for an answer."""
        self._read_timeout_s = read_timeout_s
        self._trust: ssl.SSLContext | None = None  # made when first needed: it reads a file of 200 KB
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()
        self._is_cut = False

    def carry(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Sends the request and returns the whole answer. Raises botocore's exceptions."""
        url = urlsplit(request.url)
        assert url.hostname is not None
        connection = self._connection(url.scheme, url.hostname, url.port)
        with contextlib.closing(connection):
            _connect(connection, request.url)
            with self._listed(connection, request.url):
                return self._exchange(connection, request, f"{url.path}?{url.query}" if url.query else url.path)

    def cut(self) -> None:
        """Ends every connection, now and from now on; who reads from one gets ConnectionClosedError."""
        with self._lock:
            self._is_cut = True
            for connection in self._open:
                sock = connection.sock  # None once the head of an answer has said that no other comes after it
                if sock is not None:
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=CONNECT_S)
        with self._lock:
            if self._trust is None:
                self._trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True))
        return http.client.HTTPSConnection(host, port, timeout=CONNECT_S, context=self._trust)

    @contextlib.contextmanager
    def _listed(self, connection: http.client.HTTPConnection, url: str) -> Iterator[None]:
        with self._lock:
            if self._is_cut:
                raise ConnectionClosedError(endpoint_url=url, error="closed")
            self._open.add(connection)
        try:
            yield
        finally:
            with self._lock:
                self._open.discard(connection)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: AWSPreparedRequest, target: str
    ) -> AWSResponse:
        keep_alive(connection.sock)
        connection.sock.settimeout(self._read_timeout_s)
        headers = {name: _text(value) for name, value in request.headers.items()}
        try:
            connection.request(request.method, target, request.body, headers)
            response = connection.getresponse()
            body = response.read()
        except TimeoutError as error:
            raise ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionClosedError(endpoint_url=request.url, error=error) from error
        return AWSResponse(request.url, response.status, dict(response.getheaders()), _Body(body))


def keep_alive(sock: socket.socket) -> None:
    """Lets the kernel ask after the peer while nothing is said."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # macOS says TCP_KEEPALIVE for Linux's TCP_KEEPIDLE
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _connect(connection: http.client.HTTPConnection, url: str) -> None:
    try:
        connection.connect()
    except ssl.SSLError as error:
        raise UntrustedError(endpoint_url=url, error=error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(endpoint_url=url, error=error) from error
    except OSError as error:
        raise EndpointConnectionError(endpoint_url=url, error=error) from error


def _text(value: bytes | str) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else value


class _Body(io.BytesIO):
    """What botocore reads an answer from."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
