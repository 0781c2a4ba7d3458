"""A server of one file on loopback that misbehaves as it is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FileServer:
    """All is mutable: a test changes it between requests."""

    data: bytes
    port: int = 0
    cut_after: int | None = None  # bytes of one connection, then it is closed
    takes_ranges: bool = True
    says_length: bool = True
    status: int = 0  # instead of the file
    asked: list[str] = field(default_factory=list)  # Range of each request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/files/published.npz"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        wanted = handler.headers.get("Range", "")
        self.asked.append(wanted)
        if self.status:
            handler.send_error(self.status)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.takes_ranges else 0
        if start >= len(self.data):
            handler.send_error(416)
            return
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.data) - 1}/{len(self.data)}")
        body = self.data[start:]
        if self.says_length:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: self.cut_after])
        if self.cut_after is not None:
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving(data: bytes) -> Iterator[FileServer]:
    server = FileServer(data)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
