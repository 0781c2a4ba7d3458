"""The web server of ``siafu watch``: loopback only, read-only, three addresses.

    /             page.html
    /runs         JSON: ``Folder.lines``
    /run?name=    JSON: ``Folder.page``

A page of another site, under a name that resolves to this machine, could read along: so a request must name the
loopback as its host. Answers are cached for ``KEPT_S``, so that many open pages cost no more than one.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from run_coordinator.watch import Folder
from siafu.errors import GnnError

PAGE = Path(__file__).with_name("page.html")
KEPT_S = 0.5
HOSTS = ("127.0.0.1", "localhost", "[::1]")


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Folder, port: int):
        """``port``: 0 for a free one. Raises: OSError."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.folder = folder
        # All mutable state:
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def kept(self, key: str, make: Callable[[], Any]) -> bytes:
        with self._lock:
            at, found = self._kept.get(key, (-math.inf, b""))
            if time.monotonic() - at > KEPT_S:
                found = json.dumps(finite(make())).encode()
                self._kept[key] = time.monotonic(), found
            return found


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "siafu", ""

    def do_GET(self) -> None:
        if self.headers.get("Host", "").rpartition(":")[0] not in HOSTS:
            self._answer(403, "text/plain", b"only for this machine\n")
            return
        asked, folder = urlsplit(self.path), self.server.folder
        try:
            if asked.path == "/":
                self._answer(200, "text/html; charset=utf-8", PAGE.read_bytes())
            elif asked.path == "/runs":
                self._answer(200, "application/json", self.server.kept("", folder.lines))
            elif asked.path == "/run":
                name = parse_qs(asked.query).get("name", [""])[0]
                self._answer(200, "application/json", self.server.kept(f"/{name}", lambda: folder.page(name)))
            else:
                self._answer(404, "text/plain", b"no such page\n")
        except GnnError as error:
            self._answer(404, "application/json", json.dumps({"error": str(error)}).encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the page was closed

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
        self.send_header("Content-Security-Policy", policy)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: a page asks each second."""


def finite(value: Any) -> Any:
    """JSON that a browser can read: NaN and infinities become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list | tuple) else value
