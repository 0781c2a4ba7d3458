"""The service's side of the Lambda Runtime API (2018-06-01): reads calls of the runtime from a connection's bytes.

Pure: no socket, no clock; the environment's loop carries the bytes. It reads the part of HTTP/1.1 that AWS's runtime
interface client speaks (curl for invocations, http.client for an init error):

1. A request has a Content-Length or no body; a chunked body is refused, no version of the client sends one.
2. `next` asks for an invocation and is answered only once there is one; every other call is answered at once.
3. A response above Lambda's 6 MB is `ResponseTooLargeError` as soon as its head is read: its body is never buffered.
4. Any other input is `RemoteProtocolError`; there is no third outcome.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from siafu.errors import RemoteProtocolError

MAX_RESPONSE_NBYTES = 6 * 2**20 + 100  # Lambda's quota of a synchronous response
MAX_HEAD_NBYTES = 2**20 + 2**16  # the client sends up to 1 MiB of X-Ray cause in one header
_PREFIX = "/2018-06-01/runtime"
_INVOCATION = re.compile(_PREFIX + r"/invocation/([^/]+)/(response|error)")


class ResponseTooLargeError(RemoteProtocolError):
    """The function's result is larger than Lambda's limit."""


@dataclass(frozen=True)
class Next:
    """The runtime has finished its init or its last invocation, and waits for the next one."""


@dataclass(frozen=True)
class InitError:
    """The handler could not be loaded; ``payload`` is the JSON error. The runtime exits after it."""

    error_type: str
    payload: bytes


@dataclass(frozen=True)
class Result:
    """The handler's result (JSON), or, if ``failed``, the JSON error that it raised."""

    request_id: str
    payload: bytes
    failed: bool


Call = Next | InitError | Result


@dataclass(frozen=True)
class _Head:
    method: str
    path: str
    headers: dict[str, str]  # names in lower case
    body_nbytes: int


class RequestParser:
    """Cuts the bytes of one connection into calls."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # received, not yet consumed
        self._head: _Head | None = None  # of the request whose body is still arriving

    def feed(self, data: bytes) -> list[Call]:
        """Returns the calls that ``data`` completes. Raises: RemoteProtocolError; the connection cannot be used
        afterwards."""
        self._buffer += data
        calls = []
        while (call := self._take()) is not None:
            calls.append(call)
        return calls

    def _take(self) -> Call | None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if max(end, len(self._buffer) if end < 0 else 0) > MAX_HEAD_NBYTES:
                raise RemoteProtocolError(f"request head of more than {MAX_HEAD_NBYTES} bytes")
            if end < 0:
                return None
            self._head = _parse_head(self._buffer[:end].decode("latin-1"))
            del self._buffer[: end + 4]
        head = self._head
        if len(self._buffer) < head.body_nbytes:
            return None
        body = bytes(self._buffer[: head.body_nbytes])
        del self._buffer[: head.body_nbytes]
        self._head = None
        return _call(head, body)


def invocation(request_id: str, payload: bytes, deadline_ms: int, function_arn: str) -> bytes:
    """Returns the answer to `next`. ``deadline_ms`` is Unix time in milliseconds."""
    headers = {
        "Content-Type": "application/json",
        "Lambda-Runtime-Aws-Request-Id": request_id,
        "Lambda-Runtime-Deadline-Ms": str(deadline_ms),
        "Lambda-Runtime-Invoked-Function-Arn": function_arn,
    }
    return _response(HTTPStatus.OK, headers, payload)


def accepted() -> bytes:
    """Returns the answer to a result or an init error."""
    return _response(HTTPStatus.ACCEPTED, {"Content-Type": "application/json"}, b'{"status":"OK"}')


def invalid_request_id() -> bytes:
    """Returns the answer to a result of an invocation that is not running: late, or repeated."""
    body = b'{"errorMessage":"Invalid request ID","errorType":"InvalidRequestID"}'
    return _response(HTTPStatus.BAD_REQUEST, {"Content-Type": "application/json"}, body)


def _response(status: HTTPStatus, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body


def _parse_head(text: str) -> _Head:
    request_line, *lines = text.split("\r\n")
    parts = request_line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise RemoteProtocolError(f"not an HTTP/1 request line: {request_line[:80]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not re.fullmatch(r"[0-9]{1,12}", length):
        raise RemoteProtocolError(f"body without a usable Content-Length: {length[:80]!r}")
    if int(length) > MAX_RESPONSE_NBYTES:
        raise ResponseTooLargeError(f"response of {length} bytes, at most {MAX_RESPONSE_NBYTES} are returned")
    return _Head(parts[0], parts[1], headers, int(length))


def _call(head: _Head, body: bytes) -> Call:
    if (head.method, head.path) == ("GET", f"{_PREFIX}/invocation/next"):
        return Next()
    if (head.method, head.path) == ("POST", f"{_PREFIX}/init/error"):
        return InitError(head.headers.get("lambda-runtime-function-error-type", "Unhandled"), body)
    found = _INVOCATION.fullmatch(head.path)
    if head.method != "POST" or found is None:
        raise RemoteProtocolError(f"no such call of the Runtime API: {head.method[:20]} {head.path[:80]}")
    return Result(found[1], body, failed=found[2] == "error")
