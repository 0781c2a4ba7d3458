"""Connections for invocations: one each, kept alive while the function works, closed on demand.

botocore signs requests and parses answers, but these connections carry them, for two reasons:

1. An invocation lasts while its worker pulls tasks, and its connection is silent meanwhile. A NAT, load balancer or VPC
   endpoint on the way drops a flow that is silent for 350 s, and botocore's ``tcp_keepalive`` sends its first probe
   after the kernel's two hours.
2. A run that ends must not wait 900 s for threads that read.

HTTP proxies are not supported: functions must be able to dial back to this machine anyway.
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
#: Seconds of silence before the first probe and between probes, and the probes that may go unanswered: far below 350 s.
KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPALIVE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}


class Lines:
    """All connections of one client. Register ``carry`` for its ``before-send`` event. Any thread may call any
    method."""

    def __init__(self, read_timeout_s: float):
        """``read_timeout_s``: the longest wait for an answer."""
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
        """Ends all connections, also those opened later: threads that use one get ConnectionClosedError."""
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
    """Makes the kernel probe the peer while the connection is silent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if hasattr(socket, name):  # macOS calls Linux's TCP_KEEPIDLE TCP_KEEPALIVE
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
    """The body of an answer, in the form that botocore reads."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()
